"""A model beside a PyTorch module: each function is judged alone, on the module's own values."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.device import numpy_cast
from msdump.errors import InputError, MsdumpError, plural
from msdump.execute import Replaceable, WeightCopies, bind_inputs, is_repeatable
from msdump.graph import Graph, Node, loader, reads
from msdump.judge import answer, errors
from msdump.judge.diff import (
    LockstepComparison,
    OutputDifference,
    Variant,
    compare_arrays,
    make_side,
    models,
    pair_sides,
)
from msdump.judge.pair import trained
from msdump.judge.torch.cause import Cause, Trial, like
from msdump.judge.torch.functions import Functions, quantised
from msdump.judge.torch.golden import PREFIX, Call, Golden, Source, export
from msdump.judge.torch.hooks import HookedModule, golden_of
from msdump.judge.torch.pairing import Cone
from msdump.judge.verdict import (
    BY_CHANCE,
    Finding,
    Limits,
    OperatorPlace,
    Stop,
    TensorEvidence,
    Verdict,
    coarsest_type,
    joined,
    judge,
    judge_tensor,
)
from msdump.read import SourceKind, ValueSource
from msdump.record import IO

_GIVEN: Final = (SourceKind.INPUT, SourceKind.WEIGHT)


@dataclass
class TorchComparison(LockstepComparison):
    """A model, with values that are compared with a module's values of the same names."""

    module: Golden = field(kw_only=True)  # the module
    # names of values that golden's values replace in the file's run
    replaced: set[str] = field(default_factory=set, kw_only=True)

    def run(
        self,
        inputs: Mapping[str, Any],
        advance: Callable[[], None] = lambda: None,
        *,
        is_last: bool = False,  # noqa: ARG002 - the runners bound their kernels
    ) -> bool:
        """Run both sides once; return whether both came to their end."""
        failed = len(self.failures)
        try:
            self._run_both(inputs, advance).end()
        except MsdumpError as error:
            self.report.stops.append(Stop("mine", getattr(error, "operator", ""), str(error)))
            self.failures.append(str(error))
        self.runs += 1
        return len(self.failures) == failed

    def evidence(self, inputs: Mapping[str, Any]) -> list[tuple[Finding, Cause | None]]:
        """Return the evidence on each operator on golden's values, not judged, and causes of wrong functions.

        Raises:
            MsdumpError: An operator fails on golden's values.
        """
        return self._run_both(inputs, lambda: None).rows()

    def _run_both(self, inputs: Mapping[str, Any], advance: Callable[[], None]) -> _Run:
        """Run both sides; again without pairs of values, if a tool has moved calls over the border there."""
        run = _Run(self, inputs, advance)
        self.module.run([inputs[value.name] for value in self.mine.model.inputs], run.show)
        run.rows()
        moved = run.moved - run.kept
        if not moved:
            return run
        self.functions.part(moved)
        return self._run_both(inputs, lambda: None)

    def __str__(self) -> str:
        """Return the verdict, the operators at fault and the next step, as ``msdump diff`` prints them."""
        compared = answer.Compared(self.mine.model.source, self.mine.variant.text, (), has_rerun=True)
        warnings = (f"warning: {each}" for each in self.report.networks)
        return "\n".join((*warnings, *answer.summary_lines(self.report, compared)))

    @functools.cached_property
    def functions(self) -> Functions:
        """The functions of the file and of the module."""
        return Functions(self.mine, self.module, self.runners, self.places, self.limits)


class _Run:
    """One run: each operator waits until golden has computed all that it reads and writes, and then runs.

    It reads golden's values where golden has some of its inputs' names, and else outputs that
    earlier operators computed of golden's values. So its difference from golden's value is its own error.

    Attributes:
        moved: Wrong values of which later functions compute golden's values, and of golden's they do not:
            a tool has moved a call, such as a scale that it multiplied into a convolution's weights.
        kept: Wrong values of golden's values of which later functions compute golden's.
    """

    def __init__(
        self, comparison: TorchComparison, inputs: Mapping[str, Any], advance: Callable[[], None]
    ) -> None:
        self._both, self._advance, self._functions = comparison, advance, comparison.functions
        self._graph, self._partners = comparison.mine.graph, self._functions.partners
        self._waiting, self._order = deque(self._graph.nodes), len(comparison.report.findings)
        self._results = {value.name for value in self._graph.outputs}
        self._pending = set(comparison.module.names)
        self._golden: dict[str, np.ndarray] = {}
        self._on_golden: dict[str, Any] = {**inputs}  # the operators' inputs: golden's values
        self._own: dict[str, Any] = {**inputs}  # the file's values
        self._wrong: dict[str, np.ndarray] = {}  # results of golden's values that differ from golden's
        self._misshapen = set[str]()  # values of other shapes than golden's, which golden's cannot replace
        self.moved, self.kept = set[str](), set[str]()
        self._known: dict[str, TensorEvidence] = {}
        self._sources: dict[str, ValueSource] = {}
        self._rows: list[tuple[Finding, Cause | None]] = []
        self._right = set[str]()  # weights of functions that are right
        self._named: dict[str, str] = {}  # names of causes, and the accused operator
        last, last_golden = dict[str, int](), dict[str, int]()  # the last operators that need a value
        for position, node in enumerate(self._graph.nodes):
            cone = self._functions.cones[node.name]
            held = (*cone.reads, *reads(node), *(name for each in cone.nodes for name in each.outputs))
            last |= dict.fromkeys(held, position)
            for name in node.outputs:
                inner = self._functions.inner.get(self._partners.get(name, ""), ())
                last_golden |= dict.fromkeys(inner, position)
        last |= dict.fromkeys((value.name for value in self._graph.outputs), len(self._graph.nodes))
        for name in last.keys() & self._partners.keys():
            golden = self._partners[name]
            last_golden[golden] = max(last[name], last_golden.get(golden, 0))
        self._needed = last_golden.keys()
        ends = [(at, name, False) for name, at in last.items()]
        ends += [(at, name, True) for name, at in last_golden.items()]
        self._ends = sorted(ends, reverse=True)  # the next values that no operator needs are its last ones

    def show(self, name: str, array: np.ndarray) -> None:
        """Take a value of golden, and run the operators that waited for it."""
        self._pending.discard(name)
        if name in self._needed:
            self._golden[name] = array
        while self._waiting and self._is_ready(self._waiting[0]):
            self._run(self._waiting.popleft())

    def rows(self) -> list[tuple[Finding, Cause | None]]:
        """Run the operators that still wait; return the evidence on all, with causes of wrong functions."""
        while self._waiting:
            self._run(self._waiting.popleft())
        return self._rows

    def end(self) -> None:
        """Run the operators that still wait, and compare the outputs of the network."""
        both, rows = self._both, [row for row, _ in self.rows()]
        found = judge(rows, both.limits)
        for (_, cause), finding in zip(self._rows, found, strict=True):
            note = finding.note.replace(BY_CHANCE, "random numbers")  # no seed gives both sides the same
            known = replace(finding, note=note)
            for each in self._explained(known, cause) if known.is_accused and cause else (known,):
                both.report.add(each)
        wrong = dict.fromkeys(each.name for _, cause in self._rows if cause for each in cause.weights)
        if len(wrong) > max(1, len(self._right - wrong.keys())):
            share = f"{len(wrong)} of {plural(len(self._right | wrong.keys()), 'tensor')}"
            self._say(
                f"the file has other weights than the module: {share} differ, such as {next(iter(wrong))}"
            )
        coarsest = coarsest_type(rows, both.limits)
        for value in self._graph.outputs:
            own = self._own.get(value.name)
            golden = self._golden_of(value.name, own)
            if golden is not None and isinstance(own, np.ndarray):
                evidence = compare_arrays((IO.OUTPUT, 0, value.name), own, golden, both.limits, {})
                both.outputs.append(OutputDifference(both.runs, evidence))
                both.report.outputs.append(judge_tensor(evidence, both.limits, coarsest))

    def _is_ready(self, node: Node) -> bool:
        return all(self._partners.get(name) not in self._pending for name in (*reads(node), *node.outputs))

    def _golden_of(self, name: str, mine: Any) -> np.ndarray | None:
        """Return golden's value of a name in the shape of the file's value, None if there is none.

        Simplifiers keep a value's name where they merge its dimensions.
        """
        array = self._golden.get(self._partners.get(name, ""))
        is_inner = isinstance(self._both.module, HookedModule) and name not in self._results
        if array is None or not isinstance(mine, np.ndarray) or (is_inner and array.shape != mine.shape):
            return None  # a tool has moved an operator over the border of a module
        return array.reshape(mine.shape) if array.size == mine.size else array

    def _run(self, node: Node) -> None:
        position = len(self._graph.nodes) - len(self._waiting) - 1
        results, own = self._again(node)
        for slot, name in enumerate(node.outputs):
            if name in self._both.replaced and (golden := self._golden_of(name, own[slot])) is not None:
                own[slot] = results[slot] = self._own[name] = like(golden, own[slot])
        if not node.is_added:
            self._judge(node, results, own)
            self._advance()
        while self._ends and self._ends[-1][0] <= position:
            _, name, is_golden = self._ends.pop()
            for values in (self._golden,) if is_golden else (self._on_golden, self._own, self._wrong):
                values.pop(name, None)

    def _judge(self, node: Node, results: list[Any], own: list[Any]) -> None:
        """Add the row of an operator: its outputs beside golden's, and on golden's values."""
        self._order += 1
        place = replace(
            self._both.places.of(node), iteration=self._both.runs, order=self._order, time=self._order
        )
        cone = self._functions.cones[node.name]
        outputs, own_errors, propagated, wrong = [], [], [], ""
        for slot, name in enumerate(node.declared_outputs):
            golden = self._golden_of(name, own[slot]) if name else None
            if golden is None or own[slot] is None:
                continue
            evidence = compare_arrays((IO.OUTPUT, slot, name), own[slot], golden, self._both.limits, {})
            outputs.append(evidence)
            self._known[name] = evidence
            self._sources[name] = ValueSource(SourceKind.OPERATOR, place.full_name, slot)
            if results[slot] is not None and results[slot].shape == golden.shape:
                error = self._functions.own_error(slot, results[slot], golden, cone)
                if not error.is_explained and not self._is_rounding(name, results[slot], cone):
                    wrong = wrong or name
                elif not error.is_explained:
                    error = replace(error, is_explained=True, note="golden's of the rounded inputs")
                own_errors.append(error)
                propagated.append(errors.measure(own[slot], results[slot]).distance)
                self._on_golden[name] = like(golden, results[slot])
            else:
                wrong = wrong or name
                self._misshapen.add(name)
            if wrong == name and results[slot] is not None:
                self._wrong[name] = results[slot]
        self._look_for_moved(cone, wrong, bool(own_errors))
        if not self._misshapen.isdisjoint(cone.reads):
            own_errors.clear()
        golden_name = next((self._partners[name] for name in node.outputs if name in self._known), "")
        call, cause = self._both.module.call(golden_name) if golden_name else Call(), None
        is_random = bool(wrong) and call.is_random and not self._is_repeated(golden_name)
        if is_random:
            own_errors.clear()
            self._say(f"{call.target} draws random numbers, other ones than the file's: it is not compared")
        if own_errors and not wrong:
            self._right |= self._functions.weights(cone.nodes).keys()
        if wrong and not is_random:
            values = {**self._on_golden, **dict(zip(node.outputs, results, strict=True))}
            cause = Trial(self._functions, cone, wrong, values, self._golden).cause()
        inputs = [*self._inputs(cone), *(cause.weights if cause else ())]
        sources = (
            self._sources.get(each.name, ValueSource(_GIVEN[each.is_weight], each.name)) for each in inputs
        )
        row = Finding(
            place if place.source else replace(place, source=call.source),
            tensors=(*(replace(each, slot=slot) for slot, each in enumerate(inputs)), *outputs),
            reads=tuple(sources),
            own=tuple(own_errors),
            propagated=max(propagated, default=None),
            is_random=is_random or not all(is_repeatable(each) for each in cone.nodes),
            returned=frozenset(each.slot for each in outputs if each.name in self._results),
            is_masking=place.full_name in self._both.places.masking,
            note="" if outputs else "the module has no value of its name",
        )
        self._rows.append((row, cause))

    def _look_for_moved(self, cone: Cone, wrong: str, is_compared: bool) -> None:  # noqa: FBT001
        """Run a wrong function again on the wrong values that it reads, to find the ones that were moved."""
        own = self._results | self._both.replaced
        held = {name: self._wrong[name] for name in cone.reads if name in self._wrong and name not in own}
        if held and not wrong and is_compared:
            self.moved |= held.keys() & self._misshapen
            self.kept |= held.keys() - self._misshapen
        elif held and wrong:
            known = {**self._on_golden, **held}
            for node in cone.nodes:
                known |= dict(zip(node.outputs, self._functions.outputs(node, known), strict=True))
            if self._functions.agrees(known[wrong], self._golden_of(wrong, known[wrong]), cone):
                self.moved |= held.keys()

    def _is_repeated(self, name: str) -> bool:
        """Return whether golden's call of the same values has the same result again."""
        others = {other: array for other, array in self._golden.items() if other != name}
        again = self._both.module.again(name, others)
        return again is not None and errors.measure(again, self._golden[name]).is_same

    def _say(self, sentence: str) -> None:
        if sentence not in self._both.report.networks:
            self._both.report.networks.append(sentence)

    def _again(self, node: Node) -> tuple[list[Any], list[Any]]:
        """Run an operator on golden's values and on the file's; return the outputs of both runs."""
        own = self._functions.outputs(node, self._own)
        is_alike = all(self._on_golden.get(name) is self._own.get(name) for name in reads(node))
        results = own if is_alike else self._functions.outputs(node, self._on_golden)
        for name, on_golden, mine in zip(node.outputs, results, own, strict=True):
            if name:
                self._on_golden[name], self._own[name] = on_golden, mine
        return results, own

    def _inputs(self, cone: Cone) -> Iterator[TensorEvidence]:
        """Yield the evidence of the golden values that operators read."""
        for name in cone.reads:
            if name in self._known:
                yield replace(self._known[name], io=IO.INPUT)
            elif isinstance(self._own.get(name), np.ndarray):  # an input of the network
                array = self._own[name]
                yield compare_arrays((IO.INPUT, 0, name), array, array, self._both.limits, {})

    def _is_rounding(self, output: str, array: np.ndarray, cone: Cone) -> bool:
        """Return whether golden's function computes the same integers of inputs in the file's type."""
        short = self._functions.coarsest(cone)
        if array.dtype.kind not in "iub" or short == "float32":
            return False
        read = {name: self._on_golden[name] for name in cone.reads if name in self._partners}
        held = {
            self._partners[name]: array
            if array.dtype.kind in "iub"
            else numpy_cast(array.astype(np.float32), dtypes.from_name(short)).astype(np.float32)
            for name, array in read.items()
        }
        again = self._both.module.again(self._partners[output], held)
        return again is not None and np.array_equal(again.reshape(-1), array.reshape(-1))

    def _explained(self, finding: Finding, cause: Cause) -> Iterator[Finding]:
        """Yield a fault with its function in words, at its operator or at a call that is missing."""
        at, module = self._both.places.of(cause.at), self._both.module
        call = module.call(cause.lacking) if cause.lacking else Call()
        if cause.lacking:
            scope = "/".join(("Default", *filter(None, call.module.split("."))))
            name = f"{scope}/{cause.lacking}"
            at = OperatorPlace(name, call.target, name, source=call.source)
        if named := cause.accused_before(self._named, at.shown_name):
            note = f"it shows the fault of {named}, too"
            yield replace(finding, verdict=Verdict.INHERITED, note=note)
            return
        notes = joined(finding.note, *cause.notes)
        if cause.lacking:
            where = f"module {call.module}" if call.module else "the network"
            fewer = f"{where} has one {call.target} fewer in the file"
            place = replace(at, iteration=finding.place.iteration, order=0, time=finding.place.time)
            yield Finding(place, Verdict.MISSING, note=f"{fewer}: golden's {cause.lacking} is {call}")
            note = f"it shows that {cause.lacking} is missing; {notes}"
            yield replace(finding, verdict=Verdict.INHERITED, note=note)
        else:
            ran = finding.place
            place = replace(at, iteration=ran.iteration, order=ran.order, time=ran.time)
            yield replace(finding, place=replace(place, source=at.source or ran.source), note=notes)


def torch_comparison(
    graph: Graph, variant: Variant, module: Golden, limits: Limits, replaced: Iterable[str] = ()
) -> TorchComparison:
    """Return the comparison of a model with a module; nothing has run.

    Args:
        graph: The model.
        variant: Device and arithmetic of the model.
        module: The module.
        limits: The limits of agreement.
        replaced: Operators, as ``Replaceable.find`` takes them, with golden's values in the place of outputs.

    Raises:
        InputError: An operator to be replaced is not there, or golden has no value of it.
    """
    mine = make_side(graph, variant, WeightCopies(), trains=False)
    golden = replace(mine, variant=Variant(PREFIX[:-1]), model=replace(mine.model, source=module.title))
    pairing = pair_sides(mine, mine, is_one_model=True)
    limits = replace(limits, precision=limits.precision or models.precision(variant))
    allowed = quantised({node.op_type for node in graph.nodes})
    if limits.distance is None and allowed:
        limits = replace(limits, distance=allowed, explanation="quantised numbers")
    comparison = TorchComparison(mine, golden, pairing, limits, module=module)
    functions, networks = comparison.functions, comparison.report.networks
    known = Replaceable(mine.graph, None)
    for each in replaced:
        position, slot = known.find(each)
        name = mine.graph.nodes[position].outputs[slot]
        if name not in functions.partners:
            raise InputError(f"{module.title}: replace {each!r}: the module has no value of {name}")
        comparison.replaced.add(name)
    if not functions.has_names:
        networks.append(
            f"no value of {graph.source} has the name of a value of {module.title}: torch.onnx.export names"
            " them alike with dynamo=True, so it may be another network; the outputs alone are compared"
        )
    elif module.training:
        kinds = answer.first_of([*dict.fromkeys(module.training.values())])
        networks.append(f"{module.title} is in train mode: {kinds}; call eval() before")
    elif more := functions.more_calls():
        mode = "in train mode" if any(map(trained, more)) else f"from another version of {module.title}"
        networks.append(f"{graph.source} was exported {mode}: {answer.first_of(more)}")
    return comparison


def check_export(module: Any, args: Any, onnx: Any = None) -> TorchComparison:
    """Compare a PyTorch module with its ONNX export, function by function.

    Args:
        module: The module, a ``torch.nn.Module``.
        args: Arguments of its call: a tuple, or one tensor.
        onnx: The export, or another tool's version of it: a file or an ``onnx.ModelProto``; None:
            ``torch.onnx.export`` makes it.

    Returns:
        The comparison: ``report.agrees``, ``report.findings``; its text names the operators at fault.

    Raises:
        NotAvailableError: PyTorch is not installed.
        InputError: The exporter refuses the module, or the file cannot be read.
    """
    args = args if isinstance(args, tuple) else (args,)
    source = Source(type(module).__name__, module, args)
    graph = loader.load(export(source, args).model_proto if onnx is None else onnx)
    given = source.named_inputs(graph) or {}
    golden = golden_of(source, graph, given)
    comparison = torch_comparison(graph, models.parse("float32"), golden, Limits())
    comparison.run(bind_inputs(graph, (), given))
    return comparison
