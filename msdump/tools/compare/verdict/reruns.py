"""The operators of directories as re-execution takes them, and what it finds as evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from msdump.device.formats import FRACTAL_Z
from msdump.errors import DumpReadError, ToolError
from msdump.graph import loader
from msdump.graph.graph import Graph
from msdump.record import IO
from msdump.tools.compare.pairing import operands
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.compare.verdict.matching import OperatorExecution
from msdump.tools.rerun.arithmetic import Arithmetic
from msdump.tools.rerun.compiled_model import CompiledModel, ModelOperator, fitting
from msdump.tools.rerun.dumped import RerunOperator, RerunTensor
from msdump.tools.rerun.reexecution import Reexecution, Rerun
from msdump.tools.rerun.values import INPUTS
from msdump.tools.return_codes import ReturnCode

_LEAST_FIT: Final = 0.5
"""Share of the dump's operators that a model must have to be the dump's."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One directory of a run of the examined network, which may have others for branches and loops.

    Attributes:
        label: Label of the pair of directories.
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        executions: Its executions of operators, in order.
    """

    label: str
    dumped: Folder
    golden: Folder
    executions: tuple[OperatorExecution, ...]

    @property
    def run(self) -> str:
        """What the directories of one run have in common: all but the number of the graph."""
        *above, _graph, iteration = Path(self.dumped.path).parts
        return "/".join((*above, iteration))


class Rerunning:
    """Runs the operators of dumps again by a model.

    Attributes:
        model: The model, as the examined side was compiled; known once operators ran.
        reexecution: The last run of all; None before.
    """

    def __init__(self, source: str, golden: Arithmetic, mine: Arithmetic | None = None) -> None:
        """Load the model.

        Args:
            source: The model's file.
            golden: The golden side's arithmetic.
            mine: The examined side's, None where it is to be found out.

        Raises:
            GraphError: It is no model.
        """
        self._graph = loader.load(source)
        self._source = source
        self._golden = golden
        self._mine = mine
        self.model: CompiledModel | None = None
        self.reexecution: Reexecution | None = None

    def reruns(
        self, folders: Sequence[RunFolder], advance: Callable[[], None] = lambda: None
    ) -> dict[str, list[Rerun]]:
        """Return what comes out of the operators of one run, by the label of their directory, in order.

        Args:
            folders: The directories of the run.
            advance: Called after each operator.

        Raises:
            ToolError: The model is not that of the dump.
        """
        runs = [(folder, execution) for folder in folders for execution in folder.executions]
        runs.sort(key=lambda run: run[1].time)
        operators = [_operator(*run) for run in runs]
        if self.model is None:
            self.model = self._fitting(operators)
        sites = _sites(self.model, operators)
        self.reexecution = Reexecution(self.model, operators, sites, self._golden, self._mine)
        by_label: dict[str, list[Rerun]] = {folder.label: [] for folder in folders}
        for (folder, _), rerun in zip(runs, self.reexecution.all(advance), strict=True):
            by_label[folder.label].append(rerun)
        self._mine = self.reexecution.mine
        return by_label

    def _fitting(self, operators: Sequence[RerunOperator]) -> CompiledModel:
        dumped = [each for each in operators if each.op_type not in INPUTS]
        model = fitting(_models(self._graph), [each.name for each in dumped])
        if model.fit < _LEAST_FIT:
            first = next((each for each in dumped if each.name not in model.sites), None)
            stranger = f"; it has no {first.name} ({first.op_type})" if first is not None else ""
            raise ToolError(
                ReturnCode.PARAMETER,
                f"{self._source} is not the model of the dump: {model.fit:.0%} of the operators that were"
                f" dumped are its own{stranger}",
            )
        return model


def _models(graph: Graph) -> tuple[Graph, ...]:
    training = graph.training
    if training is None or training.step is None:
        return (graph,)
    return graph, training.step


def _sites(model: CompiledModel, operators: Sequence[RerunOperator]) -> list[ModelOperator | None]:
    """Return the operator of the model that each dumped one is, None for those that it lacks.

    Where several operators share a name, as files of the ``classic`` generation have it, they ran in the
    order of the model.
    """
    counts: Counter[str] = Counter()
    sites: list[ModelOperator | None] = []
    for operator in operators:
        named = [] if operator.op_type in INPUTS else model.sites.get(operator.name, ())
        number = counts[operator.name] % max(len(named), 1)
        counts[operator.name] += 1
        sites.append(named[number] if named else None)
    return sites


def _operator(folder: RunFolder, execution: OperatorExecution) -> RerunOperator:
    last = execution.files[-1]
    tensors = {(each.io, each.index): _tensor(each) for each in _operands(folder.dumped, execution.files)}
    golden = {
        place: _golden(folder.golden, *counterpart)
        for place, counterpart in execution.counterparts.items()
        if place in tensors
    }
    iteration = Path(folder.dumped.path).name
    return RerunOperator(
        last.op_name, last.op_type, int(iteration) if iteration.isdigit() else None, tensors, golden
    )


def _operands(folder: Folder, files: Sequence[NamedFile]) -> Iterator[DumpedOperand]:
    groups = (tuple(files),) if folder.kind is FolderKind.DUMPS else tuple((file,) for file in files)
    for group in groups:
        try:
            yield from operands.read(folder, group)
        except DumpReadError:  # said where the tensors themselves are compared
            continue


def _tensor(operand: DumpedOperand) -> RerunTensor:
    host_shape = operand.host_shape or (() if operand.is_converted else operand.shape)
    return RerunTensor(
        operand.io,
        operand.index,
        operand.dtype,
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
