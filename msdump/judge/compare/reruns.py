"""Evidence of a comparison from running the operators of directories again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msdump.device import INSERTED_PREFIX
from msdump.errors import ToolError
from msdump.graph import loader
from msdump.judge.compare.executions import OperatorExecution
from msdump.judge.compare.folders import ComparedFolder, missing_operators
from msdump.judge.pair import (
    INPUTS,
    Alignment,
    MatchedNames,
    OperatorPair,
    align_with_model,
    canonical_type,
    is_commutative,
    is_quantised,
    kinds,
    type_of,
)
from msdump.judge.rerun import (
    LEAST_FIT,
    Arithmetic,
    CompiledModel,
    DumpedValues,
    ModelOperator,
    Reexecution,
    Rerun,
    RerunOperator,
    file_names,
    fitting,
    folded_of,
    likeness,
)
from msdump.judge.verdict import Finding, TensorVerdict
from msdump.plan import Context
from msdump.read import GraphOperator, OperatorGraph, SourceKind
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import names


def _rerun_operator(folder: ComparedFolder, order: int, graph: OperatorGraph | None) -> RerunOperator:
    """Return the execution with a number (from 1) for re-execution, with its tensors and held types."""
    execution = folder.matched.executions[order - 1]
    number = os.path.basename(folder.dumped.path)  # noqa: PTH119 - of every operator
    return RerunOperator(
        execution.name,
        execution.op_type,
        int(number) if number.isdigit() else None,
        execution.readable,
        execution.counterparts.get,
        label=folder.label,
        order=order,
        is_inserted=execution.name.startswith(INSERTED_PREFIX),
        is_in_golden=_is_in_golden(execution, folder.matched.by_graphs),
        held=frozenset() if graph is None or (known := graph.find(execution.name)) is None else known.held,
    )


def _is_in_golden(execution: OperatorExecution, matched: MatchedNames) -> bool:
    """Return whether golden has the same parts for an execution, in one operator or in several."""
    if execution.name in matched.whole:
        return True
    golden = execution.counterparts.get((IO.OUTPUT, 0))
    if golden is None or golden.io is IO.INPUT or execution.replaces:
        return False
    sides = ((execution.name, execution.op_type), (golden.op_name, golden.op_type))
    types = [(*map(canonical_type, (op_type, *kinds(name))),) for name, op_type in sides]
    return types[0] == types[1]


_MOST_NAMED: Final = 3


class Rerunning:
    """Re-executes the operators of dumps by a model, and adds the results to the evidence on them."""

    def __init__(self, source: str, golden: Arithmetic, context: Context) -> None:
        """Load the model, with the operators of the context in which it was dumped.

        Raises:
            GraphError: The file is no model.
        """
        graph = loader.load(source, context=context)
        step = None if graph.training is None else graph.training.step
        self._models = (graph,) if step is None else (graph, step)
        self.source = source  # the model's file
        self.golden = golden  # the golden side's arithmetic
        self.mine: Arithmetic | None = None  # the examined side's arithmetic, None until operators ran
        self.runs: list[Reexecution] = []  # the runs of the network so far
        self._model: CompiledModel | None = None
        self._reruns: dict[tuple[str, int], tuple[RerunOperator, Rerun]] = {}  # by label and order
        self._strangers: list[tuple[RerunOperator, str]] = []
        self._evaluations: set[str] = set()  # labels of graphs that do not train, beside a training step
        self._folded: set[tuple[str, str]] = set()  # operators that the model has in another form, by label
        self._present: dict[str, dict[_Part, str]] = {}
        self._golden_models: dict[frozenset[str], CompiledModel] = {}

    def run(self, folders: Sequence[ComparedFolder], advance: Callable[[], None] = lambda: None) -> None:
        """Run the operators of one run of the network again; ``advance`` is called after each.

        Raises:
            ToolError: The model is not that of the dump.
        """
        executions = [
            (execution, folder, order)
            for folder in folders
            for order, execution in enumerate(folder.matched.executions, 1)
        ]
        if all(execution.op_type in INPUTS for execution, *_ in executions):
            return  # only constants were dumped
        executions.sort(key=lambda each: each[0].time)
        graphs = {folder.label: folder.mine.graph for folder in folders}
        self._folded |= {(each.label, name) for each in folders for name in each.matched.by_graphs.folded}
        listed = [_rerun_operator(folder, order, graphs[folder.label]) for _, folder, order in executions]
        if self._model is None:
            self._model = self._fitting(listed)
        pairs = self._pairs_of_model(folders, listed)
        labels = pairs.keys()
        folders = [folder for folder in folders if folder.label in labels]
        operators = [
            replace(each, pair=pairs[each.label].get(each.name)) for each in listed if each.label in labels
        ]
        reexecution = Reexecution(
            self._model,
            operators,
            (self.golden, self.mine),
            self._before(operators),
        )
        if self._trains:
            self._evaluations |= {folder.label for folder in folders if not folder.is_training}
        reruns = reexecution.all(advance)
        self.mine = reexecution.mine
        self.runs.append(reexecution)
        for operator, rerun in zip(reexecution.values.operators, reruns, strict=True):
            self._reruns[operator.label, operator.order] = operator, rerun
        present = dict(_present(reexecution))
        self._present |= {folder.label: present for folder in folders}

    def _before(self, operators: Sequence[RerunOperator]) -> DumpedValues | None:
        if not (self.runs and operators and self.runs[-1].values.operators):
            return None
        last, now = self.runs[-1].values.operators[0].iteration, operators[0].iteration
        is_next = last is not None and now is not None and last + 1 == now
        return self.runs[-1].values if is_next else None

    def explain(self, evidence: Finding) -> Finding:
        """Return evidence with the results of the operator when it ran again."""
        place = evidence.place
        operator, rerun = self._reruns.get((place.label, place.order), (None, Rerun()))
        is_folded = (place.label, place.name) in self._folded
        if operator is None or is_folded or (rerun.weights and place.label in self._evaluations):
            return evidence  # an evaluation's weights differ from the training step's
        node = None if operator.site is None else operator.site.node
        is_known = node is not None and not node.is_added
        nodes = "+".join(part.name for part in node.members) if node is not None and is_known else ""
        # a dump without a graph file has no full names; behind an odd operator the model's have other numbers
        is_named = node is not None and is_known and place.name in file_names(node)
        full_name = node.operator.full_name if node is not None and is_named else ""
        # a tensor with golden's bits is no fault of the examined side
        same = {(each.io, each.slot) for each in evidence.tensors if each.error and each.error.is_same}
        read = {(each.io, each.slot) for each in evidence.tensors if each.io is IO.INPUT and each.error}
        # of a counterpart that stands for other numbers
        unlike = {
            (each.io, each.slot)
            for each in evidence.tensors
            if each.golden_dtype and each.verdict is TensorVerdict.UNCHECKED and each.error is None
        }
        # integers of other values that give the same outputs write a shape or indices in another form
        is_done = all(each.error and each.error.is_same for each in evidence.tensors if each.io is IO.OUTPUT)
        places = {(each.io, each.slot) for each in evidence.tensors if is_done and "int" in each.dtype}
        known = dict(enumerate(rerun.names))  # names of inputs in the model
        return replace(
            evidence,
            place=replace(place, onnx_name=place.onnx_name or nodes, full_name=place.full_name or full_name),
            tensors=tuple(
                replace(each, name=known[each.slot])
                if each.io is IO.INPUT and not each.name and known.get(each.slot)
                else each
                for each in evidence.tensors
            ),
            own=tuple(each for each in rerun.own if (each.io, each.slot) not in same),
            propagated=_propagated(evidence, rerun),
            wiring=evidence.wiring or ("" if read and read <= same and not rerun.replaces else rerun.wiring),
            replaces=evidence.replaces or rerun.replaces,
            is_in_golden=operator.is_in_golden and bool(rerun.replaces) and not evidence.replaces,
            wrong_weights={
                slot: self._called(name)
                for slot, name in rerun.weights.items()
                if (IO.INPUT, slot) not in same | unlike | places
            },
            is_state=evidence.is_state or self._trains,
        )

    def _called(self, name: str) -> str:
        """Return the name of a weight; for a folded constant, with the constants it was made of."""
        made_of = next(filter(None, (folded_of(each, name) for each in self._models)), ())
        more = f" and {len(made_of) - _MOST_NAMED} more" if len(made_of) > _MOST_NAMED else ""
        return f"{name} (folded of {', '.join(made_of[:_MOST_NAMED])}{more})" if made_of else name

    @property
    def _trains(self) -> bool:
        return self._model is not None and bool(self._model.graph.bindings)

    def found_again(self, folder: ComparedFolder) -> dict[str, str]:
        """Return examined operators by golden ones, for golden operators without a pair.

        The two are counterparts if they are made of the same operators of the model.
        """
        present = self._present.get(folder.label, {})
        operators = folder.golden.operators.items()
        listed = frozenset(name for name, files in operators if files[-1].op_type not in INPUTS)
        if listed not in self._golden_models:
            self._golden_models[listed] = fitting(self._models, dict.fromkeys(listed, ""))
        model = self._golden_models[listed]
        found: dict[str, str] = {}
        for name in map(names.sanitize, missing_operators(folder)):
            parts = [part for site in model.sites.get(name, ()) for part in _parts(site)]
            if parts and all(part in present for part in parts):
                found[name] = present[parts[0]]
        return found

    def left_out(self) -> list[tuple[RerunOperator, str]]:
        """Return the operators that did not run again, and why."""
        reruns = (pair for run in self.runs for pair in zip(run.values.operators, run.reruns, strict=True))
        return [
            *((each, rerun.note) for each, rerun in reruns if rerun.note and each.op_type not in INPUTS),
            *self._strangers,
        ]

    def _pairs_of_model(
        self, folders: Sequence[ComparedFolder], listed: Sequence[RerunOperator]
    ) -> dict[str, dict[str, OperatorPair]]:
        """Return pairs of dumped operators and the model's, by directory, where it has a graph of the model.

        A dump may have other graphs beside the model's.
        """
        assert self._model is not None
        pairs: dict[str, dict[str, OperatorPair]] = {}
        why, operators = "", _by_label(listed)
        bodies: dict[tuple[str, str], int] = {}  # numbers in the model, by caller and branch
        for folder in sorted(
            folders, key=lambda each: 0 if each.mine.graph is None else each.mine.graph.number
        ):
            dumped, graph = operators.get(folder.label, []), folder.mine.graph
            fit = _fit(self._model, dumped)
            if fit >= LEAST_FIT and not self._model.is_other_form:
                key = ("", "") if graph is None else (graph.caller, graph.branch)
                number = bodies.get(key, _number_in(self._model, () if graph is None else graph.operators))
                pairs[folder.label] = _pairs(folder, graph, self._model, number)
                bodies |= _bodies(graph, self._model.bare_graphs[number], pairs[folder.label])
                continue
            stranger = next((each for each in dumped if each.name not in self._model.sites), None)
            lacks = f"; the model lacks {stranger.name} ({stranger.op_type})" if stranger is not None else ""
            why = why or f"{fit:.0%} of the operator names agree{lacks}, and the dump has no graph file"
            if graph is not None and not graph.caller:
                whole = self._model.operator_graphs[0]
                found = align_with_model((folder.dumped, graph), whole, self._model.digest)
                why = found.describe_networks()
                if found.is_one_network:
                    pairs[folder.label] = _alike_pairs(found, graph, whole)
                    continue
            self._strangers += [(each, "the model has few operators of its graph") for each in dumped]
        if listed and not (pairs or self.runs):
            raise ToolError(ReturnCode.PARAMETER, f"{self.source} is not the model of the dump: {why}")
        return pairs

    def _fitting(self, listed: Sequence[RerunOperator]) -> CompiledModel:
        """Return the model, compiled to the form with the operator names of the dump, or of one graph.

        If no form has them, the dump is of another form of the model.
        """
        groups = _by_label(listed)
        dumped = [each for group in groups.values() for each in group]
        main = self._models[0]
        are_alike = is_quantised(each.op_type for each in dumped) == is_quantised(
            each.operator.op_type for each in main.operators
        )
        for group in [dumped, *groups.values()] if are_alike else ():
            written = {each.name: each.tensors.get((IO.OUTPUT, 0)) for each in group}
            types = {name: "" if tensor is None else tensor.dtype for name, tensor in written.items()}
            model = fitting(self._models, types)
            if model.fit >= LEAST_FIT:
                return model
        return CompiledModel(main, main, 0.0, models=self._models, is_other_form=True)


def _by_label(listed: Iterable[RerunOperator]) -> dict[str, list[RerunOperator]]:
    groups: dict[str, list[RerunOperator]] = {}
    for operator in listed:
        if operator.op_type not in INPUTS:
            groups.setdefault(operator.label, []).append(operator)
    return groups


def _fit(model: CompiledModel, dumped: Sequence[RerunOperator]) -> float:
    has = [each.name in model.sites for each in dumped]
    if all(has):
        return 1.0
    return max(sum(has) / len(dumped), likeness(model.graph, {each.name: "" for each in dumped}))


_Part = tuple[int, str]
"""Number of a graph of the model, and the name of an operator in it, as it is before it is fused."""


def _parts(site: ModelOperator) -> Iterator[_Part]:
    return ((site.graph.index, part.name) for part in site.node.members)


def _present(run: Reexecution) -> Iterator[tuple[_Part, str]]:
    for operator, rerun in zip(run.values.operators, run.reruns, strict=True):
        if operator.site is not None and rerun.own and not rerun.replaces:
            yield from ((part, operator.name) for part in _parts(operator.site))


_ALONE: Final = OperatorPair()
"""Of an operator that the model has not."""


def _pairs(
    folder: ComparedFolder, graph: OperatorGraph | None, model: CompiledModel, number: int
) -> dict[str, OperatorPair]:
    """Return the counterparts of a directory's operators in a graph of the model; others keep their names.

    Behind an operator that was left out, numbers in names shift, and another compiler may number operators of
    one scope in another order: so the graphs are aligned.
    """
    operators = [each for each in folder.matched.executions if each.op_type not in INPUTS]
    named = {each.name for each in operators}
    own = [node for node in model.graph.operators if model.is_dumped(node) and not node.is_added]
    lacks = any(not any(name in named for name in file_names(node)) for node in own)
    is_unlike = lacks or any(not (name in model.sites or name.startswith(INSERTED_PREFIX)) for name in named)
    if graph is None or not (is_unlike or _unlike_reads(graph, model.bare_graphs[number], {})):
        return {}
    whole = model.operator_graphs[number]
    found = align_with_model((folder.dumped, graph), whole, model.digest)
    pairs = {names.sanitize(mine): pair for mine, pair in found.of_mine.items()}
    if folder.theirs.graph is not None and not model.is_compiled:
        # the graphs of both dumps show which operators replace others, and groups that compute the same
        groups = ((name, pair) for name, pair in pairs.items() if not pair.is_single)
        pairs |= {name: OperatorPair(outputs=pair.outputs) for name, pair in groups}
    golden_names = {name: names.sanitize(pair.golden[0]) for name, pair in pairs.items() if pair.is_single}
    if not is_unlike and _unlike_reads(graph, whole, golden_names):
        return {}  # the wiring differs by any names: keep the names
    taken = dict.fromkeys({*golden_names.values()} - pairs.keys(), _ALONE)  # names of other operators
    return taken | pairs


def _bodies(
    graph: OperatorGraph | None, model: OperatorGraph, pairs: Mapping[str, OperatorPair]
) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the numbers of the model's branches and bodies, by full name of the dumped caller and branch."""
    for name, operator in ({} if graph is None else graph.operators).items():
        pair = pairs.get(operator.file_name)
        partner = model.operators.get(pair.golden[0] if pair is not None and pair.is_single else name)
        for branch, number in ({} if partner is None else partner.bodies).items():
            yield (name, branch), number


def _alike_pairs(found: Alignment, dumped: OperatorGraph, model: OperatorGraph) -> dict[str, OperatorPair]:
    """Return the pairs of single operators that read alike, for a dump of another form of the model.

    Where an exporter or a simplifier computed otherwise, files alone judge.
    """
    pairs = dict.fromkeys(map(names.sanitize, dumped.operators), _ALONE)
    for name, pair in found.of_mine.items():
        if pair.is_single:
            mine, counterpart = dumped.operators[name], model.operators[pair.golden[0]]
            if type_of(mine) == type_of(counterpart) and len(mine.inputs) == len(counterpart.inputs):
                pairs[names.sanitize(name)] = pair
    return pairs


def _number_in(model: CompiledModel, operators: Collection[str]) -> int:
    """Return the number of the model's graph with most of the given operator names, 0 without any.

    Graph numbers of a dump do not identify it: they count the graphs of all networks of the process.
    """
    graphs = model.bare_graphs
    return max(graphs, key=lambda number: len(graphs[number].operators.keys() & {*operators}), default=0)


def _unlike_reads(graph: OperatorGraph, model: OperatorGraph, golden_names: Mapping[str, str]) -> int:
    """Return how many operators of a dump read other values than their counterparts in a model."""

    def partner(name: str) -> str:
        return golden_names.get(names.sanitize(name)) or names.sanitize(name)

    kinds = {SourceKind.OPERATOR, SourceKind.WEIGHT}
    pairs = ((each, model.find(partner(each.full_name))) for each in graph.operators.values())
    return sum(
        _reads(mine, kinds, partner) != _reads(counterpart, kinds, names.sanitize)
        for mine, counterpart in pairs
        if counterpart is not None
    )


def _reads(
    operator: GraphOperator, kinds: Collection[SourceKind], name_of: Callable[[str], str]
) -> list[tuple[str, int]]:
    """Return the inputs of an operator that are of some kinds, sorted if the operator is commutative."""
    read = [(name_of(each.name), each.slot) for each in operator.inputs if each.kind in kinds]
    return sorted(read) if is_commutative(canonical_type(operator.op_type)) else read


def _propagated(evidence: Finding, rerun: Rerun) -> float | None:
    if not rerun.own or rerun.propagated is not None:
        return rerun.propagated
    # re-execution reproduced the dumped outputs: take the distance of these from golden
    errors = (each.error for each in evidence.tensors if each.io is IO.OUTPUT)
    return max((error.distance for error in errors if error is not None), default=None)
