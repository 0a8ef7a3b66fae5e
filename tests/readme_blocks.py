"""The fenced blocks of a README: what they run, and what they show.

A ``console`` block holds commands behind ``$ `` and what they print; a ``python`` block may be followed by a
``text`` block with its output. ``python tests/readme_blocks.py`` runs them all and writes the outputs anew into
both READMEs; ``tests/test_readme.py`` only looks whether they still hold.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
READMES = ("README.md", "README_zh.md")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(readme):
    """(language, content) of every fenced block."""
    return FENCE.findall((CHECKOUT / readme).read_text("utf-8"))


def commands(console):
    """The commands of a console block, each with what it shows: ``$ `` begins one."""
    parts = re.split(r"^\$ ", console, flags=re.M)[1:]
    return [part.split("\n", 1) for part in parts]


def shell(command, folder):
    """What a command prints, stdout and stderr as they come; ``npminimind`` is this checkout's."""
    script = f'npminimind() {{ "{sys.executable}" -m npminimind "$@"; }}\n{command}'
    return printed(["bash", "-c", script], folder)


def python(code, folder):
    return printed([sys.executable, "-c", code], folder)


def printed(argv, folder):
    env = os.environ | {"PYTHONPATH": str(CHECKOUT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    if done.returncode:
        raise AssertionError(f"{argv[-1]}\nended with {done.returncode}:\n{done.stdout.decode('utf-8')}")
    return done.stdout.decode("utf-8")


def run_all(readme, folder):
    """Every block again, with today's output: (language, content before, content now)."""
    output, result = "", []
    for language, content in blocks(readme):
        now = content
        if language == "console":
            now = "".join(f"$ {command}\n{shell(command, folder)}" for command, _ in commands(content))
        elif language == "python":
            output = python(content, folder)
        elif language == "text":
            now = output
        result.append((language, content, now))
    return result


def main():
    for readme in READMES:
        with tempfile.TemporaryDirectory() as folder:
            today = iter([now for *_, now in run_all(readme, folder)])
        text = (CHECKOUT / readme).read_text("utf-8")
        text = FENCE.sub(lambda fence: f"```{fence[1]}\n{next(today)}```", text)  # noqa: B023
        (CHECKOUT / readme).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
