"""The values of a step graph by name: what is known of each, constants, names that are still free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from msdump import dtypes
from msdump.training.symbols import StepTensor


class NamedValues:
    """Values that have names of their own in one graph.

    Attributes:
        types: All of them so far, by name.
    """

    def __init__(self) -> None:
        """Begin without values."""
        self.types: dict[str, StepTensor] = {}
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], StepTensor] = {}
        self._names: set[str] = set()
        self._counts: Counter[str] = Counter()

    def constant(self, array: np.ndarray) -> StepTensor:
        """Return a constant; equal ones are one value. Those that an operator reads are written."""
        key = (array.tobytes(), array.dtype.str, array.shape)
        if key not in self._constants:
            name = self.free_name("constant")
            self._constants[key] = self.declare(
                StepTensor(name, dtypes.from_numpy(array.dtype), array.shape, array)
            )
        return self._constants[key]

    def reserve(self, names: Iterable[str]) -> None:
        """Keep names for values that are still to come."""
        self._names.update(names)

    def declare(self, tensor: StepTensor) -> StepTensor:
        """Note a value that comes from elsewhere: an input, a weight."""
        self._names.add(tensor.name)
        self.types[tensor.name] = tensor
        return tensor

    def free_name(self, base: str) -> str:
        """Return a name that nothing has yet, and keep it."""
        name = base
        while name in self._names:
            self._counts[base] += 1
            name = f"{base}_{self._counts[base]}"
        self._names.add(name)
        return name
