"""MindSpore's primitive names for ONNX operators: one table, plain names and small rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msdump.graph.collectives import HCOM_NAMES, Collective
from msdump.graph.operator_types import GE_DOMAIN, GE_PREFIX, canonical_domain


@dataclass(frozen=True, slots=True)
class Use:
    """One use of an operator as the rules see it; every fact may be missing.

    Attributes:
        input_ranks: Rank of each input, None where unknown.
        attributes: Decoded ONNX attributes by name.
        producers: ONNX op_type of the node that made each input, None for graph inputs,
            initializers and absent inputs.
        initializer_ranks: Rank of each input that is an initializer, None for the others.
        scalars: Value of each input that is a numeric initializer of one element, else None.
    """

    input_ranks: tuple[int | None, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    producers: tuple[str | None, ...] = ()
    initializer_ranks: tuple[int | None, ...] = ()
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


Rule = Callable[[Use], str]


def primitive_name(op_type: str, domain: str, use: Use | Callable[[], Use]) -> str:
    """Return MindSpore's name of an operator, ``Conv2D`` for a Conv of four dimensions.

    An operator without an entry in the table keeps its ONNX name. Unknown ranks give the
    commonest form (``Conv2D``, ``MatMul``).

    Args:
        op_type: ONNX operator.
        domain: ONNX domain.
        use: How the operator is used, or what tells it: most names do not depend on it.

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
    entry = PRIMITIVES.get(f"{domain}::{op_type}" if domain else op_type, op_type)
    if isinstance(entry, str):
        return entry
    return entry(use if isinstance(use, Use) else use())


PASSING: Final = frozenset({"Cast", "TransData"})
"""Types whose output CANN's comparers take for their input in another element type or format.

They compare it with the golden tensor of that input, whatever else the operator does.
"""


def _by_rank(default: str, others: Mapping[int, str]) -> Rule:
    """Choose by the rank of the data."""

    def choose(use: Use) -> str:
        rank = use.rank()
        return default if rank is None else others.get(rank, default)

    return choose


def _by_text(attribute: str, default: str, names: Mapping[str, str]) -> Rule:
    """Choose by a text attribute; an unknown text counts as the default."""
    return lambda use: names.get(use.text(attribute, default), names[default])


def _by_flag(attribute: str, names: tuple[str, str], *, default: int) -> Rule:
    """Choose by a 0/1 attribute."""
    return lambda use: names[bool(use.attributes.get(attribute, default))]


def _matmul(use: Use) -> str:
    deep = any(rank is not None and rank > 2 for rank in use.input_ranks[:2])  # noqa: PLR2004 - matrices
    return "BatchMatMul" if deep else "MatMul"


def _add(use: Use) -> str:
    """An Add of a one-dimensional initializer to a MatMul or Conv result is a BiasAdd."""
    for bias, result in ((1, 0), (0, 1)):
        is_bias = use.initializer_ranks[bias : bias + 1] == (1,)
        if is_bias and use.producers[result : result + 1] in _BIASED:
            return "BiasAdd"
    return "Add"


_BIASED: Final = (("MatMul",), ("Conv",))


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

# Names are those of mindspore.ops; GE and CANN spell a few of them differently (GE_TYPES).
PRIMITIVES: Final[Mapping[str, str | Rule]] = {
    # convolution, matrices; windows over one axis are operators on 4-D data in MindSpore, so that here, where
    # their data has three dimensions, they bear names that no reader of images takes for its own
    "Conv": _by_rank("Conv2D", {3: "Conv1D", 5: "Conv3D"}),
    "ConvTranspose": _by_rank("Conv2DBackpropInput", {3: "Conv1DBackpropInput", 5: "Conv3DTranspose"}),
    "DeformConv": "DeformableConv2d",
    "Gemm": "Dense",
    "MatMul": _matmul,
    "Det": "MatrixDeterminant",
    "Trilu": _by_flag("upper", ("Tril", "Triu"), default=1),
    "EyeLike": "Eye",
    # pooling
    "AveragePool": _by_rank("AvgPool", {3: "AvgPool1D", 5: "AvgPool3D"}),
    "MaxPool": _by_rank("MaxPool", {3: "MaxPool1D", 5: "MaxPool3D"}),
    "MaxUnpool": _by_rank("MaxUnpool2D", {3: "MaxUnpool1D", 5: "MaxUnpool3D"}),
    "GlobalAveragePool": _by_rank("AdaptiveAvgPool2D", {3: "AvgPool1D", 5: "AdaptiveAvgPool3D"}),
    "GlobalMaxPool": _by_rank("AdaptiveMaxPool2D", {3: "MaxPool1D", 5: "AdaptiveMaxPool3D"}),
    "RoiAlign": "ROIAlign",
    # activation
    "Relu": "ReLU",
    "PRelu": "PReLU",
    "Celu": "CeLU",
    "Selu": "SeLU",
    "Gelu": "GeLU",
    "com.microsoft::Gelu": "GeLU",
    "com.microsoft::FastGelu": "FastGeLU",
    "Swish": "SiLU",
    "SwiGLU": "Swiglu",
    "HardSwish": "HSwish",
    "HardSigmoid": "HSigmoid",
    "Clip": _clip,
    "Shrink": _shrink,
    "Attention": "FlashAttentionScore",
    # normalization
    "BatchNormalization": "BatchNorm",
    "InstanceNormalization": "InstanceNorm",
    "LayerNormalization": "LayerNorm",
    "GroupNormalization": "GroupNorm",
    "RMSNormalization": "RmsNorm",
    "LpNormalization": lambda use: "L2Normalize" if use.attributes.get("p", 2) == 2 else "LpNormalization",  # noqa: PLR2004 - the L2 norm
    # arithmetic
    "Add": _add,
    "Mod": _by_flag("fmod", ("FloorMod", "Mod"), default=0),
    "Sum": "AddN",
    "Max": "Maximum",
    "Min": "Minimum",
    "Acos": "ACos",
    "IsNaN": "IsNan",
    "DFT": "FFTWithSize",
    # comparison, logic, bits
    "GreaterOrEqual": "GreaterEqual",
    "LessOrEqual": "LessEqual",
    "And": "LogicalAnd",
    "Or": "LogicalOr",
    "Xor": "LogicalXor",
    "Not": "LogicalNot",
    "BitShift": _by_text("direction", "LEFT", {"LEFT": "LeftShift", "RIGHT": "RightShift"}),
    "Where": "Select",
    # reduction
    "ReduceL1": "LpNorm",
    "ReduceL2": "LpNorm",
    "ArgMax": "Argmax",
    "ArgMin": "Argmin",
    # shape and layout
    "Unsqueeze": "ExpandDims",
    "Slice": "StridedSlice",
    "Pad": "PadV3",
    "Expand": "BroadcastTo",
    "Shape": "TensorShape",
    "CastLike": "Cast",
    # gathering and scattering
    "GatherElements": "GatherD",
    "GatherND": "GatherNd",
    "Scatter": "TensorScatterElements",
    "ScatterElements": "TensorScatterElements",
    "ScatterND": _by_text("reduction", "none", _UPDATES),
    "NonMaxSuppression": "NonMaxSuppressionV3",
    # creation
    "ConstantOfShape": "FillV2",
    "RandomNormal": "StandardNormal",
    "RandomNormalLike": "StandardNormal",
    "RandomUniform": "UniformReal",
    "RandomUniformLike": "UniformReal",
    # images
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": _by_rank("GridSampler2D", {5: "GridSampler3D"}),
    # recurrence and losses
    "GRU": "DynamicGRUV2",
    "NegativeLogLikelihoodLoss": "NLLLoss",
    # onnxruntime's collectives
    "com.microsoft::AllToAll": str(Collective.ALL_TO_ALL),
    "SoftmaxCrossEntropyLoss": "SparseSoftmaxCrossEntropyWithLogits",
    # equal names in MindSpore and ONNX
    **{
        name: name
        for name in (
            *("Einsum", "LeakyRelu", "Elu", "Mish", "Sigmoid", "Softmax", "LogSoftmax", "Softplus"),
            *("Softsign", "Tanh", "Dropout", "LRN", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal"),
            *("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Exp", "Log", "Erf", "Sin", "Cos", "Tan"),
            *("Asin", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "IsInf", "CumSum", "CumProd"),
            *("STFT", "BlackmanWindow", "HammingWindow", "Equal", "Greater", "Less", "BitwiseAnd"),
            *("BitwiseOr", "BitwiseXor", "BitwiseNot", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"),
            *("ReduceProd", "TopK", "Reshape", "Flatten", "Squeeze", "Transpose", "Concat", "Split"),
            *("Tile", "Size", "Identity", "Cast", "ReverseSequence", "SpaceToDepth", "DepthToSpace"),
            *("Col2Im", "Gather", "OneHot", "NonZero", "Unique", "Range", "Bernoulli", "Multinomial"),
            *("AffineGrid", "LSTM"),
        )
    },
}

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
