"""A model folder whose answers PyTorch's MiniMind has recorded, and the command line in this process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import BPE

from npminimind.cli import main

CHECKOUT = Path(__file__).parent.parent
UPSTREAM = Path(__file__).parent / "data" / "upstream" / "dense_gqa"
VOCAB = json.loads((UPSTREAM / "config.json").read_text())["vocab_size"]
LETTERS = [chr(0x4E00 + i) for i in range(VOCAB)]  # token i is the character U+4E00 + i: text shows the ids
CALLS = json.loads((UPSTREAM / "io.json").read_text())["generate"]


def text_of(ids):
    """The text whose tokens are these ids."""
    return "".join(LETTERS[i] for i in ids)


def recorded(**arguments):
    """The ids that upstream's ``generate`` returned for exactly these arguments."""
    (call,) = [call for call in CALLS if call["args"] == arguments]
    return call["generated_ids"]


def speaking_folder(path, eos=2, **generation_config):
    """Upstream's recorded model with a tokenizer of one character a token; ``eos`` is a special token."""
    for name in ("config.json", "model.pth"):
        shutil.copy(UPSTREAM / name, path)
    tokenizer = Tokenizer(BPE({letter: i for i, letter in enumerate(LETTERS)}, []))
    tokenizer.decoder = Fuse()
    tokenizer.add_special_tokens([AddedToken(LETTERS[eos], special=True)])
    tokenizer.save(str(path / "tokenizer.json"))
    if generation_config:
        (path / "generation_config.json").write_text(json.dumps(generation_config))
    return str(path)


def run(capsys, *argv):
    """Exit code, stdout and stderr of one command."""
    code = main([str(one) for one in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def start(*argv, **environment):
    """The command as a process of its own, its streams as pipes of bytes."""
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)} | environment
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "npminimind", *map(str, argv)], env=env, **pipes)


def finish(process, stdin=b""):
    """Exit code, stdout and stderr."""
    out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out, err
