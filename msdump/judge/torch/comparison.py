"""A model beside a PyTorch module: each function is judged alone, on the module's own values."""

from __future__ import annotations

import ast
import difflib
import functools
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
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
from msdump.judge.torch.golden import PREFIX, Call, GoldenValue, Source, TorchGolden, call_text, export
from msdump.judge.verdict import (
    FEW_BITS,
    QUANTISED,
    Finding,
    Limits,
    OwnError,
    Stop,
    TensorEvidence,
    Verdict,
    coarser,
    coarsest_type,
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


@dataclass(frozen=True, slots=True)
class _Cone:
    """The operators of the file that compute a value of golden values alone, in their order.

    Attributes:
        nodes: The operators.
        reads: The golden values that they read, by the file's names.
    """

    nodes: tuple[Node, ...] = ()
    reads: tuple[str, ...] = ()

    def joined(self, other: _Cone) -> _Cone:
        """Return the operators and values of both."""
        nodes = {node.name: node for node in (*self.nodes, *other.nodes)}
        return _Cone(tuple(nodes.values()), tuple(dict.fromkeys((*self.reads, *other.reads))))


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
    def partners(self) -> tuple[dict[str, str], dict[str, Call]]:
        """Return golden's name of values with another one, "" for none, and calls that golden lacks.

        If the file was exported from another version of the program, running numbers in names have moved.
        Values are then paired by the calls in the file's metadata, in their order.
        """
        graph, module, golden = self.mine.graph, self.module, self.module.calls()
        aliases = dict(zip((value.name for value in graph.inputs), module.inputs, strict=False))
        aliases |= dict(zip((value.name for value in graph.outputs), module.outputs, strict=False))
        for node in graph.nodes:  # a quantiser of onnxruntime that clamps leaves ReLU's name to its input
            for name in node.outputs:
                source = name.removesuffix(_DEQUANTISED)
                if source != name and source in golden:
                    aliases |= {source: "", name: source}
        calls = {name: call for node in graph.nodes for name, call in _calls(node).items()}
        texts = [call_text(_metadata(node).get("fx_node", "")) for node in graph.nodes]
        if all(module.texts.get(name) == text for name, text in texts if text):
            return aliases, {}
        names, others = [*calls], [*golden]
        matcher = difflib.SequenceMatcher(None, [*calls.values()], [*golden.values()], autojunk=False)
        pairs = {
            names[block.a + at]: others[block.b + at]
            for block in matcher.get_matching_blocks()
            for at in range(block.size)
        }
        extra = {name: call for name, call in calls.items() if name not in pairs}
        return {**dict.fromkeys(extra, ""), **pairs, **aliases}, extra

    @functools.cached_property
    def has_metadata(self) -> bool:
        """Whether the exporter's metadata are still at most operators, so that the ones without are added."""
        nodes = [node for node in self.mine.graph.nodes if not node.is_added]
        return 2 * sum(bool(node.proto.metadata_props) for node in nodes) > len(nodes)

    @functools.cached_property
    def paired(self) -> frozenset[str]:
        """Golden's names of the values that the file has."""
        aliases, _ = self.partners
        names = {aliases.get(name, name) for node in self.mine.graph.nodes for name in node.outputs}
        return self.module.names & names


@dataclass(frozen=True, slots=True)
class _Row:
    """The evidence on an operator, with the function that it completes.

    Attributes:
        finding: The evidence.
        cone: The operators of the function.
        value: The value that they compute; None if golden has none.
        transposed: Name of a weight that gives golden's value if it is transposed, "" for none.
    """

    finding: Finding
    cone: _Cone
    value: GoldenValue | None
    transposed: str


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
        self._aliases, self._extra = comparison.partners
        self._pending = set(module.names)
        self._golden: dict[str, GoldenValue] = {}
        self._fed: dict[str, Any] = {**inputs}  # the operators' inputs: golden's values
        self._own: dict[str, Any] = {**inputs}  # the file's values
        self._cones: dict[str, _Cone] = {}
        self._known: dict[str, TensorEvidence] = {}
        self._sources: dict[str, ValueSource] = {}
        self._rows: list[_Row] = []
        self._told: dict[str, str] = {}  # calls and operators of one side alone, and the accused operator
        self._left = Counter(name for node in graph.nodes for name in set(reads(node)))
        self._left.update(value.name for value in graph.outputs)

    def show(self, value: GoldenValue) -> None:
        """Take a value of golden, and run the operators that waited for it."""
        self._pending.discard(value.name)
        self._golden[value.name] = value
        while self._waiting and self._is_ready(self._waiting[0]):
            self._run(self._waiting.popleft())

    def end(self) -> None:
        """Run the other operators, and compare the outputs of the network."""
        while self._waiting:
            self._run(self._waiting.popleft())
        both, rows = self._both, [each.finding for each in self._rows]
        found = judge(rows, both.limits)
        for row, finding in zip(self._rows, found, strict=True):
            is_told = finding.is_accused and row.value is not None
            both.report.add(self._explained(finding, row) if is_told else finding)
        coarsest = coarsest_type(rows, both.limits)
        for value in self._graph.outputs:
            own = self._own.get(value.name)
            golden = self._golden_of(value.name, own)
            if golden is not None and isinstance(own, np.ndarray):
                evidence = compare_arrays((IO.OUTPUT, 0, value.name), own, golden, both.limits, {})
                both.outputs.append(OutputDifference(both.runs, evidence))
                both.report.outputs.append(judge_tensor(evidence, both.limits, coarsest))

    def _is_ready(self, node: Node) -> bool:
        names = (*reads(node), *node.outputs)
        return all(self._aliases.get(name, name) not in self._pending for name in names)

    def _golden_of(self, name: str, like: Any) -> np.ndarray | None:
        """Return golden's value of a name in the shape of the file's value, None if there is none.

        Simplifiers keep a value's name where they merge its dimensions.
        """
        value = self._golden.get(self._aliases.get(name, name))
        if value is None or not isinstance(like, np.ndarray):
            return None
        array = value.array
        return array.reshape(like.shape) if array.size == like.size else array

    def _run(self, node: Node) -> None:
        if node.is_added:
            self._again(node)
            return
        self._order += 1
        place = replace(
            self._both.places.of(node), iteration=self._both.runs, order=self._order, time=self._order
        )
        results, own = self._again(node)
        cone = self._cone(node)
        outputs, own_errors, propagated = [], [], []
        for slot, name in enumerate(node.declared_outputs):
            golden = self._golden_of(name, own[slot]) if name else None
            if golden is None or own[slot] is None:
                self._cones[name] = cone
                continue
            which = (IO.OUTPUT, slot, name)
            evidence = compare_arrays(which, own[slot], golden, self._both.limits, {})
            outputs.append(evidence)
            self._known[name], self._cones[name] = evidence, _Cone(reads=(name,))
            self._sources[name] = ValueSource(SourceKind.OPERATOR, place.full_name, slot)
            if results[slot] is not None and results[slot].shape == golden.shape:
                own_errors.append(self._own_error(slot, results[slot], golden, cone))
                propagated.append(errors.measure(own[slot], results[slot]).distance)
                self._fed[name] = _like(golden, results[slot])
        value = next(
            (self._golden[self._aliases.get(name, name)] for name in node.outputs if name in self._known),
            None,
        )
        is_wrong = any(not each.is_explained for each in own_errors)
        inputs = [*self._inputs(cone), *(self._weights(cone, value) if is_wrong and value else ())]
        sources = (
            self._sources.get(each.name, ValueSource(_GIVEN[each.is_weight], each.name)) for each in inputs
        )
        row = Finding(
            place if value is None or place.source else replace(place, source=value.call.source),
            tensors=(*(replace(each, slot=slot) for slot, each in enumerate(inputs)), *outputs),
            reads=tuple(sources),
            own=tuple(own_errors),
            propagated=max(propagated, default=None),
            is_random=not all(is_repeatable(each) for each in cone.nodes),
            returned=frozenset(
                each.slot for each in outputs if each.name in {out.name for out in self._graph.outputs}
            ),
            is_masking=place.full_name in self._both.places.masking,
        )
        if not outputs:
            row = replace(row, note="the module has no value of its name")
        transposed = ""
        if is_wrong and not any(each.is_weight for each in inputs):
            transposed = self._transposed(cone, outputs[0].name)
        if value is not None:  # without its elements
            value = replace(value, array=np.empty(0), parameters={})
        self._rows.append(_Row(row, cone, value, transposed))
        self._drop(node)
        self._advance()

    def _again(self, node: Node) -> tuple[list[Any], list[Any]]:
        """Run an operator on golden's values and on the file's; return the outputs of both runs."""
        read, arithmetic = reads(node), self._both.mine.computes_in

        def outputs(values: Mapping[str, Any]) -> list[Any]:
            given = {name: values[name] for name in read if name in values}
            return [*self._both.runners.outputs(self._graph, node, given, arithmetic)]

        own = outputs(self._own)
        is_alike = all(self._fed.get(name) is self._own.get(name) for name in read)
        results = own if is_alike else outputs(self._fed)
        for name, fed, mine in zip(node.outputs, results, own, strict=True):
            if name:
                self._fed[name], self._own[name] = fed, mine
        if node.is_added:
            source = node.inputs[0]
            for name in node.outputs:
                self._cones[name] = self._cones.get(source, _Cone(reads=(source,)))
        return results, own

    def _cone(self, node: Node) -> _Cone:
        """Return the operators from golden's values to an operator."""
        cone = _Cone()
        for name in reads(node):
            if name in self._cones:
                cone = cone.joined(self._cones[name])
            elif name not in self._graph.weights:
                cone = cone.joined(_Cone(reads=(name,)))
        return cone.joined(_Cone((node,)))

    def _inputs(self, cone: _Cone) -> Iterator[TensorEvidence]:
        """Yield the evidence of the golden values that operators read."""
        for name in cone.reads:
            if name in self._known:
                yield replace(self._known[name], io=IO.INPUT)
            elif isinstance(self._own.get(name), np.ndarray):  # an input of the network
                array = self._own[name]
                yield compare_arrays((IO.INPUT, 0, name), array, array, self._both.limits, {})

    def _own_error(self, slot: int, array: np.ndarray, golden: np.ndarray, cone: _Cone) -> OwnError:
        error = errors.measure(array, golden)
        types = [dtypes.from_numpy(array.dtype).name, self._both.limits.precision or "float32"]
        for node in cone.nodes:
            known = (self._graph.type_of(name).dtype for name in (*node.inputs, *node.outputs) if name)
            types += [dtype.name for dtype in known if dtype is not None and dtype.name in _ROUNDINGS]
        allowed = _ROUNDINGS.get(coarser(*(each for each in types if each in _ROUNDINGS)), 2.0**-16)
        allowed = _quantised({node.op_type for node in cone.nodes}) or allowed
        is_explained = error.is_same or (not error.misplaced and error.scaled <= allowed)
        if array.dtype.kind not in "fV" and not error.is_same:
            is_explained = False
        return OwnError(slot, error, allowed, is_explained, "PyTorch's values")

    def _weights(self, cone: _Cone, value: GoldenValue) -> Iterator[TensorEvidence]:
        """Yield the weights of an operator that is wrong which are not the module's parameters.

        A weight is the parameter with the same elements, possibly transposed. Where one weight and one
        parameter of a number of elements have no partner, the weight is wrong.
        """
        held = {
            name: self._graph.weights[name]
            for node in cone.nodes
            for name in reads(node)
            if name in self._graph.weights
        }
        held = {name: array for name, array in held.items() if array.dtype.kind == "f" and array.size > 1}
        wanted = dict(value.parameters)
        for name, array in [*held.items()]:
            same = next((each for each in wanted if _is_same(array, wanted[each])), None)
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
                yield replace(evidence, is_weight=True, places=errors.places_text(array, shaped))

    def _transposed(self, cone: _Cone, output: str) -> str:
        """Return the name of a square weight that gives golden's value when it is transposed, or ""."""
        golden = self._golden_of(output, self._own.get(output))
        if golden is None or not set(cone.reads) <= set(self._fed):
            return ""
        for node in cone.nodes:
            for name in reads(node):
                weight = self._graph.weights.get(name)
                if weight is None or weight.ndim < _MATRIX or weight.shape[-1] != weight.shape[-2]:
                    continue
                values = {**self._fed, name: np.ascontiguousarray(np.swapaxes(weight, -1, -2))}
                for each in cone.nodes:
                    given = {read: values[read] for read in reads(each) if read in values}
                    results = self._both.runners.outputs(
                        self._graph, each, given, self._both.mine.computes_in
                    )
                    values |= dict(zip(each.outputs, results, strict=True))
                if self._own_error(0, values[output], golden, cone).is_explained:
                    return name
        return ""

    def _explained(self, finding: Finding, row: _Row) -> Finding:
        """Return a fault with its function in words, and the operators that one side alone has before it.

        The fault is that of an operator with a wrong weight, or of one that golden's function does not have.
        """
        cone, value = row.cone, row.value or GoldenValue("", np.empty(0))
        kinds = " + ".join(map(_call_text, cone.nodes))
        notes, at = [finding.note], cone.nodes[-1]
        wrong = {each.name for each in finding.inputs if each.is_weight}
        added = [
            node for node in cone.nodes if self._both.has_metadata and not node.proto.metadata_props
        ] or [node for node in cone.nodes if any(name in self._extra for name in node.outputs)]
        if wrong:
            at = next((node for node in cone.nodes if wrong & set(reads(node))), at)
        elif added:
            at = added[0]
            names = ", ".join(f"{node.name} ({node.op_type})" for node in added)
            notes.append(f"{names}: extra, no call of the module")
        else:
            notes.append(f"weight {row.transposed} is transposed" if row.transposed else "")
        notes.append(f"golden's {value.name} is {value.call}, here {kinds}")
        lacking = self._both.module.between(value.name, self._both.paired)
        causes = {*lacking, *(node.name for node in added if not wrong)}
        told = next((self._told[name] for name in sorted(causes) if name in self._told), "")
        if told:
            return replace(finding, verdict=Verdict.INHERITED, note=f"it shows the fault of {told}, too")
        place = self._both.places.of(at)
        self._told |= dict.fromkeys(causes, place.shown_name)
        notes += [
            f"the file has no value {name}, {call}" + f" ({call.source})" * bool(call.source)
            for name, call in lacking.items()
        ]
        place = replace(
            place,
            iteration=finding.place.iteration,
            order=finding.place.order,
            time=finding.place.time,
            source=place.source or finding.place.source,
        )
        return replace(finding, place=place, note="; ".join(filter(None, notes)))

    def _drop(self, node: Node) -> None:
        """Drop the values that nothing reads any more."""
        for name in set(reads(node)):
            self._left[name] -= 1
        for name in (*reads(node), *node.outputs):
            if name and self._left[name] <= 0 and name not in self._graph.weights:
                for values in (self._fed, self._own):
                    values.pop(name, None)
                self._golden.pop(self._aliases.get(name, name), None)


def _like(golden: np.ndarray, result: np.ndarray) -> np.ndarray:
    """Return golden's value in the type that the file's operators read."""
    if golden.dtype == result.dtype:
        return golden
    return numpy_cast(golden, dtypes.from_numpy(result.dtype))


def _metadata(node: Node) -> dict[str, str]:
    """Return the exporter's notes at an operator."""
    return {each.key.removeprefix("pkg.torch.onnx."): each.value for each in node.proto.metadata_props}


def _calls(node: Node) -> dict[str, Call]:
    """Return the calls that an operator's outputs stand for, by the metadata of its export; else nothing."""
    metadata = _metadata(node)
    try:
        scopes, classes = (ast.literal_eval(metadata[key]) for key in ("name_scopes", "class_hierarchy"))
        named = [name for name in node.outputs if name == scopes[-1] or name.startswith("getitem")]
        return {
            name: Call(classes[-1], scopes[-2] if len(scopes) > 1 else "", node.outputs.index(name))
            for name in named
        }
    except (KeyError, IndexError, ValueError, SyntaxError):  # another tool wrote the file
        return {}


_DEQUANTISED: Final = "_DequantizeLinear_Output"
"""Ends the names that onnxruntime's quantiser gives to dequantised values."""


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


def _is_same(mine: np.ndarray, golden: np.ndarray) -> bool:
    if mine.size != golden.size:
        return False
    rounded = golden.astype(mine.dtype)
    return any(np.array_equal(form.reshape(-1), mine.reshape(-1)) for form in _forms(rounded))


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
    if not comparison.paired:
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
    golden = TorchGolden(source, graph, given)
    comparison = torch_comparison(graph, models.parse("float32"), golden, Limits())
    comparison.run(bind_inputs(graph, (), given))
    return comparison
