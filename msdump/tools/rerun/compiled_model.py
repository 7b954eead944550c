"""The model as a dumped network was compiled: which operators it has, and who makes each value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from msdump.device.tasks import INSERTED_PREFIX, runs_on_device
from msdump.errors import MsdumpError
from msdump.execute.compilation import emulated
from msdump.graph.compile.fusion import fuse_elementwise
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads
from msdump.plan import Context, DeviceTarget, JitLevel, PrecisionMode
from msdump.store import names
from msdump.store.read.graphs.operator_graph import OperatorGraph
from msdump.tools.matching import contents, model_graph
from msdump.tools.matching.sides import kinds

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
    """

    graph: Graph
    fit: float = 1.0
    is_compiled: bool = False

    @cached_property
    def size(self) -> int:
        """Number of its operators."""
        return sum(len(graph.operators) for graph in self.graph.walk())

    @cached_property
    def operator_graphs(self) -> Mapping[int, OperatorGraph]:
        """Its graphs as files of a dump tell them, by number; 0 is the main graph."""
        return model_graph.operator_graphs(self.graph)

    @cached_property
    def bare_graphs(self) -> Mapping[int, OperatorGraph]:
        """Its graphs like ``operator_graphs``, their operators without arguments."""
        return model_graph.operator_graphs(self.graph, shows_arguments=False)

    def is_dumped(self, node: Node) -> bool:
        """Tell whether a whole dump has files of an operator."""
        return not self.is_compiled or runs_on_device(node)

    def digest(self, name: str) -> Hashable | None:
        """Return what stands for the elements of a weight, None of one that it lacks."""
        weights = (graph.weights.get(name) for graph in self.graph.walk())
        return next((contents.digest(weight) for weight in weights if weight is not None), None)

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
        model = CompiledModel(graph, likeness(graph, dumped), is_compiled)
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
