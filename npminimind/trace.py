"""A trace: every named intermediate of a forward pass or of a generation, kept."""

import numpy as np

from .html import trace_view
from .inputs import ids_within


class Trace(dict):
    """Name -> array, in execution order; ``metadata`` says what was run.

    Attributes
    ----------
    metadata : dict
        ``config``, ``input_ids``, ``dtype``, the arguments.
    """

    def __init__(self, arrays=(), metadata=None):
        super().__init__(arrays)
        self.metadata = metadata or {}

    def keep(self, name, array):
        """A tap that keeps every array."""
        self[name] = array
        return array

    def save(self, path):
        """Write to ``*.safetensors``, ``*.npz``, or a new folder of ``.npy``; see :mod:`npminimind.trace_files`."""
        from . import trace_files

        trace_files.save(self, path)

    @classmethod
    def load(cls, path):
        """Read what :meth:`save` has written."""
        from . import trace_files

        return cls(*trace_files.load(path))

    def __repr__(self):
        shapes = [f"{name:52s} {np.asarray(a).dtype!s:8s} {list(np.shape(a))}" for name, a in self.items()]
        return "\n".join([f"<Trace of {len(self)} arrays>", *shapes])

    def _repr_html_(self):
        return trace_view(self)


def trace(model, input_ids, attention_mask=None, past_key_values=None):
    """One forward pass with all its intermediates.

    Parameters
    ----------
    model : MiniMindForCausalLM
    input_ids, attention_mask, past_key_values
        As the model takes them.

    Returns
    -------
    Trace
        Under the names of ``npminimind.names.forward_names``.

    Examples
    --------
    >>> from npminimind import MiniMindConfig, MiniMindForCausalLM
    >>> model = MiniMindForCausalLM.random(MiniMindConfig(hidden_size=64, num_hidden_layers=1, vocab_size=9), seed=0)
    >>> trace(model, [[3, 4, 5]])["model.layers.0.self_attn.probs"].shape
    (1, 8, 3, 3)
    """
    result = Trace(metadata=described(model, input_ids, attention_mask=attention_mask))
    model(input_ids, attention_mask, past_key_values, tap=result.keep)
    return result


def trace_generation(model, input_ids, attention_mask=None, rounds=4, force_ids=None, u=None, **arguments):
    """A generation with all intermediates of each round, prefill first.

    Parameters
    ----------
    model : MiniMindForCausalLM
    input_ids, attention_mask
        As ``generate`` takes them.
    rounds : int
        How many tokens a row to generate at most.
    force_ids : int array [B, R] or [R], optional
        Tokens to go on with instead of the chosen ones (teacher forcing): R rounds are run, and no EOS ends
        them unless ``eos_token_id`` is given.
    u : sequence of floats, optional
        The uniform numbers to draw with, B a round.
    **arguments
        As ``generate`` takes them.

    Returns
    -------
    Trace
        Under the names of ``npminimind.names.generation_names``.
    """
    forced = None
    if force_ids is not None:
        force_ids = ids_within(force_ids, model.config.vocab_size)
        forced = np.broadcast_to(force_ids, (len(input_ids), force_ids.shape[-1]))
        rounds = forced.shape[1]
        arguments = {"eos_token_id": None} | arguments
    if u is not None:
        arguments["rng"] = u
    result = Trace(metadata=described(model, input_ids, attention_mask=attention_mask, rounds=rounds, **arguments))

    def tap(name, array):
        if forced is not None and name.endswith(".sample.next_token"):
            array = forced[:, int(name.split(".")[0].removeprefix("round_")), None]
        return result.keep(name, array)

    for _ in model.steps(input_ids, attention_mask, max_new_tokens=rounds, tap=tap, **arguments):
        pass
    return result


def described(model, input_ids, **arguments):
    """What a trace was made of, as plain values."""
    ids = np.asarray(input_ids).tolist()
    # None is kept where it says something: no top_k, no EOS.
    plain = {name: value for name, value in arguments.items() if value is not None or name != "attention_mask"}
    return {"config": model.config.to_dict(), "dtype": str(model.dtype), "input_ids": ids, "arguments": plain}
