"""Which operator of the model each dumped operator is, and what stands where the model has another one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from msdump.analysis.align import INPUTS, canonical_type, kinds, operator_graphs, sides
from msdump.device import INSERTED_PREFIX, runs_on_device
from msdump.errors import MsdumpError
from msdump.execute import emulated
from msdump.graph import Graph, Node, fuse_elementwise, reads
from msdump.plan import Context, DeviceTarget, JitLevel, PrecisionMode
from msdump.read import OperatorGraph
from msdump.record import IO
from msdump.store import names

Place = tuple[IO, int]
"""Which tensor of an operator: input or output, and its number."""


@dataclass(frozen=True, slots=True)
class RerunTensor:
    """A tensor of a dumped operator.

    Attributes:
        io: Input or output.
        slot: Its number.
        dtype: Name of its element type on the device.
        size: Number of its elements, 0 where it is not known before it is read.
        host_shape: Its shape on the host where the file tells it, else ().
        load: Returns the elements in the host's layout, given the host's shape and the groups of the
            convolution that reads a weight; raises DumpReadError or FormatError.
    """

    io: IO
    slot: int
    dtype: str
    size: int = 0
    host_shape: tuple[int, ...] = ()
    load: Callable[[tuple[int, ...], int], np.ndarray] = field(
        default=lambda _shape, _groups: np.empty(0), repr=False, compare=False
    )


@dataclass(frozen=True, slots=True)
class RerunOperator:
    """One execution of a dumped operator.

    Attributes:
        name: The operator as the names of files have it.
        op_type: Its type.
        iteration: Number of the iteration, None where it is not known.
        tensors: Its tensors.
        golden: Their counterparts, as far as there are some.
        partner: Name of the golden operator of its type that matching found to be the same one; "" for none.
        sources: Names of what wrote its inputs, and the numbers of their outputs, by input; as the dump's
            graph or the elements of its files tell.
        is_inserted: Whether the device inserted it, and numbered it with others of its kind.
        replaces: Name of the golden operator in whose place it stands, "" for none.
        held: Element types in which the device holds its tensors, as its graph's file tells.
    """

    name: str
    op_type: str
    iteration: int | None
    tensors: Mapping[Place, RerunTensor]
    golden: Mapping[Place, RerunTensor] = field(default_factory=dict)
    partner: str = ""
    sources: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    is_inserted: bool = False
    replaces: str = ""
    held: frozenset[str] = frozenset()


_ENOUGH: Final = 1.0  # of the names: no other way to compile the model can fit better
_NUMBER: Final = re.compile(r"(?<=-op)[0-9]+")
_LAST_NUMBER: Final = re.compile(r"[0-9]+$")
_COMPILED_MODES: Final = (
    PrecisionMode.ALLOW_FP32_TO_FP16,
    PrecisionMode.FORCE_FP16,
    PrecisionMode.ALLOW_FP32_TO_BF16,
    PrecisionMode.FORCE_FP32,
)


@dataclass(frozen=True, slots=True, eq=False)
class ModelOperator:
    """An operator of the model and the graph that it stands in.

    Attributes:
        node: The operator.
        graph: Its graph.
    """

    node: Node
    graph: Graph


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A model in the form in which a device ran it.

    Attributes:
        graph: Its main graph.
        fit: How much the names of its operators are those of the dump, 0 to 1.
        is_compiled: Whether the device compiled it as a whole; what only hands tensors on has no task then.
        models: The graphs of the model before a device compiled it.
    """

    graph: Graph
    fit: float = 1.0
    is_compiled: bool = False
    models: tuple[Graph, ...] = ()

    @cached_property
    def size(self) -> int:
        """Number of its operators."""
        return sum(len(graph.operators) for graph in self.graph.walk())

    @cached_property
    def operator_graphs(self) -> Mapping[int, OperatorGraph]:
        """Its graphs as files of a dump tell them, by number; 0 is the main graph."""
        return operator_graphs(self.graph)

    @cached_property
    def bare_graphs(self) -> Mapping[int, OperatorGraph]:
        """Its graphs like ``operator_graphs``, their operators without arguments."""
        return operator_graphs(self.graph, shows_arguments=False)

    def is_dumped(self, node: Node) -> bool:
        """Tell whether a whole dump has files of an operator."""
        return not self.is_compiled or runs_on_device(node)

    def digest(self, name: str) -> Hashable | None:
        """Return what stands for the elements of a weight, None of one that it lacks."""
        weights = (graph.weights.get(name) for graph in self.graph.walk())
        return next((sides.digest(weight) for weight in weights if weight is not None), None)

    @cached_property
    def _around(self) -> Mapping[int, Graph]:
        return {body.index: graph for graph in self.graph.walk() for body in graph.bodies}

    @cached_property
    def sites(self) -> Mapping[str, tuple[ModelOperator, ...]]:
        """The operators by their names as files hold them; of one scope's own names there may be several."""
        sites: dict[str, list[ModelOperator]] = {}
        for site in self._all():
            for name in file_names(site.node):
                sites.setdefault(name, []).append(site)
        return {name: tuple(each) for name, each in sites.items()}

    def _all(self) -> Iterator[ModelOperator]:
        for graph in self.graph.walk():
            yield from (ModelOperator(node, graph) for node in graph.operators)

    def inserted(self, graph: Graph, value: str) -> Sequence[ModelOperator]:
        """Return the operators that the device inserted to bring a value into other forms."""
        return self._inserted.get((self.owner(graph, value).index, value), ())

    @cached_property
    def _inserted(self) -> Mapping[tuple[int, str], list[ModelOperator]]:
        inserted: dict[tuple[int, str], list[ModelOperator]] = {}
        for site in self._all():
            if site.node.is_added:
                value = site.node.inputs[0]
                inserted.setdefault((self.owner(site.graph, value).index, value), []).append(site)
        return inserted

    def around(self, graph: Graph) -> Graph | None:
        """Return the graph around a body, None for the main graph."""
        return self._around.get(graph.index)

    def owner(self, graph: Graph, value: str) -> Graph:
        """Return the graph that a value belongs to: this one, or one around it."""
        outer = self.around(graph)
        return self.owner(outer, value) if outer is not None and value in graph.outer else graph

    @cached_property
    def _producers(self) -> Mapping[tuple[int, str], tuple[ModelOperator, int]]:
        return {
            (graph.index, value): (ModelOperator(node, graph), slot)
            for graph in self.graph.walk()
            for node in graph.nodes
            for slot, value in enumerate(node.outputs)
            if value
        }

    def producer(self, graph: Graph, value: str) -> tuple[ModelOperator, int] | None:
        """Return the operator that makes a value, and the number of its output; None for inputs, weights."""
        return self._producers.get((self.owner(graph, value).index, value))


def file_names(node: Node) -> tuple[str, ...]:
    """Return the names of an operator in the names of files: with its scope, or its last component alone."""
    full_name = node.operator.full_name
    last = full_name.rpartition("/")[2] or full_name
    return tuple(dict.fromkeys((names.sanitize(full_name), names.sanitize(last))))


def folded_of(graph: Graph, name: str) -> tuple[str, ...]:
    """Return the weights that a constant is made of which the compiler folded; none of a weight itself.

    Integers, which are mostly shapes, axes and indices, are left out beside others.

    Args:
        graph: The model before it was compiled.
        name: A weight or constant of the compiled model.
    """
    makers = {each: node for inner in graph.walk() for node in inner.nodes for each in node.outputs}
    weights = {each: array for inner in graph.walk() for each, array in inner.weights.items()}
    ahead, found = [name], dict.fromkeys([name])
    while ahead and name in makers:
        maker = makers.get(ahead.pop())
        new = [each for each in (() if maker is None else reads(maker)) if each not in found]
        found |= dict.fromkeys(new)
        ahead += new
    made_of = tuple(each for each in found if each != name and each in weights)
    return tuple(each for each in made_of if np.asarray(weights[each]).dtype.kind not in "iub") or made_of


def fitting(models: Sequence[Graph], dumped: Mapping[str, str]) -> CompiledModel:
    """Return the model as the device compiled it of which a dump has the names.

    Fused kernels count for themselves beside all operators: no number of operators that stay as they are
    tells whether the dump's graph was fused. So do types: what the device inserted tells by them in which
    arithmetic it computed, where its numbers have moved.

    Args:
        models: The graph of the model, and that of its training step if it has one.
        dumped: Names of the dump's operators, with the type that their first output has there; "" for one
            that is not known.
    """
    fused = [name for name in dumped if len(kinds(name)) > 1]
    best, most = CompiledModel(models[0], 0.0), (0.0, 0)
    for graph, is_compiled in _forms(models):
        model = CompiledModel(graph, likeness(graph, dumped), is_compiled, tuple(models))
        # of two that are as like, the one that has fewer other operators
        by_kind = _share_of_kinds(graph, fused) + _share_of_types(graph, dumped)
        merit = model.fit + by_kind / 2, -model.size
        if merit > most or not best.fit:
            best, most = model, merit
        if best.fit >= _ENOUGH:
            break
    return best


def likeness(graph: Graph, dumped: Mapping[str, str]) -> float:
    """Return how much the names of a graph's operators are those of a dump, 0 to 1.

    That is the share of names that it has, and of those that it has whatever their numbers, in the mean: an
    operator that was left out, or has another type, moves the numbers of all of its kind behind it.

    Args:
        graph: A graph.
        dumped: Names of operators, with the type that their first output has; "" for one that is not known.
    """
    return (_share(graph, dumped) + _share_of_kinds(graph, dumped)) / 2


def _share(graph: Graph, dumped: Mapping[str, str]) -> float:
    """Return the share of the dump's names that a graph has; Casts are told apart by what they write."""
    known = {
        name: written_type(inner, node) if node.is_added else ""
        for inner in graph.walk()
        for node in inner.operators
        for name in file_names(node)
    }
    fit = sum(
        (name in known and "" in {known[name], dtype}) or known.get(name) == dtype
        for name, dtype in dumped.items()
    )
    return fit / max(len(dumped), 1)


def _share_of_kinds(graph: Graph, dumped: Collection[str]) -> float:
    """Return the share of the dump's names that a graph has, whatever their numbers."""
    there = Counter(map(_unnumbered, dumped))
    named = [file_names(node) for each in graph.walk() for node in each.operators]
    known = (Counter(_unnumbered(each[place]) for each in named) for place in (0, -1))
    return max((there & each).total() for each in known) / max(len(dumped), 1)


def _share_of_types(graph: Graph, dumped: Mapping[str, str]) -> float:
    """Return the share of what the device inserted that has its type in a graph, whatever its number."""
    there = Counter(
        (_unnumbered(name), dtype) for name, dtype in dumped.items() if name.startswith(INSERTED_PREFIX)
    )
    known = Counter(
        (_unnumbered(node.operator.full_name), written_type(inner, node))
        for inner in graph.walk()
        for node in inner.operators
        if node.is_added
    )
    return (there & known).total() / max(there.total(), 1)


def _unnumbered(name: str) -> str:
    return (_LAST_NUMBER if name.startswith(INSERTED_PREFIX) else _NUMBER).sub("", name)


def written_type(graph: Graph, node: Node) -> str:
    """Return the name of the element type of an operator's first output, "" where it is not known."""
    dtype = graph.type_of(node.outputs[0]).dtype
    return "" if dtype is None else dtype.name


def _forms(models: Sequence[Graph]) -> Iterator[tuple[Graph, bool]]:
    """Yield the model in each form in which a device may run it, and whether that is compiled as a whole.

    The cheapest to make come first.
    """
    yield from ((model, False) for model in models)
    yield from ((fuse_elementwise(model), False) for model in models)
    for fuses, keeps_node_names in ((True, False), (True, True), (False, False), (False, True)):
        for mode in _COMPILED_MODES:
            for model in models:
                context = Context(
                    DeviceTarget.ASCEND,
                    JitLevel.O2,
                    precision_mode=mode,
                    fuses=fuses,
                    keeps_node_names=keeps_node_names,
                )
                try:
                    device = emulated(model, None, context)
                except (
                    MsdumpError
                ):  # folding runs operators, of which a training step may lack what they need
                    continue
                assert device is not None
                yield device.graph, True


@dataclass(frozen=True, slots=True)
class Sites:
    """The operators of the model beside those of a dump.

    Attributes:
        found: The operator of the model that each dumped one is, or whose place it takes; None for neither.
        replaced: Names of the model's operators in whose place a dumped one stands, by its position.
    """

    found: tuple[ModelOperator | None, ...]
    replaced: Mapping[int, str]


def sites(model: CompiledModel, operators: Sequence[RerunOperator]) -> Sites:
    """Return the operators of the model that dumped ones are.

    Where several operators share a name, as in files of the ``classic`` generation, they ran in the order
    of the model. The name of the golden operator that matching found counts before the own one. A dumped
    operator that the model lacks takes the place of those that the dump lacks and that stand between the
    same neighbours.

    Args:
        model: The model as the examined side was compiled.
        operators: The dumped operators, in the order in which they ran.
    """
    found = _named(model, operators)
    odd = dict(_odd(model, operators, found))
    replaced = odd | dict(_kindred(model, operators, found))
    for strangers, unused in _gaps(model, operators, found):
        if not odd.keys() & set(strangers):
            replaced[strangers[0]] = _listed(unused)
        if len(strangers) == len(unused) == 1:
            found[strangers[0]] = unused[0]
    for position, name in [*replaced.items()]:
        if found[position] is not None and kinds(name) and _may_be(operators[position].name, name):
            del replaced[position]  # the same under another number
    _site_inserted(model, operators, found)
    return Sites(tuple(found), replaced)


def _odd(
    model: CompiledModel, operators: Sequence[RerunOperator], found: Sequence[ModelOperator | None]
) -> Iterator[tuple[int, str]]:
    """Yield, of several strangers in a gap, the first that is no part of what stood there, and that.

    The others may do what the rest of the parts did, each as a kernel of its own.
    """
    for strangers, unused in _gaps(model, operators, found):
        parts = {canonical_type(part) for each in unused for part in kinds(file_names(each.node)[0])}
        types = {each: {*map(canonical_type, kinds(operators[each].name))} for each in strangers}
        odd = next((each for each in strangers if not types[each] <= parts), None)
        if odd is not None and len(strangers) > 1:
            yield odd, _listed(unused)


def _listed(unused: Iterable[ModelOperator]) -> str:
    return ", ".join(file_names(each.node)[0] for each in unused)


def _kindred(
    model: CompiledModel, operators: Sequence[RerunOperator], found: list[ModelOperator | None]
) -> Iterator[tuple[int, str]]:
    """Find the places of strangers, those in bodies too; yield their positions, and what stood there.

    That is what matching says that they replace; else the only operator of the model that the dump lacks, in
    the stranger's scope, whose parts are some of the stranger's, or the reverse; else what a body lacks
    whose only stranger it is.
    """
    used = {_identity(site) for site in found if site is not None}
    unused = {
        name: sites[0]
        for name, sites in model.sites.items()
        if len(sites) == 1 and _identity(sites[0]) not in used and not sites[0].node.is_added
    }
    strangers = [
        (position, operator)
        for position, operator in enumerate(operators)
        if found[position] is None and not operator.is_inserted and operator.op_type not in INPUTS
    ]
    in_bodies = [name for name, site in unused.items() if site.graph is not model.graph]
    alone = _alone({operator.name for _, operator in strangers}, in_bodies)
    for position, operator in strangers:
        names_here = [operator.replaces] if operator.replaces in unused else _akin(operator.name, unused)
        names_here = names_here or alone.get(operator.name, [])
        if len(names_here) == 1:
            found[position] = unused[names_here[0]]
            yield position, names_here[0]


def _alone(strangers: Iterable[str], unused: Iterable[str]) -> dict[str, list[str]]:
    """Return what a scope lacks by the name of its only stranger."""
    here, lacked = _by_scope(strangers), _by_scope(unused)
    return {names[0]: lacked.get(scope, []) for scope, names in here.items() if scope and len(names) == 1}


def _by_scope(operators: Iterable[str]) -> dict[str, list[str]]:
    scopes: dict[str, list[str]] = {}
    for name in operators:
        scopes.setdefault(_scope(name), []).append(name)
    return scopes


def _identity(site: ModelOperator) -> tuple[int, str]:
    return site.graph.index, site.node.name


def _akin(name: str, others: Iterable[str]) -> list[str]:
    """Return those operators in the scope of another one whose parts are some of its, or the reverse."""
    own, scope = kinds(name), _scope(name)
    if not (own and scope):
        return []
    return [
        other
        for other in others
        if _scope(other) == scope and (_is_within(own, kinds(other)) or _is_within(kinds(other), own))
    ]


def _scope(name: str) -> str:
    return name.rpartition("_")[0]


def _is_within(parts: Sequence[str], whole: Sequence[str]) -> bool:
    """Tell whether parts stand in a whole in their order, others between them."""
    rest = iter(whole)
    return bool(parts) and all(part in rest for part in parts)


def _site_inserted(
    model: CompiledModel, operators: Sequence[RerunOperator], found: list[ModelOperator | None]
) -> None:
    """Find the inserted operators by what wrote their inputs: a number says only how many were before.

    Where nothing tells what wrote an input the number counts, unless other operators have moved it.
    """
    has_moved = _has_moved(model, operators, found)
    written: dict[tuple[str, int], tuple[Graph, str]] = {
        (names.sanitize(value.name), 0): (model.graph, value.name) for value in model.graph.inputs
    }
    for position, operator in enumerate(operators):
        if operator.is_inserted:
            forms = _forms_of(model, operator, written)
            named = found[position]
            if forms and named not in forms:
                found[position] = forms[0]
            elif not forms and has_moved:
                found[position] = None
        site = found[position]
        if site is not None:
            for slot, value in enumerate(site.node.declared_outputs):
                written[operator.name, slot] = site.graph, value


def _has_moved(
    model: CompiledModel, operators: Sequence[RerunOperator], found: Sequence[ModelOperator | None]
) -> bool:
    """Tell whether inserted operators may have other numbers than the model's."""
    own = {operator.name for operator in operators if operator.is_inserted}
    if len(own) != sum(node.is_added for graph in model.graph.walk() for node in graph.operators):
        return True
    return any(
        site is None and not (operator.is_inserted or operator.op_type in INPUTS)
        for operator, site in zip(operators, found, strict=True)
    )


def _forms_of(
    model: CompiledModel, operator: RerunOperator, written: Mapping[tuple[str, int], tuple[Graph, str]]
) -> list[ModelOperator]:
    """Return the model's operators that bring what an inserted one reads into the form that it writes."""
    source = operator.sources.get(0)
    if source is None or source not in written:
        return []
    tensor = operator.tensors.get((IO.OUTPUT, 0))
    return [
        site
        for site in model.inserted(*written[source])
        if site.node.operator.op_type == operator.op_type
        and (tensor is None or written_type(site.graph, site.node) in {"", tensor.dtype})
    ]


def _named(model: CompiledModel, operators: Sequence[RerunOperator]) -> list[ModelOperator | None]:
    counts: Counter[str] = Counter()
    found: list[ModelOperator | None] = []
    # where an operator was dropped or added, those behind it may have the names of others
    moved = {each.partner for each in operators if each.partner not in {"", each.name}} & model.sites.keys()
    for operator in operators:
        is_told = operator.partner in model.sites and _may_be(operator.name, operator.partner)
        name = operator.partner if is_told else operator.name
        is_taken = name in moved and operator.partner != name
        named = () if operator.op_type in INPUTS or is_taken else model.sites.get(name, ())
        number = counts[name] % max(len(named), 1)
        counts[name] += 1
        found.append(named[number] if named else None)
    return found


def _may_be(name: str, partner: str) -> bool:
    """Tell whether an operator has the parts of another one, as far as their names tell."""
    if name == partner:
        return True
    own, other = (tuple(map(canonical_type, kinds(each))) for each in (name, partner))
    return own == other or not (own and other)


def _gaps(
    model: CompiledModel, operators: Sequence[RerunOperator], found: Sequence[ModelOperator | None]
) -> Iterator[tuple[list[int], list[ModelOperator]]]:
    """Yield the strangers between two operators of the main graph, and what the dump lacks there."""
    # what the device adds to bring tensors into its types and formats stands in the place of nothing
    main = [
        ModelOperator(node, model.graph)
        for node in model.graph.operators
        if not node.is_added and model.is_dumped(node)
    ]
    places = {each.node.name: place for place, each in enumerate(main)}
    used = {site.node.name for site in found if site is not None}
    strangers: list[int] = []
    last = -1
    for position, (operator, site) in enumerate(zip(operators, found, strict=True)):
        if operator.op_type in INPUTS or operator.is_inserted:
            continue
        if site is None:
            strangers.append(position)
        elif site.node.name in places:
            place = places[site.node.name]
            unused = [each for each in main[last + 1 : place] if each.node.name not in used]
            if strangers and unused:
                yield strangers, unused
            strangers, last = [], max(last, place)
    unused = [each for each in main[last + 1 :] if each.node.name not in used]
    if strangers and unused:
        yield strangers, unused
