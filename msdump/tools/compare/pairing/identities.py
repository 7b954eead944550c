"""Identities of tensors, by which those of two dumps are paired: names, values of a model, a graph file.

The operators of two dumps have the same names where both compiled the network alike. Elsewhere
the model tells what belongs together: its values, which operators read and write, keep their
names however they are fused; so does an offline dump of onnxruntime, which names files after
the model's nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msdump.record import IO
from msdump.tools.compare.pairing import dump_folder, fusion_rules
from msdump.tools.compare.pairing.dump_folder import FolderKind
from msdump.tools.compare.pairing.fusion_rules import FusionRules, RuleOperator
from msdump.tools.compare.pairing.pairs import GOLDEN_INPUT

if TYPE_CHECKING:
    from msdump.graph.graph import Graph, Node

_Tensor = tuple[str, IO, int]
Identity = tuple[str, ...]
"""What two tensors that are compared have in common."""

Identify = Callable[[str, IO, int], Identity | None]
"""Gives the identity of an operator's input or output, by the operator's name in files; None: none."""

_MODEL_SUFFIX: Final = ".onnx"
_Golden = TypeVar("_Golden")


def by_name(name: str, io: IO, slot: int) -> Identity | None:
    """Return the identity of a tensor where operators have the same names on both sides.

    >>> by_name("Default_MatMul-op0", IO.OUTPUT, 0)
    ('Default_MatMul-op0', <IO.OUTPUT: 'output'>, '0')
    """
    return (name, io, str(slot))


@dataclass(frozen=True, slots=True)
class MatchedNames:
    """Operators that belong together by the graphs of both dumps, as the names of files have them.

    Attributes:
        partners: The golden operator of each examined one that belongs to one alone.
        replaced: Those of them that do something else.
        golden: Golden operators that belong to an examined one, as parts of a fused one do, too.
        notes: How the partner of an examined operator was found, where its name does not tell.
        recast: In words, that one of the two sides casts inside of a kernel, by the examined operator.
        casts: Full names of the casts that the other side lacks, of the examined side and of golden.
        whole: Examined operators whose parts are those of the golden ones, one or several, beside them.
    """

    partners: Mapping[str, str]
    replaced: Mapping[str, str]
    golden: frozenset[str]
    notes: Mapping[str, str]
    recast: Mapping[str, str] = field(default_factory=dict)
    casts: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    whole: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Identities:
    """How the tensors of both sides are identified.

    Attributes:
        dumped: Identifies tensors of the side that is examined.
        golden: Identifies tensors of the golden side.
        matched: Operators that belong together by the graphs of both dumps; None where names tell.
    """

    dumped: Identify = by_name
    golden: Identify = by_name
    matched: MatchedNames | None = None


class IdentifiedTensors(Generic[_Golden]):
    """Golden tensors by identity, and how many counterparts each examined tensor has asked for."""

    def __init__(self) -> None:
        """Hold no tensor yet."""
        self._tensors: dict[IO, dict[Identity, list[_Golden]]] = {io: {} for io in IO}
        self._asked: Counter[_Tensor] = Counter()

    def add(self, identity: Identity | None, io: IO, tensor: _Golden) -> None:
        """Take in a golden tensor, those of several passes of a loop in their order; None: nobody's."""
        if identity is not None:
            self._tensors[io].setdefault(identity, []).append(tensor)

    def counterpart(self, identify: Identify, name: str, io: IO, slot: int) -> _Golden | None:
        """Return the golden tensor that came in the same pass as an examined one, None where there was none.

        Args:
            identify: Identifies examined tensors.
            name: The operator of the examined tensor, as files call it.
            io: Its side; a golden tensor of the same side is preferred.
            slot: Its number.
        """
        identity = identify(name, io, slot)
        number = self._asked[name, io, slot]
        self._asked[name, io, slot] += 1
        if identity is None:
            return None
        for side in (io, *(other for other in IO if other is not io)):
            tensors = self._tensors[side].get(identity, ())
            if len(tensors) == 1 and io is IO.INPUT:  # written once, read in every pass of a loop
                return tensors[0]
            if tensors:
                return tensors[number] if number < len(tensors) else None
        return None


Slots = Mapping[tuple[str, IO], Sequence[int]]
"""The numbers of the inputs, and of the outputs, of operators as files call them, in order."""


def in_order(identities: Identities, dumped: Slots, golden: Slots) -> Identities:
    """Return identities by which as many inputs, or outputs, of an operator are paired in their order.

    A compiled graph does not number optional inputs and outputs that are absent, other graphs do.

    Args:
        identities: How the tensors are paired where both sides have the same numbers.
        dumped: What the side that is examined dumped.
        golden: What the golden side dumped.
    """
    partners = None if identities.matched is None else identities.matched.partners
    tables: tuple[dict[_Tensor, Identity], dict[_Tensor, Identity]] = {}, {}
    for (name, io), slots in dumped.items():
        partner = name if partners is None else partners.get(name, "")
        golden_slots = golden.get((partner, io), ())
        if len(slots) == len(golden_slots) and slots != golden_slots:
            for slot, golden_slot in zip(slots, golden_slots, strict=True):
                identity = ("order", name, io, str(slot))
                tables[0][name, io, slot] = tables[1][partner, io, golden_slot] = identity
    own, other = (
        _by_table(table, identify)
        for table, identify in zip(tables, (identities.dumped, identities.golden), strict=True)
    )
    return replace(identities, dumped=own, golden=other)


def _by_table(table: Mapping[_Tensor, Identity], otherwise: Identify) -> Identify:
    def identify(name: str, io: IO, slot: int) -> Identity | None:
        return table.get((name, io, slot)) or otherwise(name, io, slot)

    return identify


def read(path: str, dumped: FolderKind, golden: FolderKind) -> Identities:
    """Return the identities that a model (.onnx) or a graph file (.json) gives.

    Args:
        path: The model or graph file.
        dumped: Kind of files on the examined side.
        golden: Kind of files on the golden side.

    Raises:
        ToolError: The graph file cannot be used.
        GraphError: The model cannot be used.
    """
    # A graph file is all that users of GE have; of a model the compiled forms can be derived here.
    if not path.endswith(_MODEL_SUFFIX):
        rules = _Rules(fusion_rules.read(path))
        return Identities(rules.dumped, rules.golden)
    from msdump.graph import loader

    values = _values(loader.load(path))
    return Identities(_reader(values, dumped), _reader(values, golden))


@dataclass(frozen=True, slots=True)
class _Rules:
    """Identities by a graph file: outputs of the original network."""

    rules: FusionRules

    def dumped(self, name: str, io: IO, slot: int) -> Identity | None:
        operator = self.rules.by_key.get(name)
        if operator is None:
            return None
        find = self.rules.input_origin if io is IO.INPUT else self.rules.output_origin
        origin = find(operator, slot, _is_added)  # a cast of the model has a golden tensor of its own
        return None if origin is None else (dump_folder.key(origin.name), IO.OUTPUT, str(origin.index))

    def golden(self, name: str, io: IO, slot: int) -> Identity | None:
        return by_name(name, io, slot)


def _is_added(operator: RuleOperator) -> bool:
    return operator.is_added


_Values = Mapping[_Tensor, Identity]


def _reader(values: Mapping[FolderKind, _Values], kind: FolderKind) -> Identify:
    identity_of = values[kind]

    def identify(name: str, io: IO, slot: int) -> Identity | None:
        # An offline dump of onnxruntime keeps graph inputs and weights as input_{reader}, an "output".
        if name.startswith(GOLDEN_INPUT):
            identity = identity_of.get((name.removeprefix(GOLDEN_INPUT), IO.INPUT, slot))
            if identity is not None:
                return identity
        return identity_of.get((name, io, slot))

    return identify


def _values(graph: Graph) -> Mapping[FolderKind, _Values]:
    """Return the values that operators read and write, by the names that each kind of dump gives them.

    A dump does not tell how its graph was compiled, so the names of all forms are taken in: as it is,
    with fused chains of elementwise operators (O1), and compiled (O2), with names of scopes or of nodes.
    """
    from msdump.graph.compile.compilation import compile_graph
    from msdump.graph.compile.fusion import fuse_elementwise

    forms = (
        *((form, _full_name) for form in (graph, fuse_elementwise(graph), compile_graph(graph))),
        *((form, _node_name) for form in (graph, compile_graph(graph, keeps_node_names=True))),
    )
    parameters = (*(value.name for value in graph.inputs), *graph.weights)
    parameter_identities: dict[tuple[str, IO, int], Identity]
    parameter_identities = {(dump_folder.key(name), IO.OUTPUT, 0): ("0", name) for name in parameters}
    # Compiled graphs do not number absent optional inputs, operators of the model do.
    gapless, numbered = dict(parameter_identities), dict(parameter_identities)
    for form, name_of in reversed(forms):  # an earlier form wins
        gapless |= _places(form, name_of, has_gaps=False)
        numbered |= _places(form, name_of)
    return {
        FolderKind.GOLDEN: dict(_places(graph, _node_name)),
        FolderKind.DUMPS: gapless,
        FolderKind.COMPILED: gapless,
        FolderKind.TENSORS: numbered,
    }


def _node_name(node: Node) -> str:
    return node.name


def _full_name(node: Node) -> str:
    return node.operator.full_name


def _places(
    graph: Graph, name_of: Callable[[Node], str], *, has_gaps: bool = True
) -> Iterator[tuple[tuple[str, IO, int], Identity]]:
    """Yield name, side and number of each value of a graph and of its branches and loops.

    Args:
        graph: The graph.
        name_of: Gives the name of an operator.
        has_gaps: Whether absent optional inputs and outputs are numbered too; compiled graphs
            do not know of them.
    """
    for number, inner in enumerate(graph.walk()):
        for node in inner.nodes:
            name = dump_folder.key(name_of(node))
            for io, values in ((IO.INPUT, node.inputs_after_run), (IO.OUTPUT, node.declared_outputs)):
                for slot, value in enumerate(values if has_gaps else filter(None, values)):
                    if value:
                        yield (name, io, slot), (str(number), value)
