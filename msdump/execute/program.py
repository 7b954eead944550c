"""A graph compiled to a list of operators, and the loop that runs them, segment by segment."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from msdump import tracing
from msdump.communication import Collectives
from msdump.device import FloatStatus, dead_values
from msdump.errors import InputError, is_final, is_foreign
from msdump.execute import values
from msdump.execute.control import Frame, Frames, RunnableBody, Site, control
from msdump.execute.host import Exchange, host_operator
from msdump.execute.kernels import KernelFactory, RoundingsOf, as_the_model_says
from msdump.execute.runtime import OrtValue, Run, Runtime, cpu_runtime, failure
from msdump.execute.segment_compiler import Joining, SegmentCompiler
from msdump.execute.segments import (
    ProgramOperator,
    Segment,
    SegmentPlan,
    SegmentPlanner,
    node_runs,
)
from msdump.execute.weights import WeightCopies, WeightStore, tells_overflow
from msdump.graph import Graph, Node
from msdump.observer import ElementsNeededError, Observer
from msdump.plan import Optimization

_Timed = TypeVar("_Timed", bound=Callable[..., Any])

Replaced = Mapping[int, Mapping[int, OrtValue]]
"""The caller's tensors in the place of outputs, by the operator's position and the output's slot."""

NONE_REPLACED: Final[Replaced] = MappingProxyType({})


class Program:
    """A network, or a body in it, that runs operator by operator.

    Every value has a slot in a list and is dropped after its last use, so that peak memory is about that of
    a whole session.

    The loop never reads beyond the last item of the runtime's vector of outputs, as a strict zip would: the
    C++ exception at its end costs some 25 microseconds.
    """

    def __init__(
        self,
        graph: Graph,
        roundings: RoundingsOf = as_the_model_says,
        copies: WeightCopies | None = None,
        *,
        on: Runtime | None = None,
        around: Graph | None = None,
        collectives: Collectives | None = None,
        float_status: FloatStatus | None = None,
        kernels: type[KernelFactory] = KernelFactory,
        optimization: Optimization = Optimization.NONE,
    ) -> None:
        """Lay out the slots; kernels are compiled while the first run reaches them.

        Args:
            graph: The graph.
            roundings: The emulated device's arithmetic, for this graph and its bodies.
            copies: Values and copies of weights, shared with the program around a body.
            on: The runtime of the operators; None: the CPU's.
            around: The graph around a body.
            collectives: The exchange of tensors with other ranks; None: without the network's name.
            float_status: The device's overflow status; None: nothing raises it.
            kernels: The compiler of operators.
            optimization: How far the runtime optimises segments.
        """
        self.graph = graph
        # whether to keep sessions for another run; else each session is released after use
        self.keeps_sessions = True
        self._kernels = kernels
        self._optimization = optimization
        self._collectives = collectives
        self._float_status = float_status
        self._weights = WeightStore(graph.weights, copies)
        self._frames = Frames(graph, self._weights)
        self.slots = self._frames.slots  # the slot of every value
        self._roundings = roundings
        self._runtime = on or cpu_runtime()
        distant = graph.outer & around.outer if around is not None else frozenset()
        parts = graph, self._weights, self._runtime, roundings, distant
        self._factory = kernels(*parts, float_status=float_status)
        self._results = [(value.name, self.slots[value.name]) for value in graph.outputs]
        self._programs: list[Program] = []
        # outputs of control flow may alias its inputs: a body may return an input unchanged
        self._passed_on = {name for node in graph.nodes if node.bodies for name in node.outputs}
        self._operators = [
            self._operator(position, node, tuple(self.slots[name] for name in dead))
            for position, (node, dead) in enumerate(zip(graph.nodes, dead_values(graph), strict=True))
        ]
        compiler = SegmentCompiler(*parts, optimization=optimization)
        joining = Joining(graph, roundings) if kernels.joins else None
        joins = [joining is not None and joining.joins(node) for node in graph.nodes]
        self._planner = SegmentPlanner(graph, self._operators, self._frames, compiler, joins)

    def _operator(self, position: int, node: Node, dead: tuple[int, ...]) -> ProgramOperator:
        roundings = None if node.bodies else self._roundings(node)
        host = host_operator(
            position,
            node,
            self.graph,
            self._frames.tensor,
            roundings,
            collectives=self._collectives,
            float_status=self._float_status,
        )
        if host is not None:
            has_status = isinstance(host, Exchange) and tells_overflow(roundings)
            status = (self._frames.status,) * has_status
            slots = tuple(self.slots[name] for name in node.outputs if name)
            return ProgramOperator(
                position, node, dead + status, results=slots + status, control=_timed(host, node)
            )
        if not node.bodies:
            return ProgramOperator(position, node, dead)
        used = [position for position, name in enumerate(node.outputs) if name]
        programs = {
            name: type(self)(
                body,
                self._roundings,
                self._weights.copies,
                on=self._runtime,
                around=self.graph,
                collectives=self._collectives,
                float_status=self._float_status,
                kernels=self._kernels,
                optimization=self._optimization,
            )
            for name, body in node.bodies.items()
        }
        self._programs += programs.values()
        bodies = {name: RunnableBody(program, self.slots) for name, program in programs.items()}
        whole = ProgramOperator(position, node, dead)

        def run_whole(frame: Frame) -> Frame:
            """Run control flow as one operator of the runtime; return all outputs, None for unused ones."""
            results = self._kernel_outputs(whole, frame)
            outputs = dict(zip(whole.results, results))  # noqa: B905 - see the class
            return [outputs.get(self.slots[name]) if name else None for name in node.outputs]

        inside = control(Site(node, bodies, self._frames.value, run_whole))
        return ProgramOperator(
            position,
            node,
            dead,
            results=tuple(self.slots[node.outputs[position]] for position in used),
            control=_timed(lambda frame, observer: [*map(inside(frame, observer).__getitem__, used)], node),
        )

    @property
    def has_run(self) -> bool:
        """Whether an operator or segment was compiled, so that a run has at least begun."""
        return (
            self._planner.has_run
            or any(operator.run is not None for operator in self._operators)
            or any(program.has_run for program in self._programs)
        )

    def run(self, feeds: Mapping[str, OrtValue | None], observer: Observer | None = None) -> list[Any]:
        """Run the network; return its outputs: arrays, lists of arrays, or None. See ``execute``."""
        frame = self.frame(feeds)
        self.execute(frame, observer)
        return self.outputs(frame, feeds)

    def outputs(
        self,
        frame: Frame,
        feeds: Mapping[str, OrtValue | None],
        dropped: Container[str] = frozenset(),
    ) -> list[Any]:
        """Return the graph's outputs after a run, without some of them.

        Args:
            frame: The values at the end of the run.
            feeds: The values that were fed.
            dropped: Names of unwanted outputs.
        """
        names = (value.name for value in self.graph.outputs if value.name not in dropped)
        return [
            self._frames.output(name, frame, is_fed=name in feeds, is_foreign=name in self._passed_on)
            for name in names
        ]

    def bound(self, frame: Frame, given: Container[str]) -> dict[str, OrtValue]:
        """Return the new value of each bound initializer after a run.

        Args:
            frame: The values at the end of the run.
            given: Names of the caller's inputs, which lie in the caller's memory.
        """
        return {
            name: self._frames.kept(output, frame, is_foreign=output in given or output in self._passed_on)
            for name, output in self.graph.bindings.items()
        }

    def frame(self, feeds: Mapping[str, OrtValue | None] = MappingProxyType({})) -> Frame:
        """Return a new frame: empty but for feeds by name, and for weights that sessions take as feeds."""
        frame = self._frames.new()
        for name, value in feeds.items():
            frame[self.slots[name]] = value
        return frame

    def execute(self, frame: Frame, observer: Observer | None, replaced: Replaced = NONE_REPLACED) -> None:
        """Run every segment in a frame that holds the inputs, and in the end all values that still live.

        Args:
            frame: A value for every graph input (and any overridden initializer).
            observer: Receives the operators in which it is interested, after they ran.
            replaced: Outputs that take the caller's tensors once their operators ran.

        Raises:
            ExecutionError: An operator failed; it is named.
            UnsupportedOpError: An operator that nothing can run.
            InputError: A replaced output has another type or shape in this run.
        """
        interest = None if observer is None else observer.interest
        plan = self._planner.plan_for(observer, frame, replaced)
        segments, index = plan.segments, 0
        while index < len(segments):
            segment = segments[index]
            if segment.single is not None:
                self._step(segment.single, frame, observer, replaced)
                index += 1
            elif segment.run is not None or self._planner.compile(plan, index, frame):
                index += self._run(plan, segment, frame, observer)
            else:
                continue  # smaller segments have replaced it in the plan
            if not self.keeps_sessions:
                self._planner.forget(segment)
            if observer is not None and observer.interest is not interest:
                # the observer changed its interest, but later segments were cut for the old one
                for operator in self._operators[segment.operators[-1].position + 1 :]:
                    self._step(operator, frame, observer, replaced)
                return

    def _run(self, plan: SegmentPlan, segment: Segment, frame: Frame, observer: Observer | None) -> int:
        """Run a segment, show its operators; return how many segments are done (0: it must run again)."""
        assert segment.run is not None
        try:
            outputs = segment.run(segment.fed(frame, self._frames), segment.names, None)
        except Exception as error:
            if is_foreign(error):
                raise
            # run its operators one by one: one of them fails and is named, or runs by a fallback
            for operator in segment.operators:
                self._step(operator, frame, observer)
            return self._planner.part(plan, segment, error)
        for slot, value in zip(segment.results, outputs):  # noqa: B905 - see the class
            frame[slot] = value
        if observer is not None and observer.interest.need is not None and segment.measuring is not None:
            try:
                segment.measuring.show(segment, frame, self._frames, observer)
            except ElementsNeededError:
                self._planner.give(plan, segment)  # its inputs are kept, so it can run again
                return 0
        elif (
            observer is not None
            and segment.shown
            and (batch := node_runs(segment.shown, frame, self._frames, observer.interest))
        ):
            observer.ran(batch)
        for slot in segment.dead:
            frame[slot] = None
        return 1

    def _step(
        self,
        operator: ProgramOperator,
        frame: Frame,
        observer: Observer | None,
        replaced: Replaced = NONE_REPLACED,
    ) -> None:
        if operator.control is not None:
            outputs = operator.control(frame, observer)
        else:
            outputs = self._kernel_outputs(operator, frame, observer, operator.position)
        for slot, value in zip(operator.results, outputs):  # noqa: B905 - see the class
            frame[slot] = value
        for slot, value in replaced.get(operator.position, {}).items():
            name = operator.node.outputs[slot]
            made, given = self._frames.tensor(name, frame), values.to_array(value)
            if made is None or (made.dtype, made.shape) != (given.dtype, given.shape):
                found = "no tensor" if made is None else values.described(made)
                raise InputError(
                    f"{self.graph.source}: output {slot} of {operator.node.operator.full_name} is {found} in"
                    f" this run, {values.described(given)} is given in its place"
                )
            frame[self.slots[name]] = value
        if observer is not None and observer.interest.shows(operator.position):
            observer.ran(node_runs((operator,), frame, self._frames, observer.interest))
        for slot in operator.dead:
            frame[slot] = None

    def _kernel_outputs(
        self,
        operator: ProgramOperator,
        frame: Frame,
        observer: Observer | None = None,
        position: int | None = None,
    ) -> Any:
        run = operator.run or self._compile(operator, frame)
        try:
            return run({name: frame[slot] for name, slot in operator.feeds}, operator.names, None)
        except Exception as error:  # noqa: BLE001 - the runtime's classes vary
            # fallbacks are tried only after a failure, so that successful runs cost nothing extra
            node = operator.node
            try:
                outputs = self._factory.rescue(node, self._frames.fed((node,), frame), error)
            except Exception as later:  # noqa: BLE001 - the first reason is the one to tell, unless something ran out
                if observer is not None and position is not None and not is_foreign(later):
                    observer.failed(position, [self._frames.tensor(name, frame) for name in node.inputs])
                reason = later if is_final(later) else error
                raise self._failure(node, frame, reason) from reason
            if position is not None:
                self._planner.leave_alone((position,))
            return outputs

    def results(self, frame: Frame) -> Frame:
        """Return the graph's outputs after a run as values of the runtime."""
        return [
            self._frames.value(name, frame) if frame[slot] is None else frame[slot]
            for name, slot in self._results
        ]

    def _compile(self, operator: ProgramOperator, current: Frame) -> Run:
        node = operator.node
        make = tracing.timed(self._factory.make, "compile", f"compile {node.operator.full_name}")
        try:
            kernel = make(node, self._frames.fed((node,), current))
            self._frames.place((name for _, name in kernel.feeds), current)
        except Exception as error:
            raise self._failure(node, current, error) from error
        operator.feeds = tuple((name, self.slots[value]) for name, value in kernel.feeds)
        operator.names = kernel.results
        results = tuple(self.slots[node.outputs[position]] for _, position in kernel.outputs)
        status = (self._frames.status,) * kernel.has_status
        operator.results = results + status
        operator.dead += status
        operator.run = _timed(kernel.run, node)
        return operator.run

    def _failure(self, node: Node, current: Frame, error: Exception) -> Exception:
        return failure(
            node.operator.full_name, [self._frames.tensor(name, current) for name in node.inputs], error
        )


def _timed(run: _Timed, node: Node) -> _Timed:
    return tracing.timed(run, "operator", node.operator.full_name, type=node.operator.op_type)
