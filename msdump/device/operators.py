"""The table of operators on the device, by MindSpore primitive: formats, cube unit, mixed precision.

Formats follow the registrations of MindSpore's Ascend kernels. CANN's lists of mixed precision differ from
device to device and version to version; a primitive is blocked here if its results easily leave the range of
float16 or lose most of their digits in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msdump.device.formats import (
    C1HWNCOC0,
    FRACTAL_NZ,
    FRACTAL_Z,
    FRACTAL_Z_3D,
    FRACTAL_ZN_LSTM,
    FRACTAL_ZN_RNN,
    IMAGE,
    NC1HWC0,
    ND_RNN_BIAS,
    NDC1HWC0,
    VOLUME,
)
from msdump.record import DEFAULT_FORMAT


@dataclass(frozen=True, slots=True)
class Fixed:
    """Formats that an operator always holds."""

    inputs: tuple[str, ...]  # format of each input; the last one also stands for further inputs
    outputs: tuple[str, ...]  # format of each output, likewise
    rank: int = 0  # rank that the first input must have, 0: any


@dataclass(frozen=True, slots=True)
class Follows:
    """An operator that computes in the format in which its first input arrives."""

    formats: tuple[str, ...]  # formats that it takes; any other arrives as on the host


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An elementwise operator: computes in the inputs' format if broadcasting stays possible in it."""

    formats: tuple[str, ...] | None = None  # formats that it takes, None: every one


OperatorFormats = Fixed | Follows | Elementwise

HOST: Final = Fixed((DEFAULT_FORMAT,), (DEFAULT_FORMAT,))
"""Formats of an operator without an entry: as on the host."""

_IMAGE_CONV: Final = Fixed((NC1HWC0, FRACTAL_Z, DEFAULT_FORMAT), (NC1HWC0,), IMAGE)
_VOLUME_CONV: Final = Fixed((NDC1HWC0, FRACTAL_Z_3D, DEFAULT_FORMAT), (NDC1HWC0,), VOLUME)
_IMAGE: Final = Fixed((NC1HWC0,), (NC1HWC0,), IMAGE)
_IMAGE_OF_FIRST: Final = Fixed((NC1HWC0, DEFAULT_FORMAT), (NC1HWC0,), IMAGE)
_VOLUME: Final = Fixed((NDC1HWC0,), (NDC1HWC0,), VOLUME)
_MATRIX: Final = Fixed((FRACTAL_NZ, FRACTAL_NZ, DEFAULT_FORMAT), (FRACTAL_NZ,))
_RECURRENT: Final = Fixed(
    # x, W, R, B, sequence_lens, initial_h, initial_c, P
    (
        *(FRACTAL_NZ, FRACTAL_ZN_RNN, FRACTAL_ZN_RNN, ND_RNN_BIAS),
        *(DEFAULT_FORMAT, FRACTAL_NZ, FRACTAL_NZ, DEFAULT_FORMAT),
    ),
    (FRACTAL_NZ,),
)
# x, h, c, w, b
_LSTM_CELL: Final = Fixed(
    (FRACTAL_NZ, FRACTAL_NZ, FRACTAL_NZ, FRACTAL_ZN_LSTM, DEFAULT_FORMAT), (FRACTAL_NZ,)
)

_TABLE: Final[Mapping[OperatorFormats, str]] = {
    # ranks exchange tensors as the host has them
    HOST: """
        HcomAllReduce HcomAllGather HcomReduceScatter HcomBroadcast HcomAllToAll HcomSend HcomReceive
    """,
    _IMAGE_CONV: "Conv2D Conv2DTranspose Conv2DBackpropInput DepthwiseConv2dNative",
    Fixed((NC1HWC0,), (FRACTAL_Z,), IMAGE): "Conv2DBackpropFilter",
    Fixed((NC1HWC0,), (C1HWNCOC0,), IMAGE): "DepthwiseConv2dNativeBackpropFilter",
    _VOLUME_CONV: "Conv3D Conv3DTranspose Conv3DBackpropInput",
    Fixed((NDC1HWC0,), (FRACTAL_Z_3D,), VOLUME): "Conv3DBackpropFilter",
    # GE's transposed convolutions that have the output's shape as their first input
    Fixed((DEFAULT_FORMAT, NC1HWC0, FRACTAL_Z, DEFAULT_FORMAT), (NC1HWC0,)): "Conv2DTransposeOfSize",
    Fixed((DEFAULT_FORMAT, NDC1HWC0, FRACTAL_Z_3D, DEFAULT_FORMAT), (NDC1HWC0,)): "Conv3DTransposeOfSize",
    _VOLUME: "AvgPool3D MaxPool3D MaxPool3DGrad MaxPool3DGradGrad",
    _IMAGE: """
        MaxPool MaxPoolGrad MaxPoolGradGrad MaxPoolWithArgmax MaxPoolGradWithArgmax
        Pooling BNInfer BNInferGrad BNTrainingReduce BNTrainingUpdate Dilation
        SpaceToBatch SpaceToBatchND BatchToSpace BatchToSpaceND ReLUV2 StridedRead StridedWrite
    """,
    # sizes, regions and other parameters beside the image stay as they are
    _IMAGE_OF_FIRST: """
        AvgPool AdaptiveMaxPool2D MaxPoolV2 ResizeBilinear ResizeBilinearV2 ResizeBilinearGrad
        ResizeNearestNeighborV2 ResizeNearestNeighborV2Grad ROIAlign ROIAlignGrad PSROIPooling
    """,
    Fixed((NC1HWC0, NC1HWC0, NC1HWC0, DEFAULT_FORMAT), (NC1HWC0,), IMAGE): "AvgPoolGrad",
    _MATRIX: "MatMul BatchMatMul Dense",
    _RECURRENT: "LSTM DynamicGRUV2 RNN",
    _LSTM_CELL: "BasicLSTMCell",
    Follows((NC1HWC0,)): """
        BatchNorm BatchNormGrad LayerNormGrad SmoothL1Loss SmoothL1LossGrad Gather
        Assign AssignAdd AssignSub ApplyMomentum ApplyAdam ApplyAdagrad ApplyAdagradV2 ApplyFtrl
        ApplyRMSProp ApplyCenteredRMSProp
    """,
    Elementwise((NC1HWC0,)): """
        Add SigmoidGrad TanhGrad SqrtGrad RsqrtGrad GeLUGrad FastGeLUGrad EluGrad ReLU6Grad SoftplusGrad
    """,
    # the first four lines are agnostic of formats, the others broadcast
    Elementwise(): """
        Abs ACos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil CeLU ClipByValue Cos Cosh Dropout Elu Erf
        Exp FastGeLU Floor GeLU HShrink HSigmoid HSwish Identity IsInf IsNan LeakyRelu Log LogicalNot Mish
        Neg Reciprocal ReLU ReLU6 Round Rsqrt SeLU Shrink Sigmoid Sign SiLU Sin Sinh Softplus SoftShrink
        Softsign Sqrt Square Tan Tanh
        AddN BitwiseAnd BitwiseOr BitwiseXor Div Equal FloorMod Greater GreaterEqual LeftShift Less
        LessEqual LogicalAnd LogicalOr LogicalXor Maximum Minimum Mod Mul Pow RealDiv ReluGrad RightShift
        Select Sub
    """,
}

FORMATS_OF: Final[Mapping[str, OperatorFormats]] = {
    name: formats for formats, names in _TABLE.items() for name in names.split()
}
"""Formats of each primitive."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CUBE_OPS: Final = _names("""
    Conv1D Conv2D Conv3D Conv1DTranspose Conv2DTranspose Conv3DTranspose DepthwiseConv2dNative
    Conv2DOfNHWC Conv3DOfNDHWC DepthwiseConv2dNativeOfNHWC Conv2DTransposeOfSize Conv2DTransposeOfNHWC
    Conv2DTransposeOfSizeOfNHWC Conv3DTransposeOfSize Conv3DTransposeOfNDHWC
    Conv3DTransposeOfSizeOfNDHWC MatMul BatchMatMul Dense Conv1DBackpropInput Conv2DBackpropInput
    Conv3DBackpropInput Conv1DBackpropFilter Conv2DBackpropFilter Conv3DBackpropFilter
""")
"""Primitives that the matrix unit computes."""

BLOCKED: Final = _names("""
    Pow Exp Expm1 Log Log1p Reciprocal Rsqrt Cosh Sinh Tan ACos Asin Erfinv Softplus Softmax LogSoftmax
    LayerNorm GroupNorm InstanceNorm ReduceSum ReduceMean ReduceProd SquareSumAll CumSum LpNorm
    L2Normalize SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits NLLLoss
    BCEWithLogitsLoss SGD Momentum ApplyMomentum Adam AdamWeightDecay ApplyAdam
    ApplyAdagrad ApplyRMSProp ApplyCenteredRMSProp
""")
"""Primitives that mixed precision leaves in float32."""
