"""The cause of a wrong function of a file: by experiments with golden's values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.device import numpy_cast
from msdump.errors import MsdumpError
from msdump.graph import Node, reads
from msdump.judge import errors
from msdump.judge.diff import compare_arrays
from msdump.judge.torch.functions import Functions, rounding
from msdump.judge.torch.pairing import Cone, call_name
from msdump.judge.verdict import TensorEvidence, joined
from msdump.record import IO

_MOST_SHOWN: Final = 3  # operators or calls in a sentence


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a wrong function of the file."""

    at: Node  # the operator at fault
    notes: tuple[str, ...]  # its reason, in words
    lacking: str  # golden's name of the call that the file lacks, "" for none
    # the operators, or the golden call, at fault: other functions with them are not accused
    names: frozenset[str]
    within: frozenset[str]  # all operators and golden calls of the function
    weights: tuple[TensorEvidence, ...]  # the weights that differ

    def accused_before(self, accused: dict[str, str], operator: str) -> str:
        """Return the operator accused of the same fault before, "" for none: then accuse ``operator``."""
        known = next((accused[name] for name in sorted(self.within) if name in accused), "")
        accused |= {} if known else dict.fromkeys(self.names, operator)
        return known


class Trial:
    """Experiments with a wrong function of the file, computed of golden's values, which find its cause.

    The fault lies behind inner values that both sides compute alike, and before an inner value of golden
    that gives golden's result in the file's place.

    Attributes:
        target: Golden's name of the first value that is wrong.
        output: The file's name of it.
        nodes: The operators that compute it of right values.
        calls: Golden's calls that compute it, the last one its own.
    """

    def __init__(
        self,
        functions: Functions,
        cone: Cone,
        output: str,
        values: Mapping[str, Any],
        golden: Mapping[str, np.ndarray],
    ) -> None:
        """Find the first wrong value.

        Args:
            functions: The functions of the file.
            cone: The operators of the function.
            output: The file's name of its wrong result.
            values: Values of the file, computed of golden's.
            golden: Golden's values.
        """
        self._functions, self._cone, self._file, self._golden = functions, cone, values, golden
        self.output, self.target = output, functions.partners[output]
        inner = [each for each in functions.inner.get(self.target, ()) if each in golden]
        made = [name for node in cone.nodes for name in node.outputs if name and name != output]
        alike = ((each, name) for each in inner for name in made)
        same = {each: name for each, name in alike if functions.agrees(values.get(name), golden[each], cone)}
        self.target, self.output = next(
            (
                (each, name)
                for each in inner
                for name in made
                if each not in same
                and name not in same.values()
                and _shape(values.get(name)) == golden[each].shape
                if self._gives({name: like(golden[each], values[name])})
            ),
            (self.target, self.output),
        )
        self.nodes = _between(cone.nodes, self.output, {*cone.reads, *same.values()})
        known, module = {*functions.partners.values(), *same}, functions.module
        between = module.border(self.target, known - {self.target})[2]
        self.calls = [*(each for each in between if each in module.varying), self.target]

    def cause(self) -> Cause:
        """Return the cause."""
        functions, module, nodes, calls = self._functions, self._functions.module, self.nodes, self.calls
        at, notes, lacking, extra = nodes[-1], list[str](), "", list[Node]()
        weights = [*self._wrong_weights()] if functions.has_names else []
        if trained := [module.training[each] for each in calls if each in module.training]:
            notes.append(f"the module is in train mode: {', '.join(trained)}")
            weights = []
        elif not functions.has_names:
            notes.append("no value before has a name of the module: it may be another network")
        elif weights:
            wrong = {each.name for _, each in weights}
            at = next((node for node in nodes if not wrong.isdisjoint(reads(node))), at)
            notes += [_constant_text(functions, each.name, name) for name, each in weights]
        elif transposed := self._transposed_weight():
            at = next(node for node in nodes if transposed in reads(node))
            notes.append(_constant_text(functions, transposed, transposed))
            notes.append(f"weight {transposed} is transposed")
        elif lacking := self._lacking_call():
            pass
        elif extra := self._extra_operators():
            at = extra[0]
            named = ", ".join(f"{node.name} ({node.op_type})" for node in extra)
            notes.append(f"{named}: extra, no call of the module")
        call, line = module.call(self.target), functions.places.of(at).source
        kinds = _last_of([_call_text(node) for node in nodes if not node.is_added], " + ")
        where = f" ({call.source})" * (call.source not in ("", line))
        notes.append(f"golden's {module.described(self.target)}{where}, here {kinds}")
        lost = (module.call(each) for each in calls[:-1])
        absent = [f"{each}" + f" ({each.source})" * bool(each.source) for each in lost]
        notes += [f"the file has no value of {_last_of(absent, ', ')}"] if absent else []
        if weights:  # other operators that read it, or a constant of the same buffer, are right
            buffers = frozenset[str]().union(*(module.sources(name) for name, _ in weights))
            names = buffers.union(each.name for _, each in weights)
            within = buffers.union(functions.weights(nodes))
        else:
            makers = {module.call(each).maker for each in calls}
            within = frozenset({*(node.name for node in nodes), *calls, *makers})
            found = {node.name for node in extra} or {lacking} - {""} or {at.name, call.maker}
            names = frozenset(found)
        return Cause(at, tuple(notes), lacking, names, within, tuple(each for _, each in weights))

    def _gives(self, given: Mapping[str, Any]) -> bool:
        """Return whether the function computes golden's value after some values are replaced."""
        known, changed = {**self._file, **given}, set(given)
        for node in self._cone.nodes:
            if changed.isdisjoint(reads(node)) or not given.keys().isdisjoint(node.outputs):
                continue
            try:
                results = self._functions.outputs(node, known)
            except MsdumpError:  # the experiment does not fit
                return False
            known |= dict(zip(node.outputs, results, strict=True))
            changed |= {*node.outputs}
        return self._functions.agrees(known.get(self.output), self._golden.get(self.target), self._cone)

    def _wrong_weights(self) -> Iterator[tuple[str, TensorEvidence]]:
        """Yield the weights of operators that are not the module's parameters, and golden's names of these.

        A weight is the parameter with the same elements, possibly transposed. Where one weight and one
        parameter of a number of elements have no partner, the weight is wrong.
        """
        module, held = self._functions.module, self._functions.weights(self.nodes)
        constants = (each for call in self.calls for each in module.reads(call) if each not in module.varying)
        folded = dict(each for call in self.calls for each in module.folded(call, self.calls).items())
        wanted = folded or {
            **module.parameters(self.calls),
            **{each: self._golden[each] for each in constants if each in self._golden},
        }
        for name, array in [*held.items()]:
            same = next((each for each in wanted if _is_same(array, wanted[each], bool(folded))), None)
            if same is not None:
                del held[name], wanted[same]
        for name, array in held.items():
            alike = [each for each in wanted if wanted[each].size == array.size]
            if name in alike or len(alike) == 1:
                partner = name if name in alike else alike[0]
                other = wanted[partner]
                forms = [form for form in _forms(other) if form.shape == array.shape]
                gaps = [float(np.sum(np.abs(form - array))) for form in forms]
                nearest = forms[gaps.index(min(gaps))] if forms else other.reshape(array.shape)
                shaped = np.ascontiguousarray(nearest)
                evidence = compare_arrays((IO.INPUT, 0, name), array, shaped, self._functions.limits, {})
                places = errors.places_text(array, shaped)
                yield partner, replace(evidence, is_weight=True, places=places)

    def _transposed_weight(self) -> str:
        """Return a square weight that gives golden's value when it is transposed, "" if none does."""
        for name in dict.fromkeys(name for node in self.nodes for name in reads(node)):
            weight = self._functions.graph.weights.get(name)
            if weight is None or weight.ndim <= 1 or weight.shape[-1] != weight.shape[-2]:
                continue
            if self._gives({name: np.ascontiguousarray(np.swapaxes(weight, -1, -2))}):
                return name
        return ""

    def _lacking_call(self) -> str:
        """Return golden's call without which the module computes the file's value, "" if there is none."""
        golden, module = self._golden, self._functions.module
        others = {name: array for name, array in golden.items() if name not in self.calls}
        for call in self.calls:
            for read in module.reads(call):
                if call in golden and read in golden and golden[read].shape == golden[call].shape:
                    skipped = module.again(self.target, {**others, call: golden[read]})
                    if self._functions.agrees(self._file.get(self.output), skipped, self._cone):
                        return call
        return ""

    def _extra_operators(self) -> list[Node]:
        """Return operators without which the function is right, and others that no exporter wrote for it."""
        nodes, file = self.nodes, self._file
        if not self._functions.module.texts:  # the calls of golden are not known
            return []
        places = [(name, node) for node in nodes for name in node.outputs if name]
        skipped = (
            _between(nodes, name, {before})
            for before in (*self._cone.reads, *(name for name, _ in places))
            for name, node in places
            if before not in node.outputs and before in file
            if _shape(file[before]) == _shape(file.get(name))
            if self._gives({name: file[before]})
        )
        first = next(skipped, [])
        return [node for node in nodes if node in first or self._is_foreign(node)]

    def _is_foreign(self, node: Node) -> bool:
        """Return whether the exporter did not write an operator, or wrote it for a call that golden lacks."""
        if node.is_added or not node.proto.metadata_props:
            return not node.is_added and self._functions.has_metadata
        name = call_name(node)
        return name in node.outputs and name not in self._functions.partners


def _constant_text(functions: Functions, name: str, golden: str) -> str:
    """Return a weight in words: the golden constant, if it is one, and its readers, if it has several."""
    count, words = sum(name in reads(node) for node in functions.graph.nodes), []
    if golden in functions.module.names:
        call = functions.module.call(golden)
        words.append(f"golden's {golden} is {call}" + f" ({call.source})" * bool(call.source))
    if count > 1:
        words.append(f"{count} operators read {name}")
    return joined(*words)


def _last_of(texts: Sequence[str], between: str) -> str:
    """Return the last texts, the ones nearest to the result, and how many more there are."""
    more = len(texts) - _MOST_SHOWN
    return between.join([*texts[-_MOST_SHOWN:], *([f"{more} more before"] if more > 0 else [])])


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


def like(golden: np.ndarray, result: np.ndarray) -> np.ndarray:
    """Return golden's value in the type that the file's operators read."""
    if golden.dtype == result.dtype:
        return golden
    return numpy_cast(golden, dtypes.from_numpy(result.dtype))


def _shape(array: Any) -> tuple[int, ...] | None:
    return array.shape if isinstance(array, np.ndarray) else None


def _call_text(node: Node) -> str:
    """Return an operator in words, ``TopK(axis=-1, largest=0)``."""
    kinds = (int, float, str, list)
    shown = [f"{name}={value}" for name, value in node.attributes.items() if isinstance(value, kinds)]
    return node.op_type + (f"({', '.join(shown)})" if shown else "")


def _forms(array: np.ndarray) -> Iterator[np.ndarray]:
    yield array
    yield array.T
    if array.ndim > 1:
        yield np.swapaxes(array, -1, -2)


def _is_same(mine: np.ndarray, golden: np.ndarray, is_computed: bool) -> bool:  # noqa: FBT001
    if mine.size != golden.size:
        return False
    limit = rounding(mine) if is_computed else 0.0
    forms = (form.reshape(mine.shape) for form in _forms(golden.astype(mine.dtype)))
    return any(
        np.array_equal(form, mine) or (limit and errors.measure(mine, form).scaled <= limit) for form in forms
    )
