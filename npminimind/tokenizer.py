"""Text to ids and back, through the ``tokenizers`` package, and MiniMind's chat format."""

import json
from pathlib import Path

import numpy as np

from .errors import CheckpointError
from .inputs import ids_within

PAD_ID = 0


class Tokenizer:
    """A checkpoint's ``tokenizer.json``.

    Parameters
    ----------
    backend : tokenizers.Tokenizer
    chat_template : str or None
        The Jinja template of ``tokenizer_config.json``. None: MiniMind's built-in ChatML.
    """

    def __init__(self, backend, chat_template=None):
        self.backend, self.chat_template = backend, chat_template

    @classmethod
    def from_pretrained(cls, path):
        """Read ``tokenizer.json`` (and ``tokenizer_config.json`` beside it, if any) from a folder or file.

        Raises
        ------
        CheckpointError
            A missing or broken file.
        """
        from tokenizers import Tokenizer as Backend  # imported when text is: it costs as much as NumPy

        path = Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise CheckpointError(f"{file}: there is no tokenizer here")
        try:
            backend = Backend.from_file(str(file))
        except Exception as error:  # the package raises bare Exceptions
            raise CheckpointError(f"{file}: is not a tokenizer that can be read: {error}") from None
        backend.no_padding()
        backend.no_truncation()
        return cls(backend, read_chat_template(file.parent / "tokenizer_config.json"))

    @property
    def vocab_size(self):
        """Number of ids, special tokens included."""
        return self.backend.get_vocab_size()

    def encode(self, text):
        """Text -> list of ids. Special tokens written in the text become their ids; nothing is added."""
        if not isinstance(text, str):
            raise TypeError(f"encode takes a string, not {type(text).__name__}; several go to batch(texts)")
        return self.backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids, skip_special_tokens=True):
        """One row of ids -> text. Bytes that are no character become U+FFFD, ids that it does not know nothing."""
        ids = np.asarray(ids)
        if ids.ndim > 1 and len(ids) != 1:
            raise ValueError(f"decode takes one row of ids, not an array of shape {ids.shape}")
        ids = ids_within(ids.ravel(), 2**32)
        return self.backend.decode(ids.tolist(), skip_special_tokens=skip_special_tokens)

    def batch(self, texts):
        """Several texts as one array, shorter ones padded on the left.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        ids, mask : int64 arrays [B, longest]
            Pads have id 0 and mask 0.
        """
        if isinstance(texts, str):
            raise TypeError("batch takes a list of texts; one text goes to encode(text)")
        rows = [self.encode(text) for text in texts]
        if not rows or not all(rows):
            raise ValueError("every text needs at least one token")
        longest = max(len(row) for row in rows)
        ids = np.array([[PAD_ID] * (longest - len(row)) + row for row in rows], np.int64)
        mask = np.array([[0] * (longest - len(row)) + [1] * len(row) for row in rows], np.int64)
        return ids, mask

    def stream(self, skip_special_tokens=True):
        """A :class:`Detokenizer` for ids that come one at a time."""
        return Detokenizer(self.backend, skip_special_tokens)

    def special_id(self, text):
        """The id of a special token written exactly so, or None."""
        for token_id, token in self.backend.get_added_tokens_decoder().items():
            if token.content == text and token.special:
                return token_id
        return None

    def apply_chat_template(self, messages, thinking=False, add_generation_prompt=True, tools=None):
        """Messages -> the text that the model was trained to continue.

        Parameters
        ----------
        messages : list of {"role": "system" | "user" | "assistant", "content": str}
        thinking : bool
            True lets the model fill the ``<think>`` block, False hands it an empty one.
        add_generation_prompt : bool
            Whether to open the assistant's turn.
        tools : list of dict, optional
            Function descriptions, as OpenAI and HF write them; needs the checkpoint's own template.

        Returns
        -------
        str

        Raises
        ------
        ValueError, TypeError
            Messages without a role or content; tools without jinja2.

        Notes
        -----
        The checkpoint's Jinja template is rendered where jinja2 is installed (extra ``chat``), in a sandbox,
        since it comes from a stranger. Otherwise MiniMind's ChatML is built in; the two agree on MiniMind's
        own template.
        """
        from .chat import render

        return render(messages, thinking, add_generation_prompt, tools, self.chat_template)


class Detokenizer:
    """Ids one at a time -> pieces of text, never half a character."""

    def __init__(self, backend, skip_special_tokens):
        from tokenizers.decoders import DecodeStream

        self.backend, self.skip_special_tokens = backend, skip_special_tokens
        self.decoder, self.pending = DecodeStream(skip_special_tokens=skip_special_tokens), []

    def put(self, token_id):
        """The text that this id completes, perhaps none."""
        text = self.decoder.step(self.backend, token_id) or ""
        self.pending = [] if text else [*self.pending, token_id]
        return text

    def end(self):
        """No more ids come: whole characters that stood before half a one in the same token."""
        return self.backend.decode(self.pending, self.skip_special_tokens).rstrip("\ufffd")


def read_chat_template(config_file):
    if not config_file.is_file():
        return None
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
        template = config.get("chat_template") if isinstance(config, dict) else None
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{config_file}: is not JSON ({error})") from None
    return template if isinstance(template, str) else None
