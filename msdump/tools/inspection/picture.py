"""Pictures of tensors as .png files: a ramp of colours from the smallest to the largest finite element."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np

from msdump.tools.inspection.inspection import NONFINITE

MOST_TILES: Final = 256
"""Matrices of a tensor that a picture shows, the first ones."""

_WIDEST: Final = 2048  # pixels of a side
_SMALLEST: Final = 256  # pixels of the longer side; a smaller tensor gets larger pixels
_GAP: Final = 1  # elements between two matrices
_BACKGROUND: Final = (255, 255, 255)
# vivid, and nowhere on the ramp: each is told from the others and from it in all kinds of colour vision
_STRANGERS: Final = {"nan": (255, 0, 128), "inf": (255, 80, 0), "-inf": (0, 200, 255)}
# a ramp from dark to light, even to the eye, also in grey and where red and green look alike
_RAMP: Final = (
    *((68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142), (31, 158, 137)),
    *((53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37)),
)


def draw(array: np.ndarray) -> bytes:
    """Return a .png file that shows a tensor.

    The last two dimensions are a matrix, those before them number matrices that stand side by side, at most
    ``MOST_TILES`` of them. A vector is folded to a near square. NaN is magenta, inf orange, -inf light blue;
    where several elements share a pixel, one that is not finite has it.

    Args:
        array: At least one element; numbers or truth values.
    """
    pixels = _sheet(_tiles(array))
    scale = max(1, _SMALLEST // max(pixels.shape[:2]))
    return encode(pixels.repeat(scale, axis=0).repeat(scale, axis=1))


def encode(pixels: np.ndarray) -> bytes:
    """Return the .png file of a picture.

    Args:
        pixels: Red, green and blue of each pixel: uint8 of the shape height, width, 3.
    """
    height, width, _ = pixels.shape
    rows = np.concatenate((np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)), axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunks(parts))


def _chunks(parts: tuple[tuple[bytes, bytes], ...]) -> Iterator[bytes]:
    for kind, data in parts:
        yield struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _tiles(array: np.ndarray) -> np.ndarray:
    """Return the matrices of a tensor as float64: number, rows, columns."""
    if array.ndim < 2:  # noqa: PLR2004 - no matrix
        return _shrunk(_folded(array.reshape(-1)))[np.newaxis]
    matrices = array.reshape(-1, *array.shape[-2:])[:MOST_TILES]
    return np.stack([_shrunk(matrix) for matrix in matrices])


def _folded(flat: np.ndarray) -> np.ndarray:
    """Return a vector as a near square, its last element repeated up to the end of the last row."""
    width = math.ceil(math.sqrt(len(flat)))
    blank = -len(flat) % width
    return np.concatenate((flat, flat[-1:].repeat(blank))).reshape(-1, width)


def _shrunk(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix of at most as many elements as a picture has pixels: each that of a block.

    It is the first of the block that is not finite, else the first.
    """
    for axis in (0, 1):
        each = -(-matrix.shape[axis] // _WIDEST)
        if each > 1:
            matrix = _first_strangers(matrix, each, axis)
    return matrix.astype(np.float64)


def _first_strangers(matrix: np.ndarray, each: int, axis: int) -> np.ndarray:
    starts = np.arange(0, matrix.shape[axis], each)
    chosen = matrix.take(starts, axis)
    for offset in range(1, each):
        other = matrix.take(np.minimum(starts + offset, matrix.shape[axis] - 1), axis)
        chosen = np.where(np.isfinite(chosen) & ~np.isfinite(other), other, chosen)
    return chosen


def _sheet(tiles: np.ndarray) -> np.ndarray:
    """Return the pixels of matrices in a near square."""
    count, height, width = tiles.shape
    columns = max(1, min(count, round(math.sqrt(count * (height + _GAP) / (width + _GAP)))))
    rows = -(-count // columns)
    colours = _coloured(tiles)
    sheet = np.full((rows * (height + _GAP), columns * (width + _GAP), 3), _BACKGROUND, np.uint8)
    for number in range(count):
        top, left = (number // columns) * (height + _GAP), (number % columns) * (width + _GAP)
        sheet[top : top + height, left : left + width] = colours[number]
    return sheet[: rows * (height + _GAP) - _GAP, : columns * (width + _GAP) - _GAP]


def _coloured(tiles: np.ndarray) -> np.ndarray:
    """Return red, green and blue of elements."""
    finite = np.isfinite(tiles)
    known = tiles[finite]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    span = high / 2 - low / 2
    with np.errstate(invalid="ignore"):
        shares = (tiles / 2 - low / 2) / span if span > 0 else np.full(tiles.shape, 0.5)
    shares = np.where(finite, shares, 0) * (len(_RAMP) - 1)
    stops = np.arange(len(_RAMP))
    channels = [np.interp(shares, stops, [colour[channel] for colour in _RAMP]) for channel in range(3)]
    colours = np.stack(channels, axis=-1).round().astype(np.uint8)
    for name, is_such in NONFINITE.items():
        colours[is_such(tiles)] = _STRANGERS[name]
    return colours
