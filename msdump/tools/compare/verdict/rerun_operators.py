"""The executions of a directory's operators as re-execution takes them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from msdump.device.formats import FRACTAL_Z
from msdump.device.tasks import INSERTED_PREFIX
from msdump.errors import DumpReadError
from msdump.record import IO
from msdump.store import names
from msdump.store.read.graphs.operator_graph import OperatorGraph, SourceKind
from msdump.store.read.recent import RecentFiles
from msdump.tools.compare.pairing import operands
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.compare.pairing.identities import MatchedNames
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.compare.verdict.folders import ComparedFolder
from msdump.tools.compare.verdict.matching import OperatorExecution
from msdump.tools.matching.sides import canonical_type, kinds
from msdump.tools.rerun.dumped import RerunOperator, RerunTensor


def rerun_operator(
    folder: ComparedFolder, execution: OperatorExecution, graph: OperatorGraph | None, recent: RecentFiles
) -> RerunOperator:
    """Return an execution of an operator with what files and graphs tell of it.

    Args:
        folder: Its directory.
        execution: The execution.
        graph: The examined side's graph, None where nothing tells it.
        recent: What reads the examined side's files.
    """
    last = execution.files[-1]
    tensors = {
        (each.io, each.index): _tensor(each) for each in _operands(folder.dumped, execution.files, recent)
    }
    golden = {
        place: _golden(folder.golden, *counterpart)
        for place, counterpart in execution.counterparts.items()
        if place in tensors
    }
    number = os.path.basename(folder.dumped.path)  # noqa: PTH119 - of every operator
    iteration = int(number) if number.isdigit() else None
    return RerunOperator(
        last.op_name,
        last.op_type,
        iteration,
        tensors,
        golden,
        golden_partner(execution),
        dict(_sources(graph, last.op_name)),
        last.op_name.startswith(INSERTED_PREFIX),
        execution.replaces,
    )


def _sources(graph: OperatorGraph | None, name: str) -> Iterator[tuple[int, tuple[str, int]]]:
    operator = None if graph is None else graph.find(name)
    for slot, source in enumerate(() if operator is None else operator.inputs):
        if source.kind in {SourceKind.OPERATOR, SourceKind.INPUT}:
            yield slot, (names.sanitize(source.name), source.slot)


def golden_partner(execution: OperatorExecution) -> str:
    """Return the golden operator that an execution is, which may have another name; "" for none."""
    counterpart = execution.counterparts.get((IO.OUTPUT, 0))
    if counterpart is None or execution.replaces:
        return ""
    file, io, _ = counterpart
    types = {canonical_type(each.op_type) for each in (file, execution.files[-1])}
    return file.op_name if io is IO.OUTPUT and len(types) == 1 else ""


def is_in_golden(execution: OperatorExecution, matched: MatchedNames | None) -> bool:
    """Tell whether golden has the same parts for an execution, in one operator or in several.

    Args:
        execution: The execution.
        matched: What the graphs of both dumps tell; None: the names of its files tell.
    """
    if matched is not None and execution.name in matched.whole:
        return True
    names_of = execution.name, golden_partner(execution)
    own, golden = (tuple(map(canonical_type, kinds(each))) for each in names_of)
    return own == golden and bool(names_of[1])


def _operands(folder: Folder, files: Sequence[NamedFile], recent: RecentFiles) -> Iterator[DumpedOperand]:
    groups = (tuple(files),) if folder.kind is FolderKind.DUMPS else tuple((file,) for file in files)
    for group in groups:
        try:
            yield from operands.listed(folder, group, recent)
        except DumpReadError:  # said where the tensors themselves are compared
            continue


def _tensor(operand: DumpedOperand) -> RerunTensor:
    host_shape = operand.host_shape or (() if operand.is_converted else operand.shape)
    return RerunTensor(
        operand.io,
        operand.index,
        operand.dtype,
        math.prod(operand.shape),
        host_shape,
        not operand.is_converted,
        partial(_loaded, operand),
    )


def _loaded(operand: DumpedOperand, shape: tuple[int, ...], groups: int) -> np.ndarray:
    if operand.format == FRACTAL_Z:  # names of files do not tell the groups
        operand = replace(operand, groups=max(operand.groups, groups))
    return operand.on_host(shape)


def _golden(folder: Folder, file: NamedFile, io: IO, slot: int) -> RerunTensor:
    def load(shape: tuple[int, ...], groups: int) -> np.ndarray:
        found = next(each for each in operands.read(folder, (file,)) if (each.io, each.index) == (io, slot))
        return _loaded(found, shape, groups)

    return RerunTensor(io, slot, "", load=load)
