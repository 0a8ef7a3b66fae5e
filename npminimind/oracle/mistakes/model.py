"""Mistakes between the operators: residuals, the order of a block, embedding, head, stored layout."""

import copy
import math

import numpy as np

from ...params import Weights
from ...tapping import behind
from .mistake import Mistake, with_methods, with_tap


def block(attention_residual=True, mlp_residual=True, after_norm=False, parallel=False):
    """The model's block (``MiniMindForCausalLM.block``) with one wire misplaced."""

    def mistaken(self, x, layer, cos, sin, mask, cache, i, tap):
        rms_norm, eps = self.ops.rms_norm, self.config.rms_norm_eps
        h = tap("input_layernorm", rms_norm(x, layer["input_layernorm"], eps))
        kept = h if after_norm else x
        attended = self.self_attn(h, layer, cos, sin, mask, cache, i, behind("self_attn.", tap))
        middle = tap("resid_mid", kept + attended if attention_residual else attended)
        h = tap("post_attention_layernorm", rms_norm(x if parallel else middle, layer["post_attention_layernorm"], eps))
        kept, out = h if after_norm else middle, self.mlp(h, layer, tap)
        return kept + out if mlp_residual else out

    return with_methods(block=mistaken)


def post_norm(self, x, layer, cos, sin, mask, cache, i, tap):
    """Norms behind the residual sums, as in the first Transformer."""
    rms_norm, eps = self.ops.rms_norm, self.config.rms_norm_eps
    attended = self.self_attn(x, layer, cos, sin, mask, cache, i, behind("self_attn.", tap))
    middle = tap("resid_mid", x + attended)
    h = tap("input_layernorm", rms_norm(middle, layer["input_layernorm"], eps))
    out = h + self.mlp(h, layer, tap)
    return tap("post_attention_layernorm", rms_norm(out, layer["post_attention_layernorm"], eps))


def embedding_scaled(model, name, array):
    return (
        array * np.asarray(math.sqrt(model.config.hidden_size), array.dtype) if name == "model.embed_tokens" else array
    )


def head_tied(model):
    other = copy.copy(model)
    other.weights = copy.copy(model.weights)
    other.weights.lm_head = model.weights.embed_tokens
    return other


def with_params(alter):
    """A model with other parameters: ``alter(name, array) -> array`` of the same shape."""

    def change(model):
        other, weights = copy.copy(model), Weights(model.config, model.dtype)
        for name, array in model.params.items():
            weights.params[name][...] = alter(name, array)
        other.weights, other.params = weights, weights.params
        return other

    return change


def transposed_where_square(part):
    def alter(name, array):
        return array.T if name.endswith(part) and array.shape[0] == array.shape[1] else array

    return with_params(alter)


def interleaved(heads_of):
    """q or k permuted as llama.cpp stores them (halves woven together), without undoing it."""

    def change(model):
        def alter(name, array):
            if not name.endswith(("q_proj.weight", "k_proj.weight")):
                return array
            heads = array.reshape(heads_of(model.config, name), 2, model.config.head_dim // 2, -1)
            return heads.swapaxes(1, 2).reshape(array.shape)  # [heads, 2, D/2, H] -> [heads, D/2, 2, H]

        return with_params(alter)(model)

    return change


def last_layer_skipped(model):
    other = copy.copy(model)
    other.weights = copy.copy(model.weights)
    other.weights.layers = model.weights.layers[:-1]
    return other


def layers_as_text(model):
    """Layers in the order of their names as text: 0, 1, 10, 11, 2 …"""
    other = copy.copy(model)
    other.weights = copy.copy(model.weights)
    order = sorted(range(model.config.num_hidden_layers), key=str)
    other.weights.layers = [model.weights.layers[i] for i in order]
    return other


def heads_of(config, name):
    return config.num_attention_heads if name.endswith("q_proj.weight") else config.num_key_value_heads


def square_q(config):
    return config.num_attention_heads * config.head_dim == config.hidden_size


BIG = "everything after it is wrong, every position"

MISTAKES = (
    Mistake("attention-residual-missing", "missing-step", "does not add the residual after attention", BIG,
            change=block(attention_residual=False)),
    Mistake("mlp-residual-missing", "missing-step", "does not add the residual after the feed-forward network", BIG,
            change=block(mlp_residual=False)),
    Mistake("residual-after-norm", "order", "takes the residual after the norm instead of before it", BIG,
            change=block(after_norm=True)),
    Mistake("block-parallel", "order", "feeds attention and the feed-forward network the same input, as GPT-J does",
            BIG,
            change=block(parallel=True)),
    Mistake("block-post-norm", "order", "norms behind the residual sums instead of before the sublayers", BIG,
            change=with_methods(block=post_norm),
            blurred=("input_layernorm", "post_attention_layernorm", "resid_mid")),
    Mistake("embedding-scaled", "extra-step", "multiplies the embedding with sqrt(H), as Gemma does",
            "the first norm hides it, the residual stream does not", change=with_tap(embedding_scaled),
            blurred=("model.embed_tokens",)),
    Mistake("head-tied", "rule", "uses the embedding as head though the checkpoint has its own lm_head",
            "every layer is right, logits are wrong", change=head_tied,
            applies=lambda config: not config.tie_word_embeddings),
    Mistake("layer-last-skipped", "rule", "leaves out the last layer", "all but the last layer is right",
            change=last_layer_skipped),
    Mistake("layers-sorted-as-text", "order", "runs the layers in the order of their names as text: 0, 1, 10, 11, 2",
            BIG,
            change=layers_as_text, applies=lambda config: config.num_hidden_layers > 10),
    Mistake("q-proj-transposed", "layout", "reads q_proj as [in, out]", BIG,
            change=transposed_where_square("q_proj.weight"),
            applies=square_q),
    Mistake("o-proj-transposed", "layout", "reads o_proj as [in, out]", BIG,
            change=transposed_where_square("o_proj.weight"),
            applies=square_q),
    Mistake("qk-weave-kept", "layout",
            "keeps q and k woven for neighbour rotation (a llama.cpp conversion), rotates halves",
            "q_proj and k_proj are permuted; wrong from position 1 on, and at 0 where norms differ",
            change=interleaved(heads_of)),
)  # fmt: skip
