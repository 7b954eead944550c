"""The comparison of two networks: runs of both in lockstep, and the report of all verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from msdump import dtypes
from msdump.device import numpy_cast
from msdump.errors import MsdumpError, plural
from msdump.graph import Graph, Node, is_random
from msdump.graph.kernel import FLOAT16, FLOAT32
from msdump.judge import Fact, FactKind, errors
from msdump.judge.diff.evidence import Observations, WeightEvidence, compare_arrays
from msdump.judge.diff.lockstep import Follower, Nesting, OperatorWatch, Ran, RanBlock
from msdump.judge.diff.models import Places, Side
from msdump.judge.diff.own_errors import GoldenOperators
from msdump.judge.diff.pairing import (
    Pairing,
    Quantisation,
    as_real,
    golden_inputs,
    output_names,
    scaled_operators,
)
from msdump.judge.pair import CLAMPS
from msdump.judge.rerun import OperatorRunners
from msdump.judge.verdict import (
    QUANTISED,
    Finding,
    Limits,
    OperatorPlace,
    OwnError,
    Report,
    Stop,
    TensorEvidence,
    Uneven,
    UnlikeScale,
    are_golden,
    coarsest_type,
    judge,
    judge_tensor,
    scale_noise,
    unlike_scales,
)
from msdump.record import IO
from msdump.store import names

Tensors = tuple[TensorEvidence, ...]


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """An output of the network, beside that of the other side.

    Attributes:
        iteration: Number of the run.
        evidence: The tensor and its counterpart.
    """

    iteration: int
    evidence: TensorEvidence


@dataclass(slots=True)
class LockstepComparison:
    """Two networks that run in lockstep, and the report so far.

    Attributes:
        mine: The side that is examined; it leads.
        golden: The side that it is compared with.
        pairing: Paired operators and values of both.
        limits: The limits of agreement.
        trains: Whether each run is a step of training.
        report: The verdicts so far.
        outputs: The differences of the network's outputs, run by run.
        failures: Errors that ended a run of a side, in words.
        runs: Number of runs so far.
        runners: Runs single operators again; kernels stay from run to run.
        places: The places of the examined side's operators.
        fact_places: The places of operators named by facts about both models.
        node_names: Names of the examined model's nodes, by full names.
        weights: Evidence of weights as inputs.
        unlike: Integers that are read by another scale than they are written with, by their writer.
        scales: Sentences on operators with such a scale, once the writers ran.
    """

    mine: Side
    golden: Side
    pairing: Pairing
    limits: Limits
    trains: bool = False
    report: Report = field(default_factory=Report)
    outputs: list[OutputDifference] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    runs: int = 0
    runners: OperatorRunners = field(init=False, repr=False)
    places: Places = field(init=False, repr=False)
    fact_places: Mapping[Fact, OperatorPlace] = field(init=False, repr=False)
    node_names: Mapping[str, str] = field(init=False, repr=False)
    weights: WeightEvidence = field(default_factory=dict, init=False, repr=False)
    unlike: dict[str, list[UnlikeScale]] = field(default_factory=dict, init=False, repr=False)
    scales: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Report the facts about the two models, and golden operators that one lacks."""
        for graph in self.mine.graph.walk():
            for each in unlike_scales(scaled_operators(graph)):
                self.unlike.setdefault(each.writer[0], []).append(each)
        self.runners = OperatorRunners(self.mine.copies, self.mine.runtime)
        self.places, golden = Places(self.mine.graph), Places(self.golden.graph)
        models = self.pairing.models
        self.report.missing += map(golden.of, models.missing)
        self.report.networks += filter(None, [models.networks])
        self.report.facts += models.facts
        nodes = _by_full_name(self.mine.model), _by_full_name(self.golden.model)
        self.fact_places = {
            fact: golden.of(nodes[1][fact.operator])
            if fact.kind is FactKind.MISSING
            else self.places.of(nodes[0][fact.operator])
            for fact in models.facts
        }
        self.node_names = {name: node.name for name, node in nodes[0].items()}

    def count_overflows(self, node: Node, weight: np.ndarray) -> int:
        """Return how many elements of a float32 weight overflow if only the examined side reads float16."""
        reads, golden = (
            {each.reads for each in side.arithmetic(node) or () if not each.saturates}
            for side in (self.mine, self.golden)
        )
        if FLOAT16 not in reads - golden or weight.dtype != FLOAT32.numpy:
            return 0
        return errors.overflowed(numpy_cast(weight, FLOAT16), weight)

    def run(
        self,
        inputs: Mapping[str, Any],
        advance: Callable[[], None] = lambda: None,
        *,
        is_last: bool = False,
    ) -> bool:
        """Run both sides once; return whether both came to their end.

        After an interruption the report keeps all verdicts so far.

        Args:
            inputs: Inputs by name, as ``feeds.bind`` returns them.
            advance: Called whenever an operator has run on the examined side.
            is_last: Whether no run follows: then packed weights of sessions are freed.
        """
        failed = len(self.failures)
        if is_last:
            self.mine.runs.forget_sessions()
            self.golden.runs.forget_sessions()
        run = _Run(self, inputs, advance)
        self.runs += 1
        run.complete(inputs)
        return len(self.failures) == failed


class _Run:
    """One run of both sides."""

    def __init__(
        self, comparison: LockstepComparison, inputs: Mapping[str, Any], advance: Callable[[], None]
    ) -> None:
        self._comparison = comparison
        self._pairing = comparison.pairing
        self._advance = advance
        self._iteration = comparison.runs
        self._before = len(comparison.report.findings)
        self._rows: list[Finding] = []
        self._clamped = dict(_clamped(comparison))
        comparison.places.begin(comparison.runs, self._before)
        self._observations = Observations(
            comparison.pairing,
            comparison.limits,
            comparison.count_overflows,
            not comparison.runs,
            comparison.weights,
        )
        has_differed = comparison.trains and not comparison.report.agrees
        self._is_continued = has_differed
        sides = comparison.mine, comparison.golden
        self._again = GoldenOperators(*sides, comparison.runners, comparison.limits, comparison.pairing)
        wanted, golden = comparison.pairing.wanted, comparison.golden
        if not comparison.pairing.is_one_model:
            inputs = golden_inputs(comparison.mine.model, golden.model, inputs)
        self._follower = Follower(
            lambda observer: golden.run(inputs, observer, trains=comparison.trains),
            golden.graph,
            lambda ran: ran.node.name in wanted,
            comparison.pairing.models.golden_quantised,
        )
        self._block = RanBlock()
        self._results: Mapping[str, Any] = {}
        self._entered: set[tuple[Nesting, str]] = set()
        self._ran: Counter[str] = Counter()
        self._alone: Counter[str] = Counter()
        self._extra: Counter[str] = Counter()

    def complete(self, inputs: Mapping[str, Any]) -> None:
        both, mine, golden = self._comparison, self._comparison.mine, self._comparison.golden
        try:
            try:
                watch = OperatorWatch(mine.graph, self._show, quantised=self._pairing.models.quantised)
                results = mine.run(inputs, watch, trains=both.trains)
                self._results = self._by_name(mine.graph, results, self._pairing.models.quantised)
            except MsdumpError as error:  # golden still comes to its end
                self._stop("mine", mine, error)
            self._judge_block()
            behind = self._count_extra(self._follower.rest())
        finally:  # after an interruption, too
            self._follower.stop()
            uneven = [*self._uneven()]
            outputs = [*self._outputs()]
            self._judge(outputs, uneven)
        if self._follower.error is not None:
            self._stop("golden", golden, self._follower.error)
        elif behind:
            both.failures.append(f"{plural(behind, 'operator')} of golden ran after it without comparison")

    def _judge(self, outputs: Sequence[OutputDifference], uneven: Sequence[Uneven]) -> None:
        """Report the verdicts on the operators that ran, and on the outputs of the network."""
        both, report = self._comparison, self._comparison.report
        passes = {each.name: (each.dumped, each.golden) for each in uneven}
        rows = [replace(each, passes=passes.get(each.place.name)) for each in self._rows]
        coarsest = coarsest_type(rows, both.limits)
        findings = judge(
            rows,
            both.limits,
            self._pairing.models.facts,
            place_of=both.fact_places.__getitem__,
            nodes=both.node_names,
            outputs_differ=any(judge_tensor(each.evidence, both.limits, coarsest).is_bad for each in outputs),
            is_continued=self._is_continued,
            is_one_arithmetic=both.mine.variant == both.golden.variant,
        )
        for each in findings:
            report.add(each)
        written = {each.place.full_name: each for each in findings}
        report.uneven += uneven
        both.outputs += outputs
        report.outputs += [self._result(each.evidence, written, coarsest) for each in outputs]

    def _result(
        self, evidence: TensorEvidence, written: Mapping[str, Finding], coarsest: str
    ) -> TensorEvidence:
        """Return the verdict on an output of the network: that of the operator that writes it, if any."""
        source = self._comparison.places.results[evidence.name]
        outputs = written[source.name].tensors if source.name in written else ()
        found = next((each for each in outputs if each.io is IO.OUTPUT and each.slot == source.slot), None)
        both, is_beside = self._comparison, self._pairing.is_one_model
        if not is_beside:  # the counterpart of the value is an output of golden
            other = self._pairing.models.graphs[both.mine.model.index].values.get(evidence.name)
            is_beside = any(value.name == other for value in both.golden.model.outputs)
        if found is not None and found.error is not None and is_beside:
            return replace(evidence, verdict=found.verdict, note=found.note, limit=found.limit)
        return judge_tensor(evidence, both.limits, coarsest)

    def _stop(self, name: str, side: Side, error: Exception) -> None:
        stop = Stop(f"{name} ({side.variant.text})", getattr(error, "operator", ""), str(error))
        self._comparison.report.stops.append(stop)
        self._comparison.failures.append(str(stop))

    def _show(self, mine: Ran) -> None:
        """Add an operator that ran on the examined side to the block of waiting ones; judge a full block."""
        if not mine.node.is_added and self._block.add(mine):
            self._judge_block()

    def _judge_block(self) -> None:
        ran = [(mine, self._counterpart(mine)) for mine in self._block.take()]
        for (mine, golden), tensors in zip(ran, self._observations.tensors(ran), strict=True):
            self._judge_operator(mine, golden, tensors)

    def _judge_operator(self, mine: Ran, golden: Ran | None, tensors: Tensors) -> None:
        self._ran[mine.node.name] += 1
        for depth, (body, _) in enumerate(mine.nesting):
            self._enter(mine.nesting[:depth], *self._comparison.places.control[body])
        if mine.node.bodies:
            self._enter(mine.nesting, mine.graph, mine.node)
            nesting = self._golden_nesting(mine.nesting)
            for inner in mine.node.bodies.values():  # they have ended: their values are dropped
                self._observations.leave(mine.nesting, inner.index)
                if nesting is not None and inner.index in self._pairing.bodies:
                    self._count_extra(self._follower.give_up(nesting, self._pairing.bodies[inner.index]))
            return
        is_state = bool(self._iteration) and not mine.graph.variables.isdisjoint(mine.node.inputs)
        place, reads = self._comparison.places.next(mine)
        own: tuple[OwnError, ...] = ()
        propagated = None
        outputs = [tensor for tensor in tensors if tensor.io is IO.OUTPUT]
        if golden is not None and any(map(self._differs, outputs)):
            own, propagated = self._again.own_errors(mine, golden, outputs)
        self._alone[mine.node.name] += golden is None
        for each in self._comparison.unlike.get(mine.node.name, ()):
            numbers, dtype = mine.outputs[0], mine.graph.type_of(mine.node.outputs[0]).dtype
            if numbers is not None and dtype is not None:
                name, text = each.at_fault(numbers, dtypes.from_numpy(dtype.saved).numpy)
                self._comparison.scales[name] = text
        wiring = "" if are_golden(tensors) else self._comparison.scales.get(mine.node.name, "")
        row = Finding(
            place,
            tensors=tensors,
            note=self._why_alone(mine) if golden is None and not wiring else "",
            reads=reads,
            is_state=is_state,
            is_random=golden is not None and _is_random(mine.node, golden.node),
            own=own,
            propagated=propagated,
            wiring=wiring,
            is_masking=place.full_name in self._comparison.places.masking,
            returned=frozenset(
                source.slot
                for source in self._comparison.places.results.values()
                if source.name == place.full_name
            ),
            scale=self._scale(mine),
        )
        self._rows.append(row)
        self._advance()

    def _scale(self, ran: Ran) -> tuple[float, str] | None:
        """Return the noise of an operator that quantises a tensor, None of others; golden has none."""
        if not self._pairing.models.quantised or ran.node.op_type != "QuantizeLinear":
            return None
        integers = ran.node.outputs[0]
        weights = [ran.graph.weights.get(name) for name in ran.node.inputs[1:]]
        dtype, numbers = ran.graph.type_of(integers).dtype, ran.inputs[0]
        how = [each for each in weights if each is not None]
        if dtype is None or numbers is None or len(how) != len(weights):
            return None
        clamp = self._clamped.get(integers, "")
        return scale_noise(numbers, how, dtypes.from_numpy(dtype.saved).numpy, clamp)

    def _counterpart(self, mine: Ran) -> Ran | None:
        pair = self._pairing.graphs.get(mine.graph.index)
        name = None if pair is None else pair.partners.get(mine.node.name)
        nesting = self._golden_nesting(mine.nesting)
        return None if name is None or nesting is None else self._follower.until((nesting, name))

    def _golden_nesting(self, nesting: Nesting) -> Nesting | None:
        bodies = self._pairing.bodies
        if any(index not in bodies for index, _ in nesting):
            return None
        return tuple((bodies[index], number) for index, number in nesting)

    def _enter(self, nesting: Nesting, graph: Graph, control: Node) -> None:
        """Judge the inputs of a branch or loop before its body; operators in it write its outputs."""
        if (nesting, control.name) in self._entered:
            return
        self._entered.add((nesting, control.name))
        place, reads = self._comparison.places.next(Ran(nesting, graph, control, (), ()))
        tensors = tuple(self._observations.control_inputs(nesting, graph, control))
        if tensors:
            self._rows.append(Finding(place, tensors=tensors, reads=reads))

    def _differs(self, tensor: TensorEvidence) -> bool:
        error, limits = tensor.error, self._comparison.limits
        if limits.explanation and error is not None:  # errors of few bits add up, an operator's own do not
            limits = replace(limits, distance=QUANTISED)
        if error is None or error.is_same:
            return False
        allowed = limits.allowed((tensor.dtype, tensor.golden_dtype), limits.precision)
        return allowed is None or not error.distance <= allowed or error.cosine < limits.cosine

    def _why_alone(self, mine: Ran) -> str:
        pair = self._pairing.graphs.get(mine.graph.index)
        if pair is None:
            return "golden has no such branch or loop"
        if mine.node.name in pair.partners:
            return "golden did not run it"
        kernel = pair.kernels.get(mine.node.name)
        if kernel is not None:
            return f"inside of golden's kernel {kernel}"
        return f"golden has {'none of its outputs' if self._pairing.is_one_model else 'no such operator'}"

    def _count_extra(self, ran: Iterable[Ran]) -> int:
        """Count golden operators that ran without their counterparts; return the number in the main graph."""
        wanted, count = self._pairing.wanted, 0
        for each in ran:
            if each.node.name in wanted and not each.node.bodies:
                self._extra[each.node.name] += bool(each.nesting)
                count += not each.nesting
        return count

    def _uneven(self) -> Iterator[Uneven]:
        """Yield the operators of branches and loops that ran more often on one side than on the other."""
        mine = self._comparison.mine.graph
        for graph in mine.walk():
            pair = self._pairing.graphs.get(graph.index)
            if graph is mine or pair is None:
                continue
            for node in graph.operators:
                ran, partner = self._ran[node.name], pair.partners.get(node.name, "")
                golden = ran - self._alone[node.name] + self._extra[partner]
                if partner and ran != golden:
                    yield Uneven(names.sanitize(node.operator.full_name), ran, golden)

    def _outputs(self) -> Iterator[OutputDifference]:
        both, golden = self._comparison, self._golden_results()
        for value in both.mine.graph.results:
            pair = self._results.get(value.name), golden.get(value.name)
            if isinstance(pair[0], np.ndarray) and isinstance(pair[1], np.ndarray):
                evidence = compare_arrays((IO.OUTPUT, 0, value.name), pair[0], pair[1], both.limits, {})
                yield OutputDifference(self._iteration, evidence)

    def _golden_results(self) -> dict[str, Any]:
        """Return golden's results under the names of the examined side's outputs."""
        both, returned = self._comparison, self._follower.outputs
        if returned is None:
            return {}
        models = self._pairing.models
        real = self._by_name(both.golden.graph, returned, models.golden_quantised)
        if self._pairing.is_one_model:
            return real
        mine, golden = both.mine.model, both.golden.model
        names = output_names(mine, golden, models.graphs[mine.index].values)
        return {name: real.get(other) for name, other in names.items()}

    def _by_name(
        self, graph: Graph, returned: list[Any], quantised: Mapping[int, Mapping[str, Quantisation]]
    ) -> dict[str, Any]:
        """Return the results of a run by name; quantised ones as real numbers."""
        values = graph.results if self._comparison.trains else graph.outputs
        names = [value.name for value in values]
        return dict(zip(names, as_real(names, returned, quantised.get(graph.index, {})), strict=True))


def _clamped(both: LockstepComparison) -> Iterator[tuple[str, str]]:
    """Yield quantised values that golden computes by a clamp (such as ReLU), each with the clamp's type."""
    types = {node.name: node.operator.op_type for graph in both.golden.graph.walk() for node in graph.nodes}
    for graph in both.mine.graph.walk() if any(both.pairing.models.quantised.values()) else ():
        partners = both.pairing.graphs[graph.index].partners if graph.index in both.pairing.graphs else {}
        for node in graph.nodes:
            op_type = types.get(partners.get(node.name, ""), "")
            if node.op_type == "DequantizeLinear" and op_type in CLAMPS:
                yield node.inputs[0], op_type


def _is_random(mine: Node, golden: Node) -> bool:
    """Return whether one of two operators draws random numbers, without a seed that they share."""
    seeds = [
        {name: seed for name, seed in node.attributes.items() if "seed" in name} for node in (mine, golden)
    ]
    has_one_seed = bool(seeds[0]) and seeds[0] == seeds[1]
    draws = any(is_random(node.operator.op_type, len(node.inputs)) for node in (mine, golden))
    return draws and not has_one_seed


def _by_full_name(model: Graph) -> dict[str, Node]:
    return {node.operator.full_name: node for graph in model.walk() for node in graph.nodes}
