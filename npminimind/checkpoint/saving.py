"""Checkpoints out: a Hugging Face folder (Qwen3, Qwen3-MoE, Llama) or MiniMind's own layout."""

import os
import re

import numpy as np

from .. import params as parameters
from .files import reading, refuse, replacing, write_json
from .loading import inspect, load_weights
from .pth_writer import save_pth
from .safetensors import CODE_OF_NAME, save_safetensors

LAYOUTS = ("hf", "minimind")
NAME_OF_CODE = {code: name for name, code in CODE_OF_NAME.items()}
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)


def save_pretrained(
    config, params, folder, dtype="float32", tokenizer_source=None, layout="hf", generation_config=None, name=None
):
    """Write a model as a folder that others read.

    Parameters
    ----------
    config : MiniMindConfig
    params : dict of str -> array
        As ``Weights.params``.
    folder : str or path
        Made where it is missing. Files in it of the same names are replaced.
    dtype : {"float32", "float16", "bfloat16", "float64"}
    tokenizer_source : str or path, optional
        A folder (or a tokenizer.json in it) whose tokenizer files are copied.
    layout : {"hf", "minimind"}
        ``"hf"``: config.json and model.safetensors, as transformers, vLLM, SGLang and
        llama.cpp's converter read them: Qwen3 or Qwen3-MoE, Llama without q/k norm.
        ``"minimind"``: MiniMind's config.json and a ``.pth`` named as ``eval_llm.py`` looks for it.
    generation_config : dict, optional
        Written as generation_config.json (layout hf); by default the BOS and EOS ids are.
    name : str, optional
        First part of the ``.pth``'s name, by default ``full_sft``.

    Returns
    -------
    list of str
        The files written, the weights last.

    Raises
    ------
    CheckpointError
        The model has no Hugging Face equivalent, a number does not fit `dtype`, the disk is full.
    """
    folder, dtype = os.fspath(folder), name_of(dtype)
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    small = {"config.json": hf_config(folder, config, dtype) if layout == "hf" else minimind_config(config)}
    if layout == "hf":
        small["generation_config.json"] = generation_config or token_ids(config)
    weights = "model.safetensors" if layout == "hf" else pth_name(config, name)
    make_folder(folder, weights)
    files = copy_tokenizer(tokenizer_source, folder)
    for file, value in small.items():
        files.append(os.path.join(folder, file))
        write_json(files[-1], value)
    files.append(os.path.join(folder, weights))
    write_weights(files[-1], config, params, dtype)
    return files


def name_of(dtype):
    """ "float16" of "float16" or numpy.float16; refuses what weights are not written in."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name not in CODE_OF_NAME:
        raise ValueError(f"dtype must be one of {', '.join(CODE_OF_NAME)}, not {name!r}")
    return name


def convert(src, dst, dtype=None, layout="hf"):
    """Read any checkpoint and write it in another layout or element type: ``npminimind convert``.

    Parameters
    ----------
    src, dst : str or path
        What :func:`load_weights` reads; a folder to write.
    dtype : str, optional
        By default what the source has, so that nothing is rounded.
    layout : {"hf", "minimind"}

    Returns
    -------
    list of str
        Notes on what was read, then the files written.

    Raises
    ------
    CheckpointError
    """
    found = inspect(src).dtypes
    if dtype is None:
        dtype = NAME_OF_CODE[found[0]] if len(found) == 1 else widest(found)
    checkpoint = load_weights(src, "float64" if "F64" in found else "float32")
    files = save_pretrained(
        checkpoint.config,
        checkpoint.weights.params,
        dst,
        dtype,
        checkpoint.tokenizer_path,
        layout,
        checkpoint.generation_config,
        name=training_stage(checkpoint.files[0]),
    )
    return [*checkpoint.notes, *(f"wrote {file}" for file in files)]


def widest(codes):
    """A type that holds all of a mixed file's numbers exactly."""
    return "float64" if "F64" in codes else "float32"


def make_folder(folder, weights):
    """Make the folder; refuse one with other weights, which a reader could take for these."""
    try:
        os.makedirs(folder, exist_ok=True)
        names = os.listdir(folder)
    except OSError as error:
        refuse(folder, f"cannot be made: {error.strerror or error}")
    others = [n for n in names if n != weights and n.endswith((".safetensors", ".pth", ".bin", ".index.json"))]
    if others:
        refuse(folder, f"holds other weights ({sorted(others)[0]}); give a new folder")


def copy_tokenizer(source, folder):
    """Copy the tokenizer's files, byte for byte."""
    copied = []
    if source is not None and os.path.isfile(source):
        source = os.path.dirname(source)
    for name in TOKENIZER_FILES if source is not None else ():
        path, target = os.path.join(source, name), os.path.join(folder, name)
        if os.path.isfile(path) and os.path.realpath(path) != os.path.realpath(target):
            with reading(path), open(path, "rb") as file:
                data = file.read()
            with replacing(target) as out:
                out.write(data)
            copied.append(target)
    return copied


def write_weights(path, config, params, dtype):
    """The tensors; MiniMind's ``.pth`` holds a tied head twice, over one storage."""
    tensors = {name: params[name] for name in parameters.param_shapes(config)}
    if path.endswith(".safetensors"):
        return save_safetensors(path, tensors, {"format": "pt"}, dtype)
    tied = {"lm_head.weight": "model.embed_tokens.weight"} if config.tie_word_embeddings else {}
    return save_pth(path, tensors, dtype, tied)


# ---------------------------------------------------------------------------------------------
# Names


def pth_name(config, name):
    """``full_sft_768.pth``, ``full_sft_640_moe.pth``: what ``eval_llm.py --weight full_sft`` opens."""
    return f"{name or 'full_sft'}_{config.hidden_size}{'_moe' if config.use_moe else ''}.pth"


def training_stage(file):
    """``pretrain`` of ``pretrain_768.pth``: the name that the source has for its stage."""
    match = re.fullmatch(r"(\w+?)_\d+(?:_moe)?\.pth", os.path.basename(file))
    return match[1] if match else None


# ---------------------------------------------------------------------------------------------
# config.json


def token_ids(config):
    return {"bos_token_id": config.bos_token_id, "eos_token_id": config.eos_token_id}


def minimind_config(config):
    """MiniMind's own keys; upstream's config class takes them all."""
    fields = config.to_dict() | {"inference_rope_scaling": config.yarn is not None}
    return {"architectures": ["MiniMindForCausalLM"], "model_type": "minimind", **fields}


def hf_config(folder, config, dtype):
    """config.json of the Hugging Face class that computes the same.

    MiniMind-3 is Qwen3, its MoE Qwen3-MoE; without q/k norm it is Llama. Both spellings of RoPE's
    base are written: ``rope_theta`` is read by transformers 4, ``rope_parameters`` by 5.
    """
    c, kind = config, hf_kind(folder, config)
    architecture = {"qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "llama": "LlamaForCausalLM"}[kind]
    rope = {"rope_type": "default"}
    if c.yarn:
        rope = {"rope_type": "yarn"} | {name: value for name, value in c.yarn.items() if "type" not in name}
    raw = {
        "architectures": [architecture],
        "model_type": kind,
        "dtype": dtype,
        "torch_dtype": dtype,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_theta": float(c.rope_theta),
        "rope_scaling": rope if c.yarn else None,
        "rope_parameters": rope | {"rope_theta": float(c.rope_theta)},
        "use_cache": True,
    }
    same = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "num_key_value_heads")
    same += ("head_dim", "hidden_act", "intermediate_size", "max_position_embeddings", "rms_norm_eps")
    same += ("tie_word_embeddings", "bos_token_id", "eos_token_id")
    raw |= {name: getattr(c, name) for name in same}
    if kind == "llama":
        return raw | {"mlp_bias": False}
    raw |= {"use_sliding_window": False, "sliding_window": None, "max_window_layers": c.num_hidden_layers}
    if kind == "qwen3_moe":
        experts = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
        raw |= {name: getattr(c, name) for name in experts} | {"decoder_sparse_step": 1, "mlp_only_layers": []}
    return raw


def hf_kind(folder, config):
    """Which Hugging Face class a model is; refuses those that none is."""
    use = "use --layout minimind"
    if config.use_moe and config.n_shared_experts:
        refuse(
            folder, f"cannot be written as hf: a shared expert beside the routed ones has no equivalent there; {use}"
        )
    if config.use_moe and not config.qk_norm:
        refuse(folder, f"cannot be written as hf: experts without q/k norm have no equivalent there; {use}")
    if config.use_moe:
        return "qwen3_moe"
    return "qwen3" if config.qk_norm else "llama"
