"""The .npy format in both directions."""

import io

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from msdump.encode import npy
from msdump.errors import DumpReadError, FormatError

DTYPES = ["?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)
ARRAYS = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, SHAPES))

MINDSPORE_FILES = {
    "scalar": (np.array(False), "'|b1'", "()"),
    "vector": (np.array([1.5, -2], "<f4"), "'<f4'", "(2,)"),
    "matrix": (np.arange(6, dtype="<i4").reshape(2, 3), "'<i4'", "(2,3,)"),
    "image": (np.zeros((2, 1, 28, 28), "<f2"), "'<f2'", "(2,1,28,28,)"),
}


def joined(array):
    """Return the bytes of a file."""
    return b"".join(npy.encode(array))


def numpys(array, **options):
    """Return the bytes that numpy writes."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize(("array", "descr", "shape"), MINDSPORE_FILES.values(), ids=MINDSPORE_FILES)
def test_bytes_are_mindspores(array, descr, shape):
    """The header is MindSpore's text: a comma after every dimension, no spaces, 128 bytes in all."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"

    data = joined(array)

    assert b"\x93NUMPY\x01\x00\x76\x00" + text.encode() + array.tobytes() == data


@pytest.mark.parametrize(
    ("length", "expected"),
    [(116, 128), (117, 192), (118, 192)],
    ids=["one space fits", "already aligned", "one over"],
)
def test_at_least_one_space_pads(length, expected):
    """A text that would end at a multiple of 64 without padding gets 64 spaces more."""
    digits = length - len("{'descr': '<f4', 'fortran_order': False, 'shape': (,), }")

    data = npy.header("<f4", (int("1" * digits),))

    assert length == len(data[10:].rstrip(b" \n"))
    assert expected == len(data)
    assert data.endswith(b" \n")


def test_version_2_holds_headers_over_64_kib():
    """A text that the two length bytes of version 1.0 cannot count moves to version 2.0."""
    data = npy.header("<f4", (1,) * 40000)

    assert data[:8] == b"\x93NUMPY\x02\x00"
    assert len(data) - 12 == int.from_bytes(data[8:12], "little")
    assert len(data) % 64 == 0


@settings(max_examples=80, deadline=None)
@given(ARRAYS)
def test_numpy_reads_what_is_written(array):
    """numpy.load gives back dtype, shape and bytes of every array."""
    found = np.load(io.BytesIO(joined(array)))

    assert (array.dtype, array.shape) == (found.dtype, found.shape)
    assert array.tobytes() == found.tobytes()


@settings(max_examples=80, deadline=None)
@given(ARRAYS)
def test_decode_inverts_encode(array):
    """Decoding gives back dtype, shape and bytes of every array."""
    found = npy.decode(joined(array))

    assert (array.dtype, array.shape) == (found.dtype, found.shape)
    assert array.tobytes() == found.tobytes()


@settings(max_examples=50, deadline=None)
@given(ARRAYS, st.sampled_from([(1, 0), (2, 0), (3, 0)]), st.booleans())
def test_decode_reads_numpys_files(array, version, is_fortran):
    """Every version and order that numpy writes is read."""
    array = np.asfortranarray(array) if is_fortran and array.ndim > 1 else array

    found = npy.decode(numpys(array, version=version))

    assert (array.dtype, array.shape) == (found.dtype, found.shape)
    np.testing.assert_array_equal(array, found)


def test_elements_are_not_copied():
    """The second buffer is the memory of a C ordered array."""
    array = np.zeros((3, 4), "<f4")

    elements = npy.encode(array)[1]
    array[1, 1] = 7

    assert array.tobytes() == bytes(elements)


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e5m2, "O", "U3", "M8[s]", "V4"]
)
def test_types_without_npy_type_are_refused(dtype):
    """A dtype that numpy cannot load back raises FormatError that names it."""
    array = np.zeros(2, dtype)

    with pytest.raises(FormatError, match=r"has no \.npy type.*widen"):
        npy.encode(array)


def test_raw_bfloat16_is_widened():
    """The <E2 files of MindSpore's CPU dump decode as float32, or raw as bfloat16."""
    data = npy.header("<E2", (2, 2)) + bytes.fromhex("803f40408040a040")

    widened, raw = npy.decode(data), npy.decode_raw(data)

    assert np.float32 == widened.dtype
    assert widened.tolist() == [[1, 3], [4, 5]]
    assert ml_dtypes.bfloat16 == raw.dtype
    assert raw.tolist() == [[1, 3], [4, 5]]


GOOD = npy.header("<f4", (2, 3))


def with_text(text):
    """Return a file with any header text."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(64)


CORRUPT = {
    "empty": (b"", 0, "not a .npy file"),
    "foreign": (b"PK\x03\x04 a zip file", 0, "not a .npy file"),
    "no version": (GOOD[:6], 6, "unknown .npy version"),
    "unknown version": (b"\x93NUMPY\x04\x00" + GOOD[8:], 6, r"unknown .npy version \(4, 0\)"),
    "no length": (GOOD[:9], 9, "no length field"),
    "torn header": (GOOD[:100], 100, "it should have 128 bytes, the file has 100"),
    "giant header": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", 8, "over the 1048576 bytes allowed"),
    "no elements": (GOOD, 128, "needs 24 bytes, the file has 0"),
    "torn elements": (GOOD + bytes(23), 151, "needs 24 bytes, the file has 23"),
    "code": (with_text("__import__('os').system('true')"), 10, "not a .npy header"),
    "objects": (with_text("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"), 10, "'|O'"),
    "records": (
        with_text("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }"),
        10,
        "not a .npy header",
    ),
    "negative": (with_text("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), 10, "not a"),
    "huge": (
        with_text("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999999,), }"),
        None,
        "truncated",
    ),
    "impossible": (
        with_text("{'descr': '<f4', 'fortran_order': False, 'shape': (0,9999999999999999999,), }"),
        8,
        "impossible",
    ),
    "too many dimensions": (
        with_text(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1,' * 65}), }}"),
        10,
        "65 dimensions, at most 64",
    ),
}


@pytest.mark.parametrize(("data", "offset", "message"), CORRUPT.values(), ids=CORRUPT)
def test_corrupt_files_tell_place_and_fault(data, offset, message):
    """A corrupt or hostile file raises DumpReadError with the source, the byte and the fault."""
    with pytest.raises(DumpReadError, match=message) as raised:
        npy.decode(data, "/dump/x.npy")

    assert raised.value.path == "/dump/x.npy"
    assert offset in {None, raised.value.offset}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_any_changed_byte_raises_nothing_else(position, value):
    """A header with any one byte changed still decodes or raises DumpReadError."""
    data = bytearray(GOOD + bytes(24))
    data[position] = value

    try:
        found = npy.decode(bytes(data))
    except DumpReadError:
        return

    assert found.nbytes <= 24


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["<f4", "<f2", "<f8", "<i8", "|i1", "|b1", "<c8"]),
    st.lists(st.integers(0, 12), max_size=6).map(tuple)
    | st.lists(st.integers(0, 10**6), max_size=2).map(lambda sizes: (*sizes, 0)),  # many digits, no memory
)
def test_header_of_numpy(descr, shape):
    """The header of converted files is that of numpy.save, byte for byte."""
    saved = io.BytesIO()
    np.save(saved, np.zeros(shape, descr))

    head = npy.numpy_header(descr, shape)

    assert saved.getvalue().startswith(head)
    assert saved.getvalue()[len(head) :] == bytes(len(saved.getvalue()) - len(head))
    assert npy.header_size(head) == len(head)
