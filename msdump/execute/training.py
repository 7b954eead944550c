"""Runs of training graphs: variables, their state over steps, numbers that are not finite."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.errors import GraphError, InputError, MsdumpError, name_hint
from msdump.execute import values
from msdump.execute.program import NONE_REPLACED, Program, Replaced
from msdump.execute.runtime import OrtValue
from msdump.execute.weights import WeightStore
from msdump.graph import Graph, Training
from msdump.observer import Array, Interest, NodeRun, Observer
from msdump.statistics import TotalsArray

_FLOATS: Final = "fcV"  # kinds of numpy's types with infinities; V: ml_dtypes' types


def is_finite(array: Array) -> bool:
    """Return whether a tensor has neither NaN nor infinities; True for values that are not floating point."""
    if array is None or array.dtype.kind not in _FLOATS:
        return True
    return bool(np.isfinite(array).all())


def losses(graph: Graph, outputs: Iterable[Any]) -> list[np.ndarray]:
    """Return the results of a training step that are losses: single numbers, or from the cell of the loss."""
    return [
        output
        for value, output in zip(graph.results, outputs, strict=True)
        if isinstance(output, np.ndarray) and (output.size == 1 or value.name in graph.losses)
    ]


def first_fault(program: Program, feeds: Mapping[str, OrtValue | None], replaced: Replaced) -> str:
    """Run a step again; return a text that names the origin of the first value that is not finite."""
    fed = {name: values.to_python(value) for name, value in feeds.items()}
    faulty = {
        name: item for name, item in fed.items() if isinstance(item, np.ndarray) and not is_finite(item)
    }
    before = f"{', '.join(map(repr, faulty))} held NaN or infinity before the step"
    # fed NaN or bad variables are the origin; fed infinities may be intended (masks): search operators first
    if any(name in program.graph.variables or np.isnan(item).any() for name, item in faulty.items()):
        return before
    search = _Search(program.graph)
    with contextlib.suppress(MsdumpError):  # the run may fail after the operator is found
        program.execute(program.frame(feeds), search, replaced)
    if search.found:
        return search.found[0]
    return before if faulty else "a second run of the step had no NaN or infinity"


@dataclass(slots=True)
class _Search(Observer):
    """Observer that finds the first operator with finite inputs and an output that is not finite."""

    graph: Graph  # the graph that runs
    # a text that names the operator, or empty; searches inside branches and loops share the list
    found: list[str] = field(default_factory=list)
    interest: Interest = field(init=False)

    def __post_init__(self) -> None:
        """Watch every operator, unless one is found."""
        self.interest = Interest((not self.found,) * len(self.graph.nodes), inputs=True, outputs=True)

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        """Look at operators that have just run."""
        del found
        for position, inputs, outputs, _ in batch:
            node = self.graph.nodes[position]
            if self.found or node.bodies:
                continue
            # inputs that the operator updates in place already hold the new values: they count as outputs
            read = [array for slot, array in enumerate(inputs) if slot not in node.update.new_values]
            written = (inputs[slot] for slot in node.update.new_values)
            if all(is_finite(each) for each in read) and not all(
                is_finite(each) for each in (*outputs, *written)
            ):
                self.found.append(
                    f"{node.operator.full_name} has finite inputs and the first output with NaN or infinity"
                )

    def looks_into(self, body: Graph) -> bool:
        """Look into every branch and loop until something is found."""
        del body
        return not self.found

    def enter(self, body: Graph) -> _Search:
        """Return the search inside a branch or loop body."""
        return _Search(body, self.found)


class Runs:
    """A program with its variables: a run reads them, a training step updates them afterwards."""

    def __init__(self, program: Program, state: TrainingState) -> None:
        self._program = program
        self._state = state
        self._bound = frozenset(program.graph.bindings.values()) - set(program.graph.returns)

    def forget_sessions(self) -> None:
        """Release each session right after its use in the next run, which is the last."""
        self._program.keeps_sessions = False

    def infer(
        self, inputs: Mapping[str, Any], observer: Observer | None, replaced: Replaced = NONE_REPLACED
    ) -> list[Any]:
        """Run the network on the caller's inputs; return its outputs; see ``Program.run``."""
        fed = self._feeds(inputs, self._state.values)
        frame = self._program.frame(fed)
        self._program.execute(frame, observer, replaced)
        return self._program.outputs(frame, fed)

    def train(
        self, inputs: Mapping[str, Any], observer: Observer | None, replaced: Replaced = NONE_REPLACED
    ) -> list[Any]:
        """Run a step on the caller's inputs; return the outputs that are not new values of variables.

        Raises:
            InputError: A variable would get a value of another shape; no variable has changed.
            MsdumpError: As for ``Program.run``.
        """
        fed = self._feeds(inputs, self._state.values)
        frame = self._program.frame(fed)
        self._program.execute(frame, observer, replaced)
        outputs = self._program.outputs(frame, fed, dropped=self._bound)
        self._state.take(self._program.bound(frame, inputs))
        return outputs

    def fault(self, inputs: Mapping[str, Any], before: Values, replaced: Replaced = NONE_REPLACED) -> str:
        """Return a text that names the origin of the first value that is not finite.

        Runs the step again from its inputs and the variables before it.
        """
        return first_fault(self._program, self._feeds(inputs, before), replaced)

    def _feeds(self, inputs: Mapping[str, Any], variables: Values) -> dict[str, OrtValue | None]:
        graph = self._program.graph
        fed = {name: variables[name] for name in graph.variables}
        for name, item in inputs.items():
            fed[name] = values.from_python(item, graph.type_of(name).dtype)
        return fed


Values = Mapping[str, OrtValue]
"""The value of each variable by name; never changed in place, so that an older one can be restored."""


class TrainingState:
    """The variables of a model, which its inference graph and its training step share."""

    def __init__(self, graph: Graph, held: Callable[[np.ndarray], np.ndarray] = np.asarray) -> None:
        """Initialize every variable with its value in the model's file.

        ``held`` converts arrays to the element type of variables, such as float64 in a run in float64.
        """
        self._held = held
        self._training = graph.training or Training()
        self._has_begun = self._training.initialization is None
        whole = graph.step
        self._arrays = {name: held(array) for name, array in whole.weights.items() if name in whole.variables}
        store = WeightStore(self._arrays)
        self.values: Values = {name: store.value(name) for name in self._arrays}
        # keeps the arrays under the first values alive
        self._first = {name: store.copies.values[id(array)] for name, array in self._arrays.items()}
        self._kinds = {name: values.kind_of(value) for name, value in self.values.items()}
        self._shapes = {name: list(array.shape) for name, array in self._arrays.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the variables as views, valid until ``values`` is replaced."""
        return {name: values.to_array(value) for name, value in self.values.items()}

    def copies(self) -> dict[str, np.ndarray]:
        """Return the variables as copies."""
        return {name: array.copy() for name, array in self.arrays().items()}

    def take(self, new: Values) -> None:
        """Set variables to new values, without a copy; InputError names each of another type or shape."""
        faults = [
            f"variable {name!r} is {values.described(self._arrays[name])}, its new value"
            f" {values.described(values.to_array(value))}"
            for name, value in new.items()
            if value.data_type() != self._kinds[name] or value.shape() != self._shapes[name]
        ]
        if faults:
            raise InputError(f"update_binding: {'; '.join(faults)}")
        # keep arrays of first values in use, which a failing step may restore; drop the others
        self._first = {name: pair for name, pair in self._first.items() if self.values[name] is pair[0]}
        self.values = {**self.values, **new}

    def begin(self) -> None:
        """Set the variables to the values of the model's initialization, once.

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
        """Return arrays in the variables' types; InputError names each missing, unknown or unfit one."""
        arrays = {
            name: self._held(np.asarray(values.unmasked(item, f"load_state: variable {name!r}: ")))
            for name, item in state.items()
        }
        faults = list(self._faults(arrays))
        if faults:
            raise InputError(f"load_state: {'; '.join(faults)}")
        return arrays

    def load(self, state: Mapping[str, Any]) -> None:
        """Set every variable to a copy of an array; InputError, and no change, as for ``checked``."""
        arrays = self.checked(state)
        self.values = {name: values.owned(arrays[name]) for name in self._arrays}
        self._has_begun = True

    @property
    def names(self) -> frozenset[str]:
        """Names of the variables."""
        return frozenset(self._arrays)

    def differences(self, arrays: Mapping[str, np.ndarray]) -> list[str]:
        """Return texts that name variables of another type or shape than given arrays."""
        return [
            f"variable {name!r} is {values.described(own)}, {values.described(arrays[name])} is given"
            for name, own in self._arrays.items()
            if name in arrays and (arrays[name].dtype, arrays[name].shape) != (own.dtype, own.shape)
        ]

    def _faults(self, arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
        for name in sorted(arrays.keys() - self._arrays.keys()):
            yield f"there is no variable {name!r}{name_hint(name, self._arrays)}"
        for name in sorted(self._arrays.keys() - arrays.keys()):
            yield f"variable {name!r} is missing"
        yield from self.differences(arrays)
