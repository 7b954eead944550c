"""Real inputs for the sample networks: photographs, handwritten digits and English text.

They are files that scikit-learn brings. They are read without it: importing it takes two seconds, which every
program that runs a sample network would wait.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import zlib
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

Labelled = tuple[np.ndarray, np.ndarray]
"""Images and their labels."""

_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)  # of the ImageNet photographs, per channel
_DEVIATION: Final = np.array([0.229, 0.224, 0.225], np.float32)


def photos(step: int, batch: int, size: int) -> np.ndarray:
    """Return a batch of square cuts of two photographs, float32 (batch, 3, size, size).

    Every step and every position in the batch shows another cut; the values are
    normalised as is usual for ImageNet.
    """
    pictures = _pictures()
    cuts = [
        _cut(pictures[number % len(pictures)], number // len(pictures), size)
        for number in range(step * batch, (step + 1) * batch)
    ]
    normal = (np.stack(cuts).astype(np.float32) / 255 - _MEAN) / _DEVIATION
    return np.ascontiguousarray(normal.transpose(0, 3, 1, 2))


def digits(step: int, batch: int, size: int) -> np.ndarray:
    """Return a batch of handwritten digits, float32 (batch, 1, size, size), from 0 to 1."""
    images, _ = _digits()
    chosen = images[np.arange(step * batch, (step + 1) * batch) % len(images)]
    resized = np.stack([_resize(image, size) for image in chosen])
    return (resized / 16).astype(np.float32)[:, np.newaxis]


def labelled_digits(size: int) -> tuple[Labelled, Labelled]:
    """Return all handwritten digits with their labels, shuffled: four fifths to train with, a fifth to test.

    Args:
        size: Rows and columns of an image, float32 (n, 1, size, size) from 0 to 1; labels are int32 (n).
    """
    digits_read, targets = _digits()
    order = np.random.default_rng(0).permutation(len(targets))
    images = np.stack([_resize(digits_read[number], size) for number in order])
    scaled = (images / 16).astype(np.float32)[:, np.newaxis]
    labels = targets[order].astype(np.int32)
    count = len(order) * 4 // 5
    return (scaled[:count], labels[:count]), (scaled[count:], labels[count:])


def labelled_photos(count: int, size: int) -> Labelled:
    """Return cuts of two photographs, and which of them each one shows.

    Args:
        count: Number of cuts.
        size: Rows and columns, as for ``photos``.
    """
    return photos(0, count, size), (np.arange(count) % 2).astype(np.int32)


def batches(labelled: Labelled, batch: int) -> list[Labelled]:
    """Return a dataset in batches of one size; remaining examples are left out."""
    images, labels = labelled
    starts = range(0, len(labels) - batch + 1, batch)
    return [(images[start : start + batch], labels[start : start + batch]) for start in starts]


def share(batch: Labelled, rank: int, ranks: int) -> Labelled:
    """Return the part of a batch that a rank takes; all parts have one size."""
    images, labels = batch
    size = len(labels) // ranks
    part = slice(rank * size, (rank + 1) * size)
    return images[part], labels[part]


def texts(step: int, batch: int, sequence: int, vocabulary: int) -> dict[str, np.ndarray]:
    """Return token ids, mask and segments of English text, int64 (batch, sequence) each.

    Words get their ids by a hash; a fifth of each row is left empty and masked.
    """
    ids = np.zeros((batch, sequence), np.int64)
    words = _words()
    length = sequence - sequence // 5
    for row in range(batch):
        start = (step * batch + row) * length
        tokens = [words[(start + position) % len(words)] for position in range(length)]
        ids[row, :length] = [1 + zlib.crc32(token.encode()) % (vocabulary - 1) for token in tokens]
    mask = (ids > 0).astype(np.int64)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def _datasets() -> Path:
    """Return the folder of scikit-learn's data sets.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the sample networks' inputs come with scikit-learn", name="sklearn")
    return Path(found.origin).parent / "datasets"


@functools.cache
def _pictures() -> list[np.ndarray]:
    """Return two photographs, uint8 (rows, columns, 3)."""
    return [np.asarray(Image.open(_datasets() / "images" / f"{name}.jpg")) for name in ("china", "flower")]


@functools.cache
def _digits() -> Labelled:
    """Return handwritten digits, float64 (1797, 8, 8) from 0 to 16, and which ones they are."""
    table = np.loadtxt(_datasets() / "data" / "digits.csv.gz", delimiter=",")
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)


@functools.cache
def _words() -> list[str]:
    """Return the words of the descriptions of four data sets."""
    names = ("iris", "wine_data", "digits", "breast_cancer")
    texts = [(_datasets() / "descr" / f"{name}.rst").read_text(encoding="utf-8") for name in names]
    return re.findall(r"[a-z]+", " ".join(texts).lower())


def _cut(picture: np.ndarray, number: int, size: int) -> np.ndarray:
    """Return one of nine overlapping squares of a picture (H, W, 3), resized."""
    height, width = picture.shape[:2]
    side = int(min(height, width) * 0.8)
    top = (height - side) * (number // 3 % 3) // 2
    left = (width - side) * (number % 3) // 2
    return _resize(picture[top : top + side, left : left + side], size)


def _resize(image: np.ndarray, size: int) -> np.ndarray:
    """Return the picture with ``size`` rows and columns, by the nearest pixel."""
    rows = np.arange(size) * image.shape[0] // size
    columns = np.arange(size) * image.shape[1] // size
    return image[rows][:, columns]
