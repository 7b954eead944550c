"""Weights as runtime values: shared between sessions, aligned, and released once a kernel has packed them."""

from __future__ import annotations

import mmap
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.device import precision
from msdump.device.precision import rounded
from msdump.dtypes import DType
from msdump.execute import values
from msdump.execute.runtime import OrtValue, public_value
from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.weights import forget_pages
from msdump.threads import new_lock

_WORTH_A_FILE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class WeightCopies:
    """Values and copies made of the weights of a model so far, by the identity of the weight's array.

    Graphs inside each other that share a weight share its array, and so all that is made of it.

    Attributes:
        values: Values to feed, and the array that each of them reads, which must stay alive with it.
        rounded: Copies rounded to a smaller type, by that type.
        overflowing: Whether they have values that float16 cannot hold.
        lock: Held while one is made: runners in several threads may share them.
    """

    values: dict[int, tuple[OrtValue, np.ndarray]] = field(default_factory=dict)
    rounded: dict[tuple[int, DType], np.ndarray] = field(default_factory=dict)
    overflowing: dict[int, bool] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=new_lock, repr=False, compare=False)


class WeightStore:
    """The weights of one graph.

    Attributes:
        copies: What it shares with the graphs around it and inside it, where weights are the same arrays.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], copies: WeightCopies | None = None) -> None:
        """Keep the arrays; values are made when they are first needed."""
        self._arrays = arrays
        self.copies = copies or WeightCopies()

    def __contains__(self, name: object) -> bool:
        """Tell whether a value is a weight."""
        return name in self._arrays

    def array(self, name: str) -> np.ndarray:
        """Return a weight as the file holds it."""
        return self._arrays[name]

    def value(self, name: str) -> OrtValue:
        """Return a weight as a value to feed; an unaligned one is copied once."""
        return self._value_and_array(name)[0]

    def public(self, name: str) -> Any:
        """Return an aligned weight for a session that reads it where it lies."""
        return public_value(self._value_and_array(name)[1])

    def _value_and_array(self, name: str) -> tuple[OrtValue, np.ndarray]:
        array, known = self._arrays[name], self.copies.values
        if id(array) not in known:
            with self.copies.lock:
                if id(array) not in known:
                    known[id(array)] = _aligned_value(array)
        return known[id(array)]

    def rounded(self, name: str, dtype: DType, *, saturates: bool) -> np.ndarray:
        """Return a float weight as float32, rounded to a smaller type that the device reads."""
        array, copies = self._arrays[name], self.copies.rounded
        key = (id(array), dtype)
        if key not in copies:
            with self.copies.lock:
                if key not in copies:
                    narrow = rounded(array, dtype, saturates=saturates)
                    copies[key] = _on_disk(precision.cast(narrow, FLOAT32))
                    forget_pages(array)
        return copies[key]

    def overflows(self, name: str) -> bool:
        """Tell whether a float32 weight has values that float16 cannot hold."""
        array, known = self._arrays[name], self.copies.overflowing
        if id(array) not in known:
            known[id(array)] = array.dtype == FLOAT32.numpy and precision.overflows(array)
        return known[id(array)]

    def packable(self, name: str) -> Any:
        """Return a weight, possibly unaligned, for a kernel that packs a copy of its own."""
        return public_value(values.contiguous(self._arrays[name]))


def _aligned_value(array: np.ndarray) -> tuple[OrtValue, np.ndarray]:
    """Return a weight as a value to feed, and the array that it reads."""
    # protobuf aligns nothing: three of four weights in a mapped file lie at addresses that are no multiple of
    # four, which kernels do not expect
    aligned = values.contiguous(array if array.flags.aligned else array.copy())
    value = values.from_array(aligned)
    if aligned is not array:
        forget_pages(array)
    return value, aligned


def _on_disk(array: np.ndarray) -> np.ndarray:
    """Return a large array mapped from a nameless temporary file: its pages can be given back."""
    if array.nbytes < _WORTH_A_FILE:
        return array
    # the session has its own packed copy of most weights: pages of the file cost no memory once it is made
    try:
        with tempfile.TemporaryFile() as file:
            array.tofile(file)
            file.flush()
            mapped = mmap.mmap(file.fileno(), array.nbytes, prot=mmap.PROT_READ)
    except OSError:  # no room: it stays in memory
        return array
    return np.frombuffer(mapped, array.dtype).reshape(array.shape)
