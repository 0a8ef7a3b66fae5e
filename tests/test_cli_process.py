"""The command as a process: exit codes, streams, interruption, locales, start-up."""

import os
import signal
import subprocess
import sys
import time

import pytest
from cli_helpers import CHECKOUT, LETTERS, finish, recorded, run, speaking_folder, start, text_of

import npminimind
from npminimind import cli
from npminimind.cli import options

GREEDY = recorded(max_new_tokens=14, eos_token_id=None, do_sample=False)[1]
PROMPT, TEXT = text_of(GREEDY[:13]), text_of(GREEDY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return speaking_folder(tmp_path_factory.mktemp("model"))


def test_text_on_stdout_all_else_on_stderr_in_an_ascii_locale(folder):
    """UTF-8 in and out where the locale knows only ASCII and Python's own way around it is off."""
    ascii_only = dict(LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="")
    command = ["generate", PROMPT, "--model", folder, "--greedy", "--max-new-tokens", 14, "--stats"]
    code, out, err = finish(start(*command, **ascii_only))
    assert code == 0 and out.decode("utf-8") == TEXT + "\n" and b"13 tokens in, 14 out" in err
    piped = start("generate", "--model", folder, "--greedy", "--max-new-tokens", 14, **ascii_only)
    assert finish(piped, PROMPT.encode("utf-8"))[1].decode("utf-8") == TEXT + "\n"


def endless(folder):
    """A command that writes for a long time: nothing ends it but 512 positions without a cache."""
    command = ["generate", LETTERS[5], "--model", folder, "--no-cache", "--temperature", 5, "--top-k", 0, "--top-p", 1]
    return start(*command)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_leaves_the_text_so_far(folder):
    process = endless(folder)
    first = process.stdout.read(9)  # the prompt and two characters have come
    process.send_signal(signal.SIGINT)
    code, rest, err = finish(process)
    text = (first + rest).decode("utf-8")
    assert code == 130 and text.startswith(LETTERS[5]) and set(text) <= set(LETTERS) and err == b"\n"


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_a_broken_pipe_ends_quietly(folder):
    process = endless(folder)
    process.stdout.read(3)
    process.stdout.close()
    process.stdin.close()
    assert process.wait(timeout=60) == 141 and process.stderr.read() == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_reported(folder):
    command = [sys.executable, "-m", "npminimind", "generate", PROMPT, "--model", folder, "--max-new-tokens", "2"]
    code, err = shell(f"{' '.join(command)} > /dev/full")
    assert code == 2 and err == "npminimind: No space left on device\n"


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
def test_stdin_that_is_no_pipe_and_stdout_that_is_closed(folder):
    command = f"{sys.executable} -m npminimind generate --model {folder} --max-new-tokens 2"
    code, err = shell(f"{command} < /dev/null >&-")  # 'Once upon a time' are no letters of this tokenizer
    assert code == 2 and "prompt is empty" in err and err.count("\n") == 1
    assert shell(f"{command} {PROMPT} >&-") == (0, "")


def test_what_counts_as_piped(tmp_path, monkeypatch):
    """A pipe and a file do; /dev/null, which services and schedulers give, does not, nor does no stdin at all."""
    (tmp_path / "prompt.txt").write_text("x")
    reading, writing = os.pipe()
    for stream, expected in ((open(reading), True), (open(tmp_path / "prompt.txt"), True), (open(os.devnull), False)):
        monkeypatch.setattr(sys, "stdin", stream)
        assert options.is_piped() is expected
        stream.close()
    os.close(writing)
    monkeypatch.setattr(sys, "stdin", None)
    assert options.is_piped() is False


def shell(command):
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "argv, words",
    [
        (["genrate"], "did you mean generate?"),
        (["generate", "--frob"], "--frob"),
        (["generate", "--temperature", "warm"], "--temperature"),
        (["generate", "--seed", "1", "--torch-seed", "2"], "not allowed with"),
        (["generate", "x", "--model", "no/such/folder"], "no/such/folder"),
        (["generate", PROMPT, "--temperature", "-1"], "temperature must be 0 or more"),
        (["generate", PROMPT, "--top-p", "-1"], "top_p must be"),
        (["generate", PROMPT, "--max-new-tokens", "-1"], "max_new_tokens must be"),
        (["generate", ""], "empty"),
        (["score", LETTERS[3]], "at least two"),
        (["info", "no/such/folder"], "no/such/folder"),
        (["trace", "x"], "--out"),
        (["trace", "--ids", "1,x", "--out", "x.npz"], "--ids"),
        (["trace", "--ids", "160", "--out", "x.npz"], "outside the vocabulary"),
        (["convert", "no/such/folder", "x"], "no/such/folder"),
        (["chat", "x", "--historys", "-1"], "--historys"),
    ],
)
def test_what_cannot_run_is_one_line_and_2(capsys, folder, argv, words):
    takes_model = argv[0] in ("generate", "score", "trace", "chat") and "--model" not in argv
    code, out, err = run(capsys, *argv, *(["--model", folder] if takes_model else []))
    assert (code, out) == (2, "") and words in err
    assert err.startswith("npminimind: ") and err.count("\n") == 1


def test_bytes_that_are_no_text_are_refused(folder):
    code, out, err = finish(start("generate", "--model", folder), b"\xff\xfe")
    assert (code, out) == (2, b"") and err == b"npminimind: stdin is not UTF-8 text (byte 0)\n"


def test_help_and_version(capsys):
    code, out, err = run(capsys)
    assert (code, err) == (0, "") and 'npminimind generate "Once upon a time"' in out
    for name in cli.commands():
        assert f"\n  {name} " in out
        code, text, _ = run(capsys, name, "--help")
        assert code == 0 and text.startswith(f"usage: npminimind {name}") and "npminimind" in text.split("\n\n", 1)[1]
    assert run(capsys, "--help")[1] == out
    assert run(capsys, "--version") == (0, f"npminimind {npminimind.__version__}\n", "")


def test_a_warning_is_one_line(capsys, folder):
    """The position table of 512 ends the generation."""
    options = ["--model", folder, "--max-new-tokens", 600, "--greedy", "--no-echo"]
    code, _, err = run(capsys, "generate", LETTERS[9] * 510, *options)
    assert code == 0 and err.count("\n") == 1 and err.startswith("npminimind: ") and "512" in err


def test_only_the_command_asked_for_is_imported(folder, run_python):
    loaded = run_python(
        "import sys\nfrom npminimind.cli import main\n"
        f"main(['generate', {PROMPT!r}, '--model', {folder!r}, '--max-new-tokens', '1', '--greedy'])\n"
        "print(*[m for m in sys.modules if m.startswith('npminimind.cli.') or '.' not in m])"
    ).split()
    assert "npminimind.cli.generate" in loaded
    assert not {"npminimind.cli.chat", "npminimind.cli.info", "npminimind.cli.trace", "jinja2", "difflib"} & set(loaded)


def test_the_first_character_comes_within_four_imports_of_numpy(folder):
    """Quickest against quickest, in turns: what else the machine does only adds. It ends when that is shown."""
    command = ["-m", "npminimind", "generate", PROMPT, "--model", folder, "--no-echo", "--greedy"]
    ours, numpys = [], []
    for _ in range(7):
        numpys.append(time_to_output(["-c", "import numpy; print('abc')"]))
        ours.append(time_to_output(command))
        if min(ours) <= 4 * min(numpys):
            return
    pytest.fail(f"{min(ours):.3f} s, and importing NumPy takes {min(numpys):.3f} s")


def time_to_output(argv):
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *argv], env=env, stdout=subprocess.PIPE)
    process.stdout.read(3)
    passed = time.perf_counter() - started
    process.kill()
    process.communicate()
    return passed
