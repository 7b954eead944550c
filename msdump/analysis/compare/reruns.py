"""What running the operators of directories again adds to the evidence of a comparison."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from msdump.analysis import DumpedOperand, read_operands
from msdump.analysis.align import (
    INPUTS,
    canonical_type,
    find_partners,
    graph_of_contents,
    is_commutative,
    weight_place,
)
from msdump.analysis.compare.executions import OperatorExecution, Place, file_groups, read_place
from msdump.analysis.compare.folders import ComparedFolder
from msdump.analysis.judge import OperatorEvidence, TensorEvidence
from msdump.analysis.rerun import (
    Arithmetic,
    CompiledModel,
    DumpedValues,
    Reexecution,
    Rerun,
    RerunOperator,
    RerunTensor,
    file_names,
    fitting,
    folded_of,
    likeness,
    sites,
)
from msdump.device import FRACTAL_Z, INSERTED_PREFIX
from msdump.errors import DumpReadError, ToolError
from msdump.graph import loader
from msdump.read import Folder, GraphOperator, NamedFile, OperatorGraph, RecentFiles, SourceKind
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import names


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
        place: _golden_tensor(folder.golden, counterpart)
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
        frozenset() if graph is None or (known := graph.find(last.op_name)) is None else known.held,
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


def _operands(folder: Folder, files: tuple[NamedFile, ...], recent: RecentFiles) -> Iterator[DumpedOperand]:
    for group in file_groups(folder, files):
        try:
            yield from read_operands(folder, group, recent)
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
        partial(_loaded, operand),
    )


def _loaded(operand: DumpedOperand, shape: tuple[int, ...], groups: int) -> np.ndarray:
    if operand.format == FRACTAL_Z:  # names of files do not tell the groups
        operand = replace(operand, groups=max(operand.groups, groups))
    return operand.on_host(shape)


def _golden_tensor(folder: Folder, place: Place) -> RerunTensor:
    return RerunTensor(*place[1:], "", load=lambda *form: _loaded(read_place(folder, place), *form))


_MOST_NAMED: Final = 3
_LEAST_FIT: Final = 0.5
"""Share of the dump's operators that a model must have to be the dump's."""


class Rerunning:
    """Runs the operators of dumps again by a model, and adds what comes out to their evidence.

    Attributes:
        source: The model's file.
        golden: The golden side's arithmetic.
        mine: The examined side's arithmetic, None until operators ran.
        runs: The runs of the network so far.
    """

    def __init__(self, source: str, golden: Arithmetic) -> None:
        """Load the model.

        Args:
            source: The model's file.
            golden: The golden side's arithmetic.

        Raises:
            GraphError: It is no model.
        """
        graph = loader.load(source)
        step = None if graph.training is None else graph.training.step
        self._models = (graph,) if step is None else (graph, step)
        self.source = source
        self.golden = golden
        self.mine: Arithmetic | None = None
        self.runs: list[Reexecution] = []
        self._recent = RecentFiles()
        self._model: CompiledModel | None = None
        self._reruns: dict[tuple[str, int], Rerun] = {}
        self._nodes: dict[tuple[str, int], str] = {}  # names of the model's nodes, joined
        self._strangers: list[tuple[RerunOperator, str]] = []
        self._evaluations: set[str] = set()  # labels of graphs that do not train, beside a training step

    def run(self, folders: Sequence[ComparedFolder], advance: Callable[[], None] = lambda: None) -> None:
        """Run the operators of one run of the network again.

        Args:
            folders: The directories of the run, those of branches and loops among them.
            advance: Called after each operator.

        Raises:
            ToolError: The model is not that of the dump.
        """
        executions = [
            (folder, order, execution)
            for folder in folders
            for order, execution in enumerate(folder.matched.executions, 1)
        ]
        if all(execution.files[-1].op_type in INPUTS for *_, execution in executions):
            return  # a directory of constants
        executions.sort(key=lambda each: each[2].time)
        graphs = {folder.label: folder.mine.graph or graph_of_contents(folder.dumped) for folder in folders}
        listed = [
            _Listed(*each, rerun_operator(each[0], each[2], graphs[each[0].label], self._recent))
            for each in executions
        ]
        if self._model is None:
            self._model = self._fitting(listed)
        labels = self._of_model(listed)
        listed = [each for each in listed if each.folder.label in labels]
        folders = [folder for folder in folders if folder.label in labels]
        partners = {folder.label: _partners(folder, graphs[folder.label], self._model) for folder in folders}
        operators = [
            replace(operator, partner=partners[folder.label].get(operator.name, operator.partner))
            for folder, _, _, operator in listed
        ]
        reexecution = Reexecution(
            self._model,
            operators,
            sites(self._model, operators),
            (self.golden, self.mine),
            self._before(operators),
        )
        if self._trains:
            self._evaluations |= {folder.label for folder in folders if not folder.is_training}
        reruns = reexecution.all(advance)
        self.mine = reexecution.mine
        self.runs.append(reexecution)
        for (folder, order, _, _), rerun, site in zip(listed, reruns, reexecution.values.sites, strict=True):
            if site is not None and not site.node.is_added:
                self._nodes[folder.label, order] = "+".join(part.name for part in site.node.members)
            self._reruns[folder.label, order] = rerun

    def _before(self, operators: Sequence[RerunOperator]) -> DumpedValues | None:
        """Return the values of the iteration before, None where it was not dumped."""
        if not (self.runs and operators and self.runs[-1].values.operators):
            return None
        last, now = self.runs[-1].values.operators[0].iteration, operators[0].iteration
        is_next = last is not None and now is not None and last + 1 == now
        return self.runs[-1].values if is_next else None

    def explain(self, evidence: OperatorEvidence) -> OperatorEvidence:
        """Return evidence with what came out when the operator ran again."""
        place = evidence.operator
        rerun = self._reruns.get((place.label, place.order))
        if rerun is None or (rerun.weights and place.label in self._evaluations):
            return evidence  # its arguments are not those of the training step
        return replace(
            evidence,
            # the names of a compiled graph's operators are the compiler's
            operator=replace(
                place, onnx_name=place.onnx_name or self._nodes.get((place.label, place.order), "")
            ),
            tensors=tuple(_by_the_model(each, rerun) for each in evidence.tensors),
            own=rerun.own,
            propagated=_propagated(evidence, rerun),
            wiring=rerun.wiring,
            replaces=evidence.replaces or rerun.replaces,
            wrong_weights={slot: self._called(name) for slot, name in rerun.weights.items()},
            is_state=evidence.is_state or self._trains,
        )

    def _called(self, name: str) -> str:
        """Return the name of a weight; beside that of a constant that was folded, what it was made of."""
        made_of = next(filter(None, (folded_of(each, name) for each in self._models)), ())
        more = f" and {len(made_of) - _MOST_NAMED} more" if len(made_of) > _MOST_NAMED else ""
        return f"{name} (folded of {', '.join(made_of[:_MOST_NAMED])}{more})" if made_of else name

    @property
    def _trains(self) -> bool:
        return self._model is not None and bool(self._model.graph.bindings)

    def left_out(self) -> list[tuple[RerunOperator, str]]:
        """Return the operators that did not run again, and why."""
        reruns = (pair for run in self.runs for pair in zip(run.values.operators, run.reruns, strict=True))
        return [
            *((each, rerun.note) for each, rerun in reruns if rerun.note and each.op_type not in INPUTS),
            *self._strangers,
        ]

    def _of_model(self, listed: Sequence[_Listed]) -> set[str]:
        """Return the labels of the directories whose graph the model has: a dump may hold others, too."""
        assert self._model is not None
        labels = {each.folder.label for each in listed}
        for label, dumped in _by_label(listed).items():
            if _fit(self._model, dumped) < _LEAST_FIT:
                labels.remove(label)
                note = "the model has hardly any operator of its graph"
                self._strangers += [(each, note) for each in dumped]
        return labels

    def _fitting(self, listed: Sequence[_Listed]) -> CompiledModel:
        """Return the model in the form whose names the dump has, or the best of its graphs."""
        groups = _by_label(listed)
        dumped = [each for group in groups.values() for each in group]
        tried: list[CompiledModel] = []
        for group in [dumped, *groups.values()]:
            for is_by_partner in (False, True):  # another compiler may number operators otherwise
                names = {(is_by_partner and each.partner) or each.name: _written_type(each) for each in group}
                tried.append(fitting(self._models, names))
                if not dumped or tried[-1].fit >= _LEAST_FIT:
                    return tried[-1]
        model = tried[0]
        first = next((each for each in dumped if each.name not in model.sites), None)
        stranger = f"; it has no {first.name} ({first.op_type})" if first is not None else ""
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{self.source} is not the model of the dump: the names of its operators are to"
            f" {model.fit:.0%} those of the dump{stranger}",
        )


class _Listed(NamedTuple):
    """An execution: its directory, its place in that, and the operator that runs again."""

    folder: ComparedFolder
    order: int
    execution: OperatorExecution
    operator: RerunOperator


def _by_label(listed: Iterable[_Listed]) -> dict[str, list[RerunOperator]]:
    """Return the operators of each directory that has some, without inputs and weights of graphs."""
    groups: dict[str, list[RerunOperator]] = {}
    for folder, _, _, operator in listed:
        if operator.op_type not in INPUTS:
            groups.setdefault(folder.label, []).append(operator)
    return groups


def _fit(model: CompiledModel, dumped: Sequence[RerunOperator]) -> float:
    """Return how much of operators a model has, by their names or by those that golden has for them."""
    has = [not model.sites.keys().isdisjoint({each.name, each.partner}) for each in dumped]
    if all(has):
        return 1.0
    return max(sum(has) / len(dumped), likeness(model.graph, {each.name: "" for each in dumped}))


def _partners(folder: ComparedFolder, graph: OperatorGraph | None, model: CompiledModel) -> Mapping[str, str]:
    """Return the model's operators that dumped ones are, where names do not tell them.

    Names behind an operator that was left out are those of others, and another compiler may number operators
    of one scope in another order, so the graphs are matched.
    """
    operators = [each for each in folder.matched.executions if each.files[-1].op_type not in INPUTS]
    told = {each.name: golden_partner(each) for each in operators}
    is_told = any(other not in {"", name} for name, other in told.items())
    is_unlike = bool({*told.values()} - {"", *model.sites}) if is_told else _is_unlike(told, model)
    number = _number_in(model, () if graph is None else graph.operators)
    if not is_unlike and (graph is None or not _unlike_reads(graph, model.bare_graphs[number], told)):
        return {}
    whole = model.operator_graphs[number]
    # tensors tell the graph without the slashes of names and without files of pieces, which the model knows
    graph = graph_of_contents(folder.dumped, whole) or graph
    if graph is None:
        return {}
    found = find_partners((folder.dumped, graph), whole, model.digest)
    partners = {names.sanitize(mine): names.sanitize(other) for mine, other in found.items()}
    if not is_unlike and _unlike_reads(graph, whole, partners) >= _unlike_reads(graph, whole, told):
        return {}  # operators read something else, whatever they are called
    return partners


def _number_in(model: CompiledModel, operators: Collection[str]) -> int:
    """Return the number of the model's graph that has the most of some operators' names, 0 for none of them.

    Numbers in a dump count the graphs of all networks of its process.
    """
    graphs = model.bare_graphs
    return max(graphs, key=lambda number: len(graphs[number].operators.keys() & {*operators}), default=0)


def _is_unlike(dumped: Collection[str], model: CompiledModel) -> bool:
    """Tell whether a dump and a model have operators that the other one lacks."""
    lacks = any(
        model.is_dumped(node) and not any(name in dumped for name in file_names(node))
        for node in model.graph.operators
    )
    return lacks or any(name not in model.sites for name in dumped)


def _unlike_reads(graph: OperatorGraph, model: OperatorGraph, told: Mapping[str, str]) -> int:
    """Return how many operators of a dump read other values than those of a model that are taken for them."""

    def partner(name: str) -> str:
        return told.get(names.sanitize(name)) or names.sanitize(name)

    kinds = {SourceKind.OPERATOR}
    if not any(map(weight_place, graph.weights)):  # weights have names of their own
        kinds.add(SourceKind.WEIGHT)
    pairs = ((each, model.find(partner(each.full_name))) for each in graph.operators.values())
    return sum(
        _reads(mine, kinds, partner) != _reads(counterpart, kinds, names.sanitize)
        for mine, counterpart in pairs
        if counterpart is not None
    )


def _reads(
    operator: GraphOperator, kinds: Collection[SourceKind], name_of: Callable[[str], str]
) -> list[tuple[str, int]]:
    """Return what an operator reads of some kinds, in any order where that does not matter."""
    read = [(name_of(each.name), each.slot) for each in operator.inputs if each.kind in kinds]
    return sorted(read) if is_commutative(canonical_type(operator.op_type)) else read


def _by_the_model(tensor: TensorEvidence, rerun: Rerun) -> TensorEvidence:
    """Return an input by its name in the model, and as no weight where files alone seem to tell one."""
    name = rerun.names[tensor.slot] if tensor.slot < len(rerun.names) else ""
    is_guessed = weight_place(tensor.name) is not None and tensor.slot not in rerun.weights
    if tensor.io is not IO.INPUT or not name or (tensor.name and not is_guessed):
        return tensor
    return replace(tensor, name=name, is_weight=tensor.is_weight and not is_guessed)


def _written_type(operator: RerunOperator) -> str:
    tensor = operator.tensors.get((IO.OUTPUT, 0))
    return "" if tensor is None else tensor.dtype


def _propagated(evidence: OperatorEvidence, rerun: Rerun) -> float | None:
    if not rerun.own or rerun.propagated is not None:
        return rerun.propagated
    # what came out again is what was dumped: so far is that from golden
    errors = (each.error for each in evidence.tensors if each.io is IO.OUTPUT)
    return max((error.distance for error in errors if error is not None), default=None)
