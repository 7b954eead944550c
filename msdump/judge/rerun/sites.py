"""The model's operator for each dumped one, and dumped operators in the place of the model's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import product
from typing import Any, Final

import numpy as np

from msdump.device import INSERTED_PREFIX, moves_nothing, runs_on_device
from msdump.errors import MsdumpError
from msdump.execute import emulated
from msdump.graph import Graph, Node, compilation, fuse_elementwise, reads
from msdump.judge.pair import INPUTS, OperatorPair, canonical_type, kinds, operator_graphs, sides
from msdump.judge.rerun.arithmetic import PRECISION_MODES
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.read import OperatorGraph, Record
from msdump.record import IO, OperatorRef
from msdump.store import sanitize

Place = tuple[IO, int]
"""Which tensor of an operator: input or output, and its number."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelOperator:
    """An operator of the model and its graph."""

    node: Node
    graph: Graph


Result = tuple[int, tuple[Graph, str]]
"""Number of an output, and the graph and name of the model's value that it holds."""


@dataclass(frozen=True, slots=True)
class RerunOperator:
    """One execution of a dumped operator, to be run again."""

    name: str  # name in files
    op_type: str  # its type
    iteration: int | None  # number of the iteration; None if unknown
    tensors: Mapping[Place, Record]  # its tensors by slot; by the model's slot numbers once ``site`` is set
    # returns golden's counterpart of a tensor, given by io and slot in the dump; None without one
    golden: Callable[[Place], Record | None] = lambda _: None
    # the alignment with operators of the model, empty for none; None: the name finds the operator
    pair: OperatorPair | None = None
    label: str = ""  # label of its directory
    order: int = 0  # place in the execution of its directory, from 1
    is_inserted: bool = False  # whether the device inserted it, and numbered it with others of its kind
    is_in_golden: bool = False  # whether golden has the same parts for it, in one operator or in several
    held: frozenset[str] = frozenset()  # element types of its tensors on the device, from the graph file
    site: ModelOperator | None = None  # the model's operator that it is, or that it replaces; None if unknown
    replaces: str = ""  # names of the model's operators that it replaces, "" if it is the model's
    results: tuple[Result, ...] = ()  # If the model lacks the operator: outputs that hold values of the model

    @property
    def is_of_model(self) -> bool:
        """Whether it may be an operator of the model: not inserted, and not the file of a graph input."""
        return not (self.is_inserted or self.op_type in INPUTS)


LEAST_FIT: Final = 0.5
"""Share of a dump's operator names that a model must have to be the dump's, and no other form of it."""

_ENOUGH: Final = 1.0  # share of found names at which no other form of the model is tried
_NUMBER: Final = re.compile(r"(?<=-op)[0-9]+")
_LAST_NUMBER: Final = re.compile(r"[0-9]+$")


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A model in the form in which a device ran it."""

    graph: Graph  # its main graph
    source: Graph  # its main graph before a device compiled it
    fit: float = 1.0  # share of the dump's operator names that the graph has, 0 to 1
    # whether the device compiled the graph as a whole; then operators that only pass tensors on, such as
    # reshapes, do not run and have no files
    is_compiled: bool = False
    # the graphs of the model before a device compiled it, that of a training step among them
    models: tuple[Graph, ...] = ()
    # whether the dump is of another form of the network: of another exporter, simplified, or quantised
    is_other_form: bool = False

    @cached_property
    def size(self) -> int:
        """Number of its operators."""
        return sum(len(graph.operators) for graph in self.graph.walk())

    @cached_property
    def operator_graphs(self) -> Mapping[int, OperatorGraph]:
        """Its graphs in the form of a dump's files, by number; 0 is the main graph."""
        return operator_graphs(self.graph)

    @cached_property
    def bare_graphs(self) -> Mapping[int, OperatorGraph]:
        """The same without the operators' arguments."""
        return operator_graphs(self.graph, shows_arguments=False)

    def is_dumped(self, node: Node) -> bool:
        """Return whether a dump of all operators has files of this one."""
        return not self.is_compiled or runs_on_device(node)

    def digest(self, name: str) -> Hashable | None:
        """Return a hash over a weight's elements, None of one that it lacks."""
        weights = (graph.weights.get(name) for graph in self.graph.walk())
        return next((sides.digest(weight) for weight in weights if weight is not None), None)

    @cached_property
    def _around(self) -> Mapping[int, Graph]:
        return {body.index: graph for graph in self.graph.walk() for body in graph.bodies}

    @cached_property
    def sites(self) -> Mapping[str, tuple[ModelOperator, ...]]:
        """The operators by their names in files; a last component alone may be the name of several."""
        sites: dict[str, list[ModelOperator]] = {}
        for graph in self.graph.walk():
            for site in (ModelOperator(node, graph) for node in graph.operators):
                for name in file_names(site.node):
                    sites.setdefault(name, []).append(site)
        return {name: tuple(each) for name, each in sites.items()}

    def origin(self, graph: Graph, value: str) -> str:
        """Return the model's value behind inserted operators such as casts; the value itself without any."""
        produced = self.producer(graph, value)
        while produced is not None:
            site, _ = produced
            if not (site.node.is_added or (self.is_compiled and moves_nothing(site.node))):
                break
            value = site.node.inputs[0]
            produced = self.producer(site.graph, value)
        return value

    def parts(self, site: ModelOperator) -> list[ModelOperator]:
        """Return the parts of a fused kernel as operators of the graph before compilation."""
        graph = next(each for each in self.source.walk() if each.index == site.graph.index)
        return [ModelOperator(part, graph) for part in site.node.members]

    def around(self, graph: Graph) -> Graph | None:
        """Return the graph around a body, None for the main graph."""
        return self._around.get(graph.index)

    def owner(self, graph: Graph, value: str) -> Graph:
        """Return the graph of a value: this one, or one around it."""
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
        """Return a value's producer and the number of its output; None for graph inputs and weights."""
        return self._producers.get((self.owner(graph, value).index, value))


def file_names(node: Node) -> tuple[str, ...]:
    """Return an operator's names in files: with its scope, and its last component alone."""
    full_name = node.operator.full_name
    last = full_name.rpartition("/")[2] or full_name
    return tuple(dict.fromkeys((sanitize(full_name), sanitize(last))))


def folded_of(graph: Graph, name: str) -> tuple[str, ...]:
    """Return the names of the weights that a folded constant is computed from; () for a weight itself.

    Integer weights are left out if there are others: mostly they are shapes, axes and indices.

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
    """Return the compiled form of a model that fits the operator names of a dump best.

    Names of fused kernels count a second time, since all other names are the same with and without fusion. So
    do types of inserted casts, which show the precision mode even if the numbers in their names differ.

    Args:
        models: The graph of the model, and that of its training step if it has one.
        dumped: Names of the dump's operators, with the type of their first output; "" for an unknown one.
    """
    fused = [name for name in dumped if len(kinds(name)) > 1]
    best, most = CompiledModel(models[0], models[0], 0.0), (0.0, 0)
    for graph, source, is_compiled in _forms(models):
        model = CompiledModel(graph, source, likeness(graph, dumped), is_compiled, tuple(models))
        # of two with the same fit, the one with fewer operators
        there = Counter(
            (_unnumbered(name), dtype) for name, dtype in dumped.items() if name.startswith(INSERTED_PREFIX)
        )
        known = Counter(
            (_unnumbered(node.operator.full_name), written_type(inner, node))
            for inner in graph.walk()
            for node in inner.operators
            if node.is_added
        )
        by_kind = _share_of_kinds(graph, fused) + _overlap(there, known)
        merit = model.fit + by_kind / 2, -model.size
        if merit > most or not best.fit:
            best, most = model, merit
        if best.fit >= _ENOUGH:
            break
    return best


def likeness(graph: Graph, dumped: Mapping[str, str]) -> float:
    """Return the share of a dump's names that a graph has, 0 to 1.

    It is the mean of the shares with and without numbers: an operator that was left out moves the numbers of
    all of its kind behind it.
    """
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
    return (fit / max(len(dumped), 1) + _share_of_kinds(graph, dumped)) / 2


def _share_of_kinds(graph: Graph, dumped: Collection[str]) -> float:
    there = Counter(map(_unnumbered, dumped))
    named = [file_names(node) for each in graph.walk() for node in each.operators]
    return max(_overlap(there, Counter(_unnumbered(each[place]) for each in named)) for place in (0, -1))


def _overlap(there: Counter[Any], known: Counter[Any]) -> float:
    return (there & known).total() / max(there.total(), 1)


def _unnumbered(name: str) -> str:
    return (_LAST_NUMBER if name.startswith(INSERTED_PREFIX) else _NUMBER).sub("", name)


def written_type(graph: Graph, node: Node) -> str:
    """Return the name of the element type of an operator's first output, "" where it is not known."""
    dtype = graph.type_of(node.outputs[0]).dtype
    return "" if dtype is None else dtype.name


def _forms(models: Sequence[Graph]) -> Iterator[tuple[Graph, Graph, bool]]:
    """Yield a model in each form in which a device may run it: graph, source, whether it is compiled.

    The cheapest forms come first.
    """
    yield from ((model, model, False) for model in models)
    yield from ((fuse_elementwise(model), model, False) for model in models)
    for fuses, keeps_node_names, mode, model in product(
        (True, False), (False, True), PRECISION_MODES, models
    ):
        context = Context(
            DeviceTarget.ASCEND,
            JitLevel.O2,
            precision_mode=mode,
            fuses=fuses,
            keeps_node_names=keeps_node_names,
        )
        try:
            device = emulated(model, None, context)
        except MsdumpError:  # folding runs operators, which may fail in a training step
            continue
        assert device is not None
        yield device.graph, model, True


def place_operators(model: CompiledModel, operators: Sequence[RerunOperator]) -> list[RerunOperator]:
    """Return dumped operators with ``site`` set to the model's operator of each.

    Operators with the same name, as in ``classic`` files, are assigned in the model's order.
    """
    counts: Counter[str] = Counter()
    found: list[RerunOperator] = []
    renamed = _in_order(model, operators)
    for operator in operators:
        pair = operator.pair
        name = renamed.get(operator.name, operator.name)
        if pair is not None:
            name = sanitize(pair.golden[0]) if pair.is_single else ""
        named = model.sites.get(name, ()) if operator.is_of_model else ()
        site = named[counts[name] % len(named)] if named else None
        counts[name] += 1
        own_name = operator.name if site is None else file_names(site.node)[0]
        own, other = _types(operator.name), _types(own_name)
        # by their names the same operator: equal parts, or a name without types
        is_same = operator.name == own_name or own == other or not (own and other)
        found.append(replace(operator, site=site, replaces="" if is_same else own_name))
    strangers = {each.name: each.pair for each in found if each.site is None and each.is_of_model}
    if strangers and not model.is_other_form:
        placed = _place_strangers(model, strangers, [each.site for each in found if each.site is not None])
        for at, each in enumerate(found):
            if each.site is not None or each.name not in strangers:
                continue
            site, replaces = placed.get(each.name, (None, ""))
            pair, results = strangers[each.name] if site is None else None, list[Result]()
            for (mine, slot), (golden, golden_slot) in () if pair is None else pair.outputs:
                writer = next(iter(model.sites.get(sanitize(golden), ())), None)
                if sanitize(mine) == each.name and writer is not None:
                    written = writer.node.declared_outputs[golden_slot : golden_slot + 1]
                    results += ((slot, (writer.graph, value)) for value in written if value)
            found[at] = replace(each, site=site, replaces=replaces, results=tuple(results))
    # compiled graphs' files do not count absent slots: tensors get the model's numbers
    for at, each in enumerate(found if model.is_compiled else ()):
        if each.site is not None:
            node, places = each.site.node, dict[Place, Place]()
            for io, names in ((IO.INPUT, node.inputs), (IO.OUTPUT, node.declared_outputs)):
                there = (slot for slot, name in enumerate(names) if name)
                places |= {(io, number): (io, slot) for number, slot in enumerate(there)}
            tensors = {places.get(place, place): tensor for place, tensor in each.tensors.items()}
            found[at] = replace(each, tensors=tensors)
    return found


def _in_order(model: CompiledModel, operators: Sequence[RerunOperator]) -> dict[str, str]:
    """Return the model's names of a compiled graph's operators where an odd one has moved the numbers.

    Names without numbers are aligned in the order of execution: a running number is no evidence.
    """
    names = [*dict.fromkeys(each.name for each in operators if each.is_of_model and each.pair is None)]
    nodes = (node for node in model.graph.operators if model.is_dumped(node) and not node.is_added)
    others = [file_names(node)[0] for node in nodes]
    if not model.is_compiled or model.is_other_form or all(name in model.sites for name in names):
        return {}
    own, other = ([*map(_unnumbered, each)] for each in (names, others))
    blocks = SequenceMatcher(None, own, other, autojunk=False).get_matching_blocks()
    pairs = {names[each.a + at]: others[each.b + at] for each in blocks for at in range(each.size)}
    taken = dict.fromkeys({*pairs.values()} - pairs.keys(), "")  # names of other operators
    return taken | pairs


_Placed = dict[str, tuple[ModelOperator | None, str]]
"""The model's operator for dumped ones by name, and names of the model's operators that each replaces."""


def _place_strangers(
    model: CompiledModel, strangers: Mapping[str, OperatorPair | None], used: Sequence[ModelOperator]
) -> _Placed:
    """Find the model's operators for dumped ones with names that the model lacks, given with their pairs.

    Each is matched with operators that the dump lacks: by name, or else by type, in order. Kernels that
    are fused differently than the model's are matched by their parts. If they have other parts, the odd ones
    (or the first) replace all these operators of the model.
    """
    taken = {_identity(site) for site in used}
    graphs = {site.graph.index for site in used}  # a branch may not run at all
    left = {
        name: site
        for name, (site, *others) in model.sites.items()
        if not others and name == file_names(site.node)[0] and _identity(site) not in taken
        if site.graph.index in graphs
        if model.is_dumped(site.node) and not site.node.is_added
    }
    # a pair without operators of the model pairs only the results of the group
    names = [name for name, pair in strangers.items() if pair is None or pair.golden or not pair.outputs]
    others = [*left]
    common = {*names} & left.keys()
    own, other = ([name if name in common else _types(name) for name in each] for each in (names, others))
    in_order = SequenceMatcher(None, own, other, autojunk=False).get_matching_blocks()
    placed: _Placed = {
        names[block.a + at]: (left.pop(others[block.b + at]), "")
        for block in in_order
        for at in range(block.size)
    }
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        if name not in placed:
            # the model's operators of its pair, or without a pair of its scope, that are not dumped
            pair = strangers[name]
            golden = None if pair is None else {*map(sanitize, pair.golden)}
            lacked = (
                each for each in left if (_scope(each) == _scope(name) if golden is None else each in golden)
            )
            groups.setdefault(tuple(lacked), []).append(name)
    for kernels, group in groups.items():
        if kernels:
            placed |= _place_parts(model, group, [left[name] for name in kernels])
    return placed


def _place_parts(model: CompiledModel, names: Sequence[str], kernels: Sequence[ModelOperator]) -> _Placed:
    parts = [part for kernel in kernels for part in model.parts(kernel)]
    types = [part for each in parts for part in _types(file_names(each.node)[0])]
    found: dict[str, ModelOperator] = {}
    odd, begin = [], 0
    for name in names:
        own = _types(name)
        end = begin + len(own)
        if own and list(own) == types[begin:end]:
            found[name], begin = parts[begin], end
            if len(own) > 1:
                chain = [part.node for part in parts[end - len(own) : end]]
                kernel = OperatorRef("".join(node.operator.op_type for node in chain), name)
                found[name] = replace(found[name], node=compilation.fused_node(chain, kernel))
        else:
            odd.append(name)
    if begin < len(parts):
        found, odd = {}, odd[:1] or [*names[:1]]
    if odd and len(names) == len(kernels) == 1:
        found[odd[0]] = kernels[0]
    replaced = dict.fromkeys(odd, ", ".join(file_names(each.node)[0] for each in kernels))
    return {name: (found.get(name), replaced.get(name, "")) for name in (*found, *replaced)}


def _scope(name: str) -> str:
    return name.rpartition("_")[0]


def _identity(site: ModelOperator) -> tuple[int, str]:
    return site.graph.index, site.node.name


def _types(name: str) -> tuple[str, ...]:
    return tuple(map(canonical_type, kinds(name)))
