"""A network of which some operators compute in float64, and the others as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.execute import values
from msdump.execute.kernels import Kernel, KernelFactory
from msdump.execute.operators.float64.conversions import HALVES, doubled
from msdump.execute.runtime import OrtValue
from msdump.execute.variants.wide_kernels import Float64Kernels
from msdump.graph.graph import Node

_FLOAT32: Final = dtypes.from_name("float32")
_NARROW: Final = (_FLOAT32, *HALVES)


def mixed_kernels(is_wide: Callable[[Node], bool]) -> type[KernelFactory]:
    """Return what compiles the kernels of a network for ``Program``; all of its values are held in float64.

    Operators that are not wide read and write the types that the model declares: what they read is rounded
    to these, and what they wrote is widened as it is.

    Args:
        is_wide: Tells of an operator, of bodies too, whether it computes in float64.
    """

    class MixedKernels(Float64Kernels):
        """Kernels of both kinds."""

        def make(self, node: Node, fed: Mapping[str, OrtValue | None]) -> Kernel:
            """Return the kernel of an operator; see ``Float64Kernels``."""
            if is_wide(node):
                return super().make(node, fed)
            kernel = KernelFactory.make(self, node, self._narrowed(fed))
            names = dict(kernel.feeds)

            def run(given: Mapping[str, OrtValue | None], results: list[str], options: None) -> Any:
                narrow = {inner: self._narrow(names[inner], value) for inner, value in given.items()}
                return _widened(kernel.run(narrow, results, options))

            return replace(kernel, run=run)

        def rescue(self, node: Node, fed: Mapping[str, OrtValue | None], reason: Exception) -> Any:
            """Find another way to run an operator that is not wide."""
            if is_wide(node):
                return super().rescue(node, fed, reason)
            return _widened(KernelFactory.rescue(self, node, self._narrowed(fed), reason))

        def _narrowed(self, fed: Mapping[str, OrtValue | None]) -> dict[str, OrtValue | None]:
            return {name: self._narrow(name, value) for name, value in fed.items()}

        def _narrow(self, name: str, value: OrtValue | None) -> OrtValue | None:
            array = values.to_python(value)
            dtype = self._graph.type_of(name).dtype or _FLOAT32
            if not isinstance(array, np.ndarray) or array.dtype != np.float64:
                return value
            return values.owned(narrowed(array, dtype))

    return MixedKernels


def narrowed(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Return an array that is held in float64 in the type that the model declares for it."""
    if array.dtype != np.float64 or dtype not in _NARROW:
        return array
    with np.errstate(over="ignore", invalid="ignore"):  # an infinity is what the type has for it
        return array.astype(dtype.numpy)


def _widened(results: Any) -> list[OrtValue | None]:
    return [_wide(value) for value in results]


def _wide(value: OrtValue | None) -> OrtValue | None:
    array = values.to_python(value)
    if not isinstance(array, np.ndarray):
        return value
    wide = doubled(array)
    return value if wide is array else values.owned(wide)
