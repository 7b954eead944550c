"""The error of an operator itself: its output beside that of a second run on the same inputs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import MsdumpError
from msdump.execute import Change, Float64Runner, OperatorRunner, Runtime, WeightCopies, doubled
from msdump.graph import Graph, Node
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.judge import TensorError, errors
from msdump.judge.rerun.arithmetic import FLOORS, UNITS, Arithmetic, in_type, narrower
from msdump.judge.verdict import OwnError
from msdump.observer import Array
from msdump.record import IO

Given = Mapping[str, np.ndarray]
"""Inputs of an operator by the names of values."""


class OperatorRunners:
    """Runs operators of any graph in any arithmetic; thread-safe."""

    def __init__(
        self,
        copies: WeightCopies | None = None,
        on: Runtime | None = None,
        around: Callable[[Graph], Graph | None] = lambda _: None,
    ) -> None:
        """Prepare runners: each is compiled when an operator of its graph first runs.

        Args:
            copies: Copies of the weights that runners share.
            on: The runtime of the operators; None: the CPU's.
            around: Returns the graph around a body.
        """
        self._copies, self._runtime, self._around = copies or WeightCopies(), on, around
        # by thread: a runner serves one caller at a time; it keeps the graph alive, so the id is its own
        self._singles: dict[tuple[int, int, Arithmetic], OperatorRunner] = {}
        self._doubles: dict[tuple[int, int], Float64Runner] = {}

    def outputs(self, graph: Graph, node: Node, given: Given, arithmetic: Arithmetic) -> tuple[Array, ...]:
        """Run an operator once; return an array for each of its outputs, None for an unused one.

        Weights that are not given are the graph's.

        Raises:
            MsdumpError: The operator cannot run on these inputs.
        """
        if arithmetic.is_wide:
            return self.exact(graph).run(node, given)
        key = threading.get_ident(), id(graph), arithmetic
        if key not in self._singles:
            self._singles[key] = OperatorRunner(
                graph,
                arithmetic.roundings,
                self._copies,
                on=self._runtime,
                around=self._around(graph),
                is_quiet=True,
            )
        return self._singles[key].run(node, given)

    def exact(self, graph: Graph) -> Float64Runner:
        """Return the runner of a graph's operators in float64."""
        return self._doubles.setdefault((threading.get_ident(), id(graph)), Float64Runner(graph))


_FEW: Final = 4.0
"""Units of the last place by which kernels of one arithmetic may differ, at the tensor's own scale."""

_OF_ALL: Final = 3
"""Factor by which the norm of the error may exceed the norm of the bounds."""

_OF_ONE: Final = 12
"""Factor by which the error of one element may exceed the sum of its own bound and the typical one."""

_FAITHFUL: Final = 8
"""Units of the last place allowed as error of an operator that cannot run in float64."""


def is_near(error: TensorError) -> bool:
    """Return whether an error is a few units of the last place."""
    if error.is_same:
        return True
    return not error.misplaced and not error.changed and error.ulps <= _FEW


@dataclass(frozen=True, slots=True)
class RerunOutput:
    """An output of an operator that runs again."""

    slot: int  # number of the output
    dumped: np.ndarray  # its elements, in the model's type
    dtype: dtypes.DType  # element type on the device
    io: IO  # output, or input if the dump has it as the input that the operator updates in place
    place: int  # number of the output or input in the dump

    def near(self, error: TensorError, arithmetic: Arithmetic) -> OwnError:
        """Return an own error, marked as explained if it is a few units of the last place."""
        return OwnError(self.place, error, 0.0, is_near(error), str(arithmetic), io=self.io)

    def error(self, again: np.ndarray) -> TensorError:
        """Return the error of the output from a new one, both rounded to the device's type."""
        held, dumped = in_type(again, self.dtype), in_type(self.dumped, self.dtype)
        if held.dtype != dumped.dtype:
            held, dumped = again, self.dumped
        return errors.measure(dumped, held, self.dtype.name)


class OwnErrors:
    """The own errors of one execution of an operator, in one arithmetic.

    An error is explained by a few units of the last place, or by the bound of rounding errors in float64.
    """

    def __init__(
        self, runners: OperatorRunners, graph: Graph, node: Node, given: Given, arithmetic: Arithmetic
    ) -> None:
        """Take the operator and its inputs; it runs in float64 once an error needs it."""
        self._exact, self._graph, self._node = runners.exact(graph), graph, node
        self._given, self._arithmetic = given, arithmetic
        types = [*_types(graph, node, arithmetic)]
        self._unit, self._floor = (max(table[name] for name in types) for table in (UNITS, FLOORS))
        self._bounded: list[tuple[np.ndarray, np.ndarray] | None] | None = None

    def explained(self, output: RerunOutput, error: TensorError, apart: TensorError) -> OwnError:
        """Return an output's error, and whether rounding explains it.

        Infinities within a fused kernel that its later parts hide are no rounding, though the arithmetic of
        the second run makes them again. ``error`` is from a second run, ``apart`` from golden's output.
        """
        if is_near(error):
            found = output.near(error, self._arithmetic)
        else:
            found = self._by_bound(output) or self._by_units(output, error)
        part = "" if found.error.misplaced else self.overflowed_part(output, apart)
        return replace(found, overflow=part, is_explained=found.is_explained and not part)

    def _by_bound(self, output: RerunOutput) -> OwnError | None:
        """Return an output's error from float64; None where the operator cannot run in it."""
        if self._bounded is None:
            roundings = self._arithmetic.roundings(self._node)
            try:
                self._bounded = self._exact.bounded(
                    self._node, self._given, roundings, self._unit, self._floor
                )
            except Exception:  # noqa: BLE001 - without float64 the units of the type decide
                self._bounded = [None] * len(self._node.outputs)
        dumped, dtype = output.dumped, output.dtype
        bounded = self._bounded[output.slot]
        if bounded is None or bounded[0].size != dumped.size:
            return None
        exact, bound = (each.reshape(dumped.shape) for each in bounded)
        if exact.dtype.kind != "f":
            error = errors.measure(dumped, exact.astype(dumped.dtype))
            # integers that rounding changes depend on a comparison or truncation at its very edge: no error
            is_explained = not np.any((dumped != exact) & ~bound)
            return OwnError(output.place, error, 0.0, is_explained, "float64", io=output.io)
        if dtype in (*HALVES, FLOAT32):  # beyond the range of the type stand infinities
            held = doubled(in_type(exact, dtype))
            exact = np.where(np.isinf(held), held, exact)
        error = errors.measure(dumped, exact)
        bound = bound + FLOORS.get(dtype.name, 0.0)
        # converting a result to its file's type may round once more
        if (gap := UNITS.get(dtype.name, 0.0)) > self._unit:
            bound = bound + gap * np.abs(exact)
        dumped = doubled(dumped)
        finite = np.isfinite(dumped) & np.isfinite(exact) & np.isfinite(bound)
        difference, bound = np.abs(dumped[finite] - exact[finite]), bound[finite]
        distance, norm, size = (float(np.linalg.norm(each)) for each in (difference, bound, exact[finite]))
        typical = norm / max(np.sqrt(bound.size), 1)
        is_within = distance <= _OF_ALL * norm and bool(np.all(difference <= _OF_ONE * (bound + typical)))
        return OwnError(
            output.place,
            error,
            _OF_ALL * norm / size if size else np.inf,
            # an element at the edge of the type's range may round to infinity on one side only
            is_within and not error.misplaced,
            "float64",
            io=output.io,
            finite=distance / size if size and error.misplaced and not is_within else 0.0,
        )

    def _by_units(self, output: RerunOutput, error: TensorError) -> OwnError:
        """Return an output's error and whether it is a few units of the coarsest type."""
        allowed = _FAITHFUL * UNITS.get(output.dtype.name, 0.0)
        is_few = (
            error.ulps <= _FAITHFUL or error.scaled <= allowed
        )  # scaled: sums may cancel to small numbers
        is_explained = (error.distance <= allowed and is_few) or (
            error.largest <= _FAITHFUL * FLOORS.get(output.dtype.name, 0.0)
        )
        note = "cannot run in float64"
        return OwnError(output.place, error, allowed, is_explained, str(self._arithmetic), note, output.io)

    def overflowed_part(self, output: RerunOutput, apart: TensorError) -> str:
        """Return the name of the kernel's part that explains a wrong output if it overflowed; "" for none."""
        if output.dumped.dtype.kind != "f" or not np.isfinite(output.dumped).all() or apart.scaled <= _NEAR:
            return ""

        def run(change: Change) -> tuple[Array, ...]:
            return self._exact.run(self._node, self._given, change=change)

        try:
            return overflowed_part(self._node, run, output.slot, output.dumped)
        except MsdumpError:  # a part of the kernel cannot run in float64
            return ""


def _types(graph: Graph, node: Node, arithmetic: Arithmetic) -> Iterator[str]:
    """Yield the types to which an operator rounds results: the declared one (or float32), and its parts'."""
    declared = [graph.type_of(name).dtype for name in node.outputs if name]
    floats = [dtype for dtype in declared if dtype is not None and dtype.name in UNITS]
    coarsest = floats[0] if floats else FLOAT32
    for dtype in floats[1:]:
        coarsest = narrower(coarsest, dtype)
    yield coarsest.name
    roundings = arithmetic.roundings(node) or ()
    yield from (each.writes.name for each in roundings)
    # later parts of a kernel round their inputs, too, perhaps to the other neighbouring number
    yield from (each.reads.name for each in roundings[1:])


_NEAR: Final = 2.0**-8
"""Difference of elements that agree, relative to the largest one: an overflow was held in float16."""

_SAME_SIZE: Final = 1 - 2.0**-8
"""Tolerance in comparing the magnitudes of overflowed and other elements."""

_FULL: Final = 65504.0
"""The largest number of float16."""

Run = Callable[[Change], tuple[Array, ...]]
"""Runs a kernel in float64 on its inputs, and lets a function change the results of its parts."""


def _lose(
    part: str, sizes: dict[str, np.ndarray], node: Node, results: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Return the results of a node; for a given part infinities, and keep its magnitudes."""
    if node.name != part:
        return results
    sizes |= {name: np.abs(array) for name, array in results.items()}
    return {name: np.copysign(np.inf, array) for name, array in results.items()}


def overflowed_part(node: Node, run: Run, slot: int, dumped: np.ndarray) -> str:
    """Return the name of the kernel's part that explains wrong outputs if it overflowed; "" for none.

    Every wrong element must equal the result of later parts for an infinity, and belong to a larger number of
    this part than all correct elements. Parts with numbers beyond float16 are preferred. Parts count only if
    later ones do not move elements.
    """
    if not node.parts:
        return ""
    output, exact, found = doubled(dumped).reshape(-1), run(lambda _, results: results)[slot], []
    if exact is None or exact.size != output.size:
        return ""
    allowed = _NEAR * float(np.max(np.abs(exact), initial=0.0))
    is_off = np.abs(output - exact.reshape(-1)) > allowed
    for part in node.parts[:-1] if is_off.any() else ():
        sizes: dict[str, np.ndarray] = {}
        overflow = functools.partial(_lose, part.name, sizes)
        infinite, size = run(overflow)[slot], sizes[part.outputs[0]]
        if infinite is None or infinite.size != output.size:
            continue
        try:
            size = (
                size.reshape(-1)
                if size.size == output.size
                else np.broadcast_to(size, exact.shape).reshape(-1)
            )
        except ValueError:
            continue
        is_infinite = np.abs(output - infinite.reshape(-1)) <= allowed
        edge = float(size[is_off].min())
        if is_infinite[is_off].all() and edge >= _SAME_SIZE * np.max(size[~is_infinite], initial=0.0):
            found.append((edge < _FULL, part.operator.full_name.rpartition("/")[2]))
    return min(found, key=lambda each: each[0], default=(False, ""))[1]
