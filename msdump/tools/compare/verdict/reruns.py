"""What running the operators of directories again adds to the evidence of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msdump.errors import ToolError
from msdump.graph import loader
from msdump.graph.graph import Graph
from msdump.record import IO
from msdump.store import names
from msdump.store.read.graphs.operator_graph import GraphOperator, OperatorGraph, SourceKind
from msdump.store.read.recent import RecentFiles
from msdump.tools.compare.pairing import content_graph, graph_matching
from msdump.tools.compare.verdict import absences
from msdump.tools.compare.verdict.folders import ComparedFolder
from msdump.tools.compare.verdict.matching import OperatorExecution
from msdump.tools.compare.verdict.rerun_operators import golden_partner, is_in_golden, rerun_operator
from msdump.tools.judge.evidence import OperatorEvidence, TensorEvidence
from msdump.tools.matching.sides import canonical_type, is_commutative
from msdump.tools.rerun.arithmetic import Arithmetic
from msdump.tools.rerun.compiled_model import (
    CompiledModel,
    ModelOperator,
    file_names,
    fitting,
    folded_of,
    likeness,
)
from msdump.tools.rerun.dumped import INPUTS, RerunOperator
from msdump.tools.rerun.reexecution import Reexecution, Rerun
from msdump.tools.rerun.sites import sites
from msdump.tools.rerun.values import DumpedValues
from msdump.tools.return_codes import ReturnCode

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
        self._graph = loader.load(source)
        self.source = source
        self.golden = golden
        self.mine: Arithmetic | None = None
        self.runs: list[Reexecution] = []
        self._recent = RecentFiles()
        self._model: CompiledModel | None = None
        self._reruns: dict[tuple[str, int], Rerun] = {}
        self._in_golden: set[tuple[str, int]] = set()
        self._strangers: list[tuple[RerunOperator, str]] = []
        self._evaluations: set[str] = set()  # labels of graphs that do not train, beside a training step
        self._present: dict[str, dict[_Part, str]] = {}
        self._golden_models: dict[frozenset[str], CompiledModel] = {}

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
        graphs = {
            folder.label: folder.mine.graph or content_graph.of_folder(folder.dumped) for folder in folders
        }
        operators = [
            rerun_operator(folder, execution, graphs[folder.label], self._recent)
            for folder, _, execution in executions
        ]
        if self._model is None:
            self._model = self._fitting(operators, [folder.label for folder, *_ in executions])
        kept = self._of_model(executions, operators)
        executions = [executions[place] for place in kept]
        operators = [operators[place] for place in kept]
        folders = [folder for folder in folders if any(each is folder for each, *_ in executions)]
        partners = {folder.label: _partners(folder, graphs[folder.label], self._model) for folder in folders}
        operators = [
            replace(operator, partner=partners[folder.label].get(operator.name, operator.partner))
            for operator, (folder, _, _) in zip(operators, executions, strict=True)
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
        self._keep(executions, reruns)
        present = dict(_present(reexecution))
        self._present |= {folder.label: present for folder in folders}

    def _keep(self, executions: Sequence[_Execution], reruns: Sequence[Rerun]) -> None:
        """Keep what came out of executions, and which of them golden has though the model has others."""
        for (folder, order, execution), rerun in zip(executions, reruns, strict=True):
            self._reruns[folder.label, order] = rerun
            is_new = rerun.replaces and not execution.replaces
            if is_new and is_in_golden(execution, folder.matched.by_graphs):
                self._in_golden.add((folder.label, order))

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
            tensors=tuple(_by_the_model(each, rerun) for each in evidence.tensors),
            own=rerun.own,
            propagated=_propagated(evidence, rerun),
            wiring=rerun.wiring,
            replaces=evidence.replaces or rerun.replaces,
            is_in_golden=(place.label, place.order) in self._in_golden,
            wrong_weights={slot: self._called(name) for slot, name in rerun.weights.items()},
            is_state=evidence.is_state or self._trains,
        )

    def _called(self, name: str) -> str:
        """Return the name of a weight; beside that of a constant that was folded, what it was made of."""
        made_of = next(filter(None, (folded_of(each, name) for each in _models(self._graph))), ())
        more = f" and {len(made_of) - _MOST_NAMED} more" if len(made_of) > _MOST_NAMED else ""
        return f"{name} (folded of {', '.join(made_of[:_MOST_NAMED])}{more})" if made_of else name

    @property
    def _trains(self) -> bool:
        return self._model is not None and bool(self._model.graph.bindings)

    def found_again(self, folder: ComparedFolder) -> dict[str, str]:
        """Return the golden operators that the examined side has though nothing pairs them.

        An operator that ran again is the model's; so it is the golden operator that was made of the same
        operators of the model.

        Args:
            folder: A directory in which golden operators are missing.

        Returns:
            Names of the examined side's operators by those of golden ones, as files have them.
        """
        present = self._present.get(folder.label, {})
        model = self._of_golden(folder)
        found: dict[str, str] = {}
        for name in map(names.sanitize, absences.missing(folder)):
            parts = [part for site in model.sites.get(name, ()) for part in _parts(site)]
            if parts and all(part in present for part in parts):
                found[name] = present[parts[0]]
        return found

    def _of_golden(self, folder: ComparedFolder) -> CompiledModel:
        """Return the model as golden was compiled."""
        operators = folder.golden.operators.items()
        listed = frozenset(name for name, files in operators if files[-1].op_type not in INPUTS)
        if listed not in self._golden_models:
            self._golden_models[listed] = fitting(_models(self._graph), dict.fromkeys(listed, ""))
        return self._golden_models[listed]

    def left_out(self) -> list[tuple[RerunOperator, str]]:
        """Return the operators that did not run again, and why."""
        reruns = (pair for run in self.runs for pair in zip(run.values.operators, run.reruns, strict=True))
        return [
            *((each, rerun.note) for each, rerun in reruns if rerun.note and each.op_type not in INPUTS),
            *self._strangers,
        ]

    def _of_model(self, executions: Sequence[_Execution], operators: Sequence[RerunOperator]) -> list[int]:
        """Return the places of the operators whose graph the model has: a dump may hold others, too."""
        assert self._model is not None
        places: dict[str, list[int]] = {}
        for place, (folder, *_) in enumerate(executions):
            places.setdefault(folder.label, []).append(place)
        kept: list[int] = []
        for of_folder in places.values():
            dumped = [operators[place] for place in of_folder if operators[place].op_type not in INPUTS]
            if not dumped or _fit(self._model, dumped) >= _LEAST_FIT:
                kept += of_folder
            else:
                note = "the model has hardly any operator of its graph"
                self._strangers += [(each, note) for each in dumped]
        return sorted(kept)

    def _fitting(self, operators: Sequence[RerunOperator], labels: Sequence[str]) -> CompiledModel:
        """Return the model in the form whose names the dump has, or the best of its graphs."""
        models = _models(self._graph)
        groups: dict[str, list[RerunOperator]] = {}
        for operator, label in zip(operators, labels, strict=True):
            if operator.op_type not in INPUTS:
                groups.setdefault(label, []).append(operator)
        dumped = [each for group in groups.values() for each in group]
        tried: list[CompiledModel] = []
        for group in [dumped, *groups.values()]:
            for is_by_partner in (False, True):  # another compiler may number operators otherwise
                names = {(is_by_partner and each.partner) or each.name: _written_type(each) for each in group}
                tried.append(fitting(models, names))
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


_Execution = tuple[ComparedFolder, int, OperatorExecution]
"""A directory, the place of an execution in it, and the execution."""


def _fit(model: CompiledModel, dumped: Sequence[RerunOperator]) -> float:
    """Return how much of operators a model has, by their names or by those that golden has for them."""
    has = [not model.sites.keys().isdisjoint({each.name, each.partner}) for each in dumped]
    if all(has):
        return 1.0
    return max(sum(has) / len(dumped), likeness(model.graph, {each.name: "" for each in dumped}))


_Part = tuple[int, str]
"""Number of a graph of the model, and the name of an operator in it, as it is before it is fused."""


def _parts(site: ModelOperator) -> Iterator[_Part]:
    """Yield the operators of the model that an operator of a compiled one was made of."""
    return ((site.graph.index, part.name) for part in site.node.members)


def _present(run: Reexecution) -> Iterator[tuple[_Part, str]]:
    """Yield the operators of the model that ran again, and the names of those of the dump that they are."""
    values = run.values
    for operator, site, rerun in zip(values.operators, values.sites, run.reruns, strict=True):
        if site is not None and rerun.own and not rerun.replaces:
            yield from ((part, operator.name) for part in _parts(site))


def _partners(folder: ComparedFolder, graph: OperatorGraph | None, model: CompiledModel) -> Mapping[str, str]:
    """Return the model's operators that dumped ones are, where names do not tell them.

    Names behind an operator that was left out are those of others, and another compiler may number operators
    of one scope in another order, so the graphs are matched.
    """
    operators = [each for each in folder.matched.executions if each.files[-1].op_type not in INPUTS]
    told = {each.name: golden_partner(each) for each in operators}
    is_told = any(other not in {"", name} for name, other in told.items())
    is_unlike = bool({*told.values()} - {"", *model.sites}) if is_told else _is_unlike(told, model)
    number = graph.number if graph is not None and graph.number in model.bare_graphs else 0
    if not is_unlike and (graph is None or not _unlike_reads(graph, model.bare_graphs[number], told)):
        return {}
    whole = model.operator_graphs[number]
    # tensors tell the graph without the slashes of names and without files of pieces, which the model knows
    graph = content_graph.of_folder(folder.dumped, whole) or graph
    if graph is None:
        return {}
    found = graph_matching.partners((folder.dumped, graph), whole, model.digest)
    partners = {names.sanitize(mine): names.sanitize(other) for mine, other in found.items()}
    if not is_unlike and _unlike_reads(graph, whole, partners) >= _unlike_reads(graph, whole, told):
        return {}  # operators read something else, whatever they are called
    return partners


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
    if not any(map(content_graph.weight_place, graph.weights)):  # weights have names of their own
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
    is_guessed = content_graph.weight_place(tensor.name) is not None and tensor.slot not in rerun.weights
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


def _models(graph: Graph) -> tuple[Graph, ...]:
    training = graph.training
    if training is None or training.step is None:
        return (graph,)
    return graph, training.step
