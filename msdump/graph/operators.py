"""The table of operators: MindSpore's name and arguments of each, and how passes over graphs treat it.

One row for each operator of ONNX, or of MindSpore where ONNX has none. An operator without a row keeps its
ONNX name and attributes and computes; the sizes of its outputs follow from the shapes of its inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import Any, Final, Literal

import numpy as np

from msdump import dtypes
from msdump.graph.collectives import HCOM_NAMES, Collective
from msdump.graph.graph import (
    GE_DOMAIN,
    GE_PREFIX,
    MINDSPORE_DOMAIN,
    NO_UPDATE,
    Graph,
    Node,
    Update,
    canonical_domain,
)


@dataclass(frozen=True, slots=True)
class Use:
    """Facts about a node that decide MindSpore's name of its operator; empty where not known."""

    input_ranks: tuple[int | None, ...] = ()  # rank of each input, None where unknown
    attributes: Mapping[str, Any] = field(default_factory=dict)  # decoded ONNX attributes by name
    # ONNX op_type of the node that made each input, None for graph inputs, initializers and absent inputs
    producers: tuple[str | None, ...] = ()
    # rank of each input that is an initializer, None for the others
    initializer_ranks: tuple[int | None, ...] = ()
    # value of each input that is a numeric initializer of one element, else None
    scalars: tuple[float | None, ...] = ()

    def rank(self) -> int | None:
        """Return the rank of the data: that of the first or second input, else the window's plus 2."""
        rank = next((of_input for of_input in self.input_ranks[:2] if of_input is not None), None)
        # a window has no axes for batch and channels
        window = self.attributes.get("kernel_shape")
        return len(window) + 2 if rank is None and window is not None else rank

    def text(self, attribute: str, default: str) -> str:
        """Return a text attribute, decoded."""
        value = self.attributes.get(attribute, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def bound(self, attribute: str, slot: int) -> float | None:
        """Return a number that is an attribute in old opsets and an input in new ones."""
        # Clip and others turned their attributes into inputs (opset 11)
        if attribute in self.attributes:
            return float(self.attributes[attribute])
        return self.scalars[slot] if slot < len(self.scalars) else None


NameRule = Callable[[Use], str]

Argument = bool | int | float | str | tuple[Any, ...] | list[Any] | np.ndarray
"""The value of an argument; lists are name lists, everything else that repeats is a tuple."""


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """One argument of a primitive."""

    name: str  # MindSpore's name
    attribute: str  # the ONNX attribute that it translates, "" for none
    value: Callable[[Node, Graph], Argument | None]  # returns its value; None: the argument is left out


class OperatorKind(Enum):
    """How an operator treats its elements."""

    COMPUTES = auto()
    MOVES = auto()
    """Moves elements, or converts on purpose: outputs keep the element types of inputs on the device."""
    VIEW = auto()
    """Gives its first input another name or shape: compiled graphs run no task for it."""
    SETTLED = auto()
    """Depends on shapes or constants alone: compiled graphs run no task for it."""
    DATA_FLOW = auto()
    """Joins or cuts tensors; parts of a Concat are made where they end up in it, so it has no task."""
    SEQUENCE = auto()
    """Puts tensors into sequences and optionals, or takes them out."""
    CONTROL_FLOW = auto()
    """Runs the graphs in its attributes."""


class Fusion(IntEnum):  # IntEnum: faster hash than Enum
    """The role of an operator in a fused kernel."""

    NONE = auto()
    CONVOLUTION = auto()
    PRODUCT = auto()
    BIAS = auto()
    NORMALIZATION = auto()
    ACTIVATION = auto()
    """Element by element, also behind a convolution, product or normalization."""
    ELEMENTWISE = auto()
    """Every output element depends on one element of each input."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Facts about an operator."""

    # MindSpore's primitive, or a rule that chooses it; "": the name of the operator itself
    name: str | NameRule = ""
    arguments: tuple[ArgumentRule, ...] = ()  # MindSpore's arguments in its order
    kind: OperatorKind = OperatorKind.COMPUTES  # how it treats its elements
    fusion: Fusion = Fusion.NONE  # its role in fused kernels
    sizes_from: tuple[int, ...] = ()  # slots of inputs with contents that decide the sizes of outputs
    is_random: bool = False  # it draws random numbers
    update: Update = NO_UPDATE  # the inputs that MindSpore's operator writes in place


def _by_rank(default: str, others: Mapping[int, str]) -> NameRule:
    def choose(use: Use) -> str:
        rank = use.rank()
        return default if rank is None else others.get(rank, default)

    return choose


def _by_text(attribute: str, default: str, names: Mapping[str, str]) -> NameRule:
    """Choose by a text attribute; an unknown text counts as the default."""
    return lambda use: names.get(use.text(attribute, default), names[default])


def _by_flag(attribute: str, names: tuple[str, str], *, default: int) -> NameRule:
    return lambda use: names[bool(use.attributes.get(attribute, default))]


def _matmul(use: Use) -> str:
    deep = any(rank is not None and rank > 2 for rank in use.input_ranks[:2])  # noqa: PLR2004 - matrices
    return "BatchMatMul" if deep else "MatMul"


def _add(use: Use) -> str:
    """An Add of a one-dimensional initializer to a MatMul or Conv result is a BiasAdd."""
    for bias, result in ((1, 0), (0, 1)):
        is_bias = use.initializer_ranks[bias : bias + 1] == (1,)
        if is_bias and use.producers[result : result + 1] in {("MatMul",), ("Conv",)}:
            return "BiasAdd"
    return "Add"


def _clip(use: Use) -> str:
    # exporters write ReLU6 as a Clip between 0 and 6
    return "ReLU6" if (use.bound("min", 1), use.bound("max", 2)) == (0.0, 6.0) else "ClipByValue"


def _shrink(use: Use) -> str:
    bias, threshold = use.attributes.get("bias", 0.0), use.attributes.get("lambd", 0.5)
    # ONNX's Shrink is HShrink without a bias and SoftShrink where both numbers are equal
    if bias == 0:
        return "HShrink"
    return "SoftShrink" if bias == threshold else "Shrink"


def _resize(use: Use) -> str:
    # an unknown rank counts as that of images
    names = _RESIZES.get(use.rank() or 4, _RESIZES[4])
    return names.get(use.text("mode", "nearest"), names["nearest"])


_RESIZES: Final = {
    3: {"nearest": "UpsampleNearest1D", "linear": "UpsampleLinear1D"},
    4: {"nearest": "ResizeNearestNeighborV2", "linear": "ResizeBilinearV2", "cubic": "ResizeBicubic"},
    5: {"nearest": "UpsampleNearest3D", "linear": "UpsampleTrilinear3D"},
}

_UPDATES: Final = {
    "none": "TensorScatterUpdate",
    "add": "TensorScatterAdd",
    "mul": "TensorScatterMul",
    "max": "TensorScatterMax",
    "min": "TensorScatterMin",
}


def window(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """Return the extents: the attribute, or the last dimensions of the weight; None where unknown."""
    kernel_shape = _ints(node, "kernel_shape")
    if kernel_shape is not None:
        return kernel_shape
    # ONNX infers a missing kernel_shape from the weight (N, C, *extents)
    shape = _weight_shape(node, graph)
    return None if shape is None else shape[2:]


def _weight_shape(node: Node, graph: Graph) -> tuple[int, ...] | None:
    return (graph.type_of(node.inputs[1]).sizes or None) if len(node.inputs) > 1 else None


def axes(node: Node, graph: Graph) -> int:
    """Return the number of spatial axes: of the window, else of the data, else 2."""
    extents = window(node, graph)
    if extents is not None:
        return len(extents)
    shape = graph.type_of(node.inputs[0]).shape if node.inputs else None
    return 2 if shape is None else max(0, len(shape) - 2)


def _spread(attribute: str) -> Callable[[Node, Graph], tuple[int, ...]]:
    """Return a function that reads an attribute as (1, 1, *numbers), batch and channel first; default 1."""

    def value(node: Node, graph: Graph) -> tuple[int, ...]:
        numbers = _ints(node, attribute)
        return (1, 1, *((1,) * axes(node, graph) if numbers is None else numbers))

    return value


PadMode = Literal["valid", "same", "pad"]

_AUTOMATIC: Final[dict[Any, PadMode]] = {"VALID": "valid", "SAME_UPPER": "same", "SAME_LOWER": "same"}


def pad_mode(node: Node, _graph: Graph) -> PadMode:
    """Return valid, same or pad; explicit paddings of 0 are valid in MindSpore."""
    automatic = _AUTOMATIC.get(node.attributes.get("auto_pad"))
    if automatic is not None:
        return automatic
    # NOTSET, the default of auto_pad, leaves the padding to the attribute pads
    return "pad" if any(_ints(node, "pads") or ()) else "valid"


def stated_pads(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the paddings of the attribute, axis by axis (top, bottom, left, right); without it zeros."""
    pads = _ints(node, "pads") if pad_mode(node, graph) == "pad" else None
    if pads is None:
        return (0,) * (2 * axes(node, graph))
    # ONNX: all begins, then all ends; MindSpore: begin and end of each axis
    half = len(pads) // 2
    return tuple(side for pair in zip(pads[:half], pads[half:], strict=False) for side in pair)


def real_pads(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """Return the paddings that take place, axis by axis; None where they depend on unknown sizes."""
    if pad_mode(node, graph) != "same":
        return stated_pads(node, graph)
    extents, shape = window(node, graph), graph.type_of(node.inputs[0]).shape if node.inputs else None
    if extents is None or shape is None or len(shape) != len(extents) + 2:
        return None
    ones = (1,) * len(extents)
    steps = _ints(node, "strides") or ones
    gaps = _ints(node, "dilations") or ones
    sides: list[int] = []
    # not strict: the runtime refuses faulty models
    for size, extent, step, gap in zip(shape[2:], extents, steps, gaps, strict=False):
        if not isinstance(size, int):
            return None
        # SAME: ceil(size / stride) windows, padded as far as the last one reaches beyond the data
        total = max(0, (-(-size // step) - 1) * step + (extent - 1) * gap + 1 - size)
        halves = (total // 2, total - total // 2)
        sides += halves[::-1] if node.attributes.get("auto_pad") == "SAME_LOWER" else halves
    return tuple(sides)


def _ints(node: Node, attribute: str) -> tuple[int, ...] | None:
    value: Any = node.attributes.get(attribute)
    return None if value is None else tuple(value)


def plain(value: Any) -> Argument:
    """Return a decoded attribute as an argument; a graph becomes ``@`` and its name."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (tuple, list)):
        return tuple(plain(item) for item in value)
    if isinstance(value, (bool, int, float, str, np.ndarray)):
        return value
    is_graph = hasattr(value, "node") and hasattr(value, "name")
    return f"@{value.name}" if is_graph else f"<{type(value).__name__}>"


def _constant(name: str, value: Argument) -> ArgumentRule:
    return ArgumentRule(name, "", lambda _node, _graph: value)


def _renamed(
    name: str, attribute: str, default: Argument | None = None, convert: Callable[[Any], Argument] = plain
) -> ArgumentRule:
    """Return the rule of an attribute that is converted, or of its default; no argument without either."""

    def value(node: Node, _graph: Graph) -> Argument | None:
        content = node.attributes.get(attribute, default)
        return None if content is None else convert(content)

    return ArgumentRule(name, attribute, value)


def _computed(
    name: str, value: Callable[[Node, Graph], Argument | None], attribute: str = ""
) -> ArgumentRule:
    return ArgumentRule(name, attribute, value)


def _pool_window(node: Node, graph: Graph) -> Argument | None:
    extents = window(node, graph)
    return None if extents is None else (1, 1, *extents)


def _pool_pad_mode(node: Node, graph: Graph) -> Argument:
    return pad_mode(node, graph).upper()


def _conv_channels(node: Node, graph: Graph) -> Argument | None:
    weight = _weight_shape(node, graph)
    return None if weight is None else weight[0]


def _transposed_channels(node: Node, graph: Graph) -> Argument | None:
    """Return ``out_channel``: output channels of Conv3DTranspose, input channels of Conv2DBackpropInput."""
    weight = _weight_shape(node, graph)
    groups: Any = node.attributes.get("group", 1)
    is_volume = axes(node, graph) == 3  # noqa: PLR2004 - Conv3DTranspose is no gradient
    return None if weight is None else weight[1] * groups if is_volume else weight[0]


def _softmax_axis(node: Node, graph: Graph) -> tuple[Any]:
    since_last_axis = 13  # the opset in which the default became the last axis
    default = -1 if graph.opsets.get("", since_last_axis) >= since_last_axis else 1
    return (node.attributes.get("axis", default),)


def _layout(node: Node, graph: Graph) -> str:
    return {1: "NCL", 3: "NCDHW"}.get(axes(node, graph), "NCHW")


def _lrn_alpha(node: Node, _graph: Graph) -> Argument:
    # ONNX divides by the window's size, MindSpore does not
    alpha: Any = node.attributes.get("alpha", 1e-4)
    size: Any = node.attributes.get("size", 1)
    return float(alpha) / int(size)


def _lstm_input(node: Node, graph: Graph) -> Argument | None:
    shape = graph.type_of(node.inputs[0]).shape
    return shape[-1] if shape and isinstance(shape[-1], int) else None


_BIAS: Final = slice(3, 4)  # slot of an LSTM's input B
_GRU_DIRECTIONS: Final = {"bidirectional": "BIDIRECTIONAL", "reverse": "REDIRECTIONAL"}


def _convolution(
    channels: Callable[[Node, Graph], Argument | None], inputs: tuple[str, ...], padding: ArgumentRule
) -> Iterator[ArgumentRule]:
    # vendor: MindSpore prints these names of Conv2D and Conv2DBackpropInput, in this order, group twice
    yield _computed("kernel_size", window, "kernel_shape")
    yield _constant("mode", 1)
    yield _computed("out_channel", channels)
    yield _constant("input_names", [*inputs])
    yield _computed("pad", stated_pads, "pads")
    yield padding
    yield _computed("format", _layout)
    yield _computed("pad_list", real_pads)
    yield _renamed("groups", "group", 1)
    yield _computed("stride", _spread("strides"), "strides")
    yield _renamed("group", "group", 1)
    yield _computed("dilation", _spread("dilations"), "dilations")
    yield _constant("output_names", ["output"])


_POOL: Final = (
    _computed("kernel_size", _pool_window, "kernel_shape"),
    _computed("strides", _spread("strides"), "strides"),
    _computed("pad_mode", _pool_pad_mode, "auto_pad"),
    _computed("pad_list", real_pads, "pads"),
    _computed("format", _layout),
)
_GLOBAL_POOL: Final = (_computed("output_size", lambda node, graph: (1,) * axes(node, graph)),)
_EPSILON: Final = _renamed("epsilon", "epsilon", 1e-5)
_CUMULATED: Final = (_renamed("exclusive", "exclusive", 0, bool), _renamed("reverse", "reverse", 0, bool))
_POSITION: Final = (_renamed("axis", "axis", 0), _renamed("keep_dims", "keepdims", 1, bool))
_AXES: Final = (_renamed("axis", "axes"),)
_BLOCK: Final = (_renamed("block_size", "blocksize"),)
_REDUCED: Final = (*_AXES, _renamed("keep_dims", "keepdims", 1, bool))


def _each(names: str, operator: Operator) -> dict[str, Operator]:
    return dict.fromkeys(names.split(), operator)


_moving = functools.partial(Operator, kind=OperatorKind.MOVES)
_elementwise = functools.partial(Operator, fusion=Fusion.ELEMENTWISE)
_activation = functools.partial(Operator, fusion=Fusion.ACTIVATION)
_ALL: Final = tuple(range(16))  # all input slots: no operator of the table has more inputs
_ASSIGNED: Final = Update(1, {0: 0})
_ADAM: Final = Update(3, {0: 0, 1: 1, 2: 2})

# Names as in mindspore.ops; GE and CANN spell a few of them differently (GE_TYPES).
OPERATORS: Final[Mapping[str, Operator]] = {
    # convolution, matrices; MindSpore has 1-D windows as operators on 4-D data; on the 3-D data of
    # ONNX they have the names Conv1D, ..., so that tables for images (NCHW) do not apply to them
    "Conv": Operator(
        _by_rank("Conv2D", {3: "Conv1D", 5: "Conv3D"}),
        tuple(_convolution(_conv_channels, ("x", "w"), _computed("pad_mod", pad_mode, "auto_pad"))),
        fusion=Fusion.CONVOLUTION,
    ),
    "ConvTranspose": Operator(
        _by_rank("Conv2DBackpropInput", {3: "Conv1DBackpropInput", 5: "Conv3DTranspose"}),
        tuple(
            _convolution(
                _transposed_channels,
                ("out_backprop", "filter", "input_sizes"),
                _computed("pad_mode", _pool_pad_mode, "auto_pad"),
            )
        ),
        fusion=Fusion.CONVOLUTION,
    ),
    **_each(
        "Conv1DBackpropInput Conv2DBackpropInput Conv3DBackpropInput"
        " Conv1DBackpropFilter Conv2DBackpropFilter Conv3DBackpropFilter ConvTransposeWithDynamicPads",
        Operator(sizes_from=(2,)),
    ),
    "DeformConv": Operator("DeformableConv2d"),
    "Gemm": Operator(
        "Dense",
        (_renamed("transpose_a", "transA", 0, bool), _renamed("transpose_b", "transB", 0, bool)),
        fusion=Fusion.PRODUCT,
    ),
    "MatMul": Operator(
        _matmul,
        (_constant("transpose_a", value=False), _constant("transpose_b", value=False)),
        fusion=Fusion.PRODUCT,
    ),
    "BiasAdd": Operator(arguments=(_constant("format", "NCHW"),)),  # from some ONNX Adds (``_add``)
    "Det": Operator("MatrixDeterminant"),
    "Trilu": _moving(_by_flag("upper", ("Tril", "Triu"), default=1)),
    "EyeLike": _moving("Eye"),
    # pooling
    "AveragePool": Operator(_by_rank("AvgPool", {3: "AvgPool1D", 5: "AvgPool3D"}), _POOL),
    "MaxPool": Operator(_by_rank("MaxPool", {3: "MaxPool1D", 5: "MaxPool3D"}), _POOL),
    "MaxUnpool": Operator(_by_rank("MaxUnpool2D", {3: "MaxUnpool1D", 5: "MaxUnpool3D"}), sizes_from=(2,)),
    "GlobalAveragePool": Operator(
        _by_rank("AdaptiveAvgPool2D", {3: "AvgPool1D", 5: "AdaptiveAvgPool3D"}), _GLOBAL_POOL
    ),
    "GlobalMaxPool": Operator(
        _by_rank("AdaptiveMaxPool2D", {3: "MaxPool1D", 5: "AdaptiveMaxPool3D"}), _GLOBAL_POOL
    ),
    "RoiAlign": Operator(
        "ROIAlign",
        (
            _renamed("pooled_height", "output_height", 1),
            _renamed("pooled_width", "output_width", 1),
            _renamed("sample_num", "sampling_ratio", 0),
        ),
    ),
    # activation
    "HardSigmoid": _activation("HSigmoid"),
    "Relu": _activation("ReLU"),
    "PRelu": _activation("PReLU"),
    "LeakyRelu": _activation(arguments=(_renamed("negative_slope", "alpha", 0.01),)),
    "Elu": _activation(arguments=(_renamed("alpha", "alpha", 1.0),)),
    "Celu": _activation("CeLU", (_renamed("alpha", "alpha", 1.0),)),
    "Selu": _activation("SeLU"),
    "Gelu": _activation("GeLU", (_renamed("approximate", "approximate", "none"),)),
    "com.microsoft::Gelu": Operator("GeLU"),
    "com.microsoft::FastGelu": Operator("FastGeLU"),
    "Swish": _activation("SiLU"),
    "SwiGLU": Operator("Swiglu"),
    "HardSwish": _activation("HSwish"),
    "Clip": _activation(_clip),
    **_each("Sigmoid Mish Tanh Softplus Softsign ThresholdedRelu", _activation()),
    "Shrink": Operator(_shrink, (_renamed("lambd", "lambd", 0.5),)),
    "Softmax": Operator(arguments=(_computed("axis", _softmax_axis, "axis"),)),
    "LogSoftmax": Operator(
        "", (_computed("axis", lambda node, graph: _softmax_axis(node, graph)[0], "axis"),)
    ),
    # ONNX states the share that is dropped, MindSpore the share that is kept
    "Dropout": Operator(arguments=(_renamed("keep_prob", "ratio", None, lambda ratio: 1 - float(ratio)),)),
    "Attention": Operator("FlashAttentionScore"),
    # normalization
    "BatchNormalization": Operator(
        "BatchNorm",
        (
            _constant("is_training", value=False),
            _EPSILON,
            # ONNX's momentum weighs the old mean, MindSpore's the new one
            _renamed("momentum", "momentum", 0.9, lambda old: 1 - float(old)),
            _constant("format", "NCHW"),
        ),
        fusion=Fusion.NORMALIZATION,
    ),
    "InstanceNormalization": Operator("InstanceNorm", (_EPSILON,)),
    "LayerNormalization": Operator(
        "LayerNorm",
        (_renamed("begin_norm_axis", "axis", -1), _renamed("begin_params_axis", "axis", -1), _EPSILON),
    ),
    "GroupNormalization": Operator("GroupNorm", (_renamed("eps", "epsilon", 1e-5),)),
    "RMSNormalization": Operator("RmsNorm", (_EPSILON,)),
    "LpNormalization": Operator(
        lambda use: "L2Normalize" if use.attributes.get("p", 2) == 2 else "LpNormalization"  # noqa: PLR2004 - the L2 norm
    ),
    "LRN": Operator(
        arguments=(
            # ONNX counts the whole window, MindSpore the channels on one side of its middle
            _renamed("depth_radius", "size", 1, lambda size: (int(size) - 1) // 2),
            _renamed("bias", "bias", 1.0),
            _computed("alpha", _lrn_alpha, "alpha"),
            _renamed("beta", "beta", 0.75),
        ),
    ),
    # arithmetic
    **_each(
        "Sub Mul Div Pow Abs Neg Exp Log Sqrt Reciprocal Sign Floor Ceil Round Erf"
        " Sin Cos Tan Asin Atan Sinh Cosh Asinh Acosh Atanh",
        _elementwise(),
    ),
    "Add": _elementwise(_add),
    "Mod": _elementwise(_by_flag("fmod", ("FloorMod", "Mod"), default=0)),
    "Sum": Operator("AddN"),
    "Max": _elementwise("Maximum"),
    "Min": _elementwise("Minimum"),
    "Acos": _elementwise("ACos"),
    **_each("CumSum CumProd", Operator(arguments=_CUMULATED)),
    "DFT": Operator("FFTWithSize", sizes_from=(1, 2)),
    "STFT": Operator(sizes_from=(1, 2, 3)),
    **_each("BlackmanWindow HammingWindow HannWindow", Operator(sizes_from=(0,))),
    "MelWeightMatrix": Operator(sizes_from=_ALL),
    # comparison, logic, bits
    **_each(
        "Equal Greater Less BitwiseAnd BitwiseOr BitwiseXor BitwiseNot IsInf",
        _elementwise(),
    ),
    "IsNaN": _elementwise("IsNan"),
    "GreaterOrEqual": _elementwise("GreaterEqual"),
    "LessOrEqual": _elementwise("LessEqual"),
    "And": _elementwise("LogicalAnd"),
    "Or": _elementwise("LogicalOr"),
    "Xor": _elementwise("LogicalXor"),
    "Not": _elementwise("LogicalNot"),
    "BitShift": _elementwise(_by_text("direction", "LEFT", {"LEFT": "LeftShift", "RIGHT": "RightShift"})),
    "Where": _elementwise("Select"),
    # reduction
    **_each(
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd", Operator(arguments=_REDUCED, sizes_from=(1,))
    ),
    **_each("ReduceLogSum ReduceLogSumExp ReduceSumSquare", Operator(sizes_from=(1,))),
    "ReduceL1": Operator("LpNorm", (_constant("p", 1), *_REDUCED), sizes_from=(1,)),
    "ReduceL2": Operator("LpNorm", (_constant("p", 2), *_REDUCED), sizes_from=(1,)),
    "ArgMax": Operator("Argmax", _POSITION),
    "ArgMin": Operator("Argmin", _POSITION),
    "TopK": Operator(arguments=(_renamed("sorted", "sorted", 1, bool),), sizes_from=(1,)),
    # shape and layout
    "Identity": Operator(kind=OperatorKind.VIEW),
    "Flatten": Operator(kind=OperatorKind.VIEW),
    "Reshape": Operator(kind=OperatorKind.VIEW, sizes_from=(1,)),
    "Squeeze": Operator(arguments=_AXES, kind=OperatorKind.VIEW, sizes_from=(1,)),
    "Unsqueeze": Operator("ExpandDims", _AXES, kind=OperatorKind.VIEW, sizes_from=(1,)),
    "ExpandDims": Operator(kind=OperatorKind.VIEW, sizes_from=(1,)),
    "Transpose": _moving(),
    "Concat": Operator(arguments=(_renamed("axis", "axis", 1),), kind=OperatorKind.DATA_FLOW),
    "Split": Operator(
        arguments=(
            _renamed("axis", "axis", 0),
            _computed("output_num", lambda node, _graph: len(node.outputs), "num_outputs"),
            _renamed("size_splits", "split"),
        ),
        kind=OperatorKind.DATA_FLOW,
        sizes_from=(1,),
    ),
    "Slice": _moving(
        "StridedSlice",
        tuple(
            _constant(f"{name}_mask", 0) for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        ),
        sizes_from=(1, 2, 3, 4),
    ),
    "StridedSlice": _moving(sizes_from=(1, 2, 3)),
    "Pad": _moving(
        "PadV3",
        (_renamed("mode", "mode", "constant"), _constant("paddings_contiguous", value=False)),
        sizes_from=(1, 3),
    ),
    "CenterCropPad": Operator(sizes_from=(1,)),
    "Expand": _moving("BroadcastTo", sizes_from=(1,)),
    "BroadcastTo": Operator(sizes_from=(1,)),
    "Tile": _moving(sizes_from=(1, 2)),
    "Shape": Operator("TensorShape", kind=OperatorKind.SETTLED),
    **_each("Size Constant", Operator(kind=OperatorKind.SETTLED)),
    "Cast": _moving(
        arguments=(_renamed("dst_type", "to", None, lambda number: dtypes.from_onnx(number).title),),
        fusion=Fusion.ELEMENTWISE,
    ),
    "CastLike": _moving("Cast"),
    **_each("ReverseSequence QuantizeLinear DequantizeLinear", _moving()),
    **_each("DepthToSpace SpaceToDepth", _moving(arguments=_BLOCK)),
    "Col2Im": Operator(sizes_from=(1, 2)),
    # gathering and scattering
    "Gather": _moving(arguments=(_renamed("axis", "axis", 0), _constant("batch_dims", 0))),
    "GatherElements": _moving("GatherD", (_renamed("dim", "axis", 0),)),
    "GatherND": _moving("GatherNd"),
    "Scatter": _moving("TensorScatterElements"),
    "ScatterElements": _moving(
        "TensorScatterElements",
        (_renamed("axis", "axis", 0), _renamed("reduction", "reduction", "none")),
    ),
    "ScatterND": _moving(_by_text("reduction", "none", _UPDATES)),
    "Compress": _moving(sizes_from=(1,)),
    "OneHot": _moving(arguments=(_renamed("axis", "axis", -1),), sizes_from=(1,)),
    "NonZero": _moving(sizes_from=(0,)),
    "Unique": _moving(sizes_from=_ALL),
    "NonMaxSuppression": Operator("NonMaxSuppressionV3", sizes_from=_ALL),
    "UnsortedSegmentSum": Operator(sizes_from=(2,)),
    # of ONNX's operators with MindSpore's inputs, under MindSpore's names
    **_each("CeLU HShrink SoftShrink", _activation()),
    **_each("GatherD TensorScatterElements Tril Triu", _moving()),
    "PadV3": _moving(sizes_from=(1,)),
    "FillV2": _moving(sizes_from=(0,)),
    # creation
    "ConstantOfShape": _moving("FillV2", sizes_from=(0,)),
    "Range": Operator(sizes_from=_ALL),
    **_each("Bernoulli Multinomial", Operator(is_random=True)),
    **_each("RandomNormal RandomNormalLike", Operator("StandardNormal", is_random=True)),
    **_each("RandomUniform RandomUniformLike", Operator("UniformReal", is_random=True)),
    # images
    "Resize": Operator(_resize, sizes_from=(1, 2, 3)),
    "Upsample": Operator(_resize, sizes_from=(1,)),
    "CropAndResize": Operator(sizes_from=(1, 2, 3)),
    "AffineGrid": Operator(sizes_from=(1,)),
    "GridSample": Operator(
        _by_rank("GridSampler2D", {5: "GridSampler3D"}),
        (
            _renamed("interpolation_mode", "mode", "bilinear"),
            _renamed("padding_mode", "padding_mode", "zeros"),
            _renamed("align_corners", "align_corners", 0, bool),
        ),
    ),
    "ImageDecoder": Operator(sizes_from=(0,)),
    # recurrence and losses
    "LSTM": Operator(
        arguments=(
            _computed("input_size", _lstm_input),
            _renamed("hidden_size", "hidden_size"),
            _constant("num_layers", 1),
            _computed("has_bias", lambda node, _graph: any(node.inputs[_BIAS])),
            _renamed("bidirectional", "direction", "forward", lambda text: text == "bidirectional"),
            _constant("dropout", 0.0),
        ),
    ),
    "GRU": Operator(
        "DynamicGRUV2",
        (
            _renamed(
                "direction", "direction", "forward", lambda text: _GRU_DIRECTIONS.get(text, "UNIDIRECTIONAL")
            ),
            _renamed("reset_after", "linear_before_reset", 0, bool),
        ),
    ),
    "NegativeLogLikelihoodLoss": Operator("NLLLoss"),
    "SoftmaxCrossEntropyLoss": Operator("SparseSoftmaxCrossEntropyWithLogits"),
    # texts and generation
    **_each("StringNormalizer StringSplit", Operator(sizes_from=(0,))),
    **_each("BeamSearch GreedySearch Sampling WhisperBeamSearch Tokenizer", Operator(sizes_from=_ALL)),
    # sequences, control flow; where control flow runs as one operator, its sizes follow from contents
    **_each(
        "ConcatFromSequence SequenceConstruct SequenceEmpty SequenceLength"
        " Optional OptionalGetElement OptionalHasElement",
        Operator(kind=OperatorKind.SEQUENCE),
    ),
    **_each(
        "SplitToSequence SequenceAt SequenceErase", Operator(kind=OperatorKind.SEQUENCE, sizes_from=(1,))
    ),
    "SequenceInsert": Operator(kind=OperatorKind.SEQUENCE, sizes_from=(2,)),
    **_each("If Loop Scan SequenceMap", Operator(kind=OperatorKind.CONTROL_FLOW, sizes_from=_ALL)),
    # onnxruntime's collectives; MindSpore's keep their names
    "com.microsoft::AllToAll": Operator(str(Collective.ALL_TO_ALL)),
    # MindSpore's operators that write inputs
    "Assign": _moving(update=_ASSIGNED),
    **_each("AssignAdd AssignSub ScatterNdUpdate", Operator(update=_ASSIGNED)),
    **_each(
        "InplaceAddExt InplaceAddsExt InplaceSubExt InplaceSubsExt"
        " InplaceMul InplaceMuls InplaceDiv InplaceDivs",
        Operator(update=_ASSIGNED),
    ),
    "ApplyMomentum": Operator(update=Update(1, {0: 0, 1: 1})),
    "SGD": Operator(update=Update(1, {0: 0, 3: 1, 5: 2})),
    **_each("Adam AdamWeightDecay", Operator(update=_ADAM)),
    "ApplyRMSProp": Operator(update=Update(1, {0: 0, 1: 1, 2: 2})),
    "ApplyCenteredRMSProp": Operator(update=Update(1, {0: 0, 1: 1, 2: 2, 3: 3})),
    "ApplyAdagrad": Operator(update=Update(2, {0: 0, 1: 1})),
    # x, gamma, beta, moving_mean, moving_variance, ... -> y, four of the batch, the moving ones
    "BatchNorm": Operator(update=Update(5, {3: 5, 4: 6})),
}
"""Facts by type; ``domain::type`` where ONNX has another operator of the name."""

_PLAIN: Final = Operator()


def facts_of(op_type: str) -> Operator:
    """Return the facts on an operator, plain ones for an operator that ``OPERATORS`` lacks."""
    return OPERATORS.get(op_type, _PLAIN)


def moves(op_type: str) -> bool:
    """Return whether an operator keeps the element types that it is given."""
    return facts_of(op_type).kind is not OperatorKind.COMPUTES


def is_elementwise(op_type: str) -> bool:
    """Return whether every output element of an operator depends on one element of each input."""
    role = facts_of(op_type).fusion
    return role is Fusion.ACTIVATION or role is Fusion.ELEMENTWISE


def operators_of(*kinds: OperatorKind) -> frozenset[str]:
    """Return the types of the operators of some kinds."""
    return frozenset(name for name, operator in OPERATORS.items() if operator.kind in kinds)


CONTROL_FLOW: Final = operators_of(OperatorKind.CONTROL_FLOW)
WITH_MEMORY: Final = frozenset({name for name in OPERATORS if facts_of(name).is_random} | {"Dropout"})
"""Operators with kernels that count their runs: a seed is that of the first run."""

GE_TYPES: Final[Mapping[str, str]] = {
    "Div": "RealDiv",
    **{str(kind): name for name, kind in HCOM_NAMES.items()},
}
"""Primitives that bear another name in a compiled graph."""

CONVERTED_TYPES: Final[Mapping[str, str]] = {
    "Conv1DBackpropInput": "Conv1DTranspose",
    "Conv2DBackpropInput": "Conv2DTranspose",
}
"""Primitives that bear another name in the models of acl and torchair, which were never MindSpore's."""

PASSING: Final = frozenset({"Cast", "TransData"})
"""Types with an output that CANN's comparers take for the input in another element type or format.

They compare it with the golden tensor of that input, whatever else the operator does.
"""


def primitive_name(op_type: str, domain: str, use: Use | Callable[[], Use]) -> str:
    """Return MindSpore's name of an operator, ``Conv2D`` for a Conv of four dimensions.

    Unknown ranks give the commonest form (``Conv2D``, ``MatMul``).

    Args:
        op_type: ONNX operator.
        domain: ONNX domain.
        use: How the operator is used, or a function that returns it: most names do not depend on it.

    >>> primitive_name("Conv", "", Use()), primitive_name("Conv", "", Use(input_ranks=(5,)))
    ('Conv2D', 'Conv3D')
    >>> primitive_name("Relu", "", Use()), primitive_name("MatMul", "", Use(input_ranks=(3, 2)))
    ('ReLU', 'BatchMatMul')
    >>> bias = Use(producers=("Conv", None), initializer_ranks=(None, 1))
    >>> primitive_name("Add", "", bias), primitive_name("Add", "", Use())
    ('BiasAdd', 'Add')
    >>> primitive_name("Clip", "", Use(scalars=(None, 0.0, 6.0))), primitive_name("Own", "my.domain", Use())
    ('ReLU6', 'Own')
    """
    domain = canonical_domain(domain)
    if domain == GE_DOMAIN:
        op_type, domain = op_type.removeprefix(GE_PREFIX), ""
    name = facts_of(f"{domain}::{op_type}" if domain else op_type).name
    if isinstance(name, str):
        return name or op_type
    return name(use if isinstance(use, Use) else use())


def update_of(op_type: str, domain: str) -> Update:
    """Return the inputs that an operator writes in place.

    >>> update_of("ApplyMomentum", "mindspore.ops").new_values
    {0: 0, 1: 1}
    >>> update_of("Adam", "ai.onnx.preview.training") is NO_UPDATE
    True
    """
    return facts_of(op_type).update if domain == MINDSPORE_DOMAIN else NO_UPDATE


def written_inputs(primitive: str) -> frozenset[int]:
    """Return the slots of the inputs that a dumped operator shows as it has written them.

    BatchNorm has none: its forms of training and of inference look alike in dumps.

    >>> sorted(written_inputs("ApplyMomentum")), sorted(written_inputs("BatchNorm"))
    ([0, 1], [])
    """
    update = facts_of(primitive).update
    shows_one = any(output < (update.declared or 0) for output in update.new_values.values())
    return frozenset(update.new_values) if shows_one else frozenset()


_RANDOM_PRIMITIVES: Final = frozenset(
    {
        *("Bernoulli", "BernoulliExt", "Multinomial", "MultinomialExt", "MultinomialWithReplacement"),
        *("StandardNormal", "UniformReal", "UniformInt", "UniformExt", "StandardLaplace", "LogNormalReverse"),
        *("NormalFloatFloat", "NormalFloatTensor", "NormalTensorFloat", "NormalTensorTensor"),
        *("TruncatedNormal", "ParameterizedTruncatedNormal", "UniformCandidateSampler"),
        *("LogUniformCandidateSampler", "Gamma", "RandomGamma", "Poisson", "RandomPoisson"),
        *("RandExt", "RandLikeExt", "RandInt", "RandIntLike", "Randn", "RandnLike", "RandomCategorical"),
        *("RandomChoiceWithMask", "Randperm", "RandpermExt", "RandpermV2", "RandomShuffle"),
        *("InplaceNormal", "InplaceRandom", "InplaceUniform", "InplaceBernoulliScalar"),
        *("InplaceBernoulliTensor", "Dropout2D", "Dropout3D", "DropoutExt", "DropoutGenMask"),
        *("DropoutGenMaskExt", "DropOutGenMask", "DropoutDoMask", "DropOutDoMask"),
    }
)
"""MindSpore's and GE's operators that draw random numbers; ONNX has not all of them."""

_TRAINING_MODE: Final = 3
"""Inputs of a Dropout that draws: without a third one it hands its input on."""


def is_random(primitive: str, inputs: int) -> bool:
    """Return whether a dumped operator draws random numbers.

    >>> is_random("StandardNormal", 1), is_random("Dropout", 1), is_random("Dropout", 3)
    (True, False, True)
    """
    return primitive in _RANDOM_PRIMITIVES or (primitive == "Dropout" and inputs >= _TRAINING_MODE)
