"""One row per element type: its names and numbers in ONNX, numpy, MindSpore and the dump files.

The table itself is texts and numbers: numpy is loaded where the types of a row are first used.

>>> import numpy as np
>>> row = from_onnx(16)
>>> row.name, row.title, row.dump, row.saved.name
('bfloat16', 'BFloat16', 27, 'float32')
>>> from_name("Float16") is from_name("float16") is from_dump(2) is from_numpy(np.dtype(">f2"))
True
>>> from_numpy(np.dtype("<U5")).name
'string'
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

from msdump.errors import FormatError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type."""

    name: str  # MindSpore's lower-case name, the dtype field of Ascend file names
    title: str  # MindSpore's type name in .ir texts and CPU file names of 2.7 (``Float32``)
    onnx: int  # number in ONNX's TensorProto.DataType, 0 where ONNX has no such type
    element: str  # the type that holds one element: numpy's text of it, or its name in ml_dtypes
    descr: str  # the type that .npy files hold, as the header's descr
    ir: int  # number in the DataType enumeration of the .pb graph files (section 4.5)
    dump: int | None  # number in OutputDataType of CANN's dump files, None where it has none
    acl: int | None  # number in CANN's aclDataType, which GE shares; None where it has none
    per_byte: int = 1  # elements in one byte where they are packed, else 1

    @property
    def is_widened(self) -> bool:
        """Whether .npy files hold a wider type, since numpy itself lacks this one."""
        return self.element != self.descr

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element, as ``numpy`` holds it."""
        size = self.element[2:]
        return int(size) if size.isdigit() else self.numpy.itemsize

    def packed_size(self, count: int) -> int:
        """Return the bytes of a number of elements, packed as a device packs them."""
        return -(-count // self.per_byte) * self.itemsize

    @cached_property
    def numpy(self) -> np.dtype:
        """The numpy (or ml_dtypes) type that holds one element."""
        import ml_dtypes
        import numpy as np

        return np.dtype(getattr(ml_dtypes, self.element) if self.is_widened else self.element)

    @cached_property
    def saved(self) -> np.dtype:
        """The numpy type that .npy files hold; differs where numpy has no such type."""
        import numpy as np

        return np.dtype(self.descr)


IR_TENSOR: Final = 14
"""DT_TENSOR of the .pb enumeration, which stands for the types that have no number there."""

DTYPES: Final = (
    # MindSpore's name and title, ONNX, numpy, .npy, .pb, dump files, acl; elements in a byte
    DType("float32", "Float32", 1, "<f4", "<f4", 11, 1, 0),
    DType("uint8", "UInt8", 2, "|u1", "|u1", 6, 4, 4),
    DType("int8", "Int8", 3, "|i1", "|i1", 2, 3, 2),
    DType("uint16", "UInt16", 4, "<u2", "<u2", 7, 6, 7),
    DType("int16", "Int16", 5, "<i2", "<i2", 3, 5, 6),
    DType("int32", "Int32", 6, "<i4", "<i4", 4, 7, 3),
    DType("int64", "Int64", 7, "<i8", "<i8", 5, 8, 9),
    DType("string", "String", 8, "|O", "|O", 13, 13, 13),
    DType("bool", "Bool", 9, "|b1", "|b1", 1, 11, 12),
    DType("float16", "Float16", 10, "<f2", "<f2", 10, 2, 1),
    DType("float64", "Float64", 11, "<f8", "<f8", 12, 12, 11),
    DType("uint32", "UInt32", 12, "<u4", "<u4", 8, 9, 8),
    DType("uint64", "UInt64", 13, "<u8", "<u8", 9, 10, 10),
    DType("complex64", "Complex64", 14, "<c8", "<c8", IR_TENSOR, 16, 16),
    DType("complex128", "Complex128", 15, "<c16", "<c16", IR_TENSOR, 17, 17),
    # numpy has no such types: ml_dtypes holds them, .npy files a wider one
    DType("bfloat16", "BFloat16", 16, "bfloat16", "<f4", 46, 27, 27),
    DType("float8_e4m3fn", "Float8E4M3FN", 17, "float8_e4m3fn", "<f4", IR_TENSOR, 35, 36),
    DType("float8_e4m3fnuz", "Float8E4M3FNUZ", 18, "float8_e4m3fnuz", "<f4", IR_TENSOR, None, None),
    DType("float8_e5m2", "Float8E5M2", 19, "float8_e5m2", "<f4", IR_TENSOR, 34, 35),
    DType("float8_e5m2fnuz", "Float8E5M2FNUZ", 20, "float8_e5m2fnuz", "<f4", IR_TENSOR, None, None),
    DType("uint4", "UInt4", 21, "uint4", "|u1", IR_TENSOR, None, None, 2),
    DType("int4", "Int4", 22, "int4", "|i1", 48, 28, 29, 2),
    DType("float4_e2m1", "Float4E2M1", 23, "float4_e2m1fn", "<f4", IR_TENSOR, 39, 40, 2),
    DType("float8_e8m0", "Float8E8M0", 24, "float8_e8m0fnu", "<f4", IR_TENSOR, 36, 37),
    DType("uint2", "UInt2", 25, "uint2", "|u1", IR_TENSOR, 31, 32, 4),
    DType("int2", "Int2", 26, "int2", "|i1", IR_TENSOR, 30, 31, 4),
    DType("uint1", "UInt1", 0, "uint1", "|u1", IR_TENSOR, 29, 30, 8),
)

STRING: Final = next(row for row in DTYPES if row.name == "string")
BFLOAT16: Final = next(row for row in DTYPES if row.name == "bfloat16")

_BY_ONNX: Final = {row.onnx: row for row in DTYPES if row.onnx}
_BY_DUMP: Final = {row.dump: row for row in DTYPES if row.dump is not None}
_BY_NAME: Final = {row.name: row for row in DTYPES} | {row.title: row for row in DTYPES}
_BY_ELEMENT: Final = {row.element: row for row in DTYPES}


def from_onnx(number: int) -> DType:
    """Return the row of a TensorProto.DataType number; FormatError if the number is not in the table."""
    try:
        return _BY_ONNX[number]
    except KeyError:
        raise FormatError(f"unknown ONNX element type {number}") from None


def from_dump(number: int) -> DType:
    """Return the row of an OutputDataType number; FormatError if no elements are known for the number."""
    try:
        return _BY_DUMP[number]
    except KeyError:
        raise FormatError(f"data type {number} of dump files has no element type here") from None


def from_numpy(dtype: np.dtype) -> DType:
    """Return the row of a numpy dtype of either byte order (text: "string"); FormatError without one."""
    # arrays may come in either byte order; files are little endian
    rows = _by_numpy()
    row = rows.get(dtype) or rows.get(dtype.newbyteorder("<"))
    if row is not None:
        return row
    if dtype.kind in "US":
        return STRING
    raise FormatError(f"dtype {dtype} has no ONNX counterpart")


@cache
def _by_numpy() -> dict[np.dtype, DType]:
    # two rows never share a numpy type, so that each array has one
    return {row.numpy: row for row in DTYPES}


def from_name(name: str) -> DType:
    """Return the row of a dtype field of a file name, ``float32`` or ``Float32``; FormatError without one."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise FormatError(f"unknown dtype name {name!r}") from None


def written(dtype: DType) -> DType:
    """Return the row of the type that .npy files hold.

    >>> written(BFLOAT16).name, written(STRING).name
    ('float32', 'string')
    """
    return _BY_ELEMENT[dtype.descr]


def widen(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Return the array in the dtype that .npy files hold (bfloat16 -> float32, int4 -> int8).

    The same array comes back where numpy has the dtype itself.
    """
    return array if dtype.saved == array.dtype else array.astype(dtype.saved)
