"""A graph compiled to a list of operators, and the loop that runs them, segment by segment."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np

from msdump import tracing
from msdump.communication import Collectives, Fingerprint, current, fingerprint
from msdump.device import FloatStatus, check_float_status, dead_values
from msdump.errors import InputError, RankError, is_final, is_foreign
from msdump.execute import values
from msdump.execute.control import Control, Frame, Frames, RunnableBody, Site, control
from msdump.execute.kernels import KernelFactory, RoundingsOf, as_the_model_says
from msdump.execute.runtime import OrtValue, Run, Runtime, cpu_runtime, failure
from msdump.execute.segment_compiler import Joining, SegmentCompiler
from msdump.execute.segments import ProgramOperator, Segment, SegmentPlan, SegmentPlanner, node_runs
from msdump.execute.weights import WeightCopies, WeightStore, tells_overflow
from msdump.graph import CollectiveCall, Graph, Node, collective, collective_call, uses_float_status
from msdump.graph.kernel import FLOAT16, FLOAT16_MOST, Rounding
from msdump.observer import Array, ElementsNeededError, Observer
from msdump.plan import Context, DumpPlan, Optimization

Read = Callable[[str, Frame], Array]
"""Returns a tensor of a frame by its name, None for anything else."""

_OVERFLOWN, _SOUND = (np.array(flag, np.float32) for flag in (1, 0))


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective operator as a callable that reads its inputs from a frame, as control flow does."""

    position: int  # its place in the graph's execution order
    node: Node  # the operator
    call: CollectiveCall  # the collective with its attributes
    read: Read  # returns the tensor of a name from a frame
    # the emulated device's arithmetic, of which only saturation is used; None: no saturation
    roundings: Sequence[Rounding] | None
    collectives: Collectives  # the exchange of tensors with other ranks
    float_status: FloatStatus | None  # the device's overflow status; None: nothing raises it

    def __call__(self, frame: Frame, observer: Observer | None) -> Frame:
        """Run the collective; return its outputs in order, and, if it has one, the overflow status last.

        Raises:
            RankError: The other ranks do not take part, or an input is no tensor.
        """
        inputs = [self.read(name, frame) for name in self.node.inputs]
        if observer is not None and observer.interest.shows(self.position):
            observer.starting(self.position, inputs if observer.interest.inputs else ())
        made: dict[int, OrtValue] = {}

        def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
            value, array = values.space(shape, dtype)
            if value is not None:
                made[id(array)] = value
            return array

        try:
            outputs = self.collectives.run(
                self.call, self.node.operator.full_name, self._tensors(inputs), empty
            )
        except Exception as error:
            if observer is not None and not is_foreign(error):
                observer.failed(self.position, inputs)
            raise
        saturates = self.roundings is not None and self.roundings[0].saturates
        is_overflown = saturates and [_saturated(array) for array in outputs].count(True) > 0
        if is_overflown and self.float_status is not None:
            self.float_status.note_saturation()
        results: Frame = [
            made.get(id(array)) or values.owned(array)
            for array, name in zip(outputs, self.node.outputs, strict=False)
            if name
        ]
        if tells_overflow(self.roundings):
            results.append(values.from_array(_OVERFLOWN if is_overflown else _SOUND))
        return results

    def _tensors(self, inputs: Sequence[Array]) -> list[np.ndarray]:
        tensors = [array for array in inputs if array is not None]
        if len(tensors) < len(inputs):
            raise RankError(self.node.operator.full_name, "an input is absent, or no tensor")
        return tensors


def collectives_of(graph: Graph, plan: DumpPlan | None, context: Context) -> Collectives | None:
    """Return the collectives of a network, None for a network that exchanges no tensors with other ranks."""
    if not any(collective(node.domain, node.op_type) for each in graph.walk() for node in each.nodes):
        return None
    world = current()
    return Collectives(world, fingerprint(graph, plan, context, world.identity.rank))


def _saturated(array: np.ndarray) -> bool:
    """Bound a float16 result by the largest number, turn NaN into 0; return whether it changed."""
    if array.dtype != FLOAT16.numpy or np.isfinite(array).all():
        return False
    np.nan_to_num(array, copy=False, nan=0.0, posinf=FLOAT16_MOST, neginf=-FLOAT16_MOST)
    return True


def host_operator(
    position: int,
    node: Node,
    graph: Graph,
    read: Read,
    roundings: Sequence[Rounding] | None,
    *,
    collectives: Collectives | None,
    float_status: FloatStatus | None,
) -> Control | None:
    """Return the function that runs an operator in Python; None for operators with a kernel.

    The function returns the named outputs in order and, for a collective that reports overflows, the
    overflow status last. Arguments as of ``Exchange``; ``collectives`` None: without the network's name.

    Raises:
        UnsupportedOpError: The operator reads the overflow status in a form that MindSpore does not have.
    """
    call = collective_call(node)
    if call is not None:
        ranks = collectives or Collectives(current(), Fingerprint())
        return Exchange(position, node, call, read, roundings, ranks, float_status)
    if not uses_float_status(node.domain, node.op_type):
        return None
    check_float_status(node, graph.type_of(node.inputs[0] if node.inputs else ""))
    register = float_status or FloatStatus()
    return lambda _frame, _observer: [values.owned(register.run(node.op_type))]


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
        self, frame: Frame, feeds: Mapping[str, OrtValue | None], dropped: Container[str] = frozenset()
    ) -> list[Any]:
        """Return the graph's outputs after a run on some feeds, without the dropped ones."""
        names = (value.name for value in self.graph.outputs if value.name not in dropped)
        return [
            self._frames.output(name, frame, is_fed=name in feeds, is_foreign=name in self._passed_on)
            for name in names
        ]

    def bound(self, frame: Frame, given: Container[str]) -> dict[str, OrtValue]:
        """Return the new value of each bound initializer; ``given`` inputs lie in the caller's memory."""
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
            segment, done = segments[index], 1
            if segment.single is not None:
                self._step(segment.single, frame, observer, replaced)
            elif segment.run is None and not self._planner.compile(plan, index, frame):
                continue  # smaller segments have replaced it in the plan
            else:
                assert segment.run is not None
                try:
                    outputs = segment.run(segment.session_inputs(frame, self._frames), segment.names, None)
                except Exception as error:  # noqa: BLE001 - the runtime's classes vary
                    done = self._run_one_by_one(plan, segment, frame, observer, error)
                else:
                    for slot, value in zip(segment.results, outputs):  # noqa: B905 - see the class
                        frame[slot] = value
                    try:
                        if observer is not None and segment.shown:
                            batch, found = segment.runs(frame, self._frames, observer.interest)
                            if batch:
                                observer.ran(batch, found)
                    except ElementsNeededError:
                        self._planner.give(plan, segment)  # its inputs are kept, so that it runs again
                        continue
                    for slot in segment.dead:
                        frame[slot] = None
            index += done
            if not self.keeps_sessions:
                self._planner.forget(segment)
            if observer is not None and observer.interest is not interest:
                # the observer changed its interest, but later segments were cut for the old one
                for operator in self._operators[segment.operators[-1].position + 1 :]:
                    self._step(operator, frame, observer, replaced)
                return

    def _run_one_by_one(
        self, plan: SegmentPlan, segment: Segment, frame: Frame, observer: Observer | None, error: Exception
    ) -> int:
        """Run the operators of a segment that failed; return how many segments replace it in the plan.

        One of the operators fails and is named, or runs by a fallback.
        """
        if is_foreign(error):
            raise error
        for operator in segment.operators:
            self._step(operator, frame, observer)
        return self._planner.part(plan, segment, error)

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
                outputs = self._factory.rescue(node, self._frames.values_read((node,), frame), error)
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
            kernel = make(node, self._frames.values_read((node,), current))
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
