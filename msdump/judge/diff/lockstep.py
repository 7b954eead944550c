"""Two networks in lockstep: when one has run an operator, the other one runs on to its counterpart.

The leading network runs in the caller's thread, the following one in a thread of its own that sleeps
unless an operator is requested. So one of the two runs at a time. Each runs ahead of the comparison by a
block of operators: alive are the values that a network keeps itself, and the values of its block. Integers
of quantised models are shown as the real numbers that they stand for.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.graph import Graph, Node
from msdump.judge.pair import is_quantised as are_quantised
from msdump.observer import Array, Arrays, Interest, NodeRun, Observer
from msdump.statistics import TotalsArray

_SCALED: Final[Mapping[str, tuple[int, int]]] = {
    "QuantizeLinear": (1, 2),
    "QLinearConv": (6, 7),
    "QLinearMatMul": (6, 7),
    "QLinearAdd": (6, 7),
    "QLinearMul": (6, 7),
    "QGemm": (7, 8),
    "QLinearConcat": (0, 1),
    "QLinearSigmoid": (3, 4),
    "QLinearLeakyRelu": (3, 4),
    "QLinearSoftmax": (3, 4),
    "QLinearAveragePool": (3, 4),
    "QLinearGlobalAveragePool": (3, 4),
    "QLinearReduceMean": (3, 4),
}
"""Inputs that tell scale and zero point of the output, by operator; of ONNX and of onnxruntime's domain."""

_MOVING: Final = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "DepthToSpace", "SpaceToDepth"}
    | {"Slice", "Split", "Gather", "Expand", "Tile", "MaxPool", "Relu", "Clip"}
)
"""Operators that return elements of their first input, and so have its scale."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Scale and zero point of a quantised tensor."""

    scale: float
    zero: int

    def real(self, array: np.ndarray) -> np.ndarray:
        """Return the real numbers that integers stand for, as float32.

        >>> Quantisation(0.5, 128).real(np.uint8([128, 129, 126])).tolist()
        [0.0, 0.5, -1.0]
        """
        return (array.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)


def is_quantised(graph: Graph) -> bool:
    """Return whether a model, or a branch or body in it, computes with quantised numbers."""
    return are_quantised(node.op_type for inner in graph.walk() for node in inner.nodes)


def quantisations(graph: Graph) -> dict[str, Quantisation]:
    """Return the scales of a graph's quantised values, by name, if they are weights of one element."""
    known: dict[str, Quantisation] = {}
    for node in graph.nodes:
        found = _of_output(graph, node, known)
        if found is not None:
            known |= {name: found for name in node.outputs if name}
    return known


def _of_output(graph: Graph, node: Node, known: Mapping[str, Quantisation]) -> Quantisation | None:
    if node.op_type in _MOVING:
        return known.get(node.inputs[0])
    slots = _SCALED.get(node.op_type)
    if slots is None:
        return None
    scale, zero = (
        graph.weights.get(node.inputs[slot]) if slot < len(node.inputs) else None for slot in slots
    )
    if scale is None or scale.size != 1 or (zero is not None and zero.size != 1):
        return None
    return Quantisation(float(scale.reshape(-1)[0]), 0 if zero is None else int(zero.reshape(-1)[0]))


def as_real(names: Sequence[str], arrays: Arrays, known: Mapping[str, Quantisation]) -> list[Array]:
    """Return tensors; quantised ones as real numbers.

    Args:
        names: Names of the tensors.
        arrays: The tensors, None for an absent one.
        known: Scales of quantised values, by name.
    """
    return [
        known[name].real(array) if array is not None and name in known and array.dtype.kind in "iu" else array
        for name, array in zip(names, arrays, strict=True)
    ]


_MOST_BYTES: Final = 24 << 20
"""Bytes of outputs that fill a block; each side holds them beyond what its run holds.

Smaller blocks take longer, by a tenth to a third with two thirds of the bytes: the two networks, of which the
threads sleep meanwhile, take turns once for each. Larger ones are no faster."""

_MOST: Final = 256
"""Most operators of one block."""

Scope = tuple[tuple[int, int], ...]
"""Where an operator runs: the index of each body around it, outermost first, and the number of its pass."""

Key = tuple[Scope, str]
"""One execution of an operator: its scope, and the name of its node."""


@dataclass(frozen=True, slots=True)
class Ran:
    """An operator that has just run; its tensors are views.

    Attributes:
        scope: The bodies that it ran in.
        graph: Its graph.
        node: The operator, or control flow after its bodies.
        inputs: Its inputs after the run.
        outputs: Its outputs.
    """

    scope: Scope
    graph: Graph
    node: Node
    inputs: Arrays
    outputs: Arrays

    @property
    def key(self) -> Key:
        """Its scope and name."""
        return self.scope, self.node.name


Show = Callable[[Ran], None]
Run = Callable[[Observer], Any]
"""Runs a network once under an observer; returns its outputs."""


@dataclass(slots=True)
class OperatorWatch(Observer):
    """Observes every operator of a graph and its bodies, control flow too.

    Attributes:
        graph: The graph.
        show: Called with each operator that has run.
        scope: The bodies around the graph.
        quantised: Scales of values, by graph index and name; such values are shown as real numbers.
    """

    graph: Graph
    show: Show
    scope: Scope = ()
    quantised: Mapping[int, Mapping[str, Quantisation]] = field(default_factory=dict)
    interest: Interest = field(init=False)
    _passes: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Watch all operators."""
        self.interest = Interest((True,) * len(self.graph.nodes), inputs=True, outputs=True)

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        """Show operators."""
        del found
        known = self.quantised.get(self.graph.index)
        for position, inputs, outputs, _ in batch:
            node = self.graph.nodes[position]
            read = as_real(node.inputs_after_run, inputs, known) if known else inputs
            made = as_real(node.declared_outputs, outputs, known) if known else outputs
            self.show(Ran(self.scope, self.graph, node, read, made))

    def looks_into(self, body: Graph) -> bool:
        """Look into every branch and loop."""
        del body
        return True

    def enter(self, body: Graph) -> OperatorWatch:
        """Return the observer of the next pass of a branch or loop body."""
        number = self._passes[body.index]
        self._passes[body.index] += 1
        return OperatorWatch(body, self.show, (*self.scope, (body.index, number)), self.quantised)


class RanBlock:
    """Operators that have run one after the other, until their tensors reach a bound."""

    def __init__(self) -> None:
        """Begin without operators."""
        self._ran: list[Ran] = []
        self._bytes = 0

    def add(self, ran: Ran) -> bool:
        """Add an operator; return whether the block is full."""
        self._ran.append(ran)
        self._bytes += sum(array.nbytes for array in ran.outputs if array is not None)
        return self._bytes >= _MOST_BYTES or len(self._ran) >= _MOST

    def take(self) -> list[Ran]:
        """Return the operators of the block, and empty it."""
        ran, self._ran, self._bytes = self._ran, [], 0
        return ran


class _Stopped(BaseException):
    """Ends the run of a following network that is not needed any more."""


class Follower:
    """A network that runs in a thread of its own, as far as requested.

    Attributes:
        outputs: The result of its run; None before its end, and after a failure.
        error: The error that ended its run, None without one.
    """

    def __init__(
        self,
        run: Run,
        graph: Graph,
        is_wanted: Callable[[Ran], bool],
        quantised: Mapping[int, Mapping[str, Quantisation]],
    ) -> None:
        """Wait for the first request.

        Args:
            run: Runs the network.
            graph: The graph that it runs.
            is_wanted: Returns whether an operator may be requested later; others are dropped when they ran.
            quantised: Scales of values, as of ``OperatorWatch``.
        """
        self._run, self._graph, self._is_wanted = run, graph, is_wanted
        self._quantised = quantised
        self._permits: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._shown: queue.SimpleQueue[tuple[list[Ran], bool]] = queue.SimpleQueue()
        self._block = RanBlock()
        self._ready: deque[Ran] = deque()
        self._is_over = False
        self._thread = threading.Thread(target=self._work, name="msdump follower", daemon=True)
        self._held: dict[Key, Ran] = {}
        self._closed: set[tuple[Scope, int]] = set()
        self._given_up: set[tuple[Scope, int]] = set()
        self.outputs: Any = None
        self.error: Exception | None = None

    def _work(self) -> None:
        try:
            self._wait()
            self.outputs = self._run(OperatorWatch(self._graph, self._show, quantised=self._quantised))
        except _Stopped:
            pass
        except Exception as error:  # noqa: BLE001 - the caller reports it
            self.error = error
        finally:
            self._shown.put((self._block.take(), True))

    def _show(self, ran: Ran) -> None:
        if self._block.add(ran):
            self._shown.put((self._block.take(), False))
            self._wait()

    def _wait(self) -> None:
        if not self._permits.get():
            raise _Stopped

    def _next(self) -> Ran | None:
        """Return the operator that ran next, None at the end of the run."""
        while not self._ready:
            if self._is_over:
                return None
            self._run_on()
        ran = self._ready.popleft()
        if ran.node.bodies:
            self._closed |= {(ran.scope, body.index) for body in ran.node.bodies.values()}
        return ran

    def _run_on(self) -> None:
        """Let the network run one more block."""
        if not self._thread.is_alive():
            self._thread.start()
        self._permits.put(True)
        block, self._is_over = self._shown.get()
        self._ready.extend(block)
        if self._is_over:
            self._thread.join()

    def until(self, key: Key) -> Ran | None:
        """Return an execution of an operator, running on to it if necessary.

        Returns:
            None where it does not run: another branch was taken, a loop ended sooner, or the run failed.
        """
        held = self._held.pop(key, None)
        while held is None and not self._is_past(key[0]):
            ran = self._next()
            if ran is None:
                return None
            if ran.key == key:
                return ran
            if self._is_wanted(ran) and not _lies_in(ran.scope, self._given_up):
                self._held[ran.key] = ran
        return held

    def _is_past(self, scope: Scope) -> bool:
        return _lies_in(scope, self._closed)

    def give_up(self, scope: Scope, body: int) -> list[Ran]:
        """Return the operators of a body that ran without being requested; later ones of it are dropped."""
        self._given_up.add((scope, body))
        over = [key for key in self._held if _lies_in(key[0], {(scope, body)})]
        return [self._held.pop(key) for key in over]

    def rest(self) -> Iterator[Ran]:
        """Yield all operators that were not requested, running the network to its end."""
        held, self._held = self._held, {}
        yield from held.values()
        while (ran := self._next()) is not None:
            yield ran

    def stop(self) -> None:
        """End the run, where it is not over."""
        if self._thread.is_alive():
            self._permits.put(False)
            self._thread.join()
        self._held.clear()
        self._ready.clear()
        self._is_over = True


def _lies_in(scope: Scope, bodies: set[tuple[Scope, int]]) -> bool:
    """Return whether a scope lies in one of some bodies: scopes of control flow and indices."""
    return bool(bodies) and any((scope[:depth], index) in bodies for depth, (index, _) in enumerate(scope))
