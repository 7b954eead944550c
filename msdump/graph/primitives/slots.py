"""The inputs of MindSpore's operators by slot: which are constants, of which type, and which no dump shows.

Many arguments that ONNX has as attributes are inputs of MindSpore's operators, so that dumps have files of
them: numbers of rank 0, and lists of whole numbers of rank 1. Each row was compared with dumps of MindSpore
2.10 on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_ROWS: Final[Mapping[str, str]] = {
    # matrices and convolutions
    "MatMul BatchMatMul": "input mat2 transpose_a:bool transpose_b:bool",
    "BiasAdd": "input_x bias data_format:int=NCHW",
    "BiasAddGrad": "dout data_format:int=NCHW",
    "Conv2DExt": "input weight bias stride:ints padding:ints dilation:ints groups:int",
    "Conv1DBackpropInput Conv2DBackpropInput": "dout weight -input_size",
    "Conv1DBackpropFilter Conv2DBackpropFilter": "dout input -filter_size",
    "Conv3DBackpropInput": "weight dout -input_size",
    "Conv3DBackpropFilter": "input dout -filter_size",
    "FlashAttentionScore": "query key value real_shift drop_mask padding_mask attn_mask",
    "FlashAttentionScoreGrad": "query key value dy pse_shift drop_mask padding_mask attn_mask softmax_max "
    "softmax_sum softmax_in attention_in",
    "LSTMGrad": "x h c w y last memory dy dlast dmemory",
    # windows
    "AvgPool": "x kernel_size:ints strides:ints pad_mode:int data_format:int=NCHW",
    "AvgPoolGrad": "x out dout kernel_size:ints strides:ints pad_mode:int data_format:int=NCHW",
    "AvgPool3DGrad": "origin_input_shape:ints dout",
    "AdaptiveAvgPool2DGrad": "dout origin_input_shape:ints",
    "AdaptiveAvgPool3DGrad": "dout origin_input_shape:ints32",
    "AdaptiveMaxPool2D": "x output_size:ints",
    "AffineGrid": "theta output_size:ints",
    "AdaptiveMaxPool3D": "x output_size:ints32",
    # activations
    "ReLU6": "x",
    "Elu CeLU": "x alpha:float",
    "GeluExt": "x approximate:int",
    "HShrink SoftShrink": "x lambd:float",
    "HShrinkGrad SoftShrinkGrad": "dout x lambd:float",
    "LeakyReLUGradExt": "dout x negative_slope:float is_result:bool",
    "Softmax": "x axis:ints",
    "LogSoftmax": "x axis:int",
    "LogSoftmaxGrad": "out dout axis:int",
    "Dropout": "x keep_prob:float seed0:int seed1:int",
    # normalizations
    "BatchNorm": "x scale bias mean variance is_training:bool epsilon:float momentum:float "
    "data_format:int=NCHW",
    "BatchNormGrad": "dout x scale mean variance reserve is_training:bool epsilon:float data_format:int=NCHW",
    "LayerNorm": "x gamma beta begin_norm_axis:int begin_params_axis:int epsilon:float",
    "LayerNormGrad": "x dout variance mean gamma begin_norm_axis:int begin_params_axis:int",
    "RmsNorm": "x gamma epsilon:float",
    "RmsNormGrad": "dy x rstd gamma",
    "InstanceNormGrad": "dout x gamma mean variance",
    "LayerNormExt": "x normalized_shape:ints gamma beta epsilon:float",
    "BatchNormExt": "x scale bias mean variance is_training:bool momentum:float epsilon:float",
    "GroupNorm": "x num_groups:int weight bias epsilon:float",
    "GroupNormGrad": "dout x mean rstd weight num_groups:int "
    "dx_is_require:bool dgamma_is_require:bool dbeta_is_require:bool",
    # reductions
    "ReduceSum": "x axis:ints keep_dims:bool skip_mode:bool=0",
    "ReduceMean ReduceMax ReduceMin ReduceProd ReduceAll ReduceAny": "x axis:ints keep_dims:bool",
    "ReduceStd": "x axis:ints unbiased:bool keep_dims:bool",
    "ArgMaxWithValue ArgMinWithValue": "x axis:int keep_dims:bool",
    "Cummax Cummin": "x axis:int",
    "CumsumExt": "x dim:int dtype:int",
    "SortExt": "x dim:int descending:bool stable:bool",
    "TopkExt": "x k:int dim:int largest:bool sorted:bool",
    "Roll": "x shifts:ints dims:ints",
    "CumSum CumProd": "x axis:int exclusive:bool reverse:bool",
    "Argmax Argmin": "x axis:int place_type:int",
    "TopK": "x k:int32",
    # shapes
    "Reshape": "x -shape",
    "Transpose": "x -order",
    "ExpandDims Squeeze": "x -axis",
    "BroadcastTo Tile": "x sizes:ints",
    "Shape TensorShape": "-x",
    "ScalarToTensor": "x dtype:int",
    "Eye": "rows:int columns:int dtype:int",
    "Zeros": "shape:ints dtype:int",
    "LinSpace": "start stop count:int",
    "Meshgrid": "*tensors indexing:int",
    "ReverseV2": "x axis:ints",
    "SplitTensorView": "x split_size dim:int",
    "TransposeExtView": "x dim0:int dim1:int",
    "Concat": "*tensors axis:int",
    "Split": "x axis:int output_num:int",
    "Slice": "x begin:ints size:ints",
    "StridedSlice": "x begin:ints end:ints strides:ints begin_mask:int end_mask:int "
    "ellipsis_mask:int=0 new_axis_mask:int=0 shrink_axis_mask:int=0",
    "StridedSliceGrad": "dout shape:ints begin:ints end:ints strides:ints",
    "PadV3": "x paddings:ints value",
    "PadV3Grad": "dout paddings:ints",
    "Triu": "x diagonal:int",
    "Tril": "x -diagonal",
    "FillV2": "shape:ints value",
    "Cast": "x -dtype",
    "Round": "x decimals:int=0",
    "AddExt SubExt": "input other alpha",
    "IsClose": "input other rtol:float atol:float equal_nan:bool",
    "Cross": "input other dim:int",
    "Cdist": "x1 x2 p:float",
    # gathering and scattering
    "Gather": "params indices axis:int batch_dims:int=0",
    "GatherD": "x dim:int index",
    "GatherDGradV2": "x dim:int index dout",
    "OneHot": "indices -depth on_value off_value axis:int",
    "ScatterNd": "indices updates -shape",
    "TensorScatterElements": "data indices update axis:int reduce:int",
    "Scatter": "data axis:int indices update reduce:int",
    "SearchSorted": "sequence values sorter dtype:int right:bool",
    "UnsortedSegmentSum": "x segment_ids -num_segments",
    # images
    "ResizeNearestNeighborV2 ResizeBicubic": "image size:ints align_corners:bool half_pixel_centers:bool",
    "ResizeNearestNeighborV2Grad": "dout size:ints align_corners:bool half_pixel_centers:bool",
    "ResizeBilinearV2": "image -size align_corners:bool half_pixel_centers:bool",
    "ResizeBilinearGrad ResizeBicubicGrad": "dout image align_corners:bool half_pixel_centers:bool",
    "CropAndResize": "x boxes box_indices crop_size:ints",
    "UpsampleNearest1D UpsampleNearest2D UpsampleNearest3D": "x -output_size -scales",
    "UpsampleNearest1DGrad UpsampleNearest3DGrad": "dout input_size:ints -output_size -scales",
    "UpsampleLinear1D UpsampleTrilinear3D": "x -output_size -scales align_corners:bool",
    "UpsampleLinear1DGrad UpsampleTrilinear3DGrad": "dout input_size:ints -output_size -scales "
    "align_corners:bool",
    "GridSampler2D GridSampler3D": "x grid interpolation_mode:int padding_mode:int align_corners:bool",
    "GridSampler2DGrad GridSampler3DGrad": "dout x grid interpolation_mode:int padding_mode:int "
    "align_corners:bool output_mask:ints",
    # optimizers
    "ApplyMomentum": "variable moments rate:float gradient momentum:float",
    "SGD": "variable gradient rate:float accum momentum:float stat",
    "Adam": "variable moment1 moment2 beta1_power:float beta2_power:float rate:float "
    "beta1:float beta2:float eps:float gradient",
    "AdamWeightDecay": "variable adam_m adam_v rate:float beta1:floats beta2:floats eps:floats "
    "weight_decay:float gradient use_locking:bool=0",
    "ApplyRMSProp": "variable mean_square moment rate:float gradient "
    "decay:float momentum:float epsilon:float",
    "ApplyCenteredRMSProp": "variable mean_grad mean_square moment gradient rate:float "
    "decay:float momentum:float epsilon:float",
    "ApplyAdagrad": "variable accum rate:float gradient",
    # losses
    "BinaryCrossEntropy": "input target weight reduction:int",
    "BinaryCrossEntropyGrad": "input target dout weight reduction:int",
    "BinaryCrossEntropyWithLogitsBackward": "dout input target weight pos_weight reduction:int",
    "BCEWithLogitsLoss": "input target weight pos_weight reduction:int",
    "SmoothL1Loss": "prediction target beta:float reduction:int",
    "SmoothL1LossGrad": "prediction target dout beta:float reduction:int",
    "NLLLoss": "logits labels weight reduction:int ignore_index:int",
    "NLLLossGrad": "logits dout labels weight total_weight reduction:int ignore_index:int",
}
"""The inputs of each primitive in the order of its slots.

``axis:int`` is a constant, of a kind of ``_KINDS``, ``=`` its default; optimizers may have a variable in its
place. ``-shape`` is an input that the kernel does not read, so that no dump has it; ``*tensors`` stands for
any number of inputs; others are tensors. An operator without a row has tensors alone.
"""

_KINDS: Final[Mapping[str, tuple[type[np.generic], int]]] = {
    "bool": (np.bool_, 0),
    "int": (np.int64, 0),
    "int32": (np.int32, 0),
    "float": (np.float32, 0),
    "floats": (np.float32, 1),
    "ints": (np.int64, 1),
    "ints32": (np.int32, 1),
}
"""Element type and rank of each kind of constant."""

_NUMBERS: Final[Mapping[str, Mapping[str, int]]] = {
    "data_format": {"NCHW": 0, "NCDHW": 14},
    "pad_mode": {"pad": 0, "same": 1, "valid": 2},
    "interpolation_mode": {"bilinear": 0, "nearest": 1, "bicubic": 2},
    "padding_mode": {"zeros": 0, "border": 1, "reflection": 2},
    "approximate": {"none": 0, "tanh": 1},
    "reduction": {"sum": 0, "mean": 1, "none": 2},
    "reduce": {"none": 0, "add": 1},
    "place_type": {"int32": 34, "int64": 35},
}
"""The numbers that stand for texts, by name of the input."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An input of a primitive."""

    name: str  # MindSpore's name
    kind: str = ""  # its kind if it is a constant, "" for a tensor
    default: int | str | None = None  # its value where a call leaves it out; None: a call gives it
    is_read: bool = True  # whether the kernel reads it, so that dumps have it
    is_repeated: bool = False  # whether it stands for any number of inputs

    def converted(self, value: Any) -> Any:
        """Return a constant as an array of its type and rank, a tensor or None as it is."""
        if not self.kind or not isinstance(value, (bool, int, float, str, list, tuple, np.ndarray)):
            return value
        dtype, rank = _KINDS[self.kind]
        number = _NUMBERS[self.name][value] if isinstance(value, str) else value
        return np.asarray(number, dtype).reshape((-1,) * rank)


def text_of(name: str, value: Any) -> Any:
    """Return the text that a number stands for in a slot of a name, any other value as it is."""
    texts = {number: text for text, number in _NUMBERS.get(name, {}).items()}
    return texts.get(value, value) if isinstance(value, int) else value


def _slots(row: str) -> Iterator[Slot]:
    for text in row.split():
        name, _, kind = text.lstrip("-*").partition(":")
        kind, _, default = kind.partition("=")
        known = int(default) if default.isdigit() else default or None
        yield Slot(name, kind, known, is_read=text[0] != "-", is_repeated=text[0] == "*")


SLOTS: Final[Mapping[str, tuple[Slot, ...]]] = {
    name: tuple(_slots(row)) for names, row in _ROWS.items() for name in names.split()
}
"""The inputs of each primitive that has other inputs than tensors."""


def filled(primitive: str, given: Sequence[Any]) -> list[Any]:
    """Return the inputs of an operator by slot: constants as arrays, with defaults where they are left out.

    Args:
        primitive: MindSpore's name.
        given: The inputs that its kernel reads, in order: tensors, and constants as numbers, texts or lists.

    >>> filled("Concat", ["x", "y", -1])
    ['x', 'y', array(-1)]
    >>> filled("AvgPool", ["x", (2, 2), (1, 1), "same"])[1:]
    [array([2, 2]), array([1, 1]), array(1), array(0)]
    >>> filled("OneHot", ["indices", "on", "off", 1])
    ['indices', None, 'on', 'off', array(1)]
    """
    slots = list(SLOTS.get(primitive, ()))
    if all(slot.is_read and not slot.kind and not slot.is_repeated for slot in slots):
        return list(given)
    if slots[0].is_repeated:
        slots[:1] = slots[:1] * (len(given) - len(slots) + 1)
    rest = iter(given)
    inputs = [slot.converted(next(rest, slot.default)) if slot.is_read else None for slot in slots]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return [*inputs, *rest]
