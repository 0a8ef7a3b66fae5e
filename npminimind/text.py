"""The part of a model that speaks text, and that scores it."""

import numpy as np

from .inputs import check_input_ids
from .stopping import StopText, parse_stop

SCORED = 512  # positions whose logits are held at a time


class Text:
    """Text in, text out; log-probabilities."""

    def stream(self, prompt, **arguments):
        """Continue a text, piece by piece. The prompt is not repeated.

        Parameters
        ----------
        prompt : str
            Taken as it is, without a chat template.
        **arguments
            As for :meth:`generate`; one sequence at a time.

        Returns
        -------
        iterator of str
            Pieces of text, never half a character; special tokens are left out, and the text ends before a
            ``stop``.

        Raises
        ------
        ValueError
            No tokenizer, an empty prompt.
        """
        tokenizer = self.need_tokenizer()
        ids = tokenizer.encode(prompt)
        if not ids:
            raise ValueError("the prompt is empty: give the model something to continue")
        loop = self.steps([ids], **arguments)
        if len(loop.input_ids) != 1:
            raise ValueError("text streams one sequence: num_return_sequences must be 1")
        return pieces(loop, StopText(tokenizer, *parse_stop(arguments.get("stop"), tokenizer)))

    def chat_stream(self, messages, thinking=False, **arguments):
        """Answer a conversation, piece by piece.

        Parameters
        ----------
        messages : list of {"role", "content"}
        thinking : bool
            Whether the model may think first.
        **arguments
            As for :meth:`stream`.
        """
        prompt = self.need_tokenizer().apply_chat_template(messages, thinking=thinking)
        return self.stream(prompt, **arguments)

    def need_tokenizer(self):
        if self.tokenizer is None:
            raise ValueError(
                "this model has no tokenizer: set model.tokenizer (on the command line: --tokenizer PATH), "
                "or work with ids (generate, steps)"
            )
        return self.tokenizer

    def logprobs(self, input_ids, attention_mask=None):
        """Natural log of the probability of each id, given those before it.

        Parameters
        ----------
        input_ids : int array [B, S], S ≥ 2
        attention_mask : array [B, S] of 0/1, or None

        Returns
        -------
        array [B, S − 1]
            Entry s belongs to id s + 1. nan where that id, or the one before it, is a pad. The perplexity of a
            row is ``exp(-mean)``.

        Raises
        ------
        ValueError
            Fewer than two ids: the first has nothing before it.

        Examples
        --------
        >>> from npminimind import MiniMindConfig, MiniMindForCausalLM
        >>> config = MiniMindConfig(hidden_size=64, num_hidden_layers=1, vocab_size=9)
        >>> model = MiniMindForCausalLM.random(config, seed=0)
        >>> model.logprobs([[3, 4, 5]]).shape
        (1, 2)
        """
        ids = check_input_ids(input_ids, self.config.vocab_size)
        if ids.shape[1] < 2:
            raise ValueError("need at least two ids: the first has nothing before it")
        hidden = self(ids, attention_mask, logits_to_keep=1).hidden_states
        result = np.empty((len(ids), ids.shape[1] - 1), self.dtype)
        for start in range(0, result.shape[1], SCORED):
            part = slice(start, min(start + SCORED, result.shape[1]))
            logits = self.logits(hidden[:, part])  # [B, part, V]
            target = np.take_along_axis(logits, ids[:, 1:][:, part, None], axis=-1)[..., 0]
            result[:, part] = target - log_sum_exp(logits)
        if attention_mask is not None:
            mask = np.asarray(attention_mask)
            result[(mask[:, 1:] == 0) | (mask[:, :-1] == 0)] = np.nan
        return result


def log_sum_exp(x):
    """``log(sum(exp(x)))`` over the last axis, without overflow."""
    greatest = x.max(axis=-1, keepdims=True)
    return np.log(np.exp(x - greatest).sum(axis=-1)) + greatest[..., 0]


def pieces(loop, text):
    for step in loop:
        if piece := text.put(int(step.next_token[0, 0])):
            yield piece
    if piece := text.end():
        yield piece
