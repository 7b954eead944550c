"""The .npy format: a header as MindSpore writes it and the elements, C order, little endian.

    magic    93 'NUMPY'                                     6 bytes
    version  01 00 (02 00 where the text is too long)       2 bytes
    length   of the text, little endian                     2 bytes (4 in version 2.0)
    text     {'descr': '<f4', 'fortran_order': False, 'shape': (2,3,), } spaces LF
    data     at a multiple of 64

``numpy.load`` reads every file made here. Reading accepts numpy's own text as
well, and the ``<E2`` that MindSpore's CPU dump writes for bfloat16.

    >>> import numpy as np
    >>> contents = b"".join(encode(np.array([[1, 2], [3, 4]], np.int16)))
    >>> contents[:10].hex(" "), contents[10:63].decode()
    ('93 4e 55 4d 50 59 01 00 76 00', "{'descr': '<i2', 'fortran_order': False, 'shape': (2,")
    >>> len(contents), contents[128:].hex(" ")
    (136, '01 00 02 00 03 00 04 00')
    >>> decode(contents).tolist()
    [[1, 2], [3, 4]]
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msdump import dtypes
from msdump.encode.elements import element_bytes
from msdump.errors import DumpReadError, FormatError

if TYPE_CHECKING:
    import numpy as np

    from msdump.record import Buffer

MAGIC: Final = b"\x93NUMPY"
ALIGNMENT: Final = 64
_USUAL_SIZE: Final = 128  # bytes of a header, except with very long shapes

DESCRS: Final = (
    *("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8"),
    *("<f2", "<f4", "<f8", "<c8", "<c16"),
)
"""Every element type that is written."""

# vendor: MindSpore's CPU dump stores the raw two bytes of bfloat16 under a type numpy has not.
BFLOAT16_DESCR: Final = "<E2"

# version 3.0 differs from 2.0 in structured types only (UTF-8 field names)
_LENGTH_FIELDS: Final = {1: struct.Struct("<H"), 2: struct.Struct("<I"), 3: struct.Struct("<I")}
_VERSION_END: Final = len(MAGIC) + 2
_LONGEST_SHORT_TEXT: Final = 0xFFFF
# limit against corrupt lengths: a reader must not allocate gigabytes
_LONGEST_TEXT: Final = 1 << 20
# numpy's own limit: more dimensions would raise an unclear error inside numpy
_MOST_DIMENSIONS: Final = 64
# numpy pads the text so that the dimension along which arrays grow can have this many digits
_LONGEST_GROWING: Final = 21

# numpy parses this text as a Python literal; only the spellings of numpy and MindSpore are accepted here
_TEXT: Final = re.compile(
    r"\{\s*'descr'\s*:\s*'(?P<descr>[^']*)'\s*,"
    r"\s*'fortran_order'\s*:\s*(?P<order>True|False)\s*,"
    r"\s*'shape'\s*:\s*\(\s*(?P<shape>(?:[0-9]{1,19}\s*,\s*)*(?:[0-9]{1,19}\s*)?)\)\s*,?\s*\}\s*"
)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a .npy file."""

    descr: str  # element type, ``<f4``; ``<E2`` for raw bfloat16
    shape: tuple[int, ...]
    is_fortran: bool  # whether the first dimension varies fastest in the file
    offset: int  # bytes before the first element

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of the stored elements, ml_dtypes' own for ``<E2``."""
        import numpy as np  # not above: readers of headers need no numpy

        return dtypes.BFLOAT16.numpy if self.descr == BFLOAT16_DESCR else np.dtype(self.descr)


def encode(array: np.ndarray) -> tuple[Buffer, ...]:
    """Return header and elements, if possible a view; FormatError for text, bfloat16 and int4."""
    return _header_of(array.dtype, array.shape), element_bytes(array)


def header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the bytes before the elements, byte for byte as MindSpore writes them.

    A comma follows every dimension, no space does, and at least one space pads.
    """
    dimensions = "".join(f"{size}," for size in shape)
    return _framed(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dimensions}), }}")


def numpy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the bytes before the elements as ``numpy.save``, which CANN's tools call, writes them."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    return _framed(text + " " * (_LONGEST_GROWING - len(str(shape[0])) if shape else 0))


def _framed(header_text: str) -> bytes:
    text = header_text.encode()
    version = 1 if _padded(text, _LENGTH_FIELDS[1].size) <= _LONGEST_SHORT_TEXT else 2
    field = _LENGTH_FIELDS[version]
    length = _padded(text, field.size)
    return MAGIC + bytes((version, 0)) + field.pack(length) + text.ljust(length - 1) + b"\n"


def _padded(text: bytes, field_size: int) -> int:
    """Return the length of the text with padding (at least one space) and line feed."""
    before = _VERSION_END + field_size
    # vendor: MindSpore and numpy add a whole line of padding where the text is aligned already
    total = before + len(text) + 1
    return total + ALIGNMENT - total % ALIGNMENT - before


# Tensors of equal type and shape have equal headers, in every step of a run.
@lru_cache(maxsize=4096)
def _header_of(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    descr = dtype.newbyteorder("<").str
    if descr not in DESCRS or dtype.kind == "V":
        raise FormatError(
            f"dtype {dtype} has no .npy type, only {', '.join(DESCRS)} do; widen the array first"
        )
    return header(descr, shape)


def decode(buffer: Buffer, source: str = "<buffer>") -> np.ndarray:
    """Return the array of a .npy file, a view; ``<E2`` as float32; DumpReadError if it is none or torn."""
    array = decode_raw(buffer, source)
    return dtypes.widen(array, dtypes.BFLOAT16) if array.dtype == dtypes.BFLOAT16.numpy else array


def decode_raw(buffer: Buffer, source: str = "<buffer>") -> np.ndarray:
    """Return the array as stored, a view; ``<E2`` as ml_dtypes' bfloat16; DumpReadError as in ``decode``."""
    import numpy as np  # not above: readers of headers need no numpy

    head = read_header(buffer, source)
    check_size(head, len(buffer), source)
    dtype, count = head.dtype, math.prod(head.shape)
    flat = np.frombuffer(buffer, dtype, count, head.offset) if count else np.empty(0, dtype)
    try:
        return flat.reshape(head.shape, order="F" if head.is_fortran else "C")
    except (ValueError, OverflowError) as error:
        raise DumpReadError(source, f"the shape {head.shape} is impossible: {error}", _VERSION_END) from None


def check_size(head: Header, size: int, source: str) -> None:
    """Refuse (DumpReadError) a file of fewer bytes than its header promises."""
    needed, available = math.prod(head.shape) * int(head.descr[2:]), size - head.offset
    if needed > available:
        wanted = f"shape {head.shape} of {head.descr!r} needs {needed} bytes"
        raise DumpReadError(source, f"the data is truncated: {wanted}, the file has {available}", size)


def read_header(buffer: Buffer, source: str = "<buffer>") -> Header:
    """Return the header (the buffer may end with it); DumpReadError if it is missing, torn or foreign."""
    usual = _usual(bytes(buffer[:_USUAL_SIZE]))
    return _read_header(buffer, source) if usual is None else usual


# The many files of a dump have few different headers.
@lru_cache(maxsize=4096)
def _usual(beginning: bytes) -> Header | None:
    """Return the header at the beginning of a file, None if the header is incomplete or faulty."""
    try:
        return _read_header(beginning, "")
    except DumpReadError:
        return None


def _read_header(buffer: Buffer, source: str) -> Header:
    offset = header_size(buffer, source)
    if offset > len(buffer):
        raise DumpReadError(
            source,
            f"the header is truncated: it should have {offset} bytes, the file has {len(buffer)}",
            len(buffer),
        )
    start = _VERSION_END + _LENGTH_FIELDS[buffer[len(MAGIC)]].size
    text = bytes(buffer[start:offset])
    match = _TEXT.fullmatch(text.decode("latin-1"))
    if match is None:
        raise DumpReadError(source, f"not a .npy header: {text[:100]!r}", start)
    shape = tuple(int(size) for size in match["shape"].replace(",", " ").split())
    if len(shape) > _MOST_DIMENSIONS:
        fault = f"the shape has {len(shape)} dimensions, at most {_MOST_DIMENSIONS} are possible"
        raise DumpReadError(source, fault, start)
    descr = match["descr"]
    if descr != BFLOAT16_DESCR and descr.replace(">", "<", 1) not in DESCRS:
        fault = f"unknown element type {descr!r}; known are {', '.join((*DESCRS, BFLOAT16_DESCR))}"
        raise DumpReadError(source, fault, start)
    return Header(descr, shape, match["order"] == "True", offset)


def header_size(buffer: Buffer, source: str = "<buffer>") -> int:
    """Return the offset of the elements from a file's first 12 bytes; DumpReadError if it is no .npy file."""
    if bytes(buffer[: len(MAGIC)]) != MAGIC:
        start = bytes(buffer[: len(MAGIC)])
        raise DumpReadError(source, f"not a .npy file: it starts with {start!r}, not {MAGIC!r}", 0)
    version = tuple(buffer[len(MAGIC) : _VERSION_END])
    field = _LENGTH_FIELDS.get(version[0]) if version[1:] == (0,) else None
    if field is None:
        allowed = "1.0, 2.0 and 3.0"
        raise DumpReadError(source, f"unknown .npy version {version}; {allowed} are known", len(MAGIC))
    if len(buffer) < _VERSION_END + field.size:
        raise DumpReadError(source, "the header is truncated: no length field", len(buffer))
    length: int = field.unpack_from(buffer, _VERSION_END)[0]
    if length > _LONGEST_TEXT:
        raise DumpReadError(
            source, f"header length {length} is over the {_LONGEST_TEXT} bytes allowed", _VERSION_END
        )
    return _VERSION_END + field.size + length
