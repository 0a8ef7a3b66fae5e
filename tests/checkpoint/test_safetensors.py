"""safetensors: read and written against bytes put together by hand, files of the reference library, and malice."""

import json
import struct

import numpy as np
import pytest
from checkpoint_helpers import DATA, ramp, refused, safetensors_bytes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from npminimind.checkpoint import read_safetensors, save_safetensors
from npminimind.checkpoint.safetensors import LONGEST_HEADER
from npminimind.checkpoint.stored import DTYPES, to_bfloat16, widen_half
from npminimind.errors import CheckpointError


def read(path):
    tensors, _ = read_safetensors(path)
    return dict(tensors)


# ---------------------------------------------------------------------------------------------
# Sound files


def test_file_put_together_by_hand(tmp_path):
    header = {
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "BF16", "shape": [2], "data_offsets": [16, 20]},
        "__metadata__": {"format": "pt"},
    }
    data = struct.pack("<4f", 1, 2, 3, 4) + bytes([0x80, 0x3F, 0x00, 0xC0])  # bfloat16: 0x3f80 = 1, 0xc000 = -2
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors_bytes(header, data))
    tensors, metadata = read_safetensors(path)
    assert metadata == {"format": "pt"}
    assert list(tensors) == ["a", "b"] and len(tensors) == 2
    np.testing.assert_array_equal(tensors["a"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(tensors["b"], np.float32([1, -2]))
    assert tensors["b"].dtype == np.float32
    assert tensors.stored["a"].shape == (2, 2) and tensors.stored["b"].dtype == "BF16"


def test_written_bytes(tmp_path):
    path = tmp_path / "x.safetensors"
    save_safetensors(path, {"a": np.float32([1, 2])}, {"k": "v"})
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    assert length % 8 == 0 and raw[8 + length :] == struct.pack("<2f", 1, 2)
    assert json.loads(raw[8 : 8 + length]) == {
        "__metadata__": {"k": "v"},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    }


def test_file_of_the_reference_library():
    """All element types and a metadata text that is not ASCII (make_fixtures.py)."""
    tensors, metadata = read_safetensors(DATA / "dtypes.safetensors")
    assert metadata == {"format": "pt", "说": "你好"}
    for name, array in tensors.items():
        dtype = np.float32 if name == "bfloat16" else np.dtype(name)
        expected = ramp(3, 4, dtype=np.int64) % 2 == 1 if name == "bool" else ramp(3, 4, dtype=dtype)
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parity
def test_reference_library_reads_ours(tmp_path):
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.torch").load_file
    rng = np.random.default_rng(0)
    ours = {
        "float": rng.standard_normal((3, 5)).astype(np.float32),
        "transposed": np.asfortranarray(rng.standard_normal((200, 700)).astype(np.float32)),
        "double": rng.standard_normal(4),
        "half": rng.standard_normal((2, 2, 2)).astype(np.float16),
        "int": np.arange(5),
        "bool": np.array([True, False]),
        "scalar": np.float64(3.5),
        "empty": np.zeros((0, 4), np.float32),
    }
    for dtype in (None, "bfloat16", "float16"):
        save_safetensors(tmp_path / "x.safetensors", ours, dtype=dtype)
        theirs = load_file(tmp_path / "x.safetensors")
        assert set(theirs) == set(ours)
        for name, array in ours.items():
            expected = torch.from_numpy(np.array(array))
            if dtype and expected.is_floating_point():
                expected = expected.to(getattr(torch, dtype))
            assert theirs[name].dtype == expected.dtype and torch.equal(theirs[name], expected), name


@given(st.dictionaries(st.text(max_size=8).filter(lambda n: n != "__metadata__"), arrays.arrays(
    dtype=st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_]),
    shape=arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)), max_size=4))  # fmt: skip
def test_what_goes_in_comes_out(tmp_path_factory, tensors):
    path = tmp_path_factory.mktemp("round") / "x.safetensors"
    save_safetensors(path, tensors)
    back = read(path)
    assert set(back) == set(tensors)
    for name, array in tensors.items():
        assert back[name].dtype == array.dtype and back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()


def test_layout_does_not_matter(tmp_path):
    """Views, transposed and reversed arrays, larger than a block, are written as their C-ordered copies."""
    base = np.random.default_rng(1).standard_normal((600, 300)).astype(np.float32)
    views = {
        "f": np.asfortranarray(base),
        "t": base.T,
        "r": base[::-1],
        "s": base[::3, 1::2],
        "big": base.astype(">f4"),
    }
    save_safetensors(tmp_path / "x", views)
    for name, array in read(tmp_path / "x").items():
        np.testing.assert_array_equal(array, views[name])


def test_header_of_any_length(tmp_path):
    """The header's length is the file's first byte: it may look like "{", "P", a space or a null."""
    for n in range(300):
        save_safetensors(tmp_path / "x", {}, {"k": "x" * n})
        assert read_safetensors(tmp_path / "x")[1] == {"k": "x" * n}
        raw = safetensors_bytes(json.dumps({"__metadata__": {"k": "x" * n}}).encode())
        (tmp_path / "y").write_bytes(raw)
        assert read_safetensors(tmp_path / "y")[1] == {"k": "x" * n}


# ---------------------------------------------------------------------------------------------
# Element types


def test_bfloat16_rounds_to_nearest_even():
    """1 + 2^-8 is half way between 1 and 1 + 2^-7: to the even neighbour; NaN stays NaN; the largest overflows."""
    table = {1.0: 0x3F80, 1 + 2**-8: 0x3F80, 1 + 3 * 2**-8: 0x3F82, 1 + 2**-8 + 2**-20: 0x3F81, -2.0: 0xC000, 0.0: 0}
    assert to_bfloat16(np.float32(list(table))).tolist() == list(table.values())
    assert to_bfloat16(np.float32([np.inf, -np.inf])).tolist() == [0x7F80, 0xFF80]
    assert to_bfloat16(np.float32([np.finfo(np.float32).max])).tolist() == [0x7F80]
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    bits = to_bfloat16(nans)
    assert ((bits & 0x7F80) == 0x7F80).all() and (bits & 0x7F).all()


def test_every_float16_is_widened_exactly():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    assert widen_half(finite).tobytes() == finite.astype(np.float32).tobytes()
    np.testing.assert_array_equal(widen_half(every), every.astype(np.float32))


@pytest.mark.parity
def test_subnormal_float16_where_a_library_switched_them_off():
    """torch can make the processor treat subnormal numbers as zero; small weights must survive."""
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        small = widen_half(np.arange(1, 1024, dtype=np.uint16).view(np.float16))
    finally:
        torch.set_flush_denormal(False)
    np.testing.assert_array_equal(small, np.arange(1, 1024) * 2.0**-24)


@pytest.mark.parametrize(("dtype", "value"), [("float16", 7e4), ("float16", -65520.0), ("bfloat16", 3.4e38)])
def test_number_too_large_for_the_type_is_refused(tmp_path, dtype, value):
    path = tmp_path / "x.safetensors"
    tensors = {"fine": np.ones(3, np.float32), "bad.weight": np.float32([[1, value]])}
    refused(path, "bad.weight", "too large", read=lambda p: save_safetensors(p, tensors, dtype=dtype))
    assert list(tmp_path.iterdir()) == []


def test_infinity_and_nan_are_kept(tmp_path):
    special = np.float32([np.inf, -np.inf, np.nan, 1])
    for dtype in ("float16", "bfloat16", "float32"):
        save_safetensors(tmp_path / "x", {"a": special}, dtype=dtype)
        np.testing.assert_array_equal(read(tmp_path / "x")["a"], special)


@pytest.mark.parametrize("bad", [np.zeros(2, complex), np.array(["a"]), np.array([None])])
def test_types_that_the_format_lacks(tmp_path, bad):
    with pytest.raises(TypeError):
        save_safetensors(tmp_path / "x", {"a": bad})
    with pytest.raises(ValueError, match="dtype"):
        save_safetensors(tmp_path / "x", {"a": np.zeros(2)}, dtype="float8")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------
# Broken and hostile headers


def entry(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)} | more


HOSTILE = {
    "header longer than the file": (safetensors_bytes({"a": entry()}, b"", length=1000), "ends within its header"),
    "header of 2^63 bytes": (safetensors_bytes({"a": entry()}, length=1 << 63), "header of"),
    "header just too long": (safetensors_bytes({"a": entry()}, length=LONGEST_HEADER + 1), "header of"),
    "only the length": (struct.pack("<Q", 2), "neither"),
    "not JSON": (safetensors_bytes(b"{'a': 1}"), "not sound JSON"),
    "not UTF-8": (safetensors_bytes(b'{"\xff\xfe": 1}'), "not sound JSON"),
    "cut JSON": (safetensors_bytes(b'{"a": {"dtype": "F32"'), "not sound JSON"),
    "deeply nested": (safetensors_bytes(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "not sound JSON"),
    "huge number": (safetensors_bytes(b'{"a":' + b"9" * 10_000 + b"}"), "not sound JSON"),
    "NaN": (safetensors_bytes(b'{"a": NaN}'), "NaN"),
    "a name twice": (
        safetensors_bytes(b'{"a":[1],"b":[2],"a":[3]}', b"x"),
        "'a' appears twice",
    ),
    "a key twice": (
        safetensors_bytes(b'{"a":{"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "'dtype' appears twice",
    ),
    "entry is a list": (safetensors_bytes({"a": [1]}), "dtype, shape and data_offsets"),
    "entry lacks a key": (safetensors_bytes({"a": {"dtype": "F32", "shape": [2]}}), "dtype, shape and data_offsets"),
    "unknown key": (safetensors_bytes({"a": entry(extra=1)}, b"x" * 8), "dtype, shape and data_offsets"),
    "unknown dtype": (safetensors_bytes({"a": entry("F8_E4M3")}, b"x" * 8), "F8_E4M3"),
    "dtype is a list": (safetensors_bytes({"a": entry(["F32"])}, b"x" * 8), "type"),
    "negative size": (safetensors_bytes({"a": entry(shape=[-2])}, b"x" * 8), "impossible shape"),
    "size is a float": (safetensors_bytes({"a": entry(shape=[2.0])}, b"x" * 8), "impossible shape"),
    "size is true": (safetensors_bytes({"a": entry(shape=[True, 2])}, b"x" * 8), "impossible shape"),
    "shape is a text": (safetensors_bytes({"a": entry() | {"shape": "2"}}, b"x" * 8), "impossible shape"),
    "shape overflows": (safetensors_bytes({"a": entry(shape=[1 << 33, 1 << 31, 4])}, b"x" * 8), "impossible shape"),
    "zero times huge": (safetensors_bytes({"a": entry(shape=[0, 1 << 62], offsets=(0, 0))}), "impossible shape"),
    "100 dimensions": (safetensors_bytes({"a": entry(shape=[1] * 100, offsets=(0, 4))}, b"x" * 4), "impossible shape"),
    "offsets backwards": (safetensors_bytes({"a": entry(offsets=(8, 0))}, b"x" * 8), "data_offsets"),
    "offsets negative": (safetensors_bytes({"a": entry(offsets=(-8, 0))}, b"x" * 8), "data_offsets"),
    "offsets are floats": (safetensors_bytes({"a": entry(offsets=(0.0, 8.0))}, b"x" * 8), "data_offsets"),
    "one offset": (safetensors_bytes({"a": entry(offsets=(8,))}, b"x" * 8), "data_offsets"),
    "offsets beyond 64 bits": (safetensors_bytes({"a": entry(offsets=(1 << 70, (1 << 70) + 8))}), "data_offsets"),
    "too few bytes for the shape": (safetensors_bytes({"a": entry(shape=[3])}, b"x" * 8), "needs 12 bytes"),
    "beyond the file": (safetensors_bytes({"a": entry(shape=[20], offsets=(0, 80))}, b"x" * 8), "truncated"),
    "overlap": (safetensors_bytes({"a": entry(), "b": entry(offsets=(4, 12))}, b"x" * 12), "overlaps"),
    "the same bytes": (safetensors_bytes({"a": entry(), "b": entry()}, b"x" * 8), "overlaps"),
    "gap": (safetensors_bytes({"a": entry(), "b": entry(offsets=(12, 20))}, b"x" * 20), "gap"),
    "bytes behind the last": (safetensors_bytes({"a": entry()}, b"x" * 9), "longer"),
    "metadata of numbers": (safetensors_bytes({"__metadata__": {"a": 1}}), "__metadata__"),
    "metadata is a list": (safetensors_bytes({"__metadata__": []}), "__metadata__"),
    "empty": (b"", "empty"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_header(tmp_path, case):
    data, word = HOSTILE[case]
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    refused(path, word, read=read)


def test_truncated_anywhere(tmp_path):
    """A download that stopped, at every byte: refused, never an array with the rest made up."""
    whole = tmp_path / "whole"
    save_safetensors(whole, {"a": np.arange(4.0), "b": np.float32([1])})
    data, path = whole.read_bytes(), tmp_path / "part.safetensors"
    for end in range(len(data)):
        path.write_bytes(data[:end])
        refused(path, read=read)


def test_file_that_shrinks_while_it_is_open(tmp_path):
    path = tmp_path / "x"
    save_safetensors(path, {"a": np.arange(1000.0)})
    tensors, _ = read_safetensors(path)
    path.write_bytes(path.read_bytes()[:-100])
    refused(path, "truncated", read=lambda _: tensors["a"])


@given(data=st.data())
def test_fuzz_mutated_files(tmp_path_factory, data):
    """Flip bytes of a sound file: it is read, in the shapes that it claims, or refused in one way."""
    folder = tmp_path_factory.mktemp("fuzz")
    save_safetensors(folder / "x", {"a": np.arange(6.0).reshape(2, 3), "b": np.int32([1])}, {"k": "v"})
    raw = bytearray((folder / "x").read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    (folder / "x").write_bytes(raw)
    read_or_refuse(folder / "x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda x: st.lists(x, max_size=3)
)
ENTRY = st.fixed_dictionaries({
    "dtype": st.sampled_from(list(DTYPES)) | JSON,
    "shape": st.lists(st.integers(0, 4), max_size=3) | JSON,
    "data_offsets": st.tuples(st.integers(0, 16), st.integers(0, 64)) | JSON,
})  # fmt: skip


@given(st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]), ENTRY | JSON), st.binary(max_size=64))
def test_fuzz_headers(tmp_path_factory, header, data):
    path = tmp_path_factory.mktemp("fuzz") / "x"
    path.write_bytes(safetensors_bytes(header, data))
    read_or_refuse(path)


def read_or_refuse(path):
    try:
        tensors, _ = read_safetensors(path)
        for name, array in tensors.items():
            assert array.shape == tensors.stored[name].shape
    except CheckpointError as error:
        assert str(error).startswith(str(path))


# ---------------------------------------------------------------------------------------------
# Writing: the whole file or none


def test_interrupted_write_leaves_what_was_there(tmp_path, monkeypatch):
    from npminimind.checkpoint import safetensors

    path = tmp_path / "x.safetensors"
    save_safetensors(path, {"a": np.zeros(3)})
    before = path.read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(safetensors, "write_array", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_safetensors(path, {"a": np.ones(3)})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]


def test_full_disk():
    """/dev/full answers every write with "no space left"."""
    refused("/dev/full", "space", read=lambda p: save_safetensors(p, {"a": np.zeros(100_000)}))


def test_unwritable_folder(tmp_path):
    refused(tmp_path / "no" / "x", "cannot be written", read=lambda p: save_safetensors(p, {"a": np.zeros(1)}))


def test_link_is_written_through(tmp_path):
    save_safetensors(tmp_path / "real", {"a": np.zeros(1)})
    (tmp_path / "link").symlink_to("real")
    save_safetensors(tmp_path / "link", {"a": np.ones(1)})
    assert (tmp_path / "link").is_symlink() and read(tmp_path / "real")["a"] == 1
