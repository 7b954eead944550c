"""Tensors read from single files."""

import os

import ml_dtypes
import numpy as np
import pytest

from msdump.encode import npy
from msdump.errors import DumpReadError
from msdump.read import Iteration, Record, files
from msdump.record import IO
from msdump.store import Key, PathKind, TensorName

RAW_BFLOAT16 = npy.header("<E2", (2, 2)) + bytes.fromhex("803f40408040a040")


def record(path, data, dtype=None):
    """Return a tensor with the given bytes in its file."""
    path.write_bytes(data)
    name = TensorName("Add", "Default_Add-op0", 1, IO.OUTPUT, 0, dtype=dtype)
    return Record(name, str(path), Iteration(Key(PathKind.ITERATION), str(path.parent), lambda _: None))


@pytest.mark.parametrize("dtype", [None, "BFloat16"], ids=["by header", "by name"])
def test_raw_bfloat16_of_mindspore(tmp_path, dtype):
    """MindSpore's raw bfloat16 files give float32 values, and raw ones by ``raw``."""
    tensor = record(tmp_path / "x.npy", RAW_BFLOAT16, dtype)

    assert tensor.dtype == "bfloat16"
    assert np.float32 == tensor.array.dtype
    assert tensor.array.tolist() == [[1, 3], [4, 5]]
    assert ml_dtypes.bfloat16 == tensor.raw.dtype


@pytest.mark.parametrize(
    ("in_name", "expected"),
    [(None, "int64"), *((name, name.lower()) for name in ("float16", "Float32", "int4", "UInt1"))],
    ids=str,
)
def test_dtype_comes_from_the_name_first(tmp_path, in_name, expected):
    """The name keeps the original type; without the field the file has the saved one."""
    data = b"".join(npy.encode(np.zeros(2, "<i8")))

    assert expected == record(tmp_path / "x.npy", data, in_name).dtype


@pytest.mark.parametrize("most_maps", [0, 512], ids=["read", "mapped"])
def test_large_files_are_mapped_up_to_a_limit(tmp_path, monkeypatch, most_maps):
    """Large files are mapped while descriptors last and read beyond, with the same elements."""
    monkeypatch.setattr(files, "_MOST_MAPS", most_maps)
    expected = np.arange(1 << 18, dtype="<f4").reshape(512, 512)
    tensor = record(tmp_path / "x.npy", b"".join(npy.encode(expected)))
    before = len(files._MAPS)

    array = tensor.array

    assert min(1, most_maps) == len(files._MAPS) - before
    np.testing.assert_array_equal(expected, array)
    assert not array.flags.writeable


def test_a_map_is_released_with_its_array(tmp_path):
    """Dropping an array closes its map."""
    tensor = record(tmp_path / "x.npy", b"".join(npy.encode(np.zeros(1 << 18, "<f4"))))
    before = len(files._MAPS)

    array = tensor.array
    held = len(files._MAPS) - before
    del array

    assert held == 1
    assert before == len(files._MAPS)


def test_shape_reads_only_the_header(tmp_path):
    """The shape of a file of terabytes is known at once; one byte less, and the file is torn."""
    header = npy.header("<f4", (1 << 20, 1 << 20))
    tensor = record(tmp_path / "x.npy", header)
    os.truncate(tmp_path / "x.npy", len(header) + (4 << 40))

    assert tensor.shape == (1 << 20, 1 << 20)
    os.truncate(tmp_path / "x.npy", len(header) + (4 << 40) - 1)
    with pytest.raises(DumpReadError, match="the data is truncated"):
        _ = tensor.shape


def test_the_shape_of_a_file_that_is_gone(tmp_path):
    """A header that cannot be read is an error that names the file."""
    tensor = record(tmp_path / "x.npy", npy.header("<f4", (5, 6)))
    (tmp_path / "x.npy").unlink()

    with pytest.raises(DumpReadError) as caught:
        _ = tensor.shape

    assert f"{tmp_path}/x.npy: No such file or directory" == str(caught.value)


def test_a_header_longer_than_one_read(tmp_path):
    """A header of many kilobytes is read as a whole."""
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }".ljust(9000) + "\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(12)

    tensor = record(tmp_path / "x.npy", data)

    assert tensor.shape == (3,)
    assert tensor.array.tolist() == [0, 0, 0]
