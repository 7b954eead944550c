"""Rows of evidence on branches and loops, which have no files: their inputs, and how often they ran."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msdump.judge.compare.folders import ComparedFolder
from msdump.judge.compare.surroundings import described
from msdump.judge.verdict import Finding, TensorEvidence
from msdump.read import FIXED, GraphOperator, SourceKind
from msdump.record import IO
from msdump.store import sanitize

Value = tuple[str, SourceKind, str]
"""Directory of a value that no operator writes, kind and name of its source."""

_LOOP: Final = "Loop"


def control_evidence(folders: Sequence[ComparedFolder], evidence: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a row for each branch and loop of a run that has compared operators inside.

    A declared input is compared where the body reads it, in the first pass, else where another operator reads
    it; operators inside read the other ones. A result counts if a side ran more passes: operators inside that
    agree then say nothing of it.
    """
    values = dict(_values(evidence))
    called = any(each.mine.graph is not None and each.mine.graph.caller for each in folders)
    for folder in folders:
        graph, number = folder.mine.graph, len(folder.matched.executions)
        for caller in graph.operators.values() if graph is not None and called else ():
            bodies = [each for each in folders if _is_body(each, caller)]
            labels = {each.label for each in bodies}
            inside = [each for each in evidence if each.place.label in labels]
            if not inside:
                continue
            number += 1
            tensors = [*_inputs(folder, caller, bodies, inside, values)]
            uneven = next((each for body in bodies for each in body.matched.uneven), None)
            if uneven is not None:
                tensors += _results(
                    folder, caller, evidence, f"{uneven.dumped} passes, in golden {uneven.golden}"
                )
            time = min(each.place.time for each in inside)
            place = folder.mine.place(
                *(sanitize(caller.full_name), caller.op_type), label=folder.label, order=number, time=time
            )
            yield Finding(described(place, caller), tensors=tuple(tensors), reads=caller.inputs)


def _is_body(folder: ComparedFolder, caller: GraphOperator) -> bool:
    return folder.mine.graph is not None and folder.mine.graph.caller == caller.full_name


def _values(evidence: Sequence[Finding]) -> Iterator[tuple[Value, TensorEvidence]]:
    """Yield weights and inputs with their evidence; of several the last counts: the first run, its file."""
    for each in reversed(evidence):
        label = each.place.label
        for tensor in each.tensors:
            source = each.source(tensor.slot) if tensor.io is IO.INPUT else None
            if source is not None and source.kind in {*FIXED, SourceKind.INPUT}:
                yield (label, source.kind, source.name), tensor
        for tensor in each.tensors:
            if tensor.io is IO.OUTPUT:
                for kind in (SourceKind.WEIGHT, SourceKind.INPUT):  # a parameter that was dumped by itself
                    yield (label, kind, each.place.name), tensor


def _inputs(
    folder: ComparedFolder,
    caller: GraphOperator,
    bodies: Sequence[ComparedFolder],
    inside: Sequence[Finding],
    values: Mapping[Value, TensorEvidence],
) -> Iterator[TensorEvidence]:
    around, inner = folder.mine.graph, [each.mine.graph for each in bodies]
    assert around is not None, "it has the caller"
    writers = (around.operators.get(each.name) for each in caller.inputs)
    captured = {each.label for each in writers if each is not None} | {each.name for each in caller.inputs}
    # an If declares its condition alone, which no branch reads
    declared = [
        [name for name in graph.inputs if name not in captured] for graph in inner if graph is not None
    ]
    for slot, source in enumerate(caller.inputs[: max(map(len, declared)) or 1]):
        # a loop's first input is the number of passes, its body's the number of the pass
        names = {each[slot] for each in declared if slot < len(each) and (slot or caller.op_type != _LOOP)}
        found = _read_inside(bodies, inside, names) or values.get((folder.label, source.kind, source.name))
        if found is not None:
            is_weight = source.kind in FIXED
            name = "" if source.kind is SourceKind.OPERATOR else source.name
            yield replace(found, io=IO.INPUT, slot=slot, is_weight=is_weight, name=name)


def _read_inside(
    bodies: Sequence[ComparedFolder], inside: Sequence[Finding], names: Collection[str]
) -> TensorEvidence | None:
    """Return the evidence of an input of bodies, by its names, in the first pass: the nearest to golden's."""
    found = []
    for body in bodies:
        for each in inside:
            operator = body.mine.operator(each.place.name) if each.place.label == body.label else None
            if operator is not None and not each.place.pass_number:
                found += [
                    tensor
                    for tensor in each.inputs
                    if tensor.error and tensor.slot < len(operator.inputs)
                    if (source := operator.inputs[tensor.slot]).kind is SourceKind.INPUT
                    and source.name in names
                ]
    return min(found, key=lambda each: each.distance, default=None)


def _results(
    folder: ComparedFolder, caller: GraphOperator, evidence: Sequence[Finding], note: str
) -> Iterator[TensorEvidence]:
    """Yield the outputs of a branch or loop, as the operators behind it read them."""
    seen: set[int] = set()
    for each in evidence:
        for tensor in each.tensors if each.place.label == folder.label else ():
            source = each.source(tensor.slot)
            is_result = tensor.io is IO.INPUT and source.name == caller.full_name
            if is_result and source.kind is SourceKind.OPERATOR and source.slot not in seen and tensor.error:
                seen.add(source.slot)
                yield replace(tensor, io=IO.OUTPUT, slot=source.slot, is_weight=False, note=note)
