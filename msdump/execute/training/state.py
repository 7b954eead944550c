"""The variables of a network: initializers that training writes, as values that live over its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from msdump import dtypes
from msdump.errors import FormatError, GraphError, InputError, name_hint
from msdump.execute import values
from msdump.execute.program import Program
from msdump.execute.runtime import OrtValue
from msdump.execute.weights import WeightStore
from msdump.graph.graph import Graph, Training

Values = Mapping[str, OrtValue]
"""The value of each variable by name; never changed in place, so that an older one can be restored."""


class TrainingState:
    """The variables that a model's graphs share: of inference, and of the training step.

    Attributes:
        values: What they hold now.
    """

    def __init__(self, graph: Graph, held: Callable[[np.ndarray], np.ndarray] = np.asarray) -> None:
        """Let every variable hold what the model's file says.

        Args:
            graph: The model's graph, with its training.
            held: Gives an array in the element type in which a variable holds it, as a run in float64 does.
        """
        self._held = held
        self._training = graph.training or Training()
        self._has_begun = self._training.initialization is None
        whole = graph.step
        self._arrays = {name: held(array) for name, array in whole.weights.items() if name in whole.variables}
        store = WeightStore(self._arrays)
        self.values: Values = {name: store.value(name) for name in self._arrays}
        # the arrays that the first values read must live as long as these
        self._first = {name: store.copies.values[id(array)] for name, array in self._arrays.items()}
        self._kinds = {name: values.kind_of(value) for name, value in self.values.items()}
        self._shapes = {name: list(array.shape) for name, array in self._arrays.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what they hold, as views that are valid while ``values`` stays."""
        return {name: values.to_array(value) for name, value in self.values.items()}

    def copies(self) -> dict[str, np.ndarray]:
        """Return what they hold, as arrays of the caller's own."""
        return {name: array.copy() for name, array in self.arrays().items()}

    def take(self, new: Values) -> None:
        """Let variables hold new values; nothing is copied.

        Raises:
            InputError: A value has another type or shape, which only the run told; each one is named.
        """
        faults = [
            f"variable {name!r} is {_described(self._arrays[name])}, its new value"
            f" {_described(values.to_array(value))}"
            for name, value in new.items()
            if value.data_type() != self._kinds[name] or value.shape() != self._shapes[name]
        ]
        if faults:
            raise InputError(f"update_binding: {'; '.join(faults)}")
        # those of now may come back, where the step fails after all; older ones cannot
        self._first = {name: pair for name, pair in self._first.items() if self.values[name] is pair[0]}
        self.values = {**self.values, **new}

    def begin(self) -> None:
        """Let the variables hold the values with which the model begins its training, once.

        Raises:
            GraphError: The model gives a variable a value of another type or shape.
            ExecutionError: The graph of these values fails.
        """
        if self._has_begun:
            return
        graph = self._training.initialization
        assert graph is not None
        results = zip((value.name for value in graph.outputs), Program(graph).run({}), strict=True)
        by_output = dict(results)
        initial = {
            name: self._held(by_output[output]) for name, output in self._training.initial_values.items()
        }
        faults = list(self._faults({**self._arrays, **initial}))
        if faults:
            raise GraphError(f"{graph.source}: initialization_binding: {'; '.join(faults)}")
        self.values = {**self.values, **{name: values.owned(array) for name, array in initial.items()}}
        self._has_begun = True

    def checked(self, state: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return arrays for the variables as these hold them.

        Raises:
            InputError: A variable is missing or unknown, or an array has another type or shape; every
                fault is told.
        """
        arrays = {name: self._held(np.asarray(item)) for name, item in state.items()}
        faults = list(self._faults(arrays))
        if faults:
            raise InputError(f"load_state: {'; '.join(faults)}")
        return arrays

    def load(self, state: Mapping[str, Any]) -> None:
        """Let every variable hold a copy of an array.

        Raises:
            InputError: As for ``checked``; nothing is changed.
        """
        arrays = self.checked(state)
        self.values = {name: values.owned(arrays[name]) for name in self._arrays}
        self._has_begun = True

    @property
    def names(self) -> frozenset[str]:
        """Their names."""
        return frozenset(self._arrays)

    def differences(self, arrays: Mapping[str, np.ndarray]) -> list[str]:
        """Return in words which of some variables have another type or shape than given arrays."""
        return [
            f"variable {name!r} is {_described(own)}, {_described(arrays[name])} is given"
            for name, own in self._arrays.items()
            if name in arrays and (arrays[name].dtype, arrays[name].shape) != (own.dtype, own.shape)
        ]

    def _faults(self, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        for name in sorted(arrays.keys() - self._arrays.keys()):
            yield f"there is no variable {name!r}{name_hint(name, self._arrays)}"
        for name in sorted(self._arrays.keys() - arrays.keys()):
            yield f"variable {name!r} is missing"
        yield from self.differences(arrays)


def _described(array: np.ndarray) -> str:
    """Return type and shape of an array, for messages."""
    try:
        title = dtypes.from_numpy(array.dtype).name
    except FormatError:  # a type that no tensor has
        title = str(array.dtype)
    return f"{title}{list(array.shape)}"
