"""The part of a model that is read from files and written to them."""

import warnings

import numpy as np


class Pretrained:
    """``from_pretrained`` and ``save_pretrained``.

    Attributes
    ----------
    checkpoint : Checkpoint or None
        What the model was read from.
    """

    checkpoint = None

    @classmethod
    def from_pretrained(cls, path, dtype=np.float32, lora=None):
        """Read a checkpoint: a folder (config.json with \\*.safetensors or \\*.pth) or one file.

        Parameters
        ----------
        path : str or Path
        dtype : numpy.float32 or numpy.float64
            What to compute in. Half-precision weights are widened, which is exact.
        lora : str or Path, optional
            A LoRA file to merge.

        Raises
        ------
        CheckpointError
            A ValueError that names the file and says what is wrong with it.

        Warns
        -----
        UserWarning
            Without a config.json: what was inferred from names and shapes, and what could not be.
        """
        from .checkpoint import load_weights
        from .tokenizer import Tokenizer

        checkpoint = load_weights(path, dtype=dtype, lora=lora)
        if checkpoint.inferred:
            warnings.warn(" ".join(checkpoint.notes), stacklevel=2)
        tokenizer = Tokenizer.from_pretrained(checkpoint.tokenizer_path) if checkpoint.tokenizer_path else None
        model = cls(checkpoint.config, checkpoint.weights, tokenizer=tokenizer)
        model.checkpoint = checkpoint
        return model

    def save_pretrained(self, folder, dtype="float32", layout="hf"):
        """Write the model as a folder that others read; ``npminimind convert`` for a model in hand.

        Parameters
        ----------
        folder : str or Path
        dtype : {"float32", "float16", "bfloat16", "float64"}
        layout : {"hf", "minimind"}
            See :func:`npminimind.checkpoint.save_pretrained`. The tokenizer and generation_config.json of the
            checkpoint that this model came from are copied.

        Raises
        ------
        CheckpointError
            What cannot be written, or has no equivalent in the layout.
        """
        from .checkpoint import save_pretrained

        source, facts = self.checkpoint, {}
        if source is not None:
            facts = {"tokenizer_source": source.tokenizer_path, "generation_config": source.generation_config}
        save_pretrained(self.config, self.params, folder, dtype=dtype, layout=layout, **facts)
