"""Identities that pair the tensors of two dumps: aligned graphs, names, values of a model, a graph file.

Where both dumps have graphs, these are aligned (``alignment.py``). The operators of two dumps have the same
names where both compiled the network alike. Elsewhere the model identifies tensors: its values keep their
names however the operators that read and write them are fused. An offline dump of onnxruntime keeps them as
well: it names files after the model's nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from msdump.device import INSERTED_PREFIX, is_view
from msdump.encode import ge
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.graph import PASSING
from msdump.judge.pair.alignment import Alignment, OperatorPair, align
from msdump.judge.pair.sides import (
    CAST,
    DigestOf,
    GraphSide,
    TensorContent,
    canonical_type,
    is_commutative,
    joined_parts,
    of_array,
    part_types,
    passes_on,
    type_of,
)
from msdump.plan import Context, DeviceTarget
from msdump.read import Folder, FolderKind, GraphOperator, OperatorGraph, SourceKind, ValueSource, read_json
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import sanitize

if TYPE_CHECKING:
    from msdump.graph import Graph, Node


_Tensor = tuple[str, IO, int]
"""Name of an operator, side and number of its tensor."""

Identity = tuple[str, ...]
"""Equal for tensors that are compared with each other."""

Identify = Callable[[str, IO, int], Identity | None]
"""Gives the identity of an operator's input or output, by the operator's name in files; None: none."""

_GOLDEN_INPUT: Final = "input_"
"""Prefix of golden tensors that are graph inputs or weights of an operator.

msprobe's offline dump of onnxruntime writes them as ``input_{node}.{index}.{timestamp}.npy``.
"""

_MODEL_SUFFIXES: Final = (".onnx", ".mindir")
_Golden = TypeVar("_Golden")


def by_name(name: str, io: IO, slot: int) -> Identity | None:
    """Return the identity of a tensor where operators have the same names on both sides.

    >>> by_name("Default_MatMul-op0", IO.OUTPUT, 0)
    ('Default_MatMul-op0', <IO.OUTPUT: 'output'>, '0')
    """
    return (name, io, str(slot))


class RewiredInput(NamedTuple):
    """An input of an operator that reads another value than in golden."""

    operator: str  # full name of the operator
    slot: int  # number of the input
    source: str  # name of the value that it reads
    call: str  # the call of the tree that computes it in golden
    is_missing: bool  # whether no operator stands for the call


@dataclass(frozen=True, slots=True)
class MatchedNames:
    """The pairs of operators of two dumps, by the names that files have."""

    # golden partner of each examined operator in a one-to-one pair; None: operators of one name
    partners: Mapping[str, str] | None = None
    replaced: Mapping[str, str] = field(default_factory=dict)  # the pairs of operators with different types
    golden: frozenset[str] = frozenset()  # golden operators in any pair, also as parts of a fused operator
    # partner of an examined operator, if its name is another one
    notes: Mapping[str, str] = field(default_factory=dict)
    # full names of the casts that the other side lacks, of the examined side and of golden
    casts: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    whole: frozenset[str] = frozenset()  # examined operators with the same parts as their golden ones
    # examined operators in groups that have other operators and weights than golden's
    folded: frozenset[str] = frozenset()
    # sentence that the graphs are of two networks, so that nothing is compared, or that golden was in train
    # mode; "" otherwise
    networks: str = ""
    # modules, calls and parameters of a tree without a counterpart, and the reason
    alone: Mapping[str, str] = field(default_factory=dict)
    # operators with an input that another call of a tree computes in golden
    rewired: tuple[RewiredInput, ...] = ()

    def partner(self, name: str) -> str:
        """Return the golden operator that is paired one to one with an examined one, "" without any."""
        return name if self.partners is None else self.partners.get(sanitize(name), "")


@dataclass(frozen=True)
class Identities:
    """Functions that return the identities of both sides' tensors; tensors of one identity are a pair."""

    dumped: Identify = by_name
    golden: Identify = by_name
    matched: MatchedNames = MatchedNames()
    # the aligned operators of the two graphs; None if the graphs were not aligned
    alignment: Alignment | None = None


class IdentifiedTensors(Generic[_Golden]):
    """Golden tensors by identity, and the passes in which each examined tensor has been looked up."""

    def __init__(self) -> None:
        """Begin without tensors."""
        self._tensors: dict[IO, dict[Identity, list[_Golden]]] = {io: {} for io in IO}
        self._asked: Counter[_Tensor] = Counter()

    def add(self, identity: Identity | None, io: IO, tensor: _Golden) -> None:
        """Register a golden tensor under an identity (None: unmatched); passes of a loop in their order."""
        if identity is not None:
            self._tensors[io].setdefault(identity, []).append(tensor)

    def counterpart(self, identify: Identify, name: str, io: IO, slot: int) -> _Golden | None:
        """Return the golden tensor with the identity of an examined one, in the same pass; None without any.

        A tensor of the same side, input or output, is preferred.
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
    """Return identities that pair an operator's inputs, and outputs, in order where the counts are equal.

    A compiled graph does not number optional inputs and outputs that are absent, other graphs do.

    ``dumped`` and ``golden`` are the slots with files on each side.
    """
    tables: tuple[dict[_Tensor, Identity], dict[_Tensor, Identity]] = {}, {}
    for (name, io), slots in dumped.items():
        partner = identities.matched.partner(name)
        golden_slots = golden.get((partner, io), ())
        if len(slots) == len(golden_slots) and slots != golden_slots:
            for slot, golden_slot in zip(slots, golden_slots, strict=True):
                identity = ("order", name, io, str(slot))
                tables[0][name, io, slot] = tables[1][partner, io, golden_slot] = identity

    def identify(side: int, name: str, io: IO, slot: int) -> Identity | None:
        otherwise = identities.golden if side else identities.dumped
        return tables[side].get((name, io, slot)) or otherwise(name, io, slot)

    return replace(identities, dumped=partial(identify, 0), golden=partial(identify, 1))


def read_identities(path: str, dumped: FolderKind, golden: FolderKind) -> Identities:
    """Return the identities by a model (.onnx, .mindir) or a GE graph file (.json).

    Args:
        path: The model or graph file.
        dumped: Kind of files on the examined side.
        golden: Kind of files on the golden side.

    Raises:
        ToolError: The graph file cannot be used.
        GraphError: The model cannot be used.
    """
    # Users of GE have only a graph file; the compiled forms of a model are derived from the model.
    if not path.endswith(_MODEL_SUFFIXES):
        return Identities(_by_graph_file(path))
    from msdump.graph import loader

    # a dump does not say on which device it ran, and a .mindir has composites on Ascend alone
    devices = (DeviceTarget.CPU, DeviceTarget.ASCEND) if loader.is_mindir(path) else (DeviceTarget.CPU,)
    graphs = [loader.load(path, context=Context(device)) for device in devices]
    own, other = _by_model(graphs, (dumped, golden))
    return Identities(own, other)


class _Compiled(NamedTuple):
    """An operator of GE's graph file."""

    name: str  # its name in files
    originals: tuple[str, ...]  # operators of the original network that it stands for
    inputs: list[tuple[str, int]]  # producer and slot of each input
    outputs: dict[int, Identity]  # the original network's output that it holds, by slot
    is_added: bool  # whether it is a cast or change of format that the compiler added


def _by_graph_file(path: str) -> Identify:
    """Return the identities by GE's graph file, in which outputs name the original network's outputs.

    Raises:
        ToolError: The file cannot be read, or is no such graph.
    """
    try:
        listed = [operator for graph in read_json(path)["graph"] for operator in graph["op"]]
        # of operators of one name the first counts
        operators = {each.name: each for each in map(_compiled, reversed(listed))}
    except DumpReadError as error:
        raise ToolError(ReturnCode.JSON, str(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fault = f"{path}: not a graph file of GE: {type(error).__name__}: {error}"
        raise ToolError(ReturnCode.JSON, f"{fault}; write one with atc --mode=5 or msdump compile") from error
    sizes = Counter(each.originals for each in operators.values())

    def identify(name: str, io: IO, slot: int) -> Identity | None:
        operator, seen = operators.get(name), set[str]()
        # only casts that the compiler added are skipped: a cast of the model has a golden tensor
        while operator is not None and (io is IO.INPUT or operator.is_added):
            if operator.name in seen or slot >= len(operator.inputs):
                return None  # a damaged file may have a ring of casts
            seen.update([operator.name] if io is IO.OUTPUT else [])
            (producer, slot), io = operator.inputs[slot], IO.OUTPUT
            operator = operators.get(producer)
        if operator is None:
            return None
        known = operator.outputs.get(slot) or operator.outputs.get(0)  # one that is not described: the first
        if known is None and len(operator.originals) == 1 == sizes[operator.originals]:
            return (sanitize(operator.originals[0]), IO.OUTPUT, str(slot))
        return known

    return identify


def _compiled(message: Mapping[str, Any]) -> _Compiled:
    """Return an operator of a graph file; a KeyError or TypeError where it is malformed.

    An operator without a list of originals stands for the original of its own name; one with an empty list
    was added by the compiler.
    """
    name, attributes = message["name"], _attributes(message)
    listed = attributes.get(ge.ORIGINAL_NAMES)
    originals = (name,) if listed is None else tuple(filter(None, listed["list"].get("s", ())))
    outputs: dict[int, Identity] = {}
    for slot, described in enumerate(message.get("output_desc", ())):
        origin = _attributes(described)
        source = origin.get(ge.ORIGIN_NAME, {}).get("s") or (name if listed is None else "")
        if source and "attr" in described:
            index = origin.get(ge.ORIGIN_INDEX, {}).get("i", slot)
            outputs[slot] = (sanitize(source), IO.OUTPUT, str(index))
    edges = (edge.rpartition(":") for edge in message.get("input", ()) if edge)
    # an edge of slot -1 only orders two operators
    inputs = [(sanitize(producer), int(slot)) for producer, _, slot in edges if slot != "-1"]
    is_added = message["type"] in PASSING and not (listed and originals)
    return _Compiled(sanitize(name), originals, inputs, outputs, is_added)


def _attributes(message: Mapping[str, Any]) -> dict[str, Any]:
    return {item["key"]: item["value"] for item in message.get("attr", ())}


def _by_model(graphs: Sequence[Graph], kinds: Sequence[FolderKind]) -> Iterator[Identify]:
    """Yield, for each kind of dump, the function that identifies tensors by values of the model.

    A dump does not record how its graph was compiled, so operator names of all forms are included: not
    compiled, with fused elementwise chains (O1), and compiled (O2), with names of scopes or of nodes.
    """
    from msdump.graph import compile_graph, fuse_elementwise

    named = (*graphs, *map(fuse_elementwise, graphs), *map(compile_graph, graphs))
    forms = [(form, _full_name) for form in named]
    forms += [(form, _node_name) for form in graphs]
    forms += [(compile_graph(graph, keeps_node_names=True), _node_name) for graph in graphs]
    parameters = (*(value.name for value in graphs[0].inputs), *graphs[0].weights)
    for kind in kinds:
        values: dict[_Tensor, Identity] = {}
        if kind is FolderKind.GOLDEN:
            values |= _places(graphs[0], _node_name)
        else:
            values |= {(sanitize(name), IO.OUTPUT, 0): ("0", name) for name in parameters}
            for form, name_of in reversed(forms):  # an earlier form wins
                # Compiled graphs do not number absent optional inputs, operators of the model do.
                values |= _places(form, name_of, has_gaps=kind is FolderKind.TENSORS)
        yield partial(_value_of, values)


def _value_of(values: Mapping[_Tensor, Identity], name: str, io: IO, slot: int) -> Identity | None:
    # An offline dump of onnxruntime stores graph inputs and weights as outputs called input_{reader}.
    as_input = (name.removeprefix(_GOLDEN_INPUT), IO.INPUT, slot) if name.startswith(_GOLDEN_INPUT) else None
    return (as_input and values.get(as_input)) or values.get((name, io, slot))


_node_name: Final = attrgetter("name")
_full_name: Final = attrgetter("operator.full_name")


def _places(
    graph: Graph, name_of: Callable[[Node], str], *, has_gaps: bool = True
) -> Iterator[tuple[tuple[str, IO, int], Identity]]:
    for number, inner in enumerate(graph.walk()):
        for node in inner.nodes:
            name = sanitize(name_of(node))
            for io, values in ((IO.INPUT, node.inputs_after_run), (IO.OUTPUT, node.declared_outputs)):
                for slot, value in enumerate(values if has_gaps else filter(None, values)):
                    if value:
                        yield (name, io, slot), (str(number), value)


_SURE: Final = 0.9
"""A pair that is less certain has a note."""


Dumped = tuple[Folder, OperatorGraph | None]
"""A directory, and the graph of its tensors, None if the dump has no graph."""


def match_identities(dumped: Dumped, golden: Dumped) -> Identities:
    """Return the identities of the tensors in two directories: by aligned graphs, or else by names.

    Names do not pair networks that were exported or compiled in different ways, and mislead where a dropped
    operator has moved numbers.

    Args:
        dumped: The directory that is examined, and its graph.
        golden: The directory that it is compared with.
    """
    (folder, mine), (golden_folder, other) = dumped, golden
    if FolderKind.GOLDEN in {folder.kind, golden_folder.kind}:
        return Identities()
    if mine is None or other is None:
        return Identities() if other is None else _of_kernels(folder, other)
    return identities_of(_side(mine, other, folder), _side(other, mine, golden_folder))


def identities_of(mine: GraphSide, golden: GraphSide) -> Identities:
    """Return the identities of the tensors of two graphs: names if all operators are paired by name."""
    found = align(mine, golden)
    if not found.is_one_network:
        every = frozenset(map(sanitize, golden.graph.operators))
        none = MatchedNames({}, {}, every, {}, networks=found.describe_networks())
        return Identities(_unpaired, _unpaired, none, found)
    if found.is_by_name:
        return Identities(alignment=found)
    return _Identified(found, mine.graph, golden.graph).identities()


def _of_kernels(folder: Folder, graph: OperatorGraph) -> Identities:
    """Return the identities of kernels that no graph names, by the graph of the other side.

    A kernel's name in files joins the names of its operators; each but the first reads the one before.
    """
    table: dict[_Tensor, Identity] = {}
    inside, notes = set[str](), dict[str, str]()
    named = {_common_name(sanitize(each.full_name)): each for each in graph.operators.values()}
    for name in folder.operators:
        first, *rest = joined_parts(name) or [name]
        start = named.get(_common_name(name.removesuffix("".join((first, *rest))) + first))
        parts, is_chain = [] if start is None else [start], True
        for part in map(_common_name, rest if parts else ()):
            near = graph.used_by(parts[-1].full_name)
            far = (reader for each in near for reader in graph.used_by(each.full_name))
            found = (
                each for each in (*near, *far) if _common_name(each.full_name.rpartition("/")[2]) == part
            )
            parts += [*found][:1]
            is_chain &= parts[-1] in near
        if len(parts) != len(rest) + 1 or sanitize(parts[0].full_name) == name:
            continue
        inside |= {sanitize(each.full_name) for each in parts}
        if not is_chain:
            notes[name] = "golden has another operator between its parts"
        for slot, ((other, io, number), _) in enumerate(_read_from_outside(parts)):
            table[name, IO.INPUT, slot] = (sanitize(other), io, str(number))
        table[name, IO.OUTPUT, 0] = (sanitize(parts[-1].full_name), IO.OUTPUT, "0")

    def identify(name: str, io: IO, slot: int) -> Identity | None:
        return table.get((name, io, slot)) or by_name(name, io, slot)

    return Identities(identify, matched=MatchedNames(golden=frozenset(inside), notes=notes))


def _common_name(name: str) -> str:
    """Return the name of an operator in files, with its type as all systems call it."""
    last = (joined_parts(name) or [name])[-1]
    op_type, separator, number = last.rpartition("-op")
    return f"{name.removesuffix(last)}{canonical_type(op_type)}{separator}{number}"


def _unpaired(_name: str, _io: IO, _slot: int) -> None:
    """Return no identity, for two networks."""


def align_with_model(
    dumped: tuple[Folder, OperatorGraph], model: OperatorGraph, digest_of: DigestOf
) -> Alignment:
    """Return the aligned operators of a dump and a model.

    The model's graph is compiled as that of the dump; ``digest_of`` hashes the model's weights.
    """
    folder, graph = dumped
    most_names = max((len(each.onnx_names) for each in graph.operators.values()), default=0)
    if most_names <= 1:  # the dump's graph file has one node for a fused operator, or none
        unnamed = {
            name: replace(each, onnx_names=each.onnx_names[-most_names:] if most_names else ())
            for name, each in model.operators.items()
        }
        model = replace(model, operators=unnamed)
    return align(_side(graph, model, folder), GraphSide(model, digest_of))


def _side(graph: OperatorGraph, other: OperatorGraph, folder: Folder) -> GraphSide:
    @cache
    def content_of(name: str, slot: int) -> TensorContent | None:
        return _content(folder, name, slot)

    def digest_of(name: str) -> Hashable | None:
        # a weight of one name on both sides need not be read
        content = None if name in other.weights else content_of(name, 0)
        return None if content is None else content.digest

    return GraphSide(graph, digest_of, content_of)


def _content(folder: Folder, name: str, slot: int) -> TensorContent | None:
    """Return the content of an output in its first run, or of a weight; None if it was not dumped."""
    files = folder.operators.get(sanitize(name)) or folder.operators.get(
        sanitize(name.rpartition("/")[2]), ()
    )
    try:
        found = (each for each in files if (each.pass_number, each.io, each.slot) == (0, IO.OUTPUT, slot))
        return next((of_array(each.on_host()) for each in found), None)
    except (DumpReadError, FormatError):
        return None


class _Identified:
    def __init__(self, found: Alignment, mine: OperatorGraph, golden: OperatorGraph) -> None:
        self._found = found
        self._graphs = mine, golden
        self._tables: tuple[dict[_Tensor, Identity], dict[_Tensor, Identity]] = {}, {}
        self._mine_of = {sanitize(other): sanitize(name) for name, other in found.weights.items()}
        self._renamed = {*map(sanitize, found.weights)}
        self._folded = {
            sanitize(source.name)
            for pair in found.pairs
            if pair.is_folded
            for graph, names in ((mine, pair.mine), (golden, pair.golden))
            for name in names
            for source in graph.operators[name].inputs
            if source.kind is SourceKind.WEIGHT
        }

    def identities(self) -> Identities:
        for number, pair in enumerate(self._found.pairs):
            self._add_outputs(pair, number)
        for number, pair in enumerate(self._found.pairs):
            self._add_inputs(pair, number)
        self._add_dequantised()
        return Identities(self._identify(0), self._identify(1), self._names(), self._found)

    def _identify(self, side: int) -> Identify:
        graph, table = self._graphs[side], self._tables[side]

        def identify(name: str, io: IO, slot: int) -> Identity | None:
            operator = graph.find(name)
            if operator is None:  # a weight, or an input of the graph
                return None if name in self._folded else by_name(self._weight_name(side, name), io, slot)
            return table.get((operator.full_name, io, slot))

        return identify

    def _weight_name(self, side: int, name: str) -> str:
        """Return the name under which a weight is identified: that of the examined side."""
        return self._mine_of.get(name, f"golden {name}" if name in self._renamed else name) if side else name

    def _add_outputs(self, pair: OperatorPair, number: int) -> None:
        for place, outputs in enumerate(pair.outputs):
            for table, (name, slot) in zip(self._tables, outputs, strict=True):
                table[name, IO.OUTPUT, slot] = ("output", str(number), str(place))

    def _add_inputs(self, pair: OperatorPair, number: int) -> None:
        mine, golden = (
            [graph.operators[name] for name in names]
            for graph, names in zip(self._graphs, (pair.mine, pair.golden), strict=True)
        )
        if pair.is_single and _reads_alike(mine[0], golden[0]):
            for slot, golden_slot in self._slots(mine[0], golden[0], is_sure=pair.certainty >= _SURE):
                identity: Identity = ("input", str(number), str(slot))
                self._tables[0][mine[0].full_name, IO.INPUT, slot] = identity
                self._tables[1][golden[0].full_name, IO.INPUT, golden_slot] = identity
            return
        # inputs of groups (fused parts, other ways to compute) are identified by their producers
        for side, operators in enumerate((mine, golden)):
            for operator in operators:
                for slot, source in enumerate(operator.inputs):
                    origin = self._of_source(side, source)
                    if origin is not None:
                        self._tables[side][operator.full_name, IO.INPUT, slot] = origin
        if _computes_in_row(mine, golden):
            self._add_weights(mine, golden, number)

    def _add_dequantised(self) -> None:
        """Identify real numbers made of integers that golden lacks, by their reader or their source."""
        graph, table = self._graphs[0], self._tables[0]
        for name in self._found.mine_alone:
            operator = graph.operators[name]
            if operator.op_type == "DequantizeLinear" and operator.inputs:
                read = (
                    table.get((reader.full_name, IO.INPUT, slot))
                    for reader in graph.used_by(name)
                    for slot, source in enumerate(reader.inputs)
                    if source.name == name
                )
                known = next(filter(None, read), None) or self._of_source(0, operator.inputs[0])
                if known is not None:
                    table[name, IO.OUTPUT, 0] = known

    def _add_weights(
        self, mine: Sequence[GraphOperator], golden: Sequence[GraphOperator], number: int
    ) -> None:
        """Pair in order the weights of a kernel and its parts, and values that vary between a loop's passes.

        Producers do not identify them: a dump may lack names of weights, and several runs write a varying
        value.
        """
        own, other = _read_from_outside(mine), _read_from_outside(golden)
        if len(own) != len(other):
            return
        unnamed = {SourceKind.WEIGHT, SourceKind.ABSENT}
        for place, ((tensor, source), (golden_tensor, theirs)) in enumerate(zip(own, other, strict=True)):
            # without a graph file the inputs of the first operators are unknown
            is_weight = theirs.kind is SourceKind.WEIGHT and source.kind in unnamed
            names = self._tables[0].get(tensor), self._tables[1].get(golden_tensor)
            if (is_weight or source.varies or theirs.varies) and (names[0] is None or names[0] != names[1]):
                identity: Identity = ("weight", str(number), str(place))
                self._tables[0][tensor] = self._tables[1][golden_tensor] = identity

    def _slots(
        self, mine: GraphOperator, golden: GraphOperator, *, is_sure: bool
    ) -> Iterator[tuple[int, int]]:
        """Yield the numbers of the inputs of two operators that are compared with each other.

        If one operator reads a producer that the other side lacks, the inputs are compared and differ, which
        shows the lack. If both do, the sides compute in different ways, and the inputs are not compared.
        """
        is_other_way = self._reads_lacked(0, mine) and self._reads_lacked(1, golden)
        for slot, golden_slot in enumerate(self._turned(mine, golden)):
            sources = mine.inputs[slot], golden.inputs[golden_slot]
            is_known = is_sure or any(each.varies for each in sources)
            if is_known or self._may_be_same(*sources, may_lack=not is_other_way):
                yield slot, golden_slot

    def _may_be_same(self, mine: ValueSource, golden: ValueSource, *, may_lack: bool) -> bool:
        """Return whether two inputs have the same source, or a source that one side may lack."""
        origins = self._of_source(0, mine), self._of_source(1, golden)
        if origins[0] == origins[1] is not None:
            return True
        return may_lack and mine.kind is golden.kind and origins.count(None) == 1

    def _reads_lacked(self, side: int, operator: GraphOperator) -> bool:
        return any(
            source.kind is SourceKind.OPERATOR and self._of_source(side, source) is None
            for source in operator.inputs
        )

    def _turned(self, mine: GraphOperator, golden: GraphOperator) -> list[int]:
        """Return the golden input slot for each of mine: matched by source if commutative, else the same."""
        own = [self._of_source(0, source) for source in mine.inputs]
        other = [self._of_source(1, source) for source in golden.inputs]
        if not is_commutative(type_of(mine)) or None in own or Counter(own) != Counter(other):
            return [*range(len(own))]
        places: dict[Identity | None, list[int]] = defaultdict(list)
        for slot, origin in enumerate(other):
            places[origin].append(slot)
        return [places[origin].pop(0) for origin in own]

    def _of_source(self, side: int, source: ValueSource) -> Identity | None:
        if source.varies:
            return None
        if source.kind is SourceKind.OPERATOR:
            known = self._tables[side].get((source.name, IO.OUTPUT, source.slot))
            operator = self._graphs[side].operators.get(source.name)
            is_passed = operator is not None and _is_passed(operator) and not source.slot  # 1, 2: the scale
            if known is None and operator is not None and operator.inputs and is_passed:
                return self._of_source(side, operator.inputs[0])
            return known
        name = sanitize(source.name)
        if source.kind in {SourceKind.WEIGHT, SourceKind.INPUT} and name not in self._folded:
            return by_name(self._weight_name(side, name), IO.OUTPUT, 0)
        return None

    def _names(self) -> MatchedNames:
        casts = self._casts(0, self._found.mine_alone), self._casts(1, self._found.golden_alone)
        single = [(pair.mine[0], pair.golden[0]) for pair in self._found.pairs if pair.is_single]
        replaced = dict(filter(None, map(self._replaced, self._found.pairs)))
        return MatchedNames(
            partners={sanitize(mine): sanitize(golden) for mine, golden in single},
            replaced={sanitize(mine): sanitize(golden) for mine, golden in replaced.items()},
            golden=frozenset(sanitize(name) for name in self._found.of_golden),
            notes={sanitize(name): _note(pair) for name, pair in self._found.of_mine.items()},
            casts=casts,
            folded=frozenset(
                sanitize(name) for pair in self._found.pairs if pair.is_folded for name in pair.mine
            ),
            whole=frozenset(sanitize(pair.mine[0]) for pair in self._found.pairs if self._is_whole(pair)),
        )

    def _is_whole(self, pair: OperatorPair) -> bool:
        own, golden = (self._types(side, names) for side, names in enumerate((pair.mine, pair.golden)))
        return len(pair.mine) == 1 and own == golden

    def _types(self, side: int, names: Iterable[str]) -> Counter[str]:
        operators = self._graphs[side].operators
        return Counter(canonical_type(part) for name in names for part in part_types(operators[name]))

    def _replaced(self, pair: OperatorPair) -> tuple[str, str] | None:
        """Return the names of an operator and of the golden one of another type in its place, or None."""
        mine = [name for name in pair.mine if not name.startswith(INSERTED_PREFIX)]
        if len(mine) != 1:
            return None
        own = self._types(0, mine)
        if pair.is_single:
            other = self._types(1, pair.golden)
            is_other = not (own <= other or other <= own)  # else it has more or fewer parts
            return (mine[0], pair.golden[0]) if is_other else None
        others = [name for name in pair.golden if not self._types(1, [name]) <= own]
        is_one = len(others) == 1 and own.total() == self._types(1, pair.golden).total()
        return (mine[0], others[0]) if is_one else None

    def _casts(self, side: int, alone: Iterable[str]) -> frozenset[str]:
        operators = self._graphs[side].operators
        return frozenset(name for name in alone if {CAST} == {*part_types(operators[name])})


def _reads_alike(mine: GraphOperator, golden: GraphOperator) -> bool:
    """Return whether two operators have the same type and number of inputs: not if one is quantised."""
    return type_of(mine) == type_of(golden) and len(mine.inputs) == len(golden.inputs)


def _is_passed(operator: GraphOperator) -> bool:
    return passes_on(operator.op_type) or is_view(operator.op_type)


def _computes_in_row(mine: Sequence[GraphOperator], golden: Sequence[GraphOperator]) -> bool:
    """Return whether one operator computes as several on the other side do, in their order."""
    own, other = (
        [canonical_type(part) for each in operators for part in part_types(each) if part != CAST]
        for operators in (mine, golden)
    )
    return own == other and 1 in {len(mine), len(golden)}


def _read_from_outside(operators: Sequence[GraphOperator]) -> list[tuple[_Tensor, ValueSource]]:
    """Return the inputs of a group of operators, each once, without values that pass inside the group."""
    inside = {each.full_name for each in operators}
    read: dict[Hashable, tuple[_Tensor, ValueSource]] = {}
    for each in operators:
        for slot, source in enumerate(each.inputs):
            is_unknown = source.kind is SourceKind.ABSENT
            if is_unknown and len(operators) > 1 and not source.varies:  # an absent optional input
                continue
            if source.kind is not SourceKind.OPERATOR or source.name not in inside:
                tensor = (each.full_name, IO.INPUT, slot)
                read.setdefault(tensor if is_unknown else source, (tensor, source))
    return list(read.values())


def _note(pair: OperatorPair) -> str:
    """Return a note on the partner of a pair, "" for a sure pair of the same name."""
    is_sure = pair.certainty >= _SURE
    if pair.mine == pair.golden and is_sure:
        return ""
    folded = ", with other weights" if pair.is_folded else ""
    return f"paired with {' + '.join(pair.golden)}{folded}{'' if is_sure else f', {pair.certainty:.0%} sure'}"
