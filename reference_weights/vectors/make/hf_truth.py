"""The same with transformers as it is, in float32: whole models, the tokenizer, the chat template."""

import functools
import json
from pathlib import Path

import torch
from safetensors.torch import load_file

V1 = Path(__file__).resolve().parent.parent / "v1"


@functools.cache
def hf_model(name, config, yarn):
    """transformers' Qwen3, Qwen3Moe or Llama with the tiny weights, read from the files among the vectors."""
    import transformers

    c = json.loads((V1 / name / "config.json").read_text()) | dict(config)
    c["max_position_embeddings"] = 32768 if yarn else c["max_position_embeddings"]
    kind = "Qwen3Moe" if c["use_moe"] else "Qwen3" if c["qk_norm"] else "Llama"
    same = "hidden_size num_hidden_layers vocab_size num_attention_heads num_key_value_heads head_dim hidden_act"
    same += " intermediate_size max_position_embeddings rms_norm_eps tie_word_embeddings"
    same += " num_experts num_experts_per_tok moe_intermediate_size norm_topk_prob" * c["use_moe"]
    rope = {"rope_theta": c["rope_theta"], "rope_type": "default"}
    if yarn:
        rope |= {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 2048, "beta_fast": 32.0,
                 "beta_slow": 1.0, "attention_factor": 1.0}  # fmt: skip
    hf_config = getattr(transformers, f"{kind}Config")(
        **{key: c[key] for key in same.split()}, rope_parameters=rope, attn_implementation="eager",
        experts_implementation="eager", bos_token_id=None,
        eos_token_id=None, pad_token_id=None, decoder_sparse_step=1, mlp_only_layers=[],
    )  # fmt: skip
    model = getattr(transformers, f"{kind}ForCausalLM")(hf_config).eval()
    state = load_file(V1 / name / "model.safetensors")
    if kind == "Llama":
        state = {key: w for key, w in state.items() if "q_norm" not in key and "k_norm" not in key}
    load_state(model, state, c)
    return model


def load_state(model, state, c):
    """Keys as transformers 5 keeps them: experts fused."""
    if c["use_moe"]:
        for i in range(c["num_hidden_layers"]):
            mlp = f"model.layers.{i}.mlp."
            parts = [[state.pop(f"{mlp}experts.{e}.{part}_proj.weight") for e in range(c["num_experts"])]
                     for part in ("gate", "up", "down")]  # fmt: skip
            fused = [torch.cat([g, u]) for g, u in zip(*parts[:2])]
            state[f"{mlp}experts.gate_up_proj"] = torch.stack(fused)
            state[f"{mlp}experts.down_proj"] = torch.stack(parts[2])
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()


def forward(a):
    config = dict(a.get("config", {}))
    yarn = config.pop("inference_rope_scaling", False)
    config.pop("max_position_embeddings", None)
    ids = torch.tensor(a["input_ids"])
    mask = torch.tensor(a["attention_mask"]) if "attention_mask" in a else None
    positions = torch.arange(ids.shape[1]).expand(ids.shape)  # MiniMind does not shift them for left pads
    with torch.no_grad():
        model = hf_model(a["model"], tuple(sorted(config.items())), yarn)
        logits = model(ids, attention_mask=mask, position_ids=positions).logits.double().numpy()
    return {"out": logits[:, -a["logits_to_keep"] :] if "logits_to_keep" in a else logits}


# ---- text ------------------------------------------------------------------------------------------------------


@functools.cache
def hf_tokenizer():
    from transformers import PreTrainedTokenizerFast

    folder = V1.parent.parent / "minimind-tiny"
    return PreTrainedTokenizerFast.from_pretrained(folder)


def encode(a):
    return {"out": hf_tokenizer()(a["text"], add_special_tokens=False)["input_ids"]}


def decode(a):
    text = hf_tokenizer().decode(
        a["ids"], skip_special_tokens=a["skip_special_tokens"], clean_up_tokenization_spaces=False
    )
    return {"out": text}


def stream(a):
    text = decode(a | {"skip_special_tokens": True})["out"].rstrip("\ufffd")
    return {"out": min([text.split(stop)[0] for stop in a["stop"]], key=len, default=text)}


def chat_template(a):
    text = hf_tokenizer().apply_chat_template(
        a["messages"], tokenize=False, add_generation_prompt=True, open_thinking=a["thinking"]
    )
    return {"out": text}


KNOWN = {"forward": forward, "encode": encode, "decode": decode, "stream": stream, "chat_template": chat_template}
