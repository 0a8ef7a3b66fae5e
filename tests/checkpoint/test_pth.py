"""``.pth`` files that torch wrote (make_fixtures.py), read without torch."""

import numpy as np
import pytest
from checkpoint_helpers import DATA, UPSTREAM, ramp, refused, write_pth, write_zip

from npminimind.checkpoint.pth import read_pth
from npminimind.checkpoint.pth_writer import save_pth
from npminimind.checkpoint.stored import fill, read_array, read_into


def arrays(path):
    return {name: read_array(tensor) for name, tensor in read_pth(path)[0].items()}


@pytest.mark.parametrize("file", ["dtypes.pth", "protocol4.pth", "dtypes_v3.pth"])
def test_element_types(file):
    got = arrays(DATA / file)
    assert len(got) == (13 if file == "dtypes_v3.pth" else 10)
    for name, array in got.items():
        dtype = np.dtype(np.float32 if name == "bfloat16" else name)
        expected = ramp(3, 4, dtype=np.int64) % 2 == 1 if name == "bool" else ramp(3, 4, dtype=dtype)
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, expected)


def test_views_of_shared_storage():
    """Strides, offsets and transposed views over one storage."""
    base, got = ramp(4, 6), arrays(DATA / "views.pth")
    expected = {
        "base": base,
        "transposed": base.T,
        "block": base[1:3, 2:5],
        "strided": base[::2, 1::3],
        "column": base[:, 5],
        "row": base[2],
        "cube": ramp(2, 3, 4).transpose(2, 0, 1),
        "half_transposed": base.T,
        "scalar": np.float32(2.5),
        "empty": np.empty((0, 3)),
    }
    assert set(got) == set(expected)
    for name, array in got.items():
        np.testing.assert_array_equal(array, expected[name])


def test_views_into_any_destination():
    """A transposed view, into arrays of another order and type, whole or in pieces."""
    stored = read_pth(DATA / "views.pth")[0]["transposed"]
    for order in "CF":
        whole = np.empty((6, 4), np.float64, order)
        read_into(stored, [whole])
        np.testing.assert_array_equal(whole, ramp(4, 6).T)
        first, second = np.empty((2, 4), np.float32, order), np.empty((4, 4), np.float64, order)
        read_into(stored, [first, second])
        np.testing.assert_array_equal(np.concatenate([first, second]), ramp(4, 6).T)


@pytest.mark.parametrize("file", ["state_dict.pth", "parameters.pth"])
def test_ordered_dicts_and_parameters(file):
    got = arrays(DATA / file)
    np.testing.assert_array_equal(got["weight"], ramp(3, 4))
    np.testing.assert_array_equal(got["bias"], ramp(3))


def test_training_checkpoint():
    """The weights lie under "model", beside optimizer state, numbers and lists."""
    stored, notes = read_pth(DATA / "resume.pth")
    assert set(stored) == {"module._orig_mod.weight", "module._orig_mod.bias"}
    assert "'model'" in notes[0]


def test_what_is_refused_says_why():
    refused(DATA / "legacy.pth", "before 1.6", "torch.save")
    refused(DATA / "module.pth", "torch.nn.modules.linear.Linear", "state_dict", read=read_pth)
    refused(DATA / "expanded.pth", "more elements", "clone", read=read_pth)


@pytest.mark.parity
def test_recorded_checkpoints():
    """The nine .pth files that MiniMind's own code wrote, against torch's reader."""
    torch = pytest.importorskip("torch")
    files = sorted(UPSTREAM.glob("*/model.pth"))
    if not files:
        pytest.skip(f"no recorded checkpoints in {UPSTREAM}")
    for file in files:
        got, expected = arrays(file), torch.load(file, weights_only=True)
        assert set(got) == set(expected)
        for name, array in got.items():
            np.testing.assert_array_equal(array, expected[name].numpy())


def test_fill_in_blocks_of_every_kind(tmp_path):
    """Matrices larger than a block, wide rows, vectors, every order, strided destinations."""
    rng = np.random.default_rng(0)
    for shape in [(1000, 100), (3, 50_000), (70_000,), (5, 200, 100), (2, 3, 40_000)]:
        source = rng.standard_normal(shape).astype(np.float16)
        (tmp_path / "x").write_bytes(source.tobytes())
        for destination in (
            np.empty(shape, np.float32),
            np.empty(shape, np.float64, order="F"),
            np.empty((*shape, 2), np.float32)[..., 1],
            np.empty(shape[::-1], np.float16).T,
        ):
            with open(tmp_path / "x", "rb") as file:
                fill(destination, file, "x", "F16")
            np.testing.assert_array_equal(destination, source)


# ---------------------------------------------------------------------------------------------
# Our writer


def test_writer_and_reader(tmp_path):
    tensors = {"a.weight": ramp(3, 5).astype(np.float32), "b": np.asfortranarray(ramp(4, 2)), "c": ramp(7)}
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        save_pth(tmp_path / "x.pth", tensors, dtype, tied={"twin": "a.weight"})
        stored, _ = read_pth(tmp_path / "x.pth")
        assert set(stored) == {"a.weight", "b", "c", "twin"}
        assert stored["twin"].offset == stored["a.weight"].offset
        for name, tensor in stored.items():
            np.testing.assert_array_equal(read_array(tensor), tensors["a.weight" if name == "twin" else name])


@pytest.mark.parity
def test_torch_reads_what_we_write(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = {"a.weight": np.float32([[1, 2.5], [3, -4]]), "b": np.float32([0.1, 7])}
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        save_pth(tmp_path / "x.pth", tensors, dtype, tied={"twin": "a.weight"})
        got = torch.load(tmp_path / "x.pth", weights_only=True)
        for name in ("a.weight", "b"):
            expected = torch.from_numpy(tensors[name]).to(getattr(torch, dtype))
            assert got[name].dtype == expected.dtype and torch.equal(got[name], expected)
        assert got["twin"].data_ptr() == got["a.weight"].data_ptr()


def test_equal_models_are_equal_files(tmp_path):
    for name in "xy":
        save_pth(tmp_path / name, {"a": np.ones(3)}, "float32")
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


# ---------------------------------------------------------------------------------------------
# Zip archives that are none of torch's


def test_other_archives(tmp_path):
    import zipfile

    path = tmp_path / "x.pth"
    refused(write_zip(path, {"readme.txt": b"hello"}), "no data.pkl", read=read_pth)
    refused(write_zip(path, {"a/data.pkl": b"}.", "b/data.pkl": b"}."}), "2 entries", read=read_pth)
    refused(write_zip(path, {"a/data.pkl": b"}.", "a/constants.pkl": b")."}), "TorchScript", read=read_pth)
    refused(write_zip(path, {"a/data.pkl": b"}.", "a/byteorder": b"big"}), "big-endian", read=read_pth)
    refused(write_zip(path, {"a/data.pkl": b"}" + b" " * 500}, zipfile.ZIP_DEFLATED), "compressed", read=read_pth)
    refused(write_pth(path, b"}."), "no dict of tensors", read=read_pth)
    refused(write_pth(path, b"]."), "no dict of tensors (but a list)", read=read_pth)
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    refused(path, "truncated", read=read_pth)


def test_truncated_anywhere(tmp_path):
    whole, path = (DATA / "state_dict.pth").read_bytes(), tmp_path / "x.pth"
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        refused(path)


def test_zip64_archive(tmp_path):
    """What archives above 4 GB look like: sizes in 64-bit extra fields, a zip64 directory (made by hand)."""
    import struct

    program, path = b"}.", tmp_path / "x.pth"
    name, full = b"a/data.pkl", 0xFFFFFFFF
    extra = struct.pack("<2H2Q", 1, 16, len(program), len(program))
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 0, 0, full, full, len(name), len(extra))
    body = local + name + extra + program
    extra = struct.pack("<2H3Q", 1, 24, len(program), len(program), 0)
    central = struct.pack(
        "<4s6H3L5H2L", b"PK\x01\x02", 45, 45, 0, 0, 0, 0, 0, full, full, len(name), len(extra), 0, 0, 0, 0, full
    )
    central += name + extra
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(central), len(body))
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(body) + len(central), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, full, full, 0)
    path.write_bytes(body + central + end64 + locator + end)
    refused(path, "no dict of tensors", read=read_pth)  # so the empty dict in it was found and read
    path.write_bytes(body + central + end64[:-20] + locator + end)
    refused(path, "damaged zip directory", read=read_pth)
