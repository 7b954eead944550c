"""Weights as runtime values, and the choice of initializers of an operator's session.

Sessions read weights where they lie, and pages of mapped files are released once a session is made: a kernel
that packs a weight (copies it into its preferred layout) reads the original only then. It does so if the
weight is an initializer: a MatMul with a fed weight takes up to 1.4 times as long. Feeding weights lets equal
operators share one session. Weights that the device rounds are always initializers: they are rounded once,
and kernels see no Cast. One that a caller may replace is the default of an input, which a replacement is fed.
"""

from __future__ import annotations

import mmap
import tempfile
import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device import precision, rounded
from msdump.dtypes import STRING, DType
from msdump.errors import passing_over
from msdump.execute import values
from msdump.execute.runtime import OrtValue
from msdump.graph import SMALL_BYTES, Node, forget_pages, subgraphs
from msdump.graph.kernel import FLOAT16, FLOAT32, Rounding, is_cast
from msdump.threads import new_lock

_WORTH_A_FILE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class WeightCopies:
    """Cache of values and copies of a model's weights, by the ``id`` of the weight's array.

    Nested graphs that share a weight share its array, and therefore its values and copies.
    """

    # values to feed, and the array that each of them reads, which must stay alive with it
    values: dict[int, tuple[OrtValue, np.ndarray]] = field(default_factory=dict)
    # copies rounded to a smaller type, by that type
    rounded: dict[tuple[int, DType], np.ndarray] = field(default_factory=dict)
    # whether weights have values beyond float16's range
    overflowing: dict[int, bool] = field(default_factory=dict)
    # held while a value or copy is made: runners in several threads may share the cache
    lock: threading.RLock = field(default_factory=new_lock, repr=False, compare=False)


class WeightStore:
    """The weights of one graph."""

    def __init__(self, arrays: Mapping[str, np.ndarray], copies: WeightCopies | None = None) -> None:
        """Keep the arrays; values are made when they are first needed."""
        self._arrays = arrays
        self.copies = copies or WeightCopies()  # values and copies, shared with enclosing and nested graphs

    def __contains__(self, name: object) -> bool:
        """Return whether a value is a weight."""
        return name in self._arrays

    def array(self, name: str) -> np.ndarray:
        """Return the array of a weight, unchanged from the model's file."""
        return self._arrays[name]

    def value(self, name: str) -> OrtValue:
        """Return a weight as a value to feed; an unaligned one is copied once."""
        return self._value_and_array(name)[0]

    def contiguous(self, name: str) -> np.ndarray:
        """Return the array of a weight in C order and native byte order; the store keeps it alive."""
        array = self._arrays[name]
        is_plain = array.flags.c_contiguous and array.dtype.isnative
        return array if is_plain else self._value_and_array(name)[1]

    def _value_and_array(self, name: str) -> tuple[OrtValue, np.ndarray]:
        array, known = self._arrays[name], self.copies.values
        if id(array) not in known:
            with self.copies.lock:
                if id(array) not in known:
                    # protobuf aligns nothing: three of four weights in a mapped file lie at addresses that
                    # are no multiple of four, which kernels do not expect
                    aligned = values.contiguous(array if array.flags.aligned else array.copy())
                    value = values.from_array(aligned)
                    if aligned is not array:
                        forget_pages(array)
                    known[id(array)] = value, aligned
        return known[id(array)]

    def rounded(self, name: str, dtype: DType, *, saturates: bool) -> np.ndarray:
        """Return a float weight as float32, rounded to a smaller type that the device reads."""
        array, copies = self._arrays[name], self.copies.rounded
        key = (id(array), dtype)
        if key not in copies:
            with self.copies.lock:
                if key not in copies:
                    copies[key] = _on_disk(narrowed(array, dtype, saturates=saturates))
                    forget_pages(array)
        return copies[key]

    def overflows(self, name: str) -> bool:
        """Return whether a float32 weight has values that float16 cannot hold."""
        array, known = self._arrays[name], self.copies.overflowing
        if id(array) not in known:
            known[id(array)] = array.dtype == FLOAT32.numpy and precision.overflows(array)
        return known[id(array)]


def narrowed(array: np.ndarray, dtype: DType, *, saturates: bool) -> np.ndarray:
    """Return a float array as float32, rounded to a smaller type."""
    return precision.cast(rounded(array, dtype, saturates=saturates), FLOAT32)


def _on_disk(array: np.ndarray) -> np.ndarray:
    """Move a large array to a mapped temporary file, so that its pages can be evicted; else return it."""
    if array.nbytes < _WORTH_A_FILE:
        return array
    # sessions have packed copies of most weights: then the pages of the file need not stay in memory
    with passing_over(OSError), tempfile.TemporaryFile() as file:
        array.tofile(file)
        file.flush()
        mapped = mmap.mmap(file.fileno(), array.nbytes, prot=mmap.PROT_READ)
        return np.frombuffer(mapped, array.dtype).reshape(array.shape)
    return array  # no disk space: the array stays in memory


_PACKING_OPS: Final = frozenset({"MatMul", "Gemm", "LSTM", "GRU", "RNN", "MatMulInteger"})
"""Operators whose kernels keep packed copies of weights that are initializers."""

_BOUND_OPS: Final = _PACKING_OPS | {"ConvTranspose", "ConvInteger", "QLinearConv", "QLinearMatMul"}
"""Operators that are faster, or only possible, with their weights as initializers."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The initializers of one operator's session."""

    arrays: Mapping[str, np.ndarray]  # array by the weight's name, in the type that the operator reads
    # for each rounded array, whether the weight had values beyond float16's range
    rounded: Mapping[str, bool]

    def with_rounded(self, arrays: Mapping[str, np.ndarray]) -> Bound:
        """Return these and more initializers, which are rounded, for a session that reports no overflows."""
        return Bound({**self.arrays, **arrays}, {**self.rounded, **dict.fromkeys(arrays, False)})

    @property
    def embedded(self) -> dict[str, np.ndarray]:
        """Arrays that are copied into the model."""
        return {name: array for name, array in self.arrays.items() if _is_small(array)}

    @property
    def beyond(self) -> tuple[str, ...]:
        """Names of the weights that hold values beyond float16's range."""
        return tuple(name for name, is_beyond in self.rounded.items() if is_beyond)

    @property
    def shared(self) -> dict[str, np.ndarray]:
        """Arrays that the session takes as external initializers."""
        return {name: array for name, array in self.arrays.items() if not _is_small(array)}


class Initializers:
    """Chooses which weights of a network its kernels get as initializers, and in which type."""

    def __init__(self, weights: WeightStore, changeable: Container[str], distant: Container[str]) -> None:
        """Set a graph's weights, the ones that may change between runs, and ones of a graph further out.

        The latter (``distant``) belong to a graph at least two levels further out than a body.
        """
        self._weights = weights
        self._changeable = changeable
        self._distant = distant

    def of(self, node: Node, roundings: Sequence[Rounding] | None) -> Bound:
        """Return the initializers of an operator's session, given the device's arithmetic."""
        arrays, rounded, reports = {}, {}, tells_overflow(roundings)
        for name, (part, rounding) in self._single_readers(node, roundings).items():
            if name in self._changeable:
                continue
            # The runtime packs weights of a body only if they belong to the directly enclosing graph. Results
            # with and without packing may differ in the last bit: distant ones are fed, which prevents it.
            is_distant = name in self._distant and part.op_type in _PACKING_OPS
            array = self._rounded(name, part, rounding)
            if array is not None or (binds_weights(part) and not is_distant):
                arrays[name] = self._weights.array(name) if array is None else array
                if arrays[name] is not self._weights.array(name):
                    saturates = reports and rounding is not None and rounding.reads is FLOAT16
                    rounded[name] = saturates and self._weights.overflows(name)
        return Bound(arrays, rounded)

    def shared(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return an external initializer of a session in C order, in the type that the operator reads."""
        is_rounded = array is not self._weights.array(name)
        return array if is_rounded else self._weights.contiguous(name)

    def defaults(
        self, node: Node, roundings: Sequence[Rounding] | None, names: Container[str]
    ) -> dict[str, tuple[np.ndarray, Rounding]]:
        """Return the float32 weights (of ``names``) that are read rounded although a caller may replace them.

        They are the rounded array and the rounding of each weight, by name.
        """
        found = {}
        for name, (part, rounding) in self._single_readers(node, roundings).items():
            if name in names and rounding and self._weights.array(name).dtype == FLOAT32.numpy:
                array = self._rounded(name, part, rounding)
                if array is not None:
                    found[name] = array, rounding
        return found

    def _single_readers(
        self, node: Node, roundings: Sequence[Rounding] | None
    ) -> dict[str, tuple[Node, Rounding | None]]:
        """Return the fused part that reads each weight, without weights that several parts read."""
        parts = [*zip(node.members, roundings or (None,) * len(node.members), strict=True)]
        names = (name for name in dict.fromkeys(node.inputs) if name in self._weights)
        readers = {name: [each for each in parts if name in each[0].inputs] for name in names}
        return {name: found[0] for name, found in readers.items() if len(found) == 1}

    def _rounded(self, name: str, part: Node, rounding: Rounding | None) -> np.ndarray | None:
        """Return a weight as an operator reads it, rounded or widened; None where it reads it as it is.

        Copies are cached. Operators with subgraphs read weights as they are.
        """
        dtype = dtypes.from_numpy(self._weights.array(name).dtype)
        if rounding is None or any(subgraphs(part.proto)) or not is_cast(part, dtype, rounding):
            return None
        return self._weights.rounded(name, rounding.read_type(dtype), saturates=rounding.saturates)


def binds_weights(part: Node) -> bool:
    """Return whether an operator's weights become initializers on every device."""
    return part.op_type in _BOUND_OPS or bool(part.domain)


def _is_small(array: np.ndarray) -> bool:
    """Return whether a weight is copied into the model: small ones, and types that cannot be shared.

    The runtime infers shapes from the values of small weights (axes, sizes), which it must find in the model.
    """
    return array.nbytes <= SMALL_BYTES or array.dtype == STRING.numpy or array.dtype.isbuiltin != 1


def tells_overflow(roundings: Sequence[Rounding] | None) -> bool:
    """Return whether an operator's kernel has the device's overflow status as an output."""
    return roundings is not None and any(rounding.reports for rounding in roundings)
