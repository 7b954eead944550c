"""The cases of the table: one fault of one kind in a network, or a sound pair, and how both sides run."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump.errors import MsdumpError
from scripts.faults import dumps, faults, kernels, trials
from scripts.faults.answers import ACCUSING
from scripts.faults.dumps import CPU, MODES, PRECISIONS, Mode
from scripts.faults.faults import Draw, Fault, Site, Values, distance, site, sites
from scripts.faults.networks import Net, network
from scripts.faults.quantise import quantised
from scripts.faults.trials import FILES, METHODS, MODEL, Case

Pair = tuple[Mode, Mode]
"""How the examined side and the golden one run."""

_, O0, O0_ASYNC, O1, O2, _ = MODES
BFLOAT16, FORCE_FP16, _ = PRECISIONS
PAIRS: tuple[Pair, ...] = ((CPU, CPU), (O0, CPU), (O0, O0), (O1, CPU), (O1, O1), (O2, CPU), (O2, O2))
PLAIN: tuple[Pair, ...] = ((CPU, CPU), (O0, CPU), (O0, O0))
"""Pairs in which every operator of the model has files of its own."""
_FORCE = {"ascend_config": {"precision_mode": "force_fp16"}}
FORCED: tuple[Pair, ...] = tuple(
    (replace(mode, name=f"{mode.name} force_fp16", context=mode.context | _FORCE), CPU)
    for mode in (O0, O0, O1, O2)
)
"""Pairs in which operators write float16 alone: by default products write float32."""

ATTEMPTS = 8
"""Draws of a kind in a network before it is given up."""

HALF_MAX = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        draw: Returns a case, None where the network has no place for it or the fault has no effect.
        pairs: Modes of both sides.
        is_measured: Whether a case counts only if a tensor moves beyond rounding.
    """

    draw: Callable[[Draw, Pair], Case | None]
    pairs: tuple[Pair, ...] = field(default=PAIRS, repr=False)
    is_measured: bool = True


def draw(kind: str, net: Net, seed: int) -> tuple[Case | None, int]:
    """Return a case of a kind in a network, and how many were skipped because they change nothing."""
    chance = random.Random(f"{kind} {net.name} {seed}")
    skipped = 0
    for _ in range(ATTEMPTS):
        row = KINDS[kind]
        pair = trials.fitting(net, (each := chance.choice(row.pairs))[0]), trials.fitting(net, each[1])
        try:
            case = row.draw(Draw(net, trials.sound_values(net.name), chance), pair)
            if case is None:
                continue
            if not row.is_measured or _moves(case):
                return case, skipped
        except MsdumpError:
            pass  # shapes do not fit, or a type that nothing runs
        skipped += 1
    return None, skipped


def _moves(case: Case) -> bool:
    """Tell whether a fault moves a tensor that the examined dump shows beyond the rounding of both sides."""
    net, [fault], (mine, golden) = case.net, case.faults, case.pair
    if fault.weight and not trials.survives(net, fault, mine, golden):
        return False
    if (
        fault.wrong
        and mine.is_compiled
        and any(trials.is_settled(site(net.model, n).node) for n in fault.wrong)
    ):
        return False  # it has no kernel that could be wrong
    faulty, sound = trials.values_with(net, case.faults), trials.sound_values(net.name)
    shown = set().union(*trials.kernel_outputs(net.name, mine).values())
    noise = trials.SEEN if fault.weight else trials.BEYOND * trials.allowed(mine, golden)
    return any(
        _distance(faulty[name], sound[name]) > noise for name in shown if name in faulty and name in sound
    )


def _distance(mine: list[np.ndarray], golden: list[np.ndarray]) -> float:
    arrays = [(a, b) for a, b in zip(mine, golden, strict=False) if a.dtype.kind in "biuf"]
    return max((distance(a, b) for a, b in arrays), default=0.0)


def _edits(make: Callable[[Draw], Fault | None]) -> Callable[[Draw, Pair], Case | None]:
    """Return a function that draws a case of a fault in the model or in a kernel."""

    def case(draw: Draw, pair: Pair) -> Case | None:
        fault = make(draw)
        return fault and Case(draw.net, (fault,), pair, (draw.net.feeds,))

    return case


# --- structure -------------------------------------------------------------------------------------------

UNARY = ("Relu", "Tanh", "Sigmoid", "Abs", "Neg", "LeakyRelu")


def _inserted(draw: Draw) -> Fault | None:
    """An operator too many behind another one."""
    place = draw.pick(lambda each: draw.writes_floats(each) and not faults.is_output(each))
    if place is None:
        return None
    before, value = place.node.name, place.node.output[0]
    op_type = draw.random.choice(UNARY)
    name = f"{before}_inserted"

    def edit(model: onnx.ModelProto) -> None:
        found = site(model, before)
        faults.replace_reads(found.graph, value, f"{value}/inserted")
        at = next(number for number, node in enumerate(found.graph.node) if node.name == before)
        found.graph.node.insert(at + 1, helper.make_node(op_type, [value], [f"{value}/inserted"], name))

    text = f"{op_type} inserted behind {before} ({place.node.op_type})"
    return Fault("inserted", text, frozenset({name}), ACCUSING, edit)


def _rewired(draw: Draw) -> Fault | None:
    """An operator reads another tensor of the same shape and type."""

    def others(place: Site) -> list[tuple[int, str]]:
        nodes = list(place.graph.node)
        at = next(number for number, node in enumerate(nodes) if node.name == place.node.name)
        known = [name for node in nodes[:at] for name in node.output if name in draw.values]
        known += [each.name for each in place.graph.input if each.name in draw.net.feeds]
        found = []
        for slot, name in enumerate(place.node.input):
            array = draw.first(name) if name and name not in draw.weights else None
            if array is not None and array.size and array.dtype == np.float32:
                found += [
                    (slot, other) for other in known if other != name and _is_like(draw.first(other), array)
                ]
        return found

    place = draw.pick(lambda each: draw.writes_floats(each) and bool(others(each)))
    if place is None:
        return None
    name = place.node.name
    slot, other = draw.random.choice(others(place))

    def edit(model: onnx.ModelProto) -> None:
        site(model, name).node.input[slot] = other

    text = f"{name} ({place.node.op_type}) reads {other} in place of {place.node.input[slot]}"
    return Fault("rewired", text, frozenset({name}), ACCUSING, edit)


def _is_like(one: np.ndarray | None, other: np.ndarray) -> bool:
    return one is not None and one.shape == other.shape and one.dtype == other.dtype


# --- attributes and weights ------------------------------------------------------------------------------


def _attribute(*ways: faults.Way) -> Callable[[Draw], Fault | None]:
    return lambda draw: faults.attribute_fault(draw, ways)


def _pads(draw: Draw, node: onnx.NodeProto) -> faults.Change | None:
    """Pads that move the window and keep the shape."""
    if node.op_type not in {"Conv", "MaxPool", "AveragePool"}:
        return None
    pads = list(faults.attribute(node, "pads", []))
    half = len(pads) // 2
    moved = [axis for axis in range(half) if pads[axis]]
    if not moved:
        return None
    axis = draw.random.choice(moved)
    pads[axis], pads[axis + half] = pads[axis] - 1, pads[axis + half] + 1
    return f"pads {pads}", lambda node: faults.set_attributes(node, pads=pads)


def _channel(draw: Draw, array: np.ndarray) -> tuple[np.ndarray, str]:
    axis = draw.random.randrange(min(array.ndim, 2))
    at = draw.random.randrange(array.shape[axis])
    factor = draw.random.choice([0.0, -1.0, 0.5, 2.0])
    array[(slice(None),) * axis + (at,)] *= np.float32(factor)
    return array, f"channel {at} of axis {axis} times {factor}"


def _transposed(draw: Draw) -> Fault | None:
    """A square weight is transposed."""
    squares = {
        name
        for name, tensor in draw.weights.items()
        if len(tensor.dims) >= 2 and (tensor.dims[0] == tensor.dims[1] > 1)
    }

    def turn(draw: Draw, array: np.ndarray) -> tuple[np.ndarray, str]:
        return np.ascontiguousarray(np.swapaxes(array, 0, 1)), "transposed"

    return faults.weight_fault("transposed", turn, squares.__contains__)(draw)


# --- kernels ---------------------------------------------------------------------------------------------


def _partial(draw: Draw) -> Fault | None:
    """A kernel that does not write its last rows or elements: zeros or rubbish stands in them."""

    def steps(draw: Draw, array: np.ndarray) -> tuple[kernels.Steps, str]:
        written = np.ones(array.shape, np.float32)
        count = max(1, int(array.size * draw.random.choice([0.05, 0.25, 0.5])))
        if array.ndim > 1 and array.shape[-2] > 1 and draw.random.random() < 0.5:
            rows = max(1, array.shape[-2] // draw.random.choice([2, 4]))
            written[..., -rows:, :] = 0
            text = f"last {rows} rows not written"
        else:
            written.reshape(-1)[-count:] = 0
            text = f"last {count} elements not written"
        there = draw.random.choice([0.0, float(np.abs(array).max())])
        rubbish = there * draw.generator.standard_normal(array.shape) * (1 - written)
        return kernels.replaced(written, rubbish), text + (", rubbish in them" if there else "")

    return faults.kernel_fault(draw, "partial", frozenset({"own"}), steps)


def _stomped(draw: Draw, pair: Pair) -> Case | None:
    """A tensor is overwritten before it is read: its file still has the right values."""
    read = {name for each in draw.sites for name in each.node.input}

    def steps(draw: Draw, array: np.ndarray) -> tuple[kernels.Steps, str]:
        kept = np.ones(array.shape, np.float32)
        count = max(1, array.size // draw.random.choice([2, 8, 32]))
        at = draw.random.randrange(array.size - count + 1)
        kept.reshape(-1)[at : at + count] = 0
        size = float(np.abs(array).max()) or 1.0
        return kernels.replaced(
            kept, size * draw.generator.standard_normal(array.shape) * (1 - kept)
        ), f"{count} elements"

    def fits(place: Site) -> bool:
        value = place.node.output[0]
        return value in read and not faults.is_output(place) and len(draw.values[value]) == 1

    fault = faults.kernel_fault(draw, "stomped", ACCUSING, steps, fits)
    if fault is None:
        return None
    [writer] = fault.nodes
    value = site(draw.net.model, writer).node.output[0]
    readers = frozenset(each.node.name for each in draw.sites if value in each.node.input)
    text = f"{fault.text} of {value} overwritten before {', '.join(sorted(readers))} read it"
    fault = replace(fault, nodes=readers, text=text)
    return Case(draw.net, (fault,), pair, (draw.net.feeds,), (FILES, MODEL), restored=value)


def _stale(draw: Draw, pair: Pair) -> Case | None:
    """A kernel repeats its result of the first run in the second."""
    net, earlier = draw.net, other_feeds(draw.net)
    first = dumps.device_values(replace(net, feeds=earlier), net.model, pair[0])

    def steps(draw: Draw, array: np.ndarray) -> tuple[kernels.Steps, str]:
        [stale] = first[names[id(array)]]
        return kernels.replaced(np.zeros(array.shape, np.float32), stale), "as in the run before"

    names = {id(arrays[0]): name for name, arrays in draw.values.items()}

    def fits(place: Site) -> bool:
        arrays = [values.get(place.node.output[0], []) for values in (draw.values, first)]
        return all(len(each) == 1 for each in arrays) and arrays[0][0].shape == arrays[1][0].shape

    fault = faults.kernel_fault(draw, "stale", frozenset({"own"}), steps, fits)
    return fault and Case(net, (fault,), pair, (earlier, net.feeds))


def other_feeds(net: Net) -> dict[str, np.ndarray]:
    """Return other inputs of the same kind: the given ones turned, and floats scaled as well."""

    def turned(array: np.ndarray) -> np.ndarray:
        if not array.ndim:
            return array
        flat = np.roll(array.reshape(-1), array.size // 3 + 1).reshape(array.shape)
        return flat * array.dtype.type(0.8) if array.dtype.kind == "f" else flat

    return {name: turned(array) for name, array in net.feeds.items()}


# --- not finite ------------------------------------------------------------------------------------------

PRODUCTS = frozenset({"Conv", "MatMul", "Gemm", "ConvTranspose"})


def _with_weight(net: Net, name: str, array: np.ndarray) -> Net:
    model = onnx.ModelProto()
    model.CopyFrom(net.model)
    tensor = next(each for each in model.graph.initializer if each.name == name)
    tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))
    return replace(net, model=model)


def _overflow(draw: Draw, pair: Pair) -> Case | None:
    """A product with weights so large that the device's float16 overflows, and float32 does not."""
    readers = [name for each in draw.sites for name in each.node.input]

    def weight(place: Site) -> str:
        node = place.node
        name = node.input[1] if node.op_type in PRODUCTS and len(node.input) > 1 else ""
        tensor = draw.weights.get(name)
        fits = tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT and readers.count(name) == 1
        return name if fits else ""

    def factors(place: Site) -> tuple[float, float]:
        """Return factors of the weight: from which on results overflow, and from which on it does itself."""
        peak = max(float(np.abs(each).max()) for each in draw.values[place.node.output[0]])
        largest = float(np.abs(numpy_helper.to_array(draw.weights[weight(place)])).max())
        return (1.5 * HALF_MAX / peak, 0.9 * HALF_MAX / largest) if peak and largest else (1.0, 0.0)

    def fits(place: Site) -> bool:
        least, most = factors(place) if draw.writes_floats(place) and weight(place) else (1.0, 0.0)
        return least < most

    place = draw.pick(fits)
    if place is None:
        return None
    name, value = weight(place), place.node.output[0]
    array = numpy_helper.to_array(draw.weights[name])
    least, most = factors(place)
    factor = draw.random.uniform(least, min(most, 20 * least))
    net = _with_weight(draw.net, name, array * np.float32(factor))
    fault = Fault(
        "overflow",
        f"{place.node.name} ({place.node.op_type}) overflows: {name} times {factor:.2g}",
        frozenset({place.node.name}),
        frozenset({"nonfinite"}),
    )
    kernel = trials.kernel_outputs(net.name, pair[0]).get(place.node.name, frozenset())
    begins = _first_nonfinite(dumps.device_values(net, net.model, pair[0]))
    if _first_nonfinite(dumps.values(net, net.model)) or begins not in {value, *kernel}:
        return None
    return Case(net, (fault,), pair, (net.feeds,), is_first=True)


def _first_nonfinite(values: Values) -> str:
    """Return the first value that is not finite, in the order in which they were computed."""
    for name, arrays in values.items():
        if any(each.dtype.kind == "f" and not np.isfinite(each).all() for each in arrays):
            return name
    return ""


def _infinite_weight(draw: Draw, pair: Pair) -> Case | None:
    """A weight that float16 does not hold, in both models: the device rounds it to infinity."""
    variances = {each.node.input[4] for each in draw.sites if each.node.op_type == "BatchNormalization"}
    chosen = faults.pick_weight(draw, (variances & set(draw.weights) or set(draw.weights)).__contains__)
    if chosen is None:
        return None
    name, array = chosen[0], chosen[1].copy()
    at, size = draw.random.randrange(array.size), 10 ** draw.random.uniform(5.5, 7)
    array.reshape(-1)[at] = size
    net = _with_weight(draw.net, name, array)
    readers = [each.node for each in draw.sites if name in each.node.input]
    fault = Fault(
        "infinite weight",
        f"{name}: element {at} is {size:.2g} (read by {', '.join(node.op_type for node in readers)})",
        frozenset(node.name for node in readers),
        frozenset({"nonfinite"}),
        weight=name,
    )
    is_hidden = name in variances  # a quotient by infinity is finite
    begins = _first_nonfinite(dumps.device_values(net, net.model, pair[0]))
    if _first_nonfinite(dumps.values(net, net.model)) or not (begins or is_hidden):
        return None
    return Case(net, (fault,), pair, (net.feeds,), is_first=True)


def makes_nonfinite(case: Case) -> frozenset[str]:
    """Return the nodes of the examined side that truly make infinities of finite numbers.

    Their inputs are wrong for the fault: a logarithm of a negative number, a square of a large one.
    """
    net, mine = case.net, case.pair[0]
    most = np.finfo(np.float32 if mine.computes == "float32" else np.float16).max
    values = {name: arrays[0] for name, arrays in trials.values_with(net, case.faults).items()}
    values |= {name: np.asarray(array) for name, array in net.feeds.items()}
    lost = {name: ~(np.abs(each) <= most) for name, each in values.items() if each.dtype.kind == "f"}
    found = set()
    for node in (each.node for each in sites(case.model().graph)):
        read = [lost[name] for name in node.input if name in lost]
        for made in (lost[name] for name in node.output if name in lost):
            elsewhere = [each for each in read if each.shape != made.shape]
            begins = made & ~np.logical_or.reduce(
                [each for each in read if each.shape == made.shape] or [False]
            )
            if begins.any() and not any(each.any() for each in elsewhere):
                found.add(node.name)
    return frozenset(found)


# --- quantisation ----------------------------------------------------------------------------------------


def _quantisation(draw: Draw, pair: Pair) -> Case | None:
    """A wrong scale or zero point of one tensor in a quantised network beside the real one."""
    made = quantised(draw.net, draw.values)
    if made is None:
        return None
    name = draw.random.choice(sorted(made.tensors))
    factor, offset = draw.random.choice([(0.2, 0), (6.0, 0), (1.0, 60), (1.0, -60)])
    model = made.changed(name, factor, offset)
    what = f"zero point moved by {offset}" if offset else f"scale times {factor}"
    fault = Fault(
        "quantisation", f"{name}: {what}", made.tensors[name], ACCUSING, lambda m: m.CopyFrom(model)
    )
    faulty, sound = (dumps.values(draw.net, each) for each in (model, made.model))
    if max((_distance(faulty[key], sound[key]) for key in sound if key in faulty), default=0) < 0.05:
        raise MsdumpError("it changes nothing")
    # the other model cannot run the operators of this one again
    return Case(draw.net, (fault,), pair, (draw.net.feeds,), given="mine")


KINDS: dict[str, Kind] = {
    "dropped": Kind(_edits(faults.dropped)),
    "inserted": Kind(_edits(_inserted)),
    "rewired": Kind(_edits(_rewired)),
    "replaced": Kind(_edits(faults.type_fault)),
    "epsilon": Kind(_edits(_attribute(faults.epsilon))),
    "axis": Kind(_edits(_attribute(faults.axis))),
    "alpha": Kind(_edits(_attribute(faults.alpha, faults.gelu))),
    "pads": Kind(_edits(_attribute(_pads))),
    "weight element": Kind(_edits(faults.weight_fault("element", faults.one_value))),
    "weight channel": Kind(_edits(faults.weight_fault("channel", _channel))),
    "weight transposed": Kind(_edits(_transposed)),
    "wrong kernel": Kind(_edits(faults.error_fault)),
    "partial kernel": Kind(_edits(_partial)),
    "overflow": Kind(_overflow, FORCED, is_measured=False),
    "infinite weight": Kind(_infinite_weight, FORCED, is_measured=False),
    "stomped": Kind(_stomped, PLAIN),
    "stale": Kind(_stale, PLAIN),
    "quantisation": Kind(_quantisation, ((CPU, CPU), (O0, CPU)), is_measured=False),
}
"""Functions that draw each kind of fault."""


# --- sound pairs -----------------------------------------------------------------------------------------


def _rounded(sound: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with weights rounded to float16."""
    model = onnx.ModelProto()
    model.CopyFrom(sound)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor)
            if np.abs(array).max(initial=0) < HALF_MAX:
                tensor.CopyFrom(
                    numpy_helper.from_array(array.astype(np.float16).astype(np.float32), tensor.name)
                )
    return model


def is_random(net: Net) -> bool:
    """Tell whether a network draws numbers without a seed."""
    return any(
        faults.attribute(each.node, "seed") is None and each.node.op_type in RANDOM
        for each in sites(net.model.graph)
    )


RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
    | {"Dropout"}
)


def _pair(pair: Pair, *methods: str) -> Callable[[Net], Case | None]:
    def case(net: Net) -> Case | None:
        modes = trials.fitting(net, pair[0]), trials.fitting(net, pair[1])
        if any(_overflows(net, mode) for mode in modes):
            return None
        return Case(net, (), modes, (net.feeds,), methods or METHODS)

    return case


def _overflows(net: Net, mode: Mode) -> bool:
    """Tell whether the types of a device make a network infinite that is not so: a fault of that device."""
    if not mode.computes.endswith("16") or _first_nonfinite(dumps.values(net, net.model)):
        return False
    return bool(_first_nonfinite(dumps.device_values(net, net.model, mode)))


def _rounded_weights(pair: Pair) -> Callable[[Net], Case | None]:
    def case(net: Net) -> Case:
        return Case(net, (), pair, (net.feeds,), examined=_rounded(net.model))

    return case


def _quantised_pair(net: Net) -> Case | None:
    made = None if is_random(net) else quantised(net, trials.sound_values(net.name))
    return made and Case(replace(net, model=made.model), (), (O0, CPU), (net.feeds,))


def _other_ids(net: Net) -> Case | None:
    has_bodies = any(
        each.type == onnx.AttributeProto.GRAPH for node in net.model.graph.node for each in node.attribute
    )
    if not has_bodies:
        return None
    return Case(net, (), (CPU, CPU), (net.feeds,), (FILES, MODEL), before=(network("control"),))


SOUND: dict[str, Callable[[Net], Case | None]] = {
    "O0 beside CPU": _pair((O0, CPU)),
    "O1 beside CPU": _pair((O1, CPU)),
    "O2 beside CPU": _pair((O2, CPU)),
    "O1 beside O0": _pair((O1, O0)),
    "O2 beside O0": _pair((O2, O0)),
    "O2 bin beside O0": _pair((MODES[-1], O0), FILES, MODEL),
    "O0 async beside sync": _pair((O0_ASYNC, O0), FILES, MODEL),
    "bfloat16 beside float16": _pair((BFLOAT16, O0)),
    "bfloat16 beside CPU": _pair((BFLOAT16, CPU)),
    "force_fp16 beside default": _pair((FORCE_FP16, O0)),
    "force_fp16 beside CPU": _pair((FORCE_FP16, CPU)),
    "float16 weights, CPU": _rounded_weights((CPU, CPU)),
    "float16 weights, O0 beside CPU": _rounded_weights((O0, CPU)),
    "int8, O0 beside CPU": _quantised_pair,
    "run beside run": _pair((CPU, CPU)),
    "other graph ids": _other_ids,
}
"""Functions that make each sound pair of a network, None where it has none."""
