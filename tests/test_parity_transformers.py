"""The same weights through transformers' Qwen3 and Qwen3-MoE, which MiniMind-3 is; the same draws through torch.

transformers casts to float32 in its norms, router and RoPE whatever the model's dtype. For the float64 comparison
those casts go to float64, so that its own code computes every number in float64.
"""

import numpy as np
import pytest

from npminimind import MiniMindConfig, MiniMindForCausalLM, TorchGenerator
from npminimind.rope import inverse_frequencies
from npminimind.sampling import apply_repetition_penalty, apply_temperature, apply_top_k, apply_top_p, softmax

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::FutureWarning")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

COMMON = dict(hidden_size=96, num_hidden_layers=3, vocab_size=200, intermediate_size=160, max_position_embeddings=4096)
MOE = dict(use_moe=True, moe_intermediate_size=64)
CONFIGS = {
    "grouped": MiniMindConfig(**COMMON, num_attention_heads=8, num_key_value_heads=2, head_dim=20),
    "full heads": MiniMindConfig(**COMMON, num_attention_heads=4, num_key_value_heads=4),
    "one key head, untied": MiniMindConfig(**COMMON, num_key_value_heads=1, tie_word_embeddings=False),
    "yarn": MiniMindConfig(**COMMON, inference_rope_scaling=True),
    "moe, top 1": MiniMindConfig(**COMMON, **MOE),
    "moe, top 2 of 6": MiniMindConfig(**COMMON, **MOE, num_experts=6, num_experts_per_tok=2),
    "moe, not renormalised": MiniMindConfig(**COMMON, **MOE, num_experts_per_tok=2, norm_topk_prob=False),
}
# Over all configurations the greatest differences measured, in logits of up to 15, were 1.3e-5 and 2.2e-14.
TOLERANCE = {np.float32: 3e-5, np.float64: 1e-13}


def qwen3(model):
    """transformers' model with the parameters of ours."""
    c = model.config
    rope = {"rope_type": "default"} if c.yarn is None else {**c.yarn, "rope_type": "yarn"}
    kind = transformers.Qwen3MoeConfig if c.use_moe else transformers.Qwen3Config
    same = (
        "hidden_size num_hidden_layers vocab_size num_attention_heads num_key_value_heads head_dim intermediate_size "
        "max_position_embeddings rms_norm_eps tie_word_embeddings num_experts num_experts_per_tok norm_topk_prob "
        "moe_intermediate_size"
    ).split()
    config = kind(
        **{name: getattr(c, name) for name in same}, rope_parameters={**rope, "rope_theta": c.rope_theta},
        attn_implementation="eager", experts_implementation="eager", bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    theirs = (transformers.Qwen3MoeForCausalLM if c.use_moe else transformers.Qwen3ForCausalLM)(config)
    theirs = theirs.to(torch.from_numpy(np.zeros(0, model.dtype)).dtype).eval()
    state = theirs.state_dict()
    for name, tensor in state.items():
        source = fused(model.params, name) if ".experts." in name else model.params.get(name)
        if source is None:
            assert name == "lm_head.weight" and c.tie_word_embeddings
            source = model.params["model.embed_tokens.weight"]
        tensor.copy_(torch.from_numpy(np.ascontiguousarray(source)))
    return theirs


def fused(params, name):
    """All experts of a layer in one array, as transformers 5 keeps them."""
    prefix, part = name.split("experts.")
    count = sum(1 for key in params if key.startswith(prefix + "experts.") and key.endswith(".up_proj.weight"))
    weights = lambda part: [params[f"{prefix}experts.{e}.{part}.weight"] for e in range(count)]  # noqa: E731
    if part == "gate_up_proj":
        return np.concatenate([weights("gate_proj"), weights("up_proj")], axis=1)
    return np.stack(weights(part))


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def both(request, config, monkeypatch):
    """Our model and theirs, and how near they must be."""
    if request.param is np.float64:
        for name in ("float32", "float"):
            monkeypatch.setattr(torch, name, torch.float64)
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    ours = MiniMindForCausalLM.random(config, seed=0, dtype=request.param)
    ours.params["model.embed_tokens.weight"][...] *= 3
    with torch.inference_mode():
        yield ours, qwen3(ours), TOLERANCE[request.param]


IDS = np.random.default_rng(0).integers(0, 200, (2, 40))
MASK = np.array([[0] * 7 + [1] * 33, [1] * 40])


def test_forward(both):
    ours, theirs, tolerance = both
    seen = theirs(torch.from_numpy(IDS), output_hidden_states=True)
    out = ours(IDS, use_cache=True)
    np.testing.assert_allclose(out.logits, seen.logits.numpy(), rtol=0, atol=tolerance)
    np.testing.assert_allclose(out.hidden_states, seen.hidden_states[-1].numpy(), rtol=0, atol=tolerance)
    for i, (k, v) in enumerate(out.past_key_values):
        layer = seen.past_key_values.layers[i]
        np.testing.assert_allclose(k, layer.keys.numpy().swapaxes(1, 2), rtol=0, atol=tolerance)
        np.testing.assert_allclose(v, layer.values.numpy().swapaxes(1, 2), rtol=0, atol=tolerance)


def test_left_pads(both):
    ours, theirs, tolerance = both
    seen = theirs(torch.from_numpy(IDS), attention_mask=torch.from_numpy(MASK)).logits.numpy()
    np.testing.assert_allclose(ours(IDS, MASK).logits[MASK == 1], seen[MASK == 1], rtol=0, atol=tolerance)


def test_pieces_through_the_cache(both):
    ours, theirs, tolerance = both
    past, their_past = None, None
    for start, end in ((0, 17), (17, 18), (18, 40)):
        seen = theirs(torch.from_numpy(IDS[:, start:end]), past_key_values=their_past, use_cache=True)
        out = ours(IDS[:, start:end], past_key_values=past, use_cache=True)
        past, their_past = out.past_key_values, seen.past_key_values
        np.testing.assert_allclose(out.logits, seen.logits.numpy(), rtol=0, atol=tolerance)


def test_greedy_tokens(both):
    ours, theirs, _ = both
    asked = dict(max_new_tokens=15, do_sample=False)
    seen = theirs.generate(torch.from_numpy(IDS), attention_mask=torch.from_numpy(MASK), pad_token_id=0, **asked)
    assert np.array_equal(ours.generate(IDS, MASK, eos_token_id=None, **asked), seen.numpy())


def test_yarn_frequencies():
    config = transformers.Qwen3Config(
        head_dim=96, hidden_size=768, num_attention_heads=8, max_position_embeddings=32768,
        rope_parameters={**MiniMindConfig(inference_rope_scaling=True).yarn, "rope_type": "yarn", "rope_theta": 1e6},
    )  # fmt: skip
    theirs, factor = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    ours = inverse_frequencies(96, 1e6, MiniMindConfig(inference_rope_scaling=True).yarn)
    assert factor == 1.0
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)


class TestStages:
    """The chapter's own lines, run by torch, against ours."""

    @pytest.fixture(params=range(6))
    def logits(self, request):
        """float32 logits of MiniMind's vocabulary, some rounded to float16, where ties are normal."""
        x = np.random.default_rng(request.param).standard_normal((4, 6400)).astype(np.float32) * 4
        return x.astype(np.float16).astype(np.float32) if request.param % 2 else x

    @pytest.mark.parametrize("temperature", [0.5, 0.85, 1.7])
    def test_temperature(self, logits, temperature):
        theirs = (torch.from_numpy(logits) / temperature).numpy()
        assert np.array_equal(apply_temperature(logits, temperature), theirs)

    @pytest.mark.parametrize("penalty", [1.1, 1.5, 0.8])
    def test_repetition_penalty(self, logits, penalty):
        input_ids = torch.from_numpy(np.random.default_rng(0).integers(0, 6400, (4, 300)))
        theirs = torch.from_numpy(logits.copy())
        for i in range(input_ids.shape[0]):
            seen = torch.unique(input_ids[i])
            score = theirs[i, seen]
            theirs[i, seen] = torch.where(score > 0, score / penalty, score * penalty)
        assert np.array_equal(apply_repetition_penalty(logits, input_ids.numpy(), penalty), theirs.numpy())

    @pytest.mark.parametrize("k", [1, 50, 6400])
    def test_top_k(self, logits, k):
        theirs = torch.from_numpy(logits.copy())
        theirs[theirs < torch.topk(theirs, k)[0][..., -1, None]] = -float("inf")
        assert np.array_equal(apply_top_k(logits, k), theirs.numpy())

    @pytest.mark.parametrize("p", [0.1, 0.85, 0.95, 0.999])
    def test_top_p(self, logits, p):
        """Which of several equal logits stays at the edge torch leaves open: there the numbers kept are compared."""
        theirs = torch.from_numpy(logits.copy())
        sorted_logits, sorted_indices = torch.sort(theirs, descending=True)
        mask = torch.cumsum(torch.softmax(sorted_logits, dim=-1), dim=-1) > p
        mask[..., 1:], mask[..., 0] = mask[..., :-1].clone(), 0
        theirs[mask.scatter(1, sorted_indices, mask)] = -float("inf")
        kept, their_kept = np.isfinite(apply_top_p(logits, p)), np.isfinite(theirs.numpy())
        for row, x in enumerate(logits):
            edge = x[kept[row]].min()
            assert (kept[row] == their_kept[row])[x != edge].all()
            assert abs(int(kept[row].sum()) - int(their_kept[row].sum())) <= 1  # softmax may differ in the last bit

    def test_softmax(self, logits):
        """Against float64, the greatest relative error measured was 1.9e-6 for ours and 2.3e-6 for torch's."""
        theirs = torch.softmax(torch.from_numpy(logits), dim=-1).numpy()
        np.testing.assert_allclose(softmax(logits), theirs, rtol=4.3e-6)


class TestDraws:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("vocab", [5, 16, 17, 301, 6400])
    @pytest.mark.parametrize("batch", [1, 2, 8])
    def test_the_same_tokens(self, dtype, vocab, batch):
        """Ten seeds, four draws each from one stream, with and without cut tokens."""
        for seed in range(10):
            logits = np.random.default_rng(seed).standard_normal((batch, vocab)).astype(dtype) * 3
            torch.manual_seed(seed)
            generator = TorchGenerator(seed)
            for k in (0, 50, 2, 0):
                probs = softmax(apply_top_k(logits, k))
                theirs = torch.multinomial(torch.from_numpy(probs), 1)[:, 0]
                assert generator.multinomial(probs).tolist() == theirs.tolist(), (seed, k)

    @pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 2**63 - 1, -1, -(2**31)])
    def test_seeds_of_every_size(self, seed):
        probs = np.full((3, 1000), 0.001, np.float32)
        torch.manual_seed(seed)
        theirs = torch.multinomial(torch.from_numpy(probs), 1)[:, 0]
        assert TorchGenerator(seed).multinomial(probs).tolist() == theirs.tolist()

    def test_exponentials(self):
        torch.manual_seed(3)
        theirs = torch.empty(10_000).exponential_().numpy()
        ours = TorchGenerator(3).exponential((10_000,)).astype(np.float32)
        assert (ours == theirs).mean() > 0.9999  # log1p may differ by one float64 ulp


class TestTensors:
    def test_ids_masks_and_caches(self, dense):
        ids, mask = torch.tensor([[5, 6, 7]]), torch.tensor([[0, 1, 1]])
        assert np.array_equal(dense(ids, mask).logits, dense([[5, 6, 7]], [[0, 1, 1]]).logits)
        past = dense([[5, 6]], use_cache=True).past_key_values
        tensors = [(torch.from_numpy(k), torch.from_numpy(v)) for k, v in past]
        out = dense(torch.tensor([[7]]), past_key_values=tensors)
        assert np.array_equal(out.logits, dense([[7]], past_key_values=past).logits)
        asked = dict(max_new_tokens=5, rng=0)
        assert np.array_equal(dense.generate(ids, **asked), dense.generate([[5, 6, 7]], **asked))

    def test_floats_are_no_ids(self, dense):
        with pytest.raises(TypeError, match="integers"):
            dense(torch.tensor([[5.0]]))

    def test_scalars(self):
        for scalar in (torch.tensor(0.5), np.float64(0.5)):
            assert apply_temperature([1.0, 2.0], scalar).tolist() == [2, 4]

    def test_the_streamer_of_transformers(self, speaker, tokenizer, capsys):
        class Decoder:
            def decode(self, ids, **_):
                return tokenizer.decode(ids)

        streamer = transformers.TextStreamer(Decoder(), skip_prompt=True)
        asked = dict(max_new_tokens=5, rng=1, eos_token_id=None)
        ids = speaker.generate([tokenizer.encode("hello")], streamer=streamer, **asked)
        assert capsys.readouterr().out.strip() == tokenizer.decode(ids[0, 3:]).strip()
