"""The sides of a comparison: device and arithmetic, the compiled network, the places of its operators."""

from __future__ import annotations

import enum
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msdump.device import float_status_of
from msdump.errors import InputError, name_hint
from msdump.execute import (
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
    mixed_kernels,
    optimise,
)
from msdump.graph import IN_MEMORY, WITH_MEMORY, Graph, Node, loader
from msdump.judge.diff.lockstep import Ran
from msdump.judge.diff.pairing import Pairing, pair_graphs, pair_models, sharing_weights
from msdump.judge.rerun import Arithmetic
from msdump.judge.verdict import OperatorPlace, coarser, masking_operators
from msdump.observer import Observer
from msdump.plan import Context, DeviceTarget, JitLevel, OverflowMode, PrecisionMode
from msdump.read import ABSENT, GraphOperator, OperatorGraph, SourceKind, ValueSource
from msdump.store import names
from msdump.training import write_step

_LOOPS: Final = frozenset({"Loop", "Scan"})

Sources = tuple[ValueSource, ...]
"""Where the inputs of an operator come from, by slot."""


@dataclass(slots=True)
class Places:
    """Makes the place (name, pass, order) of each operator that runs; names and scopes are prepared once."""

    graph: Graph
    iteration: int = 0
    before: int = 0  # number of operators in the runs before
    count: int = 0  # number of operators so far
    results: dict[str, ValueSource] = field(init=False)  # the sources of the network's results, by name
    # full names of operators with outputs that reach only a softmax: their masked elements do not count
    masking: frozenset[str] = field(init=False)
    # the graph and the node of the branch or loop around each body, by the body's index
    control: dict[int, tuple[Graph, Node]] = field(init=False)
    _passes: Counter[str] = field(default_factory=Counter)
    _looping: frozenset[int] = field(init=False)
    _nodes: dict[str, Node] = field(init=False)
    _known: dict[tuple[int, str], tuple[OperatorPlace, Sources]] = field(init=False)

    def __post_init__(self) -> None:
        """Find the bodies that may run several times, and the sources of inputs."""
        self._nodes = {node.name: node for graph in self.graph.walk() for node in graph.nodes}
        loops = (node for node in self._nodes.values() if node.op_type in _LOOPS)
        self._looping = frozenset(body.index for node in loops for body in node.bodies.values())
        self.control = {
            body.index: (graph, node)
            for graph in self.graph.walk()
            for node in graph.nodes
            for body in node.bodies.values()
        }
        sources = _sources(self.graph)
        self.results = {value.name: sources.get(value.name, ABSENT) for value in self.graph.results}
        self._known, masking = {}, frozenset[str]()
        for graph in self.graph.walk():
            caller = self.control.get(graph.index)
            sources = _sources(graph, "" if caller is None else caller[1].operator.full_name)
            operators = {}
            for node in graph.nodes:
                reads = tuple(sources.get(name, ABSENT) for name in node.inputs)
                place = self.of(node)
                self._known[graph.index, node.name] = place, reads
                if not node.is_added:
                    inner = (value.name for body in node.bodies.values() for value in body.inputs)
                    reads += tuple(sources.get(name, ABSENT) for name in inner)
                    operators[place.full_name] = GraphOperator(place.full_name, place.op_type, reads)
            results = tuple(sources.get(value.name, ABSENT) for value in graph.results)
            masking |= masking_operators(OperatorGraph(operators, outputs=results))
        self.masking = masking

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

    def next(self, ran: Ran) -> tuple[OperatorPlace, Sources]:
        """Return the place of the operator that ran next, and the sources of its inputs by slot."""
        self.count += 1
        known, reads = self._known[ran.graph.index, ran.node.name]
        number = self._passes[ran.node.name]
        self._passes[ran.node.name] = number + 1
        is_repeated = any(index in self._looping for index, _ in ran.nesting)
        place = OperatorPlace(  # ``dataclasses.replace`` takes three times as long
            known.name,
            known.op_type,
            known.full_name,
            known.onnx_name,
            known.scope,
            known.source,
            self.iteration,
            pass_number=number if is_repeated else None,
            order=self.count,
            time=self.before + self.count,  # no clock: lockstep defines the order of both sides
        )
        return place, reads


def _sources(graph: Graph, around: str = "") -> dict[str, ValueSource]:
    """Return the source of each value of a graph; outputs of inserted casts have that of the cast value.

    A body's inputs are the inputs of the operator ``around`` it.
    """
    kind = SourceKind.ABSENT if around else SourceKind.INPUT
    sources = {value.name: ValueSource(kind, around or value.name) for value in graph.inputs}
    sources |= {name: ValueSource(SourceKind.WEIGHT, name) for name in graph.weights}
    for node in graph.nodes:
        for slot, name in enumerate(node.outputs):
            own = ValueSource(SourceKind.OPERATOR, node.operator.full_name, slot)
            sources[name] = sources.get(node.inputs[0], own) if node.is_added else own
    sources.pop("", None)
    return sources


@dataclass(slots=True)
class Side:
    """A compiled network of one side.

    Attributes:
        variant: Device and arithmetic.
        model: The graph of the model, or of its training step, before it is compiled.
        graph: The graph that runs.
        state: The variables.
        copies: Cached copies of the model's weights; sides of one model share them.
        runtime: Runs its operators.
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
        """Run once, a training step if ``trains``; return the outputs.

        Raises:
            MsdumpError: As for ``Program.run``.
        """
        return (self.runs.train if trains else self.runs.infer)(inputs, observer)

    @property
    def computes_in(self) -> Arithmetic:
        """The arithmetic of its operators."""
        is_wide = self.variant.engine is Engine.FLOAT64
        return replace(Arithmetic.of(self.variant.context), is_wide=is_wide)

    @property
    def arithmetic(self) -> RoundingsOf:
        """The roundings of any operator on this side."""
        arithmetic = self.computes_in
        return as_the_model_says if arithmetic.precision is None else arithmetic.roundings


def make_side(
    graph: Graph, variant: Variant, copies: WeightCopies, *, trains: bool, seed: int | None = None
) -> Side:
    """Compile a model for a variant; only operators with constant results run.

    Args:
        graph: The model.
        variant: Device and arithmetic.
        copies: Cached copies of its weights.
        trains: Whether its training step is to run.
        seed: The seed with which the model was loaded; an optimised model is loaded anew.

    Raises:
        InputError: The variant is none for this model, or for training.
        NotAvailableError: There is no such device, or the model describes no training.
        UnsupportedOpError: It describes one that cannot run.
    """
    if variant.engine is Engine.OPTIMISED:
        if trains:
            raise InputError(f"variant {variant.text}: onnxruntime cannot optimise training steps")
        if graph.source == IN_MEMORY:
            raise InputError(f"variant {variant.text}: it needs a model file")
        with tempfile.TemporaryDirectory(prefix="msdump_") as folder:
            source = graph.source
            if loader.is_mindir(source):
                (source, *_) = write_step(loader.standard(source), f"{folder}/model.onnx")
            optimised = loader.load(optimise(source, variant.optimisation, folder), seed=seed)
        state = TrainingState(optimised)
        # weights that the optimiser left unchanged are shared with the model: one array for both sides
        optimised = sharing_weights(replace(optimised, source=graph.source), graph)
        runs = Runs(Program(optimised, copies=copies), state)
        return Side(variant, graph, optimised, state, copies, cpu_runtime(), runs)
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
    # the model's kernels draw the random numbers, also for float64: others would draw other numbers
    kernels = mixed_kernels(_draws_nothing) if is_wide else KernelFactory
    program = Program(compiled, roundings, copies, on=on, float_status=status, kernels=kernels)
    return Side(variant, graph, compiled, state, copies, on, Runs(program, state))


def _draws_nothing(node: Node) -> bool:
    return WITH_MEMORY.isdisjoint(part.op_type for part in node.members)


def pair_sides(mine: Side, golden: Side, *, is_one_model: bool) -> Pairing:
    """Return the paired operators and values of two networks.

    If kernels of the leading side are fused, another golden model is compiled in the same way, too.
    """
    sides = (mine.model, mine.graph), (golden.model, golden.graph)
    if is_one_model:
        return pair_graphs(*sides, None)
    models = pair_models(mine.model, golden.model)
    pairing = pair_graphs(*sides, models)
    device = emulated(golden.model, None, mine.variant.context)
    if device is None or not any(node.parts for graph in mine.graph.walk() for node in graph.nodes):
        return pairing
    alike = pair_graphs(sides[0], (golden.model, device.graph), models)
    return replace(pairing, alike=(device.graph, alike))


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
    """Backend that runs the operators of a variant."""

    DEVICE = enum.auto()
    """The host, the GPU or the emulated Ascend, as the context says."""
    FLOAT64 = enum.auto()
    OPTIMISED = enum.auto()
    """The host, on the graph as onnxruntime's optimiser rewrites it."""


class Optimisation(enum.StrEnum):
    """How far onnxruntime optimises a graph."""

    NONE = "none"
    BASIC = "basic"
    EXTENDED = "extended"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a network: the user's text, engine, device and graph optimisation."""

    text: str
    engine: Engine = Engine.DEVICE
    context: Context = field(default_factory=Context)
    optimisation: Optimisation = Optimisation.NONE

    @property
    def precision(self) -> str:
        """The coarsest element type in which the variant computes float32 operators; "" for float32."""
        mode = Arithmetic.of(self.context).precision
        return "" if mode is None else _COARSEST.get(mode, "")


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

    Raises:
        InputError: Another text; the message lists the allowed ones.
    """
    name, *words = text.strip().split(SEPARATOR)
    variant, allowed = _VARIANTS.get(name.lower(), (None, {}))
    if variant is None:
        names = [title.partition("[")[0] for title in GRAMMAR]
        raise InputError(f"no variant {text!r}; there are {', '.join(GRAMMAR)}{name_hint(name, names)}")
    chosen: dict[str, Any] = {}
    for word in words:
        if not allowed:
            raise InputError(f"variant {text!r}: {text.partition(SEPARATOR)[0]} takes no further words")
        if word.lower() not in allowed:
            hint = name_hint(word.lower(), allowed)
            raise InputError(f"variant {text!r}: {word!r} is not one of {', '.join(allowed)}{hint}")
        field_name, value = allowed[word.lower()]
        if field_name in chosen:
            raise InputError(f"variant {text!r}: {word!r} is its second {field_name.replace('_', ' ')}")
        chosen[field_name] = value
    optimisation = chosen.pop("optimisation", variant.optimisation)
    return replace(variant, text=text, optimisation=optimisation, context=replace(variant.context, **chosen))


_Words = Mapping[str, tuple[str, Any]]
"""Words that may follow a name: the field that each one sets, and its value."""

_DEVICE_WORDS: Final[_Words] = {
    **{mode.lower(): ("precision_mode", mode) for mode in PrecisionMode},
    **{mode.lower(): ("overflow_mode", mode) for mode in OverflowMode},
    **{level.lower(): ("jit_level", level) for level in JitLevel},
}
_LEVELS: Final[_Words] = {level: ("optimisation", level) for level in Optimisation}

_VARIANTS: Final[Mapping[str, tuple[Variant, _Words]]] = {
    "cpu": (Variant(""), {}),
    "float32": (Variant(""), {}),
    "float64": (Variant("", Engine.FLOAT64), {}),
    "gpu": (Variant("", context=Context(device_target=DeviceTarget.GPU)), {}),
    "ascend": (Variant("", context=Context(device_target=DeviceTarget.ASCEND)), _DEVICE_WORDS),
    "onnxruntime": (Variant("", Engine.OPTIMISED, optimisation=Optimisation.ALL), _LEVELS),
}
