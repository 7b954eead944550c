"""Which operators of two models belong together: a matching of graphs that need not share a name."""

from __future__ import annotations

import enum
import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.analysis import SHORTER, Fact, SameWeight, errors, list_facts
from msdump.analysis.align import (
    CAST,
    INTEGER,
    Alignment,
    DigestOf,
    GraphSide,
    OperatorPair,
    align,
    operator_graphs,
)
from msdump.analysis.align import sides as graph_sides
from msdump.analysis.diff.lockstep import Ran
from msdump.analysis.diff.pairing import GraphPairing, Pairing, Quantisation, is_quantised, quantisations
from msdump.analysis.judge import OperatorPlace, coarser
from msdump.device import float_status_of, rounding
from msdump.errors import InputError, name_hint
from msdump.execute import (
    Float64Kernels,
    KernelFactory,
    Program,
    RoundingsOf,
    Runs,
    Runtime,
    TrainingState,
    WeightCopies,
    as_the_model_says,
    cpu_runtime,
    cuda_runtime,
    doubled,
    emulated,
    optimise,
)
from msdump.graph import IN_MEMORY, Graph, Node, loader
from msdump.graph.kernel import Rounding
from msdump.observer import Observer
from msdump.plan import Context, DeviceTarget, JitLevel, OverflowMode, PrecisionMode
from msdump.read import ABSENT, GraphOperator, SourceKind, ValueSource
from msdump.store import names

_LOOPS: Final = frozenset({"Loop", "Scan"})


@dataclass(slots=True)
class Places:
    """The places of a network's operators, run after run; what is the same in every run is made once.

    Attributes:
        graph: The graph that runs.
        iteration: Number of the run.
        before: Number of operators in the runs before.
        count: Number of operators so far.
    """

    graph: Graph
    iteration: int = 0
    before: int = 0
    count: int = 0
    _passes: Counter[str] = field(default_factory=Counter)
    _looping: frozenset[int] = field(init=False)
    _nodes: dict[str, Node] = field(init=False)
    _sources: dict[int, dict[str, ValueSource]] = field(default_factory=dict)
    _ran: dict[tuple[int, str], tuple[OperatorPlace, tuple[ValueSource, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the bodies that may run several times."""
        nodes = [node for graph in self.graph.walk() for node in graph.nodes]
        self._nodes = {node.name: node for node in nodes}
        loops = (node for node in nodes if node.op_type in _LOOPS)
        self._looping = frozenset(body.index for node in loops for body in node.bodies.values())

    def of(self, node: Node) -> OperatorPlace:
        """Return the place of an operator that has not run."""
        operator = node.operator
        forward = self._nodes.get(node.forward)
        lines = node.source or (forward.source if forward is not None else ())
        return OperatorPlace(
            names.sanitize(operator.full_name),
            operator.op_type,
            full_name=operator.full_name,
            onnx_name="+".join(part.name for part in node.members),
            scope=node.scope,
            source=GraphOperator(operator.full_name, operator.op_type, source=lines).source_line,
            iteration=0,
        )

    def begin(self, iteration: int, before: int) -> None:
        """Begin a run."""
        self.iteration, self.before, self.count = iteration, before, 0
        self._passes.clear()

    def _known(self, ran: Ran) -> tuple[OperatorPlace, tuple[ValueSource, ...]]:
        """Return the place of an operator as if it had not run, and where its inputs come from, by slot."""
        key = ran.graph.index, ran.node.name
        known = self._ran.get(key)
        if known is None:
            sources = self._sources.get(ran.graph.index)
            if sources is None:
                sources = self._sources[ran.graph.index] = _sources(ran.graph)
            reads = tuple(sources.get(name, ABSENT) for name in ran.node.inputs)
            known = self._ran[key] = (self.of(ran.node), reads)
        return known

    def next(self, ran: Ran) -> tuple[OperatorPlace, tuple[ValueSource, ...]]:
        """Return the place of the operator that ran next, and where its inputs come from, by slot."""
        self.count += 1
        known, reads = self._known(ran)
        number = self._passes[ran.node.name]
        self._passes[ran.node.name] = number + 1
        is_repeated = any(index in self._looping for index, _ in ran.scope)
        place = OperatorPlace(  # ``replace`` would take three times as long
            known.name,
            known.op_type,
            known.full_name,
            known.onnx_name,
            known.scope,
            known.source,
            self.iteration,
            pass_number=number if is_repeated else None,
            order=self.count,
            time=self.before + self.count,  # clocks tell nothing: the order of both sides is that of lockstep
        )
        return place, reads


def _sources(graph: Graph) -> dict[str, ValueSource]:
    """Return what gives each value of a graph; another form of one comes from its writer, too."""
    sources = {value.name: ValueSource(SourceKind.INPUT, value.name) for value in graph.inputs}
    sources |= {name: ValueSource(SourceKind.WEIGHT, name) for name in graph.weights}
    for node in graph.nodes:
        for slot, name in enumerate(node.outputs):
            own = ValueSource(SourceKind.OPERATOR, node.operator.full_name, slot)
            sources[name] = sources.get(node.inputs[0], own) if node.is_added else own
    sources.pop("", None)
    return sources


@dataclass(slots=True)
class Side:
    """A network that one side runs.

    Attributes:
        variant: What it runs on.
        model: The graph of the model, or of its training step, before it is compiled.
        graph: The graph that runs.
        state: The variables.
        copies: What is made of the model's weights; sides of one model share it.
        runtime: What runs its operators.
        runs: Its runs.
    """

    variant: Variant
    model: Graph
    graph: Graph
    state: TrainingState
    copies: WeightCopies
    runtime: Runtime
    runs: Runs = field(repr=False)

    def run(self, inputs: Mapping[str, Any], observer: Observer, *, trains: bool) -> list[Any]:
        """Run once; return the outputs.

        Args:
            inputs: Inputs by name, as ``feeds.bind`` returns them.
            observer: Sees the operators.
            trains: Whether the run is a step of training, after which the variables have new values.

        Raises:
            MsdumpError: As for ``Program.run``.
        """
        return (self.runs.train if trains else self.runs.infer)(inputs, observer)

    @property
    def arithmetic(self) -> RoundingsOf:
        """How it computes any operator, one of another side's graph as well."""
        context = self.variant.context
        if context.device_target is not DeviceTarget.ASCEND:
            return as_the_model_says
        mode = context.precision_mode or PrecisionMode.ALLOW_FP32_TO_FP16

        def roundings(node: Node) -> tuple[Rounding, ...]:
            types = (part.operator.op_type for part in node.members)
            return tuple(rounding(op_type, mode, context.overflow_mode) for op_type in types)

        return roundings


def make_side(graph: Graph, variant: Variant, copies: WeightCopies, *, trains: bool) -> Side:
    """Compile a model for a variant; no operator runs but those whose results are constants.

    Args:
        graph: The model.
        variant: What it runs on.
        copies: What is made of its weights.
        trains: Whether its training step is to run.

    Raises:
        InputError: The variant is none for this model, or for training.
        NotAvailableError: There is no such device, or the model describes no training.
        UnsupportedOpError: It describes one that cannot run.
    """
    if variant.engine is Engine.OPTIMISED:
        return _optimised_side(graph, variant, copies, trains=trains)
    is_wide = variant.engine is Engine.FLOAT64
    state = TrainingState(graph, doubled) if is_wide else TrainingState(graph)
    if trains:
        graph = graph.training_step()
        state.begin()
    device = emulated(graph, None, variant.context)
    compiled = graph if device is None else device.graph
    status = float_status_of(graph, variant.context)
    on = cuda_runtime() if variant.context.device_target is DeviceTarget.GPU else cpu_runtime()
    roundings = as_the_model_says if device is None else device.roundings
    kernels = Float64Kernels if is_wide else KernelFactory
    program = Program(compiled, roundings, copies, on=on, float_status=status, kernels=kernels)
    return Side(variant, graph, compiled, state, copies, on, Runs(program, state))


def _optimised_side(graph: Graph, variant: Variant, copies: WeightCopies, *, trains: bool) -> Side:
    if trains:
        raise InputError(f"variant {variant.text}: onnxruntime optimises no step of training")
    if graph.source == IN_MEMORY:
        raise InputError(f"variant {variant.text}: onnxruntime optimises the file of a model")
    with tempfile.TemporaryDirectory(prefix="msdump_") as folder:
        optimised = loader.load(optimise(graph.source, variant.optimisation, folder))
    state = TrainingState(optimised)
    # what the optimiser left as it was stays one array for both sides
    weights = {name: _kept(graph.weights.get(name), array) for name, array in optimised.weights.items()}
    optimised = replace(optimised, source=graph.source, weights=weights)
    runs = Runs(Program(optimised, copies=copies), state)
    return Side(variant, graph, optimised, state, copies, cpu_runtime(), runs)


def _kept(original: np.ndarray | None, array: np.ndarray) -> np.ndarray:
    if original is None or original.dtype != array.dtype or original.shape != array.shape:
        return array
    return original if original.tobytes() == array.tobytes() else array


SEPARATOR: Final = ":"

GRAMMAR: Final[Mapping[str, str]] = {
    "CPU": "onnxruntime's kernels on the host, one operator at a time, as the model says",
    "float32": "the same as CPU",
    "float64": "every float32 operator computes in float64, on inputs and weights of float32",
    "GPU": "onnxruntime's CUDA kernels",
    "Ascend[:PRECISION_MODE][:OVERFLOW_MODE][:LEVEL]": "the emulated device; the words in any order",
    "onnxruntime[:LEVEL]": "the graph as onnxruntime optimises it: none, basic, extended, all (default)",
}
"""Every variant and its meaning, for help texts and the documentation."""


class Engine(enum.Enum):
    """What runs the operators of a variant."""

    DEVICE = enum.auto()
    """The host, the GPU or the emulated Ascend, as the context says."""
    FLOAT64 = enum.auto()
    OPTIMISED = enum.auto()
    """The host, and the graph is what onnxruntime's optimiser made of the model."""


class Optimisation(enum.StrEnum):
    """How far onnxruntime optimises a graph."""

    NONE = "none"
    BASIC = "basic"
    EXTENDED = "extended"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a network.

    Attributes:
        text: The variant as the user wrote it.
        engine: What runs the operators.
        context: Where they run.
        optimisation: What onnxruntime does to the graph before.
    """

    text: str
    engine: Engine = Engine.DEVICE
    context: Context = field(default_factory=Context)
    optimisation: Optimisation = Optimisation.NONE

    @property
    def precision(self) -> str:
        """The coarsest element type that it computes in where the model says float32; "" for float32."""
        if self.context.device_target is not DeviceTarget.ASCEND:
            return ""
        mode = self.context.precision_mode or PrecisionMode.ALLOW_FP32_TO_FP16
        return _COARSEST.get(mode, "")


_COARSEST: Final[Mapping[PrecisionMode, str]] = {
    PrecisionMode.ALLOW_FP32_TO_FP16: "float16",
    PrecisionMode.FORCE_FP16: "float16",
    PrecisionMode.ALLOW_FP32_TO_BF16: "bfloat16",
}


def precision(*variants: Variant) -> str:
    """Return the coarsest element type that any of some variants computes in, "" for float32.

    >>> precision(parse("Ascend:force_fp16"), parse("float32"))
    'float16'
    """
    return coarser(*(variant.precision for variant in variants))


def parse(text: str) -> Variant:
    """Return the variant of a text; upper and lower case are the same.

    >>> variant = parse("Ascend:O1:force_fp16")
    >>> variant.context.jit_level, variant.context.precision_mode
    (<JitLevel.O1: 'O1'>, <PrecisionMode.FORCE_FP16: 'force_fp16'>)

    Args:
        text: As ``GRAMMAR`` has it.

    Raises:
        InputError: Another text; the message says what is allowed.
    """
    name, *words = text.strip().split(SEPARATOR)
    plain = _PLAIN.get(name.lower())
    if plain is not None:
        if words:
            raise InputError(f"variant {text!r}: nothing can stand behind {text.partition(SEPARATOR)[0]}")
        return replace(plain, text=text)
    make = _VARIANTS.get(name.lower())
    if make is None:
        names = [title.partition("[")[0] for title in GRAMMAR]
        raise InputError(f"no variant {text!r}; there are {', '.join(GRAMMAR)}{name_hint(name, names)}")
    return make(text, words)


def _ascend(text: str, words: list[str]) -> Variant:
    """Return an emulated device; which of its settings a word is follows from the word."""
    chosen: dict[str, Any] = {}
    for word in words:
        setting = _DEVICE_WORDS.get(word.lower())
        if setting is None:
            hint = name_hint(word.lower(), _DEVICE_WORDS)
            raise InputError(f"variant {text!r}: {word!r} is none of {', '.join(_DEVICE_WORDS)}{hint}")
        field_name, value = setting
        if field_name in chosen:
            raise InputError(f"variant {text!r}: {word!r} is its second {field_name.replace('_', ' ')}")
        chosen[field_name] = value
    return Variant(text, context=replace(Context(device_target=DeviceTarget.ASCEND), **chosen))


def _optimised(text: str, words: list[str]) -> Variant:
    word = words[0].lower() if words else Optimisation.ALL
    if len(words) > 1 or word not in tuple(Optimisation):
        raise InputError(
            f"variant {text!r}: one of {', '.join(Optimisation)} may stand behind onnxruntime"
            f"{name_hint(word, tuple(Optimisation))}"
        )
    return Variant(text, Engine.OPTIMISED, optimisation=Optimisation(word))


_DEVICE_WORDS: Final[Mapping[str, tuple[str, Any]]] = {
    **{mode.lower(): ("precision_mode", mode) for mode in PrecisionMode},
    **{mode.lower(): ("overflow_mode", mode) for mode in OverflowMode},
    **{level.lower(): ("jit_level", level) for level in JitLevel},
}
"""What can stand behind Ascend: the field of Context that each word sets, and its value."""

_PLAIN: Final = {
    "cpu": Variant(""),
    "float32": Variant(""),
    "float64": Variant("", Engine.FLOAT64),
    "gpu": Variant("", context=Context(device_target=DeviceTarget.GPU)),
}
_VARIANTS: Final[Mapping[str, Callable[[str, list[str]], Variant]]] = {
    "ascend": _ascend,
    "onnxruntime": _optimised,
}


_CLAMPS: Final = frozenset({"Relu", "Clip"})
_FLOAT: Final = "f"  # numpy's kind of floating point types


def pair_models(mine: Graph, golden: Graph) -> Pairing:
    """Return what belongs together in two models, as they are before they are compiled.

    Bodies of branches and loops pair as their control flow does, and so do outputs of the networks.

    Args:
        mine: The leading side's graph.
        golden: The other one.
    """
    own, other = operator_graphs(mine), operator_graphs(golden)
    graphs: dict[int, GraphPairing] = {}
    bodies: dict[int, int] = {}
    missing: list[Node] = []
    facts: list[Fact] = []
    networks = ""
    waiting = [(mine, golden)]
    is_mixed = is_quantised(mine) != is_quantised(golden)  # of two alike, integers are compared
    quantised, golden_quantised = (
        {inner.index: quantisations(inner) if is_mixed else {} for inner in graph.walk()}
        for graph in (mine, golden)
    )
    while waiting:
        first, second = waiting.pop()
        sides = (
            GraphSide(own[first.index], _digest_of(first)),
            GraphSide(other[second.index], _digest_of(second)),
        )
        matching = align(*sides)
        if not matching.is_one_network:
            networks = f"{mine.source} and {golden.source}: {matching.describe_networks()}"
            matching = Alignment((), is_one_network=False)
        known = quantised[first.index], golden_quantised[second.index]
        pairing = _GraphPairing(first, second, matching, known)
        facts += list_facts(*sides, matching, _weights_of(first, second))
        graphs[first.index] = pairing.result()
        missing += pairing.missing
        for body, counterpart in pairing.bodies:
            bodies[body.index] = counterpart.index
            waiting.append((body, counterpart))
    return Pairing(
        graphs,
        bodies,
        tuple(missing),
        is_one_model=False,
        quantised=quantised,
        golden_quantised=golden_quantised,
        facts=tuple(facts),
        networks=networks,
    )


def _weights_of(mine: Graph, golden: Graph) -> SameWeight:
    """Return the comparison of two models' weights by their bits; None of those of other shapes."""

    def is_same(name: str, other: str) -> bool | None:
        own, array = mine.weights.get(name), golden.weights.get(other)
        if own is array:
            return None if own is None else True
        if own is None or array is None or own.shape != array.shape or own.dtype.kind != array.dtype.kind:
            return None
        is_alike = own.dtype == array.dtype and own.tobytes() == array.tobytes()
        return is_alike or errors.is_rounding(own, array)

    return is_same


def rounded_to(pairing: Pairing) -> str:
    """Return the element type that most weights of one model are rounded to; "" for none."""
    pairs = [each for graph in pairing.graphs.values() for each in graph.weights.values()]
    other = [each for each in pairs if each[0] is not each[1] and each[0].shape == each[1].shape]
    for name in SHORTER:
        if 2 * sum(errors.is_rounding(*each, (name,)) for each in other) > len(other):
            return name
    return ""


class _GraphPairing:
    """Turns the matching of two graphs into pairs of nodes and values."""

    def __init__(
        self,
        mine: Graph,
        golden: Graph,
        matching: Alignment,
        quantised: tuple[Mapping[str, Quantisation], Mapping[str, Quantisation]],
    ) -> None:
        self._mine, self._golden, self._matching = mine, golden, matching
        self._quantised = {id(graph): each for graph, each in zip((mine, golden), quantised, strict=True)}
        self._nodes, self._golden_nodes = _by_name(mine), _by_name(golden)
        self._makers = {name: node for node in mine.nodes for name in node.outputs if name}
        self._alone = frozenset(matching.mine_alone)
        self._cast_of = {node.outputs[0]: node.inputs[0] for node in mine.nodes if self._is_cast_alone(node)}
        self._partners: dict[str, str] = {}
        self._kernels: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self.bodies: list[tuple[Graph, Graph]] = []
        for pair in matching.pairs:
            self._add(pair)
        for pair in matching.pairs:
            if pair.is_single:
                self._add_inputs(self._nodes[pair.mine[0]], self._golden_nodes[pair.golden[0]])
        self._add_ends()

    @property
    def missing(self) -> list[Node]:
        """The golden operators without a counterpart."""
        nodes = (self._golden_nodes[name] for name in self._matching.golden_alone)
        return [node for node in nodes if not node.is_added]

    def result(self) -> GraphPairing:
        """Return the pairs."""
        names = {name: name for name in self._values.values()}
        weights = frozenset(self._golden.weights)
        casts = {name: self._values.get(self._before_casts(name)) for name in self._cast_of}
        return GraphPairing(
            self._partners,
            self._values,
            names,
            weights,
            self._kernels,
            self._weights(),
            {name: counterpart for name, counterpart in casts.items() if counterpart is not None},
            dict(self._origins()),
        )

    def _origins(self) -> Iterator[tuple[str, str]]:
        """Yield the values inside of quantised products, each with the one that the product was made of."""
        for pair in self._matching.pairs:
            members = [self._nodes[name] for name in pair.mine]
            maker = self._makers.get(members[0].inputs[0]) if members[0].op_type in INTEGER else None
            if maker is not None and maker.op_type == "DynamicQuantizeLinear":
                for node in members[:-1]:
                    yield from ((name, maker.inputs[0]) for name in node.outputs if name)

    def _weights(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        own, other = self._mine.weights, self._golden.weights
        forms = {name: name for name in own}
        forms |= {name: self._before_casts(name) for name in self._cast_of}
        pairs = ((form, name, self._values.get(name, "")) for form, name in forms.items())
        return {
            form: (own[name], other[counterpart])
            for form, name, counterpart in pairs
            if counterpart in other and name in own and (form == name or name not in self._mine.variables)
        }

    def _is_cast_alone(self, node: Node) -> bool:
        """Tell whether an operator brings floating point numbers into another type, where golden does not."""
        if node.op_type != CAST or node.domain or node.operator.full_name not in self._alone:
            return False
        return all(self._kind(name, self._mine) == _FLOAT for name in (*node.inputs, *node.outputs))

    def _before_casts(self, name: str) -> str:
        """Return the value that casts which golden lacks bring into other types."""
        while name in self._cast_of:
            name = self._cast_of[name]
        return name

    def _add(self, pair: OperatorPair) -> None:
        for (own, slot), (other, other_slot) in pair.outputs:
            golden = self._golden_nodes[other]
            value, counterpart = _output(self._nodes[own], slot), _output(golden, other_slot)
            if not value or not counterpart:
                continue
            if self._kind(value, self._mine) != self._kind(counterpart, self._golden):
                value = self._rescaled(value)
            if value in self._quantised[id(self._mine)]:
                golden = self._clamped(golden, counterpart)
                counterpart = golden.outputs[0] if golden is not self._golden_nodes[other] else counterpart
            if self._kind(value, self._mine) == self._kind(
                counterpart, self._golden
            ) and self._may_be_shaped_alike(value, counterpart):
                self._values[value] = counterpart
                self._partners[self._makers[value].name] = golden.name
        for name in pair.mine:
            node = self._nodes[name]
            if node.name not in self._partners:
                self._kernels[node.name] = ", ".join(pair.golden)
        if pair.is_single:
            node, golden = self._nodes[pair.mine[0]], self._golden_nodes[pair.golden[0]]
            if node.bodies:
                self._partners.setdefault(node.name, golden.name)
            self.bodies += (
                (body, golden.bodies[name]) for name, body in node.bodies.items() if name in golden.bodies
            )

    def _kind(self, name: str, graph: Graph) -> str:
        """Return the kind of a value's elements, as numpy calls it; "" where it is not known."""
        if name in self._quantised[id(graph)]:
            return _FLOAT
        dtype = graph.type_of(name).dtype
        return "" if dtype is None else dtypes.from_numpy(dtype.saved).numpy.kind

    def _may_be_shaped_alike(self, name: str, other: str) -> bool:
        """Tell whether two values may be one: a bias that was brought into form is no result."""
        shape, golden = self._mine.type_of(name).shape, self._golden.type_of(other).shape
        if shape is None or golden is None or len(shape) != len(golden):
            return True
        sizes = zip(shape, golden, strict=True)
        return all(one == two for one, two in sizes if isinstance(one, int) and isinstance(two, int))

    def _clamped(self, node: Node, name: str) -> Node:
        """Return the golden operator that clamps a value, which the range of quantised numbers does, too."""
        readers = [each for each in self._golden.nodes if name in each.inputs]
        is_alone = len(readers) == 1 and readers[0].operator.full_name in self._matching.golden_alone
        return readers[0] if is_alone and readers[0].op_type in _CLAMPS else node

    def _rescaled(self, name: str) -> str:
        """Return what an integer result becomes where it is scaled: a quantised operator ends there."""
        while True:
            readers = [node for node in self._mine.nodes if name in node.inputs]
            is_alone = len(readers) == 1 and readers[0].operator.full_name in self._alone
            if not is_alone or (self._kind(name, self._mine) == _FLOAT and readers[0].op_type != "Mul"):
                return name
            name = readers[0].outputs[0]

    def _add_inputs(self, node: Node, golden: Node) -> None:
        """Pair what two operators read: weights of the same shape, and values that are in no other pair."""
        taken = set(self._values.values())
        for name, other in zip(map(self._before_casts, node.inputs), golden.inputs, strict=False):
            if not name or not other or name in self._values or other in taken:
                continue
            array, golden_array = self._mine.weights.get(name), self._golden.weights.get(other)
            if (array is None) is not (golden_array is None):
                continue
            if self._kind(name, self._mine) != self._kind(other, self._golden):
                continue
            if array is None or golden_array is None or array.shape == golden_array.shape:
                self._values[name] = other

    def _add_ends(self) -> None:
        """Pair the inputs and the outputs of the graphs, by name or else by position."""
        for name, other in input_names(self._mine, self._golden).items():
            self._values.setdefault(other, name)
        if not self._matching.is_one_network:
            return
        taken = set(self._values.values())
        outputs = [value.name for value in self._golden.outputs if value.name not in taken]
        makers = {name: node for node in self._golden.nodes for name in node.outputs}
        own_makers = {name: node for node in self._mine.nodes for name in node.outputs}
        for value in self._mine.outputs:
            if value.name in self._values or not outputs:
                continue
            other = outputs.pop(outputs.index(value.name) if value.name in outputs else 0)
            self._values[value.name] = other
            if value.name in own_makers and other in makers:
                self._partners.setdefault(own_makers[value.name].name, makers[other].name)


def _output(node: Node, slot: int) -> str:
    """Return the value that a node writes into a slot, "" where that output is left out."""
    return node.outputs[slot] if slot < len(node.outputs) else ""


def input_names(mine: Graph, golden: Graph) -> dict[str, str]:
    """Return the input of the examined network that each input of the other one is fed with, by name.

    Inputs of one name belong together, the others by their position.
    """
    own = {value.name for value in mine.inputs}
    others = {value.name for value in golden.inputs}
    left = iter([value.name for value in mine.inputs if value.name not in others])
    pairs = {}
    for value in golden.inputs:
        name = value.name if value.name in own else next(left, None)
        if name is not None:
            pairs[value.name] = name
    return pairs


def output_names(mine: Graph, golden: Graph, values: Mapping[str, str]) -> dict[str, str]:
    """Return the output of the other network that belongs to each one of the examined network, by name.

    Outputs that stand for one value belong together, then those of one name, the others by their position.

    Args:
        mine: The examined network.
        golden: The other one.
        values: The other network's value for each value of the examined one.
    """
    left = [value.name for value in golden.outputs]
    pairs: dict[str, str] = {}
    for name_of in (values.get, str, lambda _: next(iter(left), None)):
        for value in mine.outputs:
            other = name_of(value.name)
            if value.name not in pairs and other in left:
                pairs[value.name] = other
                left.remove(other)
    return pairs


def golden_inputs(mine: Graph, golden: Graph, fed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the other network is fed, in the types that it declares.

    Raises:
        InputError: It has an input that the examined network lacks.
    """
    names = input_names(mine, golden)
    inputs = {}
    for value in golden.inputs:
        if value.name not in names:
            raise InputError(
                f"{golden.source}: nothing is fed to input {value.name!r}: {mine.source} lacks it"
            )
        array = fed[names[value.name]]
        dtype = value.type.dtype
        if (
            isinstance(array, np.ndarray)
            and dtype is not None
            and dtypes.from_numpy(array.dtype) is not dtype
        ):
            array = array.astype(dtype.numpy)
        inputs[value.name] = array
    return inputs


def sharing_weights(golden: Graph, mine: Graph) -> Graph:
    """Return a graph whose weights are the arrays of another one, wherever their bits are the same."""
    arrays = {digest: mine.weights[name] for name, digest in _bits(mine).items()}
    weights = {name: arrays.get(digest, golden.weights[name]) for name, digest in _bits(golden).items()}
    return replace(golden, weights={**golden.weights, **weights})


def _bits(graph: Graph) -> dict[str, Hashable]:
    """Return what stands for the bits of each weight, by name; texts have none."""
    return {
        name: (array.dtype.str, array.shape, hashlib.blake2b(array.tobytes(), digest_size=16).digest())
        for name, array in graph.weights.items()
        if array.dtype.kind != "O"
    }


def _digest_of(graph: Graph) -> DigestOf:
    """Return the function that gives what both exporters know a weight by, whatever its layout."""

    def digest_of(name: str) -> Hashable | None:
        array = graph.weights.get(name)
        return None if array is None or array.dtype.kind == "O" else graph_sides.digest(array)

    return digest_of


def _by_name(graph: Graph) -> dict[str, Node]:
    return {node.operator.full_name: node for node in graph.nodes}
