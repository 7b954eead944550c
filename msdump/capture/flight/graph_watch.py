"""Checks rules on the tensors of a graph while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msdump import dtypes
from msdump.capture.flight.elements import KeptElements
from msdump.capture.flight.hits import HitLog
from msdump.capture.steps.device import held_elements
from msdump.communication.world import current
from msdump.dtypes import STRING
from msdump.errors import WatchHitError
from msdump.graph.graph import Graph, Node
from msdump.plan import OnHit, WatchPlan
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.statistics.passes import is_measurable, measure
from msdump.statistics.totals import StatisticNeed
from msdump.watch.known import Known
from msdump.watch.quantities import Seen
from msdump.watch.rules import WatchRule, need_of
from msdump.watch.subjects import PARAMETER, WatchedTensor, state_of, subject
from msdump.watch.watch import Finding, Hit, RuleWatch, Sighting


@dataclass(frozen=True, slots=True)
class _Watched:
    """A tensor with the rules that look at it."""

    subject: WatchedTensor
    rules: tuple[WatchRule, ...]
    need: StatisticNeed = field(default_factory=StatisticNeed)


class GraphWatch:
    """The rules on the tensors of one graph, or of a compiled one with its branches and loops."""

    def __init__(self, graphs: Iterable[Graph], plan: WatchPlan, hits: HitLog, kept: KeptElements) -> None:
        """Look at nothing yet.

        Args:
            graphs: The graphs.
            plan: The rules.
            hits: Takes what is found.
            kept: Keeps elements for the next step.
        """
        self._plan = plan
        self._hits = hits
        self._watch = RuleWatch(plan.rules, kept.remember)
        watched = tuple(graphs)
        self._nodes = {node.operator: (graph, node) for graph in watched for node in graph.nodes}
        self._weights = {graph.index: _weights(graph) for graph in watched}
        self._watched: dict[tuple[OperatorRef, IO, int], _Watched] = {}
        self._passes: Counter[tuple[OperatorRef, IO, int]] = Counter()
        self._iteration = -1  # before the first one
        self._rank = 0
        self._hit: Hit | None = None

    def begin(self, iteration: int) -> None:
        """Take what is seen from now on for an iteration's; branches and loops begin with their graph's."""
        if iteration != self._iteration:
            self._iteration = iteration
            self._rank = current().identity.rank
            self._passes.clear()

    def keeps(self, tensors: Sequence[TensorRecord]) -> bool:
        """Check the tensors of an operator; return whether they are dumped: hits alone may be.

        Raises:
            DumpWriteError: The steps that a hit releases could not be written.
            ConfigValueError: Matching the regular expression of a rule takes too long.
        """
        findings: list[Finding] = []
        for record in tensors:
            findings += self._check(record)
        self._hit = self._hits.take(findings) if findings else None
        return self._hit is not None or not self._plan.writes_hits_alone

    def stop(self) -> None:
        """End the run where a rule hit at the last operator and a hit is to end it.

        Raises:
            WatchHitError: That is so.
        """
        hit = self._hit
        if hit is not None and self._plan.on_hit is OnHit.STOP:
            self._hit = None
            tensor = hit.subject
            message = f"{tensor.io}.{tensor.slot}: {hit}"
            raise WatchHitError(hit.rule.name, tensor.name, hit.moment.iteration, message)

    def _check(self, record: TensorRecord) -> list[Finding]:
        key = (record.operator, record.io, record.slot)
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = self._look_up(record)
        if not watched.rules:
            return []
        number = self._passes[key]
        self._passes[key] += 1
        if record.dtype is STRING or not record.array.size or not is_measurable(record.dtype):
            return []
        array, dtype = held_elements(record)
        known = Known.of(measure(array, dtype, watched.need), watched.need)
        seen = Seen(dtype.name, known, lambda: array)
        sighting = Sighting(self._iteration, self._rank, number, record.timestamp)
        return self._watch.check(watched.rules, watched.subject, sighting, seen)

    def _look_up(self, record: TensorRecord) -> _Watched:
        tensor = self._subject(record)
        rules = self._watch.rules_for(tensor)
        return _Watched(tensor, rules, need_of(rules))

    def _subject(self, record: TensorRecord) -> WatchedTensor:
        operator, io = record.operator, record.io
        is_weight = is_loss = False
        if operator.op_type == PARAMETER:
            is_weight = any(operator.full_name in names for names in self._weights.values())
        elif operator in self._nodes:
            graph, node = self._nodes[operator]
            slot = record.slot if record.device is None else record.device.slot
            name = node.inputs[slot] if io is IO.INPUT and slot < len(node.inputs) else ""
            # one that an optimizer writes is looked at there, once it is written
            is_weight = name not in graph.bindings and name in self._weights[graph.index]
            is_loss = io is IO.OUTPUT and _gives_loss(graph, node, slot)
        return subject(
            operator.op_type, operator.full_name, io, record.slot, is_weight=is_weight, is_loss=is_loss
        )


def _weights(graph: Graph) -> frozenset[str]:
    """Return the names of the weights: floating-point numbers with dimensions, but no optimizer's state."""
    state = state_of((node.operator.op_type, node.inputs) for node in graph.nodes)
    return frozenset(
        name
        for name, array in graph.weights.items()
        if array.ndim and dtypes.from_numpy(array.dtype).saved.kind == "f"
    ) - {*state, *graph.constants}


def _gives_loss(graph: Graph, node: Node, slot: int) -> bool:
    """Tell whether an output is the loss: a floating-point number that a training step returns."""
    name = node.outputs[slot] if slot < len(node.outputs) else ""
    returned = {value.name for value in graph.outputs} - {*graph.bindings.values()}
    if not graph.bindings or name not in returned:
        return False
    value_type = graph.type_of(name)
    is_float = value_type.dtype is not None and value_type.dtype.saved.kind == "f"
    return is_float and value_type.shape in {(), (1,)}
