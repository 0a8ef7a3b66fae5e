"""What a model's user calls to generate: ``generate`` and ``steps``."""

import inspect

from .loop import Loop


class Generation:
    """The part of a model that generates: ``generate`` and ``steps``."""

    def generate(
        self,
        input_ids=None,
        attention_mask=None,
        max_new_tokens=8192,
        temperature=0.85,
        top_p=0.85,
        top_k=50,
        eos_token_id=2,
        streamer=None,
        use_cache=True,
        num_return_sequences=1,
        do_sample=True,
        repetition_penalty=1.0,
        past_key_values=None,
        return_kv=False,
        stop=None,
        rng=None,
        tap=None,
        *,
        inputs=None,
        pad_token_id=None,
    ):
        """Continue each row of ``input_ids`` until EOS, a stop, or ``max_new_tokens``.

        Parameters
        ----------
        input_ids : int array or nested list [B, S]
            Prompts, left-padded where they differ in length (``inputs`` is another name for it).
        attention_mask : array [B, S] of 0/1, or None
            0 for pads. The last column must be 1.
        max_new_tokens : int
            0 returns the prompt.
        temperature, top_p, top_k, repetition_penalty
            See :mod:`npminimind.sampling`; ``temperature=0`` is greedy; None switches top_p or top_k off.
        eos_token_id : int, list of int, or None
            Any of them ends a row, which is then filled with the first. None: rows do not end by themselves.
        streamer : object with put(ids) and end(), or None
            Gets the prompt, then ``[B, 1]`` a step.
        use_cache : bool
            False feeds the whole sequence each round: slow, same result.
        num_return_sequences : int
            The rows are tiled: a, b, a, b.
        do_sample : bool
            False takes the most likely token (greedy).
        past_key_values : list of (k, v), optional
            From an earlier call with ``return_kv``; covers all of ``input_ids`` but at least the last one.
        return_kv : bool
            Return ``{"generated_ids", "past_kv"}``.
        stop : str, id sequence, or list of these; optional
            A row ends when one of them is complete; the completing token stays in the ids. Then it is filled
            like an EOS row, with pad (0) if there is no EOS.
        rng : None, int, numpy Generator, iterable of floats in [0, 1), or TorchGenerator
            Where randomness comes from; see :mod:`npminimind.rng`.
        tap : function (name, array) -> array, or None
            Sees every intermediate, behind ``round_{r}.``.
        pad_token_id
            Accepted and without effect, as upstream.

        Returns
        -------
        int64 array [B, S + new], or with ``return_kv`` a dict

        Raises
        ------
        ValueError, TypeError
            Anything that can't be meant. Unknown arguments are a TypeError. (Upstream swallows them.)

        Notes
        -----
        Source: chapter 10; upstream ``generate``. Differs from upstream: ``temperature=0`` works, right pads
        are refused, and a generation that reaches the end of the position table stops with a warning.

        Examples
        --------
        >>> from npminimind import MiniMindConfig, MiniMindForCausalLM
        >>> config = MiniMindConfig(hidden_size=64, num_hidden_layers=1, vocab_size=9)
        >>> model = MiniMindForCausalLM.random(config, seed=0)
        >>> model.generate([[3, 4]], max_new_tokens=3, do_sample=False, eos_token_id=None).shape
        (1, 5)
        """
        arguments = {name: value for name, value in locals().items() if name != "self"}
        loop = self.steps(**arguments)
        for _ in loop:
            pass
        return {"generated_ids": loop.input_ids, "past_kv": loop.past_key_values} if return_kv else loop.input_ids

    def steps(self, *args, **kwargs):
        """The loop behind :meth:`generate`, one :class:`Step` a round: same arguments.

        Returns
        -------
        Loop
            An iterator of Step. ``return_kv`` has no meaning here: each Step holds its cache.

        Examples
        --------
        >>> from npminimind import MiniMindConfig, MiniMindForCausalLM
        >>> config = MiniMindConfig(hidden_size=64, num_hidden_layers=1, vocab_size=9)
        >>> model = MiniMindForCausalLM.random(config, seed=0)
        >>> for step in model.steps([[3, 4]], max_new_tokens=2, eos_token_id=None):
        ...     print(step.round, step.past_len, step.fed_ids.shape, step.past_key_values[0][0].shape)
        0 0 (1, 2) (1, 2, 4, 8)
        1 2 (1, 1) (1, 3, 4, 8)
        """
        call = inspect.signature(self.generate).bind(*args, **kwargs)
        call.apply_defaults()
        return Loop(self, **call.arguments)
