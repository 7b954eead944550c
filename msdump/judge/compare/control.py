"""Rows of evidence on branches and loops, which have no files: their inputs, and how often they ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from msdump.judge.compare.folders import ComparedFolder
from msdump.judge.compare.surroundings import described
from msdump.judge.verdict import Finding, TensorEvidence
from msdump.read import FIXED, GraphOperator, SourceKind, ValueSource
from msdump.record import IO
from msdump.store import sanitize

Value = tuple[str, SourceKind, str, int]
"""Directory of a value, kind and name of its source, and the source's output."""


def control_evidence(folders: Sequence[ComparedFolder], evidence: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a row for each branch and loop of a run that has compared operators inside.

    An input is compared where the body reads it, in the first pass, else where another operator reads or
    writes it. A result counts if a side ran more passes: operators inside that agree then say nothing of it.
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
    """Yield values with their evidence; of several, the last one counts: first runs, outputs first."""
    for each in reversed(evidence):
        label, name = each.place.label, each.place.shown_name
        for tensor in each.tensors:
            source = each.source(tensor.slot) if tensor.io is IO.INPUT else None
            if source is not None and source.kind in {*FIXED, SourceKind.INPUT}:
                yield (label, source.kind, source.name, source.slot), tensor
        for tensor in each.tensors:
            if tensor.io is IO.OUTPUT:
                yield (label, SourceKind.OPERATOR, name, tensor.slot), tensor
                for kind in (SourceKind.WEIGHT, SourceKind.INPUT):  # a parameter that was dumped by itself
                    yield (label, kind, each.place.name, 0), tensor


def _inputs(
    folder: ComparedFolder,
    caller: GraphOperator,
    bodies: Sequence[ComparedFolder],
    inside: Sequence[Finding],
    values: Mapping[Value, TensorEvidence],
) -> Iterator[TensorEvidence]:
    graph = folder.mine.graph
    assert graph is not None, "it has the caller"
    for slot, source in enumerate(caller.inputs):
        writer = graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None
        label = source.name if writer is None else writer.label
        read = next(_reads_inside(bodies, inside, slot, label), None)
        found = read or values.get((folder.label, source.kind, source.name, source.slot))
        if found is not None and found.error is not None:
            is_weight = source.kind in FIXED
            name = "" if source.kind is SourceKind.OPERATOR else source.name
            yield replace(found, io=IO.INPUT, slot=slot, is_weight=is_weight, name=name)


def _reads_inside(
    bodies: Sequence[ComparedFolder], inside: Sequence[Finding], slot: int, label: str
) -> Iterator[TensorEvidence]:
    """Yield the reads of an input of the caller in the first pass of its bodies, the worst first."""
    found = []
    for body in bodies:
        graph = body.mine.graph
        assert graph is not None, "it has a caller"
        names = [*graph.inputs]
        own = names[slot] if slot < len(names) else label
        for each in inside:
            operator = body.mine.operator(each.place.name) if each.place.label == body.label else None
            if operator is None or each.place.pass_number not in {None, 0}:
                continue
            for tensor in each.tensors:
                known = tensor.io is IO.INPUT and tensor.slot < len(operator.inputs)
                source = operator.inputs[tensor.slot] if known else ValueSource(SourceKind.ABSENT)
                if source.kind is SourceKind.INPUT and source.name in {own, label} and tensor.error:
                    found.append(tensor)
    yield from sorted(found, key=lambda each: -each.error.distance if each.error else 0)


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
