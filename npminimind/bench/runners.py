"""Two ways to run the same weights: this package, and transformers' Qwen3, its peer."""

import os
import tempfile
import time

import numpy as np

from .. import MiniMindConfig, MiniMindForCausalLM
from ..primitives import linear


def model_of(name):
    """The model at a path; without one, MiniMind-3's shape with random weights."""
    if name:
        return MiniMindForCausalLM.from_pretrained(name)
    return MiniMindForCausalLM.random(MiniMindConfig(), seed=0)


class Ours:
    """npminimind itself, through the loop that everybody uses."""

    name = "npminimind"

    def __init__(self, model):
        self.model = model

    def run(self, ids, new_tokens):
        """Greedy continuation: (seconds of the prefill, list of seconds a decode step)."""
        times, last = [], time.perf_counter()
        for _ in self.model.steps(ids, max_new_tokens=new_tokens + 1, do_sample=False, eos_token_id=None):
            now = time.perf_counter()
            times.append(now - last)
            last = now
        return times[0], times[1:]


class Transformers:
    """The same weights in ``Qwen3ForCausalLM`` or ``Qwen3MoeForCausalLM``, eager, same number of threads."""

    name = "transformers"

    def __init__(self, model, threads):
        import torch
        from transformers import AutoModelForCausalLM

        from ..checkpoint import save_pretrained

        torch.set_num_threads(threads)
        self.torch = torch
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model")
            save_pretrained(model.config, model.params, path, dtype="float32")
            self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def run(self, ids, new_tokens):
        """As :meth:`Ours.run`, feeding the most likely token through its own cache."""
        with self.torch.inference_mode():
            token, past, times = self.torch.from_numpy(ids), None, []
            for _ in range(new_tokens + 1):
                start = time.perf_counter()
                out = self.model(token, past_key_values=past, use_cache=True, logits_to_keep=1)
                token, past = out.logits[:, -1].argmax(-1, keepdim=True), out.past_key_values
                times.append(time.perf_counter() - start)
        return times[0], times[1:]


def products_alone(model, rows, head_rows):
    """A function that does only the weight products of one pass over ``rows`` tokens, logits for ``head_rows``."""
    c, w = model.config, model.weights
    x = np.ones((rows, c.hidden_size), model.dtype)
    context = np.ones((rows, c.num_attention_heads * c.head_dim), model.dtype)

    def run():
        for layer in w.layers:
            linear(x, layer["qkv_proj"])
            linear(context, layer["o_proj"])
            for gate, up, down in active_experts(layer, c):
                hidden = linear(x, gate)
                linear(x, up)
                linear(hidden, down)
        linear(x[:head_rows], w.lm_head)

    return run


def active_experts(layer, config):
    if not config.use_moe:
        return [layer["mlp"]]
    return layer["experts"][: config.num_experts_per_tok] + layer["shared_experts"]
