"""Real inputs for the sample networks: photographs, handwritten digits and English text."""

from __future__ import annotations

import re
import zlib
from typing import Final

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_sample_images, load_wine

_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)  # of the ImageNet photographs, per channel
_DEVIATION: Final = np.array([0.229, 0.224, 0.225], np.float32)


def photos(step: int, batch: int, size: int) -> np.ndarray:
    """Return a batch of square cuts of two photographs, float32 (batch, 3, size, size).

    Every step and every position in the batch shows another cut; the values are
    normalised as is usual for ImageNet.
    """
    pictures = load_sample_images().images
    cuts = [
        _cut(pictures[number % len(pictures)], number // len(pictures), size)
        for number in range(step * batch, (step + 1) * batch)
    ]
    normal = (np.stack(cuts).astype(np.float32) / 255 - _MEAN) / _DEVIATION
    return np.ascontiguousarray(normal.transpose(0, 3, 1, 2))


def digits(step: int, batch: int, size: int) -> np.ndarray:
    """Return a batch of handwritten digits, float32 (batch, 1, size, size), from 0 to 1."""
    images = load_digits().images
    chosen = images[np.arange(step * batch, (step + 1) * batch) % len(images)]
    resized = np.stack([_resize(image, size) for image in chosen])
    return (resized / 16).astype(np.float32)[:, np.newaxis]


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


def _words() -> list[str]:
    descriptions = (load().DESCR for load in (load_iris, load_wine, load_digits, load_breast_cancer))
    return re.findall(r"[a-z]+", " ".join(descriptions).lower())


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
