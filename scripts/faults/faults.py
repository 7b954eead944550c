"""Random faults: each is drawn for a network, and changes its model or one of its kernels."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from scripts.faults import kernels
from scripts.faults.kernels import Steps
from scripts.faults.networks import Net

Values = Mapping[str, list[np.ndarray]]
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


@dataclass(frozen=True, eq=False)
class Fault:
    """A fault of one kind at one place.

    Attributes:
        kind: A key of ``KINDS``.
        text: The change, for messages.
        nodes: Names of the faulty nodes; of a weight its readers.
        verdicts: The verdicts that name it.
        edit: Changes a model.
        wrong: Steps of wrong kernels, by node.
        weight: Name of the changed weight, "" for none.
    """

    kind: str
    text: str
    nodes: frozenset[str]
    verdicts: frozenset[str]
    edit: Callable[[onnx.ModelProto], None] = lambda model: None
    wrong: Mapping[str, Steps] = field(default_factory=dict)
    weight: str = ""


@dataclass(frozen=True)
class Site:
    """A node and the graph that it stands in."""

    node: onnx.NodeProto
    graph: onnx.GraphProto


def sites(graph: onnx.GraphProto) -> Iterator[Site]:
    """Yield the nodes of a graph and of the bodies in it; control flow itself is left out."""
    for node in graph.node:
        bodies = [each.g for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]
        if not bodies:
            yield Site(node, graph)
        for body in bodies:
            yield from sites(body)


def site(model: onnx.ModelProto, name: str) -> Site:
    """Return the node of a name."""
    return next(each for each in sites(model.graph) if each.node.name == name)


@dataclass
class Draw:
    """A sound network, the values that its operators compute, and a random generator."""

    net: Net
    values: Values
    random: random.Random

    def __post_init__(self) -> None:
        self.sites = list(sites(self.net.model.graph))
        self.weights = {each.name: each for each in self.net.model.graph.initializer}
        self.generator = np.random.default_rng(self.random.getrandbits(32))

    def first(self, name: str) -> np.ndarray | None:
        """Return the first state of a value: an input, a weight, or an operator's result."""
        if name in self.values:
            return self.values[name][0]
        if name in self.weights:
            return numpy_helper.to_array(self.weights[name])
        return self.net.feeds.get(name)

    def pick(self, fits: Callable[[Site], bool]) -> Site | None:
        """Return one of the nodes that fit."""
        fitting = [each for each in self.sites if fits(each)]
        return self.random.choice(fitting) if fitting else None

    def writes_floats(self, place: Site) -> bool:
        """Tell whether the first output is a float tensor with elements, seen by a dump."""
        array = self.first(place.node.output[0]) if place.node.output else None
        return array is not None and array.dtype == np.float32 and array.size > 0


def attribute(node: onnx.NodeProto, name: str, default=None):
    """Return an attribute of a node."""
    found = [each for each in node.attribute if each.name == name]
    return helper.get_attribute_value(found[0]) if found else default


def set_attributes(node: onnx.NodeProto, **changes) -> None:
    """Set attributes of a node."""
    kept = [each for each in node.attribute if each.name not in changes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in changes.items())


# --- weights ---------------------------------------------------------------------------------------------


def pick_weight(draw: Draw, fits: Callable[[str], bool] = bool) -> tuple[str, np.ndarray] | None:
    """Return one of the float weights that are read and fit by their names."""
    read = {name for each in draw.sites for name in each.node.input}
    fitting = []
    for name, tensor in draw.weights.items():
        array = numpy_helper.to_array(tensor)
        if fits(name) and name in read and array.dtype == np.float32 and array.ndim and array.any():
            fitting.append((name, array))
    return draw.random.choice(fitting) if fitting else None


def weight_fault(
    kind: str,
    change: Callable[[Draw, np.ndarray], tuple[np.ndarray, str]],
    fits: Callable[[str], bool] = bool,
) -> Callable[[Draw], Fault | None]:
    """Return a function that draws a fault in a weight; ``change`` returns the array and a text."""

    def make(draw: Draw) -> Fault | None:
        chosen = pick_weight(draw, fits)
        if chosen is None:
            return None
        name, array = chosen
        changed, text = change(draw, array.copy())
        readers = frozenset(each.node.name for each in draw.sites if name in each.node.input)

        def edit(model: onnx.ModelProto) -> None:
            tensor = next(each for each in model.graph.initializer if each.name == name)
            tensor.CopyFrom(numpy_helper.from_array(changed.astype(np.float32), name))

        return Fault(kind, f"{name}: {text}", readers, frozenset({"weight"}), edit, weight=name)

    return make


def one_value(draw: Draw, array: np.ndarray) -> tuple[np.ndarray, str]:
    """One element becomes another one."""
    at = draw.random.randrange(array.size)
    scale = float(np.abs(array).max())
    array.reshape(-1)[at] += np.float32(draw.random.choice([-1, 1]) * draw.random.uniform(0.2, 3) * scale)
    return array, f"element {at}"


def _scaled_weight(draw: Draw, array: np.ndarray) -> tuple[np.ndarray, str]:
    factor = draw.random.choice([-1.0, 0.5, 0.9, 1.05, 1.5, 10.0])
    return array * np.float32(factor), f"times {factor}"


def _flipped(draw: Draw, array: np.ndarray) -> tuple[np.ndarray, str]:
    flat = array.reshape(-1)
    at, bit = draw.random.choice(np.flatnonzero(flat).tolist()), draw.random.randint(14, 31)
    flat.view(np.uint32)[at] ^= np.uint32(1 << bit)
    return array, f"bit {bit} of element {at}"


def _noise(draw: Draw, array: np.ndarray) -> tuple[np.ndarray, str]:
    return array * (1 + 0.02 * draw.generator.standard_normal(array.shape)), "2 % of noise"


# --- attributes and types --------------------------------------------------------------------------------

Change = tuple[str, Callable[[onnx.NodeProto], None]]


def gelu(draw: Draw, node: onnx.NodeProto) -> Change | None:
    """Another approximation."""
    if node.op_type != "Gelu":
        return None
    other = "none" if attribute(node, "approximate", b"none") == b"tanh" else "tanh"
    return f"approximate {other}", lambda node: set_attributes(node, approximate=other)


def epsilon(draw: Draw, node: onnx.NodeProto) -> Change | None:
    """Another epsilon of a normalization."""
    if node.op_type not in {"LayerNormalization", "BatchNormalization", "InstanceNormalization"}:
        return None
    value = draw.random.choice([1e-3, 1e-2, 1e-1, 1.0])
    return f"epsilon {value}", lambda node: set_attributes(node, epsilon=value)


def alpha(draw: Draw, node: onnx.NodeProto) -> Change | None:
    """Another slope or factor."""
    if node.op_type not in {"LeakyRelu", "Elu", "Gemm"}:
        return None
    value = draw.random.choice([0.01, 0.2, 0.5])
    return f"alpha {value}", lambda node: set_attributes(node, alpha=value)


def axis(draw: Draw, node: onnx.NodeProto) -> Change | None:
    """Another axis, or another order of axes of the same size."""
    array = draw.first(node.output[0])
    if array is None or node.op_type not in {"Softmax", "LogSoftmax", "Transpose"}:
        return None
    if node.op_type != "Transpose":
        now = attribute(node, "axis", -1) % array.ndim
        others = [axis for axis in range(array.ndim) if axis != now and array.shape[axis] > 1]
        if not others:
            return None
        axis = draw.random.choice(others)
        return f"axis {axis}", lambda node: set_attributes(node, axis=axis)
    perm = list(attribute(node, "perm", list(reversed(range(array.ndim)))))
    pairs = [(a, b) for a in range(array.ndim) for b in range(a) if array.shape[a] == array.shape[b] > 1]
    if not pairs:
        return None
    a, b = draw.random.choice(pairs)
    perm[a], perm[b] = perm[b], perm[a]
    return f"perm {perm}", lambda node: set_attributes(node, perm=perm)


Way = Callable[[Draw, onnx.NodeProto], Change | None]

ATTRIBUTES: tuple[Way, ...] = (gelu, epsilon, alpha, axis)


def attribute_fault(draw: Draw, ways: Sequence[Way] = ATTRIBUTES) -> Fault | None:
    """A wrong attribute: by default Gelu's approximation, an epsilon, an alpha, an axis."""
    changes = [(each, how(draw, each.node)) for each in draw.sites for how in ways]
    changes = [(place, change) for place, change in changes if change is not None]
    if not changes:
        return None
    kinds = sorted({place.node.op_type for place, _ in changes})
    kind = draw.random.choice(kinds)  # a network has few Gelu and many normalizations
    place, (text, change) = draw.random.choice([each for each in changes if each[0].node.op_type == kind])
    name = place.node.name
    return Fault(
        "attribute",
        f"{name} ({kind}): {text}",
        frozenset({name}),
        frozenset({"own", "replaced", "extra"}),
        lambda model: change(site(model, name).node),
    )


def _become(op_type: str, domain: str = "", **attributes) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        del node.attribute[:]
        node.op_type, node.domain = op_type, domain
        set_attributes(node, **attributes)

    return change


def _averaged(node: onnx.NodeProto) -> None:
    kept = {"kernel_shape", "strides", "pads", "ceil_mode", "auto_pad"}
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute if each.name in kept}
    _become("AveragePool", **attributes)(node)


def _renamed(op_type: str) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        node.op_type = op_type

    return change


OTHERS: dict[str, tuple[tuple[str, Callable[[onnx.NodeProto], None]], ...]] = {
    "Relu": (("LeakyRelu", _become("LeakyRelu", alpha=0.1)), ("Elu", _become("Elu", alpha=0.3))),
    "Tanh": (("Sigmoid", _become("Sigmoid")), ("Softsign", _become("Softsign"))),
    "Sigmoid": (("HardSigmoid", _become("HardSigmoid")), ("Tanh", _become("Tanh"))),
    "Gelu": (("Relu", _become("Relu")), ("Mish", _become("Mish"))),
    "LeakyRelu": (("Relu", _become("Relu")),),
    "Sub": (("Add", _become("Add")),),
    "Add": (("Sub", _become("Sub")), ("Max", _become("Max"))),
    "Mul": (("Add", _become("Add")),),
    "MaxPool": (("AveragePool", _averaged),),
    "ReduceMean": (("ReduceSum", _renamed("ReduceSum")), ("ReduceMax", _renamed("ReduceMax"))),
    "Softmax": (("LogSoftmax", _renamed("LogSoftmax")),),
}
"""Replacements of operators by type: the name, and the change of the node."""


def type_fault(draw: Draw) -> Fault | None:
    """Another operator in its place, ReLU by LeakyReLU and the like."""
    types = sorted({each.node.op_type for each in draw.sites if not each.node.domain} & set(OTHERS))
    if not types:
        return None
    kind = draw.random.choice(types)
    place = draw.pick(lambda each: each.node.op_type == kind and draw.writes_floats(each))
    if place is None:
        return None
    other, change = draw.random.choice(OTHERS[kind])
    name = place.node.name
    return Fault(
        "type",
        f"{name}: {kind} becomes {other}",
        frozenset({name}),
        frozenset({"replaced", "own", "missing", "extra"}),
        lambda model: change(site(model, name).node),
    )


# --- kernels ---------------------------------------------------------------------------------------------


def kernel_fault(
    draw: Draw, kind: str, verdicts: frozenset[str], steps, fits: Callable[[Site], bool] = bool
) -> Fault | None:
    """Return a fault of a kernel; ``steps`` takes the draw and the result."""
    place = draw.pick(
        lambda each: draw.writes_floats(each) and bool(np.any(draw.first(each.node.output[0]))) and fits(each)
    )
    if place is None:
        return None
    name = place.node.name
    made, text = steps(draw, draw.first(place.node.output[0]))
    return Fault(
        kind, f"{name} ({place.node.op_type}): {text}", frozenset({name}), verdicts, wrong={name: made}
    )


def error_fault(draw: Draw) -> Fault | None:
    """A kernel with results that are wrong by a share, 1e-3 and more."""

    def steps(draw: Draw, array: np.ndarray) -> tuple[Steps, str]:
        error = 10 ** draw.random.uniform(-3, -1)
        if draw.random.random() < 0.5:
            return kernels.scaled(error), f"wrong by {error:.2g}"
        noise = error * draw.generator.standard_normal(array.shape)
        return kernels.noisy(noise), f"wrong by {error:.2g} of noise"

    return kernel_fault(draw, "error", frozenset({"own"}), steps)


def _element_fault(draw: Draw) -> Fault | None:
    """A kernel that computes one element wrong."""

    def steps(draw: Draw, array: np.ndarray) -> tuple[Steps, str]:
        offset = np.zeros(array.shape, np.float32)
        at = draw.random.randrange(array.size)
        size = float(np.abs(array).max()) or 1.0
        offset.reshape(-1)[at] = draw.random.choice([-1, 1]) * draw.random.uniform(0.2, 2) * size
        return kernels.shifted(offset), f"element {at} wrong"

    return kernel_fault(draw, "element", frozenset({"own"}), steps)


def _half_kernel(draw: Draw) -> Fault | None:
    """A kernel that computes in float16 in a network of float32."""
    return kernel_fault(
        draw, "half kernel", frozenset({"own"}), lambda _, __: (kernels.half(), "float16 inside")
    )


def _overflow_fault(draw: Draw) -> Fault | None:
    """A kernel with an intermediate in float16 that overflows where elements are large."""

    def steps(draw: Draw, array: np.ndarray) -> tuple[Steps, str]:
        edge = float(np.quantile(np.abs(array), draw.random.uniform(0.5, 0.95))) or float(np.abs(array).max())
        return kernels.overflowing(70000 / edge), f"overflows from {edge:.2g}"

    return kernel_fault(draw, "overflow", frozenset({"nonfinite"}), steps)


# --- structure -------------------------------------------------------------------------------------------


def is_output(place: Site) -> bool:
    """Tell whether a node writes an output of its graph."""
    return bool(set(place.node.output) & {each.name for each in place.graph.output})


def replace_reads(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Let the nodes of a graph and of its bodies read another value."""
    for node in graph.node:
        for slot, name in enumerate(node.input):
            if name == old:
                node.input[slot] = new
        for each in node.attribute:
            if each.type == onnx.AttributeProto.GRAPH:
                replace_reads(each.g, old, new)


def dropped(draw: Draw) -> Fault | None:
    """An operator is left out; who reads it reads its input."""

    def inputs(place: Site) -> list[str]:
        result = draw.first(place.node.output[0])
        found = [(name, draw.first(name)) for name in place.node.input if name and name not in draw.weights]
        return [
            name
            for name, array in found
            if array is not None and array.shape == result.shape and array.dtype == result.dtype
        ]

    place = draw.pick(
        lambda each: (
            draw.writes_floats(each)
            and len([name for name in each.node.output if name]) == 1
            and not is_output(each)
            and bool(inputs(each))
        )
    )
    if place is None:
        return None
    name, stand_in = place.node.name, inputs(place)[0]

    def edit(model: onnx.ModelProto) -> None:
        found = site(model, name)
        output = found.node.output[0]
        found.graph.node.remove(found.node)
        replace_reads(found.graph, output, stand_in)

    text = f"{name} ({place.node.op_type}) left out"
    return Fault("dropped", text, frozenset({name}), frozenset({"missing", "replaced", "extra"}), edit)


def _swapped(draw: Draw) -> Fault | None:
    """Two inputs of an operator are exchanged for which that matters."""

    def pairs(place: Site) -> list[tuple[int, int]]:
        node = place.node
        slots = {
            **dict.fromkeys(("Sub", "Div", "Pow", "MatMul", "Concat", "PRelu"), (0, 1)),
            "LayerNormalization": (1, 2),
            "BatchNormalization": (1, 2),
            "Where": (1, 2),
        }.get(node.op_type)
        if slots is None or len(node.input) <= slots[1]:
            return []
        one, other = (draw.first(node.input[slot]) for slot in slots)
        if one is None or other is None or one.dtype != other.dtype:
            return []
        is_broadcast = node.op_type in {"Sub", "Div", "Pow"}
        return [slots] if is_broadcast or one.shape == other.shape else []

    kinds = sorted({each.node.op_type for each in draw.sites if pairs(each)})
    if not kinds:
        return None
    kind = draw.random.choice(kinds)
    place = draw.pick(lambda each: each.node.op_type == kind and bool(pairs(each)))
    name, (a, b) = place.node.name, pairs(place)[0]

    def edit(model: onnx.ModelProto) -> None:
        node = site(model, name).node
        node.input[a], node.input[b] = node.input[b], node.input[a]

    text = f"{name} ({kind}): inputs {a} and {b} swapped"
    return Fault("swapped", text, frozenset({name}), frozenset({"own", "weight", "replaced", "extra"}), edit)


def _region(draw: Draw) -> Fault | None:
    """A region of one to three operators in a row computes in float16, with casts around it."""
    place = draw.pick(lambda each: _fits_half(draw, each))
    if place is None:
        return None
    chain = [place]
    for _ in range(draw.random.randrange(3)):
        readers = [each for each in draw.sites if chain[-1].node.output[0] in each.node.input]
        if len(readers) != 1 or readers[0].graph is not place.graph or not _fits_half(draw, readers[0]):
            break
        chain.append(readers[0])
    names = [each.node.name for each in chain]

    def edit(model: onnx.ModelProto) -> None:
        graph = site(model, names[0]).graph
        narrow: dict[str, str] = {}
        for name in names:
            _narrow(draw, graph, name, narrow)
        last = chain[-1].node.output[0]
        at = next(number for number, node in enumerate(graph.node) if node.name == names[-1])
        cast = helper.make_node("Cast", [narrow[last]], [last], f"{names[-1]}_widened", to=FLOAT)
        graph.node.insert(at + 1, cast)
        for output in {each.node.output[0] for each in chain}:
            for info in list(graph.value_info):
                if info.name == output and output != last:
                    graph.value_info.remove(info)

    verdicts = frozenset({"dtype", "own", "replaced", "extra"})
    return Fault("float16 region", " > ".join(names), frozenset(names), verdicts, edit)


_HALF_TYPES = frozenset(
    {"Add", "Sub", "Mul", "Div", "Relu", "LeakyRelu", "Tanh", "Sigmoid", "MatMul", "Conv", "Gelu", "Softmax"}
    | {"Gemm", "MaxPool", "ReduceMean"}
)


def _fits_half(draw: Draw, place: Site) -> bool:
    node = place.node
    arrays = [draw.first(name) for name in node.input if name]
    return (
        not node.domain
        and node.op_type in _HALF_TYPES
        and not is_output(place)
        and draw.writes_floats(place)
        and all(array is not None for array in arrays)
        and max((float(np.abs(array).max(initial=0)) for array in arrays), default=0) < 6e4
    )


def _narrow(draw: Draw, graph: onnx.GraphProto, name: str, narrow: dict[str, str]) -> None:
    """Let a node read and write float16; its float32 inputs are cast in front of it."""
    at, node = next((at, node) for at, node in enumerate(graph.node) if node.name == name)
    for slot, value in enumerate(node.input):
        array = draw.first(value) if value else None
        if array is None or array.dtype != np.float32:
            continue
        if value not in narrow:
            narrow[value] = f"{value}/half/{name}"
            cast = helper.make_node("Cast", [value], [narrow[value]], f"{name}_narrowed{slot}", to=FLOAT16)
            graph.node.insert(at, cast)
            at += 1
        node.input[slot] = narrow[value]
    output = node.output[0]
    narrow[output] = node.output[0] = f"{output}/half"


KINDS: dict[str, tuple[Callable[[Draw], Fault | None], int]] = {
    "one value": (weight_fault("one value", one_value), 2),
    "scaled": (weight_fault("scaled", _scaled_weight), 2),
    "bit flip": (weight_fault("bit flip", _flipped), 2),
    "noise": (weight_fault("noise", _noise), 4),
    "attribute": (attribute_fault, 4),
    "type": (type_fault, 3),
    "error": (error_fault, 4),
    "element": (_element_fault, 2),
    "half kernel": (_half_kernel, 1),
    "float16 region": (_region, 2),
    "dropped": (dropped, 3),
    "swapped": (_swapped, 3),
    "overflow": (_overflow_fault, 3),
}
"""Function that draws each kind, and its relative frequency."""


def distance(mine: np.ndarray, golden: np.ndarray) -> float:
    """Return the relative Euclidean distance; infinite where shapes, NaN or infinities differ."""
    if mine.shape != golden.shape:
        return math.inf
    a, b = mine.astype(np.float64), golden.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return math.inf
    finite = np.isfinite(b)
    scale = float(np.linalg.norm(b[finite]))
    error = float(np.linalg.norm(a[finite] - b[finite]))
    return error / scale if scale else (math.inf if error else 0.0)
