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

from msdump.graph import Graph, Node
from msdump.judge.diff.pairing import Quantisation, as_real
from msdump.observer import Arrays, Interest, NodeRun, Observer
from msdump.statistics import TotalsArray

_MOST_BYTES: Final = 24 << 20
"""Bytes of outputs that fill a block; each side holds them beyond what its run holds.

Smaller blocks take longer, by a tenth to a third with two thirds of the bytes: the two networks, of which the
threads sleep meanwhile, take turns once for each. Larger ones are no faster."""

_MOST: Final = 256
"""Most operators of one block."""

Nesting = tuple[tuple[int, int], ...]
"""Where an operator runs: the index of each body around it, outermost first, and the number of its pass."""

Key = tuple[Nesting, str]
"""One execution of an operator: its nesting, and the name of its node."""


@dataclass(frozen=True, slots=True)
class Ran:
    """An operator that has just run; its tensors are views."""

    nesting: Nesting  # the bodies that it ran in
    graph: Graph
    node: Node  # the operator, or control flow after its bodies
    inputs: Arrays
    outputs: Arrays

    @property
    def key(self) -> Key:
        """Its nesting and name."""
        return self.nesting, self.node.name


Show = Callable[[Ran], None]
Run = Callable[[Observer], Any]
"""Runs a network once under an observer; returns its outputs."""


@dataclass(slots=True)
class OperatorWatch(Observer):
    """Observes every operator of a graph and its bodies, control flow too."""

    graph: Graph
    show: Show  # called with each operator that has run
    nesting: Nesting = ()  # the bodies around the graph
    # scales of values, by graph index and name; such values are shown as real numbers
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
            self.show(Ran(self.nesting, self.graph, node, read, made))

    def looks_into(self, body: Graph) -> bool:
        """Look into every branch and loop."""
        del body
        return True

    def enter(self, body: Graph) -> OperatorWatch:
        """Return the observer of the next pass of a branch or loop body."""
        number = self._passes[body.index]
        self._passes[body.index] += 1
        return OperatorWatch(body, self.show, (*self.nesting, (body.index, number)), self.quantised)


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
    """A network that runs in a thread of its own, as far as requested."""

    def __init__(
        self,
        run: Run,
        graph: Graph,
        is_wanted: Callable[[Ran], bool],
        quantised: Mapping[int, Mapping[str, Quantisation]],
    ) -> None:
        """Wait for the first request.

        Operators that ``is_wanted`` refuses are dropped when they ran.
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
        self._closed: set[tuple[Nesting, int]] = set()
        self._given_up: set[tuple[Nesting, int]] = set()
        self.outputs: Any = None  # the result of its run; None before its end, and after a failure
        self.error: Exception | None = None  # the error that ended its run, None without one

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
            if not self._thread.is_alive():
                self._thread.start()
            self._permits.put(True)
            block, self._is_over = self._shown.get()
            self._ready.extend(block)
            if self._is_over:
                self._thread.join()
        ran = self._ready.popleft()
        if ran.node.bodies:
            self._closed |= {(ran.nesting, body.index) for body in ran.node.bodies.values()}
        return ran

    def until(self, key: Key) -> Ran | None:
        """Return an execution of an operator, running on to it if necessary; None where it does not run.

        Another branch was taken, a loop ended sooner, or the run failed.
        """
        held = self._held.pop(key, None)
        while held is None and not _lies_in(key[0], self._closed):
            ran = self._next()
            if ran is None:
                return None
            if ran.key == key:
                return ran
            if self._is_wanted(ran) and not _lies_in(ran.nesting, self._given_up):
                self._held[ran.key] = ran
        return held

    def give_up(self, nesting: Nesting, body: int) -> list[Ran]:
        """Return the operators of a body that ran without being requested; later ones of it are dropped."""
        self._given_up.add((nesting, body))
        over = [key for key in self._held if _lies_in(key[0], {(nesting, body)})]
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


def _lies_in(nesting: Nesting, bodies: set[tuple[Nesting, int]]) -> bool:
    """Return whether a nesting is inside of bodies, each given by its operator's nesting and its index."""
    return any((nesting[:depth], index) in bodies for depth, (index, _) in enumerate(nesting))
