"""Malicious ``.pth`` files, read in a process of its own: nothing runs, memory stays bounded, one kind of error."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_helpers import write_pth
from hostile import STOP, TENSOR, programs, state_dict, storage, tensor, write_corpus
from hypothesis import given
from hypothesis import strategies as st

from npminimind.checkpoint.pickle_names import Refused
from npminimind.checkpoint.pickle_subset import INSTRUCTIONS, run
from npminimind.checkpoint.pth import read_pth
from npminimind.errors import CheckpointError

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What became of each file of the corpus: [file, kind of exception, message, peak MB]."""
    folder, marker = tmp_path_factory.mktemp("hostile"), tmp_path_factory.mktemp("marker") / "code_ran"
    write_corpus(folder, str(marker))
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, HERE / "hostile.py", folder], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return list(map(json.loads, done.stdout.splitlines())), marker


def test_nothing_runs(outcome):
    lines, marker = outcome
    assert not marker.exists()
    assert len(lines) > 120


def test_one_kind_of_error_with_the_file_s_name(outcome):
    for file, kind, message, _ in outcome[0]:
        assert kind == "CheckpointError", (file, kind, message)
        assert message.startswith("PATH: ") and "\n" not in message and "\x1b" not in message, (file, message)


def test_memory_stays_bounded(outcome):
    """The largest pickles allowed are 16 MB; reading any file of the corpus needs no more than 300 MB on top."""
    assert max(peak for *_, peak in outcome[0]) < 300


def test_code_is_refused_by_its_name(outcome):
    messages = {file: message for file, _, message, _ in outcome[0]}
    for file, name in [
        ("reduce_to_os.system.pth", "posix.system"),
        ("reduce_to_eval.pth", "__builtin__.eval"),
        ("stack_global.pth", "posix.system"),
        ("torch.load_itself.pth", "torch.load"),
        ("INST.pth", "INST"),
        ("NEWOBJ_of_an_allowed_class.pth", "NEWOBJ"),
    ]:
        assert name in messages[file] and "refused" in messages[file]


@pytest.mark.parametrize(("file", "words"), [
    ("shape_beyond_the_storage.pth", "more elements"),
    ("offset_beyond_the_storage.pth", "beyond its storage"),
    ("stride_beyond_the_storage.pth", "beyond its storage"),
    ("stride_of_2^61.pth", "beyond its storage"),
    ("stride_0_blows_one_number_up.pth", "more elements"),
    ("overlapping_windows_blow_up.pth", "more elements"),
    ("shape_overflows_64_bits.pth", "impossible shape"),
    ("storage_count_is_not_the_entry's.pth", "instead of"),
    ("storage_too_short.pth", "instead of 16"),
    ("storage_too_long.pth", "instead of 16"),
    ("missing_storage.pth", "missing"),
    ("storage_key_is_a_path.pth", "missing"),
    ("keys_that_collide.pth", "key"),
    ("bomb_in_the_pickle.pth", "compressed"),
    ("bomb_in_a_storage.pth", "compressed"),
    ("two_million_instructions.pth", "instructions"),
    ("17_MB_of_pickle.pth", "more than"),
    ("entry_in_the_middle.pth", "not where the directory says"),
    ("two_entries_of_one_name.pth", "two zip entries"),
    ("sound.pth", "no model.embed_tokens.weight"),  # read to the end, and no model
])  # fmt: skip
def test_refused_for_what_it_is(outcome, file, words):
    """Not by a later check that happens to fail too."""
    messages = {file: message for file, _, message, _ in outcome[0]}
    assert words in messages[file]


def test_corpus_is_dangerous(tmp_path):
    """Python's own pickle does run the first of them: the corpus is no strawman."""
    marker = tmp_path / "code_ran"
    name, program = next(programs(marker))
    code = "import pickle, sys; pickle.loads(bytes.fromhex(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, program.hex()], check=True, timeout=60)
    assert name == "reduce to os.system" and marker.exists()


def test_sound_programs_run():
    """The corpus's building blocks are sound where nothing was tampered with."""
    value = run(state_dict(tensor(shape=(2, 2), stride=(2, 1))))["model.norm.weight"]
    assert value.storage == ("0", "F32", 4) and (value.offset, value.shape, value.stride) == (0, (2, 2), (2, 1))
    old = state_dict(tensor(of=storage(module="torch.cuda")))
    assert run(old)["model.norm.weight"].dtype == "F32"


@given(st.lists(st.sampled_from(sorted(INSTRUCTIONS)) | st.binary(max_size=4), max_size=40).map(b"".join))
def test_fuzz_programs_of_known_instructions(program):
    for candidate in (program, b"\x80\x02" + program + STOP, b"(((}" + TENSOR + storage() + program + STOP):
        try:
            run(candidate)
        except Refused:
            pass


@given(st.data())
def test_fuzz_mutated_archives(tmp_path_factory, data):
    """Flip bytes of a sound .pth: read, or refused in one way."""
    path = tmp_path_factory.mktemp("fuzz") / "x.pth"
    raw = bytearray(write_pth(path, state_dict(tensor(), "a"), {"0": bytes(16)}).read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        read_pth(path)
    except CheckpointError as error:
        assert str(error).startswith(str(path))
