"""Weights as runtime values: shared, aligned, and given back once they are packed."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from msdump.device import precision
from msdump.device.precision import rounded
from msdump.dtypes import DType
from msdump.execute import values
from msdump.execute.runtime import OrtValue, public_value
from msdump.graph.emulation import FLOAT32
from msdump.graph.weights import forget_pages

_WORTH_A_FILE: Final = 1 << 20


class WeightStore:
    """The weights of one network."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the arrays; values are made when they are first needed."""
        self._arrays = arrays
        self._values: dict[str, tuple[OrtValue, np.ndarray]] = {}
        self._rounded: dict[tuple[str, DType], np.ndarray] = {}
        self._overflowing: dict[str, bool] = {}

    def __contains__(self, name: object) -> bool:
        """Tell whether a value is a weight."""
        return name in self._arrays

    def array(self, name: str) -> np.ndarray:
        """Return a weight as the file holds it."""
        return self._arrays[name]

    def value(self, name: str) -> OrtValue:
        """Return a weight as a value to feed; an unaligned one is copied once."""
        if name not in self._values:
            array = self._arrays[name]
            usable = values.contiguous(array if array.flags.aligned else array.copy())
            self._values[name] = (values.from_array(usable), usable)
            if usable is not array:
                forget_pages(array)
        return self._values[name][0]

    def public(self, name: str) -> Any:
        """Return an aligned weight for a session that reads it where it lies."""
        self.value(name)
        return public_value(self._values[name][1])

    def rounded(self, name: str, dtype: DType, *, saturates: bool) -> np.ndarray:
        """Return a float weight as float32, rounded to a smaller type that the device reads."""
        key = (name, dtype)
        if key not in self._rounded:
            array = self._arrays[name]
            narrow = rounded(array, dtype, saturates=saturates)
            self._rounded[key] = _on_disk(precision.cast(narrow, FLOAT32))
            forget_pages(array)
        return self._rounded[key]

    def overflows(self, name: str) -> bool:
        """Tell whether a float32 weight has values that float16 cannot hold."""
        if name not in self._overflowing:
            array = self._arrays[name]
            self._overflowing[name] = array.dtype == FLOAT32.numpy and precision.overflows(array)
        return self._overflowing[name]

    def packable(self, name: str) -> Any:
        """Return a weight, possibly unaligned, for a kernel that packs a copy of its own."""
        return public_value(values.contiguous(self._arrays[name]))


def _on_disk(array: np.ndarray) -> np.ndarray:
    """Return a large array mapped from a nameless temporary file: its pages can be given back."""
    if array.nbytes < _WORTH_A_FILE:
        return array
    try:
        with tempfile.TemporaryFile() as file:
            array.tofile(file)
            file.flush()
            mapped = mmap.mmap(file.fileno(), array.nbytes, prot=mmap.PROT_READ)
    except OSError:  # no room: it stays in memory
        return array
    return np.frombuffer(mapped, array.dtype).reshape(array.shape)
