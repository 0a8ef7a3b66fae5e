"""MiniMind's forward pass: embedding, blocks of attention and feed-forward, norm, head."""

from typing import NamedTuple

import numpy as np

from . import ops
from .cache import KVCache, check_past
from .generation import Generation
from .inputs import check_input_ids, check_logits_to_keep, check_mask
from .memory import keep_freed_memory
from .params import Weights, weights_from
from .pretrained import Pretrained
from .primitives import linear
from .tapping import behind, checked, no_tap
from .text import Text

CHUNK_ROWS = 512  # tokens a pass, over all rows of the batch: enough for full speed, small enough to stay in cache


class ModelOutput(NamedTuple):
    """What one call of the model returns.

    Attributes
    ----------
    logits : array [B, S, V], or fewer positions with ``logits_to_keep``
    hidden_states : array [B, S, H]
        After the final norm.
    past_key_values : list of (k, v) or None
        One pair a layer, each ``[B, T, K, D]``, keys already rotated.
    """

    logits: np.ndarray
    hidden_states: np.ndarray
    past_key_values: list | None


class MiniMindForCausalLM(Pretrained, Generation, Text):
    """A MiniMind: its config, its parameters, and the functions that it computes with.

    Parameters
    ----------
    config : MiniMindConfig
    params : dict of str -> array
        MiniMind's key names, arrays ``[out, in]``; copied into the model. (Or ``Weights`` that a reader has filled.)
    dtype : numpy.float32, numpy.float64 or None
        None: float64 where the embedding is float64, else float32.
    tokenizer : Tokenizer or None

    Attributes
    ----------
    params : dict of str -> array
        What the forward pass reads. Change an array in place to change the model.

    Raises
    ------
    ValueError
        Missing or unknown names, shapes that do not fit the config.

    Examples
    --------
    >>> from npminimind import MiniMindConfig
    >>> model = MiniMindForCausalLM.random(MiniMindConfig(hidden_size=64, num_hidden_layers=2, vocab_size=100), seed=0)
    >>> out = model([[1, 2, 3]], use_cache=True)
    >>> out.logits.shape, out.hidden_states.shape, out.past_key_values[0][0].shape
    ((1, 3, 100), (1, 3, 64), (1, 3, 4, 8))
    """

    def __init__(self, config, params, dtype=None, tokenizer=None):
        self.config, self.tokenizer = config, tokenizer
        self.weights = params if isinstance(params, Weights) else weights_from(config, params, dtype)
        self.params, self.dtype = self.weights.params, self.weights.dtype
        self.ops = ops.with_replaced({})
        keep_freed_memory()

    @classmethod
    def random(cls, config, seed=0, dtype=np.float32):
        """A model with random weights: matrices normal with variance 1 / in, norms around 1."""
        rng, weights = np.random.default_rng(seed), Weights(config, dtype)
        for array in weights.params.values():
            noise = rng.standard_normal(array.shape, np.float32)
            array[...] = 1 + noise / 10 if array.ndim == 1 else noise / np.sqrt(array.shape[1])
        return cls(config, weights)

    def astype(self, dtype):
        """The same model computing in another dtype; ``self`` where that is its own."""
        return self if self.dtype == dtype else self.sibling(params=self.params, dtype=dtype)

    def with_ops(self, **functions):
        """The same model computing with other functions: ``model.with_ops(silu=my_silu)``.

        Parameters
        ----------
        **functions
            By operator name (``npminimind.ops.OPERATORS``), sampling stages included.

        Returns
        -------
        MiniMindForCausalLM
            A new one that shares the parameters; this one stays as it is.

        Raises
        ------
        ValueError
            A name that is no operator.
        """
        other = self.sibling(params=self.weights)
        other.replaced = self.replaced | functions
        other.ops = ops.with_replaced(other.replaced)
        return other

    replaced = {}

    def sibling(self, params, dtype=None):
        other = type(self)(self.config, params, dtype=dtype, tokenizer=self.tokenizer)
        other.replaced, other.ops, other.checkpoint = self.replaced, self.ops, self.checkpoint
        return other

    def __call__(
        self, input_ids, attention_mask=None, past_key_values=None, use_cache=False, logits_to_keep=0, tap=None
    ):
        """One forward pass.

        Parameters
        ----------
        input_ids : int array or nested list [B, S]
            The new tokens; with a cache, those behind the cached ones.
        attention_mask : array [B, T] of 0/1, or None
            Past and new positions. Any mask without an all-zero row; what stands at pad positions of the
            result means nothing.
        past_key_values : list of (k, v) or None
            One pair a layer, each ``[B, past, K, D]``. It is not changed.
        use_cache : bool
            Whether to return the keys and values, old and new together, as fresh arrays.
        logits_to_keep : int or int array
            Logits of the last so many positions only (0: all), or of the positions named.
        tap : function (name, array) -> array, or None
            Sees every named intermediate (``npminimind.names``), and may put another in its place; None
            leaves it.

        Returns
        -------
        ModelOutput

        Raises
        ------
        ValueError, TypeError
            Ids outside the vocabulary, positions past the table, masks or caches that do not fit.

        Notes
        -----
        Source: upstream ``MiniMindForCausalLM.forward``. Positions are not shifted for left pads: RoPE
        depends on distances only.
        """
        ids = check_input_ids(input_ids, self.config.vocab_size)
        batch, new = ids.shape
        past = 0
        if past_key_values is not None:
            check_past(past_key_values, self.config, batch)
            past = np.shape(past_key_values[0][0])[1]
        self.check_positions(past + new)
        mask = check_mask(attention_mask, batch, past + new)
        cache = KVCache(self.config, batch, past + new, self.dtype, past_key_values)
        tap = checked(tap)
        hidden = self.hidden_states(ids, mask, cache, tap)
        logits = self.logits(hidden, logits_to_keep, tap)
        return ModelOutput(logits, hidden, cache.layers if use_cache else None)

    forward = __call__

    def check_positions(self, length):
        limit = self.config.max_position_embeddings
        if length > limit:
            raise ValueError(f"{length} positions, but the model's table ends at max_position_embeddings = {limit}")

    def hidden_states(self, ids, mask, cache, tap=no_tap):
        """Run new tokens through all blocks, appending to the cache: ids [B, S] -> [B, S, H] after the final norm.

        Without a tap a long input goes through in chunks. Each attends to all before it through the cache,
        so the result is the same, and memory stays bounded. An attention or mask that somebody else wrote may
        look ahead, and sees all at once.
        """
        if tap is not no_tap or {"attention", "causal_mask"} & self.replaced.keys():
            return self.run_blocks(ids, mask, cache, tap)
        size = max(1, CHUNK_ROWS // len(ids))
        chunks = [ids[:, start : start + size] for start in range(0, ids.shape[1], size)]
        hidden = [self.run_blocks(chunk, mask, cache, no_tap) for chunk in chunks]
        return hidden[0] if len(hidden) == 1 else np.concatenate(hidden, axis=1)

    def run_blocks(self, ids, mask, cache, tap):
        c, w = self.config, self.weights
        past, new = cache.length, ids.shape[1]
        mask = None if mask is None else mask[:, : past + new]
        x = tap("model.embed_tokens", w.embed_tokens[ids])  # [B,S] -> [B,S,H]
        cos, sin = self.ops.rope_tables(c.head_dim, new, c.rope_theta, c.yarn, start=past, dtype=self.dtype)
        cos, sin = tap("rope.cos", cos), tap("rope.sin", sin)  # [S,D]
        for i, layer in enumerate(w.layers):
            x = self.block(x, layer, cos, sin, mask, cache, i, behind(f"model.layers.{i}.", tap))
            x = tap(f"model.layers.{i}", x)
        cache.advance(new)
        return tap("model.norm", self.ops.rms_norm(x, w.norm, c.rms_norm_eps))

    def block(self, x, layer, cos, sin, mask, cache, i, tap):
        """``x + attention(norm(x))``, then ``x + mlp(norm(x))``."""
        rms_norm, eps = self.ops.rms_norm, self.config.rms_norm_eps
        h = tap("input_layernorm", rms_norm(x, layer["input_layernorm"], eps))
        x = tap("resid_mid", x + self.self_attn(h, layer, cos, sin, mask, cache, i, behind("self_attn.", tap)))
        h = tap("post_attention_layernorm", rms_norm(x, layer["post_attention_layernorm"], eps))
        return x + self.mlp(h, layer, tap)

    def self_attn(self, x, layer, cos, sin, mask, cache, i, tap):
        """Project to q, k, v; norm each head; rotate; attend to the cache; project back."""
        c, (b, s, _) = self.config, x.shape
        queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        qkv = linear(x, layer["qkv_proj"])  # [B,S,H] -> [B,S,(N+2K)*D]: one product for the three
        q = tap("q_proj", qkv[..., :queries]).reshape(b, s, -1, c.head_dim)  # -> [B,S,N,D]
        k = tap("k_proj", qkv[..., queries : queries + keys]).reshape(b, s, -1, c.head_dim)  # -> [B,S,K,D]
        v = tap("v_proj", qkv[..., queries + keys :]).reshape(b, s, -1, c.head_dim)  # -> [B,S,K,D]
        if c.qk_norm:
            q = tap("q_norm", self.ops.rms_norm(q, layer["q_norm"], c.rms_norm_eps))
            k = tap("k_norm", self.ops.rms_norm(k, layer["k_norm"], c.rms_norm_eps))
        q, k = self.ops.apply_rope(q, k, cos, sin)
        q, k = tap("q_rope", q), tap("k_rope", k)
        cached = cache.append(i, k, v)  # -> [B,T,K,D], past and new
        k, v = tap("k_cache", cached[0]), tap("v_cache", cached[1])
        if k is not cached[0] or v is not cached[1]:  # a tap put others in their place
            cache.replace(i, k, v)
        context = self.ops.attention(q, k, v, mask, tap=None if tap is no_tap else tap)  # -> [B,S,N*D]
        return tap("o_proj", linear(context, layer["o_proj"]))  # -> [B,S,H]

    def mlp(self, x, layer, tap):
        """SwiGLU; with experts, the chosen ones and those that are shared by all tokens."""
        c, o = self.config, self.ops
        act, inner = getattr(o, c.hidden_act), behind("mlp.", tap)
        if not c.use_moe:
            return o.swiglu(x, *layer["mlp"], act, tap=inner)
        y = o.moe(x, layer["gate"], layer["experts"], c.num_experts_per_tok, c.norm_topk_prob, act, tap=inner)
        for e, shared in enumerate(layer["shared_experts"]):
            y = y + o.swiglu(x, *shared, act, tap=behind(f"shared_experts.{e}.", inner))
        return tap("mlp", y)

    def logits(self, hidden, logits_to_keep=0, tap=no_tap):
        """``hidden lm_headᵀ``: [B, S, H] -> [B, kept, V]. A tap sees the logits of every position."""
        kept = check_logits_to_keep(logits_to_keep, hidden.shape[1])
        if tap is not no_tap:
            return tap("lm_head", linear(hidden, self.weights.lm_head))[:, kept]
        return linear(hidden[:, kept], self.weights.lm_head)

    def __repr__(self):
        c, count = self.config, sum(array.size for array in self.params.values())
        kind = f"{c.num_experts} experts" if c.use_moe else "dense"
        return f"<MiniMind {c.hidden_size} x {c.num_hidden_layers}, {kind}, {count:,} parameters, {self.dtype}>"
