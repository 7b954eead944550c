"""A model beside a PyTorch module: each function is judged alone, on the module's own values."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.device import numpy_cast
from msdump.errors import MsdumpError
from msdump.execute import WeightCopies, bind_inputs, is_repeatable
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
from msdump.judge.torch.golden import PREFIX, Call, Source, TorchGolden, export
from msdump.judge.torch.hooks import HookedModule, golden_of, pair_scopes
from msdump.judge.torch.pairing import Cone, call_name, cones_of, pair_values
from msdump.judge.verdict import (
    FEW_BITS,
    QUANTISED,
    Finding,
    Limits,
    OperatorPlace,
    OwnError,
    Stop,
    TensorEvidence,
    Verdict,
    coarser,
    coarsest_type,
    joined,
    judge,
    judge_tensor,
)
from msdump.read import SourceKind, ValueSource
from msdump.record import IO

_ROUNDINGS: Final = {"float32": 2.0**-16, "float16": 2.0**-8, "bfloat16": 2.0**-5, "float64": 2.0**-40}
"""Largest own error of a function, relative to its largest element, that rounding in a type explains.

A function is a dozen operators at most. Sound ones reach a tenth of it, and the smallest wrong attribute
(the other formula of GELU) four times."""

_GIVEN: Final = (SourceKind.INPUT, SourceKind.WEIGHT)

_QUANTISING: Final = ("Quantize", "QLinear", "Integer", "NBits")
"""Parts of the types of operators that compute with quantised numbers."""


@dataclass
class TorchComparison(LockstepComparison):
    """A model, with values that are compared with a module's values of the same names.

    Attributes:
        module: The module.
    """

    module: TorchGolden = field(kw_only=True)

    def run(
        self,
        inputs: Mapping[str, Any],
        advance: Callable[[], None] = lambda: None,
        *,
        is_last: bool = False,  # noqa: ARG002 - the runners bound their kernels
    ) -> bool:
        """Run both sides once; return whether both came to their end."""
        failed = len(self.failures)
        run = _Run(self, inputs, advance)
        try:
            self.module.run([inputs[value.name] for value in self.mine.model.inputs], run.show)
            run.end()
        except MsdumpError as error:
            self.report.stops.append(Stop("mine", getattr(error, "operator", ""), str(error)))
            self.failures.append(str(error))
        self.runs += 1
        return len(self.failures) == failed

    def __str__(self) -> str:
        """Return the verdict, the operators at fault and the next step, as ``msdump diff`` prints them."""
        compared = answer.Compared(self.mine.model.source, self.mine.variant.text, (), has_rerun=True)
        return "\n".join(answer.summary_lines(self.report, compared))

    @functools.cached_property
    def partners(self) -> dict[str, str]:
        """Golden's names of the file's values, by the file's names."""
        if isinstance(self.module, HookedModule):
            return pair_scopes(self.mine.graph, self.module)
        return pair_values(self.mine.graph, self.module)

    @functools.cached_property
    def cones(self) -> dict[str, Cone]:
        """The operators that compute an operator's outputs of golden values, by its name."""
        return cones_of(self.mine.graph, self.partners)

    @functools.cached_property
    def inner(self) -> dict[str, list[str]]:
        """The golden values without a partner between a paired one and the paired ones before it."""
        paired = {*self.partners.values()}
        return {name: self.module.border(name, paired)[2] for name in self.module.names if name in paired}

    @functools.cached_property
    def has_metadata(self) -> bool:
        """Whether the exporter's metadata are still at most operators, so that the ones without are added."""
        nodes = [node for node in self.mine.graph.nodes if not node.is_added]
        return 2 * sum(bool(node.proto.metadata_props) for node in nodes) > len(nodes)


@dataclass(frozen=True, slots=True)
class _Cause:
    """The cause of a wrong function of the file.

    Attributes:
        at: The operator at fault.
        notes: Its reason, in words.
        lacking: Golden's name of the call that the file lacks, "" for none.
        names: The operators, or the golden call, at fault: other functions with them are not accused.
        within: All operators and golden calls of the function.
    """

    at: Node
    notes: tuple[str, ...]
    lacking: str
    names: frozenset[str]
    within: frozenset[str]


class _Run:
    """One run: each operator waits until golden has computed all that it reads and writes, and then runs.

    It reads golden's values where golden has some of its inputs' names, and else outputs that
    earlier operators computed of golden's values. So its difference from golden's value is its own error.
    """

    def __init__(
        self, comparison: TorchComparison, inputs: Mapping[str, Any], advance: Callable[[], None]
    ) -> None:
        self._both, self._advance = comparison, advance
        graph, module = comparison.mine.graph, comparison.module
        self._graph = graph
        self._waiting, self._order = deque(graph.nodes), len(comparison.report.findings)
        self._partners = comparison.partners
        self._results = {value.name for value in graph.outputs}
        self._pending = set(module.names)
        self._needed = {*self._partners.values()}.union(*comparison.inner.values())
        self._golden: dict[str, np.ndarray] = {}
        self._fed: dict[str, Any] = {**inputs}  # the operators' inputs: golden's values
        self._own: dict[str, Any] = {**inputs}  # the file's values
        self._known: dict[str, TensorEvidence] = {}
        self._sources: dict[str, ValueSource] = {}
        self._rows: list[tuple[Finding, _Cause | None]] = []
        self._told: dict[str, str] = {}  # names of causes, and the accused operator
        self._last: dict[str, int] = {}  # position of the last operator with a cone that has a value
        self._last_inner: dict[str, int] = {}
        for position, node in enumerate(graph.nodes):
            cone = comparison.cones[node.name]
            held = (*cone.reads, *reads(node), *(name for each in cone.nodes for name in each.outputs))
            self._last |= dict.fromkeys(held, position)
            for name in node.outputs:
                inner = comparison.inner.get(self._partners.get(name, ""), ())
                self._last_inner |= dict.fromkeys(inner, position)
        self._last |= dict.fromkeys((value.name for value in graph.outputs), len(graph.nodes))
        self._ends: dict[int, list[str]] = {}
        self._inner_ends: dict[int, list[str]] = {}
        for last, ends in ((self._last, self._ends), (self._last_inner, self._inner_ends)):
            for name, position in last.items():
                ends.setdefault(position, []).append(name)

    def show(self, name: str, array: np.ndarray) -> None:
        """Take a value of golden, and run the operators that waited for it."""
        self._pending.discard(name)
        if name in self._needed:
            self._golden[name] = array
        while self._waiting and self._is_ready(self._waiting[0]):
            self._run(self._waiting.popleft())

    def end(self) -> None:
        """Run the other operators, and compare the outputs of the network."""
        while self._waiting:
            self._run(self._waiting.popleft())
        both, rows = self._both, [row for row, _ in self._rows]
        found = judge(rows, both.limits)
        for (_, cause), finding in zip(self._rows, found, strict=True):
            for each in self._explained(finding, cause) if finding.is_accused and cause else (finding,):
                both.report.add(each)
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

    def _golden_of(self, name: str, like: Any) -> np.ndarray | None:
        """Return golden's value of a name in the shape of the file's value, None if there is none.

        Simplifiers keep a value's name where they merge its dimensions.
        """
        array = self._golden.get(self._partners.get(name, ""))
        is_inner = isinstance(self._both.module, HookedModule) and name not in self._results
        if array is None or not isinstance(like, np.ndarray) or (is_inner and array.shape != like.shape):
            return None  # a tool has moved an operator over the border of a module
        return array.reshape(like.shape) if array.size == like.size else array

    def _run(self, node: Node) -> None:
        position = len(self._graph.nodes) - len(self._waiting) - 1
        results, own = self._again(node)
        if not node.is_added:
            self._judge(node, results, own)
            self._advance()
        for name in self._ends.get(position, ()):
            if name not in self._graph.weights:
                for values in (self._fed, self._own):
                    values.pop(name, None)
                self._golden.pop(self._partners.get(name, ""), None)
        for name in self._inner_ends.get(position, ()):
            self._golden.pop(name, None)

    def _judge(self, node: Node, results: list[Any], own: list[Any]) -> None:
        """Add the row of an operator: its outputs beside golden's, and on golden's values."""
        self._order += 1
        place = replace(
            self._both.places.of(node), iteration=self._both.runs, order=self._order, time=self._order
        )
        cone = self._both.cones[node.name]
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
                error = self._own_error(slot, results[slot], golden, cone)
                if not error.is_explained and not self._is_rounding(name, results[slot], cone):
                    wrong = wrong or name
                elif not error.is_explained:
                    error = replace(error, is_explained=True, note="golden's of the rounded inputs")
                own_errors.append(error)
                propagated.append(errors.measure(own[slot], results[slot]).distance)
                self._fed[name] = _like(golden, results[slot])
            else:
                wrong = wrong or name
        golden_name = next((self._partners[name] for name in node.outputs if name in self._known), "")
        made = dict(zip(node.outputs, results, strict=True))
        cause, weights = self._cause(cone, wrong, made) if wrong else (None, [])
        inputs = [*self._inputs(cone), *weights]
        sources = (
            self._sources.get(each.name, ValueSource(_GIVEN[each.is_weight], each.name)) for each in inputs
        )
        call = self._both.module.call(golden_name) if golden_name else Call()
        row = Finding(
            place if place.source else replace(place, source=call.source),
            tensors=(*(replace(each, slot=slot) for slot, each in enumerate(inputs)), *outputs),
            reads=tuple(sources),
            own=tuple(own_errors),
            propagated=max(propagated, default=None),
            is_random=call.is_random or not all(is_repeatable(each) for each in cone.nodes),
            returned=frozenset(each.slot for each in outputs if each.name in self._results),
            is_masking=place.full_name in self._both.places.masking,
            note="" if outputs else "the module has no value of its name",
        )
        self._rows.append((row, cause))

    def _again(self, node: Node) -> tuple[list[Any], list[Any]]:
        """Run an operator on golden's values and on the file's; return the outputs of both runs."""
        own = self._outputs(node, self._own)
        is_alike = all(self._fed.get(name) is self._own.get(name) for name in reads(node))
        results = own if is_alike else self._outputs(node, self._fed)
        for name, fed, mine in zip(node.outputs, results, own, strict=True):
            if name:
                self._fed[name], self._own[name] = fed, mine
        return results, own

    def _outputs(self, node: Node, values: Mapping[str, Any]) -> list[Any]:
        given = {name: values[name] for name in reads(node) if name in values}
        return [*self._both.runners.outputs(self._graph, node, given, self._both.mine.computes_in)]

    def _inputs(self, cone: Cone) -> Iterator[TensorEvidence]:
        """Yield the evidence of the golden values that operators read."""
        for name in cone.reads:
            if name in self._known:
                yield replace(self._known[name], io=IO.INPUT)
            elif isinstance(self._own.get(name), np.ndarray):  # an input of the network
                array = self._own[name]
                yield compare_arrays((IO.INPUT, 0, name), array, array, self._both.limits, {})

    def _own_error(self, slot: int, array: np.ndarray, golden: np.ndarray, cone: Cone) -> OwnError:
        error = errors.measure(array, golden)
        types = [dtypes.from_numpy(array.dtype).name, self._both.limits.precision or "float32"]
        allowed = _ROUNDINGS.get(coarser(*_rounded((*types, *self._types(cone)))), 2.0**-16)
        allowed = _quantised({node.op_type for node in cone.nodes}) or allowed
        is_explained = error.is_same or (not error.misplaced and error.scaled <= allowed)
        if array.dtype.kind not in "fV" and not error.is_same:
            is_explained = False
        return OwnError(slot, error, allowed, is_explained, "PyTorch's values")

    def _types(self, cone: Cone) -> Iterator[str]:
        for node in cone.nodes:
            for name in filter(None, (*node.inputs, *node.outputs)):
                dtype = self._graph.type_of(name).dtype
                if dtype is not None:
                    yield dtype.name

    def _agrees(self, array: Any, golden: np.ndarray | None, cone: Cone) -> bool:
        if not isinstance(array, np.ndarray) or golden is None or array.size != golden.size:
            return False
        return self._own_error(0, array, golden.reshape(array.shape), cone).is_explained

    def _is_rounding(self, output: str, array: np.ndarray, cone: Cone) -> bool:
        """Return whether golden's function computes the same integers of inputs in the file's type."""
        short = coarser(*_rounded(("float32", *self._types(cone))))
        if array.dtype.kind not in "iub" or short == "float32":
            return False
        read = {name: self._fed[name] for name in cone.reads if name in self._partners}
        held = {
            self._partners[name]: array
            if array.dtype.kind in "iub"
            else numpy_cast(array.astype(np.float32), dtypes.from_name(short)).astype(np.float32)
            for name, array in read.items()
        }
        again = self._both.module.again(self._partners[output], held)
        return again is not None and np.array_equal(again.reshape(-1), array.reshape(-1))

    def _with(
        self, nodes: Sequence[Node], values: Mapping[str, Any], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the values of operators after some values are replaced."""
        known, changed = {**values, **given}, set(given)
        for node in nodes:
            if changed.isdisjoint(reads(node)) or not given.keys().isdisjoint(node.outputs):
                continue
            try:
                results = self._outputs(node, known)
            except MsdumpError:  # the experiment does not fit
                results = [None] * len(node.outputs)
            known |= dict(zip(node.outputs, results, strict=True))
            changed |= {*node.outputs}
        return known

    def _cause(
        self, cone: Cone, output: str, results: Mapping[str, Any]
    ) -> tuple[_Cause, list[TensorEvidence]]:
        """Return the cause of a wrong function, and the weights that differ.

        Experiments decide: the fault lies behind inner values that both sides compute alike, and before an
        inner value of golden that gives golden's result in the file's place.
        """
        module, target, golden = self._both.module, self._partners[output], self._golden
        file = {**self._fed, **results}
        inner = [each for each in self._both.inner.get(target, ()) if each in golden]
        made = [name for node in cone.nodes for name in node.outputs if name and name != output]

        def gives(value: str, given: Mapping[str, Any], wanted: str) -> bool:
            found = self._with(cone.nodes, file, given) if given else file
            return self._agrees(found.get(value), golden.get(wanted), cone)

        same = {each: name for each in inner for name in made if gives(name, {}, each)}
        target, output = next(
            (
                (each, name)
                for each in inner
                for name in made
                if each not in same
                and name not in same.values()
                and _shape(file.get(name)) == golden[each].shape
                if gives(output, {name: _like(golden[each], file[name])}, target)
            ),
            (target, output),
        )
        nodes = _between(cone.nodes, output, {*cone.reads, *same.values()})
        known = {*self._partners.values(), *same}
        calls = [each for each in module.border(target, known - {target})[2] if each in module.varying]
        calls.append(target)
        found = [*self._weights(nodes, calls)]
        weights, wrong = [each for _, each in found], {each.name: name for name, each in found}
        at, notes, lacking = nodes[-1], list[str](), ""
        extra: list[Node] = []
        if wrong:
            at = next((node for node in nodes if not wrong.keys().isdisjoint(reads(node))), at)
            notes += [self._constant(*each) for each in wrong.items()]
        elif transposed := next(self._transposed(nodes, lambda given: gives(output, given, target)), ""):
            at = next(node for node in nodes if transposed in reads(node))
            notes += [self._constant(transposed, transposed), f"weight {transposed} is transposed"]
        else:
            others = {name: array for name, array in golden.items() if name not in calls}
            skips = ((call, read) for call in calls for read in module.reads(call) if read in golden)
            lacking = next(
                (
                    call
                    for call, read in skips
                    if call in golden and golden[read].shape == golden[call].shape
                    if self._agrees(
                        file.get(output), module.again(target, {**others, call: golden[read]}), cone
                    )
                ),
                "",
            )
            places = [(name, node) for node in nodes for name in node.outputs if name]
            skipped = (
                _between(nodes, name, {before})
                for before in (*cone.reads, *(name for name, _ in places))
                for name, node in places
                if before not in node.outputs and before in file
                if _shape(file[before]) == _shape(file.get(name))
                if module.texts and not lacking and gives(output, {name: file[before]}, target)
            )
            first = next(skipped, [])
            extra = [node for node in nodes if not lacking and (node in first or self._is_foreign(node))]
        if extra:
            at = extra[0]
            named = ", ".join(f"{node.name} ({node.op_type})" for node in extra)
            notes.append(f"{named}: extra, no call of the module")
        call, line = module.call(target), self._both.places.of(at).source
        kinds = " + ".join(_call_text(node) for node in nodes if not node.is_added)
        notes.append(
            f"golden's {module.described(target)}" + f" ({call.source})" * (call.source not in ("", line))
        )
        notes[-1] += f", here {kinds}"
        for each in map(module.call, calls[:-1]):
            notes.append(f"the file has no value of {each}" + f" ({each.source})" * bool(each.source))
        read = {name for node in nodes for name in reads(node) if name in self._graph.weights}
        names = {node.name for node in extra} or {lacking} - {""} or {at.name, module.call(target).maker}
        within = {*(node.name for node in nodes), *calls, *(module.call(each).maker for each in calls)}
        if wrong:  # other operators that read it, or a constant of the same buffer, are right
            names = {*wrong}.union(*(module.sources(each) for each in wrong.values()))
            within = {*read}.union(*(module.sources(each) for each in wrong.values()))
        return _Cause(at, tuple(notes), lacking, frozenset(names), frozenset(within)), weights

    def _constant(self, name: str, golden: str) -> str:
        """Return a weight in words: the golden constant, if it is one, and its readers, if it has several."""
        count, words = sum(name in reads(node) for node in self._graph.nodes), []
        if golden in self._both.module.names:
            call = self._both.module.call(golden)
            words.append(f"golden's {golden} is {call}" + f" ({call.source})" * bool(call.source))
        if count > 1:
            words.append(f"{count} operators read {name}")
        return joined(*words)

    def _is_foreign(self, node: Node) -> bool:
        """Return whether the exporter did not write an operator, or wrote it for a call that golden lacks."""
        if node.is_added or not node.proto.metadata_props:
            return not node.is_added and self._both.has_metadata
        name = call_name(node)
        return name in node.outputs and name not in self._partners

    def _weights(self, nodes: Sequence[Node], calls: Sequence[str]) -> Iterator[tuple[str, TensorEvidence]]:
        """Yield the weights of operators that are wrong which are not the module's parameters, and its names.

        A weight is the parameter with the same elements, possibly transposed. Where one weight and one
        parameter of a number of elements have no partner, the weight is wrong.
        """
        module = self._both.module
        held = {
            name: self._graph.weights[name]
            for node in nodes
            for name in reads(node)
            if name in self._graph.weights
        }
        held = {name: array for name, array in held.items() if array.dtype.kind == "f" and array.size > 1}
        wanted = dict(module.parameters(calls))
        for call in calls:  # constants that the exporter has folded
            wanted |= {
                each: self._golden[each]
                for each in module.reads(call)
                if each in self._golden and each not in module.varying
            }
        folded = {each: array for call in calls for each, array in module.folded(call, calls).items()}
        wanted = folded or wanted
        for name, array in [*held.items()]:
            same = next((each for each in wanted if _is_same(array, wanted[each], bool(folded))), None)
            if same is not None:
                del held[name], wanted[same]
        for name, array in held.items():
            alike = [each for each in wanted if wanted[each].size == array.size]
            if len(alike) == 1:
                other = wanted[alike[0]]
                fitting = (form for form in _forms(other) if form.shape == array.shape)
                shaped = np.ascontiguousarray(
                    min(fitting, key=lambda form: _gap(form, array), default=other.reshape(array.shape))
                )
                evidence = compare_arrays((IO.INPUT, 0, name), array, shaped, self._both.limits, {})
                places = errors.places_text(array, shaped)
                yield alike[0], replace(evidence, is_weight=True, places=places)

    def _transposed(self, nodes: Sequence[Node], gives: Callable[[Mapping[str, Any]], bool]) -> Iterator[str]:
        """Yield the square weights that give golden's value when they are transposed."""
        for name in dict.fromkeys(name for node in nodes for name in reads(node)):
            weight = self._graph.weights.get(name)
            if weight is None or weight.ndim < _MATRIX or weight.shape[-1] != weight.shape[-2]:
                continue
            if gives({name: np.ascontiguousarray(np.swapaxes(weight, -1, -2))}):
                yield name

    def _explained(self, finding: Finding, cause: _Cause) -> Iterator[Finding]:
        """Yield a fault with its function in words, at its operator or at a call that is missing."""
        told = next((self._told[name] for name in sorted(cause.within) if name in self._told), "")
        if told:
            note = f"it shows the fault of {told}, too"
            yield replace(finding, verdict=Verdict.INHERITED, note=note)
            return
        at, module = self._both.places.of(cause.at), self._both.module
        notes = joined(finding.note, *cause.notes)
        if cause.lacking:
            call = module.call(cause.lacking)
            scope = "/".join(("Default", *filter(None, call.module.split("."))))
            at = OperatorPlace(
                f"{scope}/{cause.lacking}", call.target, f"{scope}/{cause.lacking}", source=call.source
            )
            where = f"module {call.module}" if call.module else "the network"
            fewer = f"{where} has one {call.target} fewer in the file"
            place = replace(at, iteration=finding.place.iteration, order=0, time=finding.place.time)
            yield Finding(place, Verdict.MISSING, note=f"{fewer}: golden's {cause.lacking} is {call}")
            note = f"it shows that {cause.lacking} is missing; {notes}"
            yield replace(finding, verdict=Verdict.INHERITED, note=note)
        else:
            place = replace(
                at,
                iteration=finding.place.iteration,
                order=finding.place.order,
                time=finding.place.time,
                source=at.source or finding.place.source,
            )
            yield replace(finding, place=place, note=notes)
        self._told |= dict.fromkeys(cause.names, at.shown_name)


def _between(nodes: Sequence[Node], output: str, stops: Collection[str]) -> list[Node]:
    """Return the operators that compute a value of others, in their order."""
    makers = {name: node for node in nodes for name in node.outputs if name}
    found, waiting = dict[str, Node](), [output]
    while waiting:
        name = waiting.pop()
        node = makers.get(name)
        if node is not None and node.name not in found and (name == output or name not in stops):
            found[node.name] = node
            waiting += reads(node)
    return [node for node in nodes if node.name in found]


def _shape(array: Any) -> tuple[int, ...] | None:
    return array.shape if isinstance(array, np.ndarray) else None


def _rounded(types: Iterable[str]) -> list[str]:
    return [each for each in types if each in _ROUNDINGS]


def _like(golden: np.ndarray, result: np.ndarray) -> np.ndarray:
    """Return golden's value in the type that the file's operators read."""
    if golden.dtype == result.dtype:
        return golden
    return numpy_cast(golden, dtypes.from_numpy(result.dtype))


def _call_text(node: Node) -> str:
    """Return an operator in words, ``TopK(axis=-1, largest=0)``."""
    shown = {
        name: value for name, value in node.attributes.items() if isinstance(value, int | float | str | list)
    }
    return node.op_type + (
        f"({', '.join(f'{name}={value}' for name, value in shown.items())})" if shown else ""
    )


def _forms(array: np.ndarray) -> Iterator[np.ndarray]:
    yield array
    yield array.T
    if array.ndim > 1:
        yield np.swapaxes(array, -1, -2)


def _gap(form: np.ndarray, array: np.ndarray) -> float:
    return float(np.sum(np.abs(form - array)))


_MATRIX: Final = 2
"""Dimensions of a matrix."""


def _is_same(mine: np.ndarray, golden: np.ndarray, is_computed: bool) -> bool:  # noqa: FBT001
    if mine.size != golden.size:
        return False
    limit = _ROUNDINGS.get(dtypes.from_numpy(mine.dtype).name, 0.0) if is_computed else 0.0
    forms = (form.reshape(mine.shape) for form in _forms(golden.astype(mine.dtype)))
    return any(
        np.array_equal(form, mine) or (limit and errors.measure(mine, form).scaled <= limit) for form in forms
    )


def torch_comparison(graph: Graph, variant: Variant, module: TorchGolden, limits: Limits) -> TorchComparison:
    """Return the comparison of a model with a module; nothing has run.

    Args:
        graph: The model.
        variant: Device and arithmetic of the model.
        module: The module.
        limits: The limits of agreement.
    """
    mine = make_side(graph, variant, WeightCopies(), trains=False)
    golden = replace(mine, variant=Variant(PREFIX[:-1]), model=replace(mine.model, source=module.title))
    pairing = pair_sides(mine, mine, is_one_model=True)
    limits = replace(limits, precision=limits.precision or models.precision(variant))
    allowed = _quantised({node.op_type for node in graph.nodes})
    if limits.distance is None and allowed:
        limits = replace(limits, distance=allowed, explanation="quantised numbers")
    comparison = TorchComparison(mine, golden, pairing, limits, module=module)
    if comparison.partners.keys() <= {value.name for value in (*graph.inputs, *graph.outputs)}:
        comparison.report.networks.append(
            f"no value of {graph.source} has the name of a value of {module.title}: torch.onnx.export names"
            " them alike with dynamo=True; the outputs alone are compared"
        )
    return comparison


def _quantised(kinds: Collection[str]) -> float:
    """Return the error that quantisation by operators of some types explains, 0 without any."""
    if any("NBits" in kind for kind in kinds):
        return FEW_BITS
    return QUANTISED if any(part in kind for kind in kinds for part in _QUANTISING) else 0.0


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
