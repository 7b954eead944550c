"""Attributes of a node under MindSpore's argument names: the .ir's primitive_attrs and save_kernel_args."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from msdump import dtypes
from msdump.graph.graph import Graph, Node

PadMode = Literal["valid", "same", "pad"]

_AUTOMATIC: Final[dict[Any, PadMode]] = {"VALID": "valid", "SAME_UPPER": "same", "SAME_LOWER": "same"}


def window(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """Return the extents: the attribute, or the last dimensions of the weight; None where unknown."""
    kernel_shape = _ints(node, "kernel_shape")
    if kernel_shape is not None:
        return kernel_shape
    # ONNX infers a missing kernel_shape from the weight (N, C, *extents)
    shape = weight_shape(node, graph)
    return None if shape is None else shape[2:]


def weight_shape(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """Return the shape of the second input where every dimension is known."""
    return (graph.type_of(node.inputs[1]).sizes or None) if len(node.inputs) > 1 else None


def axes(node: Node, graph: Graph) -> int:
    """Return the number of spatial axes: of the window, else of the data, else 2."""
    extents = window(node, graph)
    if extents is not None:
        return len(extents)
    shape = graph.type_of(node.inputs[0]).shape if node.inputs else None
    return 2 if shape is None else max(0, len(shape) - 2)


def spread(attribute: str) -> Callable[[Node, Graph], tuple[int, ...]]:
    """Return a function that reads an attribute as (1, 1, *numbers), batch and channel first; default 1."""

    def value(node: Node, graph: Graph) -> tuple[int, ...]:
        numbers = _ints(node, attribute)
        return (1, 1, *((1,) * axes(node, graph) if numbers is None else numbers))

    return value


def pad_mode(node: Node, _graph: Graph) -> PadMode:
    """Return valid, same or pad; explicit paddings of 0 are what MindSpore calls valid."""
    automatic = _AUTOMATIC.get(node.attributes.get("auto_pad"))
    if automatic is not None:
        return automatic
    # NOTSET, the default of auto_pad, leaves the padding to the attribute pads
    return "pad" if any(_ints(node, "pads") or ()) else "valid"


def asked_pads(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the paddings that the attribute states, axis by axis (top, bottom, left, right); else zeros."""
    pads = _ints(node, "pads") if pad_mode(node, graph) == "pad" else None
    if pads is None:
        return (0,) * (2 * axes(node, graph))
    # ONNX: all begins, then all ends; MindSpore: begin and end of each axis
    half = len(pads) // 2
    return tuple(side for pair in zip(pads[:half], pads[half:], strict=False) for side in pair)


def real_pads(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """Return the paddings that take place, axis by axis; None where they depend on unknown sizes."""
    return _same_pads(node, graph) if pad_mode(node, graph) == "same" else asked_pads(node, graph)


def _same_pads(node: Node, graph: Graph) -> tuple[int, ...] | None:
    extents, shape = window(node, graph), graph.type_of(node.inputs[0]).shape if node.inputs else None
    if extents is None or shape is None or len(shape) != len(extents) + 2:
        return None
    ones = (1,) * len(extents)
    steps = _ints(node, "strides") or ones
    gaps = _ints(node, "dilations") or ones
    sides: list[int] = []
    # not strict: a faulty model is the runtime's to refuse
    for size, extent, step, gap in zip(shape[2:], extents, steps, gaps, strict=False):
        if not isinstance(size, int):
            return None
        # SAME: ceil(size / stride) windows, padded by what the last one reaches beyond the data
        total = max(0, (-(-size // step) - 1) * step + (extent - 1) * gap + 1 - size)
        halves = (total // 2, total - total // 2)
        sides += halves[::-1] if node.attributes.get("auto_pad") == "SAME_LOWER" else halves
    return tuple(sides)


def _ints(node: Node, attribute: str) -> tuple[int, ...] | None:
    value: Any = node.attributes.get(attribute)
    return None if value is None else tuple(value)


Argument = bool | int | float | str | tuple[Any, ...] | list[Any] | np.ndarray
"""The value of an argument; lists are name lists, everything else that repeats is a tuple."""

_SHOWN: Final = 16  # elements of a tensor that are written out


def arguments(node: Node, graph: Graph) -> dict[str, Argument]:
    """Return a node's arguments, by MindSpore's names where the table has them, else by ONNX's own.

    Every attribute of the model appears once. Defaults appear where the table states
    them. A subgraph attribute appears as ``@`` and the name of the subgraph.
    """
    # first by MindSpore's name: a BiasAdd is an Add to ONNX
    rows = () if node.domain else _ROWS.get(node.operator.op_type) or _ROWS.get(node.op_type, ())
    values: dict[str, Argument] = {}
    for row in rows:
        value = row.value(node, graph)
        if value is not None:
            values[row.name] = value
    translated = {row.attribute for row in rows}
    return values | {name: _plain(value) for name, value in node.attributes.items() if name not in translated}


def kernel_args(node: Node, graph: Graph) -> dict[str, str]:
    """Return the arguments as ``save_kernel_args`` writes them, sorted by name.

    The texts are ``True``, ``0``, ``[1 2]`` (MindSpore dump, kernel arguments).
    """
    texts = {
        _CONSTRUCTOR_NAMES.get(name, name): _text(value) for name, value in arguments(node, graph).items()
    }
    return dict(sorted(texts.items()))


def kernel_args_json(node: Node, graph: Graph) -> bytes:
    """Return the ``{op_type}.{op_name}.json`` file: sorted keys, four spaces of indent."""
    return json.dumps(kernel_args(node, graph), indent=4, ensure_ascii=False).encode()


def tensor_text(array: np.ndarray) -> str:
    """Return a constant tensor as graph files print it, the elements only where they are 16 or fewer.

    >>> tensor_text(np.array([1, 2]))
    'Tensor(shape=[2], dtype=Int64, value=[1 2])'
    >>> tensor_text(np.zeros(17, np.float32))
    'Tensor(shape=[17], dtype=Float32, value=[...])'
    """
    if array.size > _SHOWN:
        value = "[...]"
    elif array.ndim:
        value = _text(tuple(array.tolist()))
    else:
        value = _text(array.item())
    return f"Tensor(shape={list(array.shape)}, dtype={dtypes.from_numpy(array.dtype).title}, value={value})"


def number_text(number: float) -> str:
    """Return a float with six significant digits, as C++ streams print it.

    >>> number_text(0.1), number_text(1e-5), number_text(1234567.0)
    ('0.1', '1e-05', '1.23457e+06')
    """
    return f"{number:g}"


def _text(value: Argument) -> str:
    if isinstance(value, np.ndarray):
        return tensor_text(value)
    if isinstance(value, (tuple, list)):
        return f"[{' '.join(_text(item) for item in value)}]"
    if isinstance(value, float):
        return number_text(value)
    return str(value)


def _plain(value: Any) -> Argument:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (tuple, list)):
        return tuple(_plain(item) for item in value)
    if isinstance(value, (bool, int, float, str, np.ndarray)):
        return value
    is_graph = hasattr(value, "node") and hasattr(value, "name")
    return f"@{value.name}" if is_graph else f"<{type(value).__name__}>"


# vendor: graph files spell Conv's argument pad_mode without its last letter.
_CONSTRUCTOR_NAMES: Final = {"pad_mod": "pad_mode"}


@dataclass(frozen=True, slots=True)
class _Row:
    """One argument: its name, the ONNX attribute it translates ("" for none), and how."""

    name: str
    attribute: str
    value: Callable[[Node, Graph], Argument | None]


def _constant(name: str, value: Argument) -> _Row:
    return _Row(name, "", lambda _node, _graph: value)


def _renamed(
    name: str, attribute: str, default: Argument | None = None, convert: Callable[[Any], Argument] = _plain
) -> _Row:
    """Return the row of an attribute that is converted, or of its default; no argument without either."""

    def value(node: Node, _graph: Graph) -> Argument | None:
        content = node.attributes.get(attribute, default)
        return None if content is None else convert(content)

    return _Row(name, attribute, value)


def _computed(name: str, value: Callable[[Node, Graph], Argument | None], attribute: str = "") -> _Row:
    return _Row(name, attribute, value)


def _pool_window(node: Node, graph: Graph) -> Argument | None:
    extents = window(node, graph)
    return None if extents is None else (1, 1, *extents)


def _pool_pad_mode(node: Node, graph: Graph) -> Argument:
    return pad_mode(node, graph).upper()


def _conv_channels(node: Node, graph: Graph) -> Argument | None:
    weight = weight_shape(node, graph)
    return None if weight is None else weight[0]


def _transposed_channels(node: Node, graph: Graph) -> Argument | None:
    """Return the channels of the convolution that is transposed; of volumes, those of the result."""
    weight = weight_shape(node, graph)
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


_BIAS: Final = slice(3, 4)  # slot of an LSTM's input
_GRU_DIRECTIONS: Final = {"bidirectional": "BIDIRECTIONAL", "reverse": "REDIRECTIONAL"}


def _reduction(*leading: _Row) -> tuple[_Row, ...]:
    return (*leading, _renamed("axis", "axes"), _renamed("keep_dims", "keepdims", 1, bool))


def _convolution(
    channels: Callable[[Node, Graph], Argument | None], inputs: tuple[str, ...], pad_mode: _Row
) -> Iterator[_Row]:
    # vendor: names, order and the doubled group are what MindSpore prints of Conv2D and Conv2DBackpropInput
    yield _computed("kernel_size", window, "kernel_shape")
    yield _constant("mode", 1)
    yield _computed("out_channel", channels)
    yield _constant("input_names", [*inputs])
    yield _computed("pad", asked_pads, "pads")
    yield pad_mode
    yield _computed("format", _layout)
    yield _computed("pad_list", real_pads)
    yield _renamed("groups", "group", 1)
    yield _computed("stride", spread("strides"), "strides")
    yield _renamed("group", "group", 1)
    yield _computed("dilation", spread("dilations"), "dilations")
    yield _constant("output_names", ["output"])


_POOL: Final = (
    _computed("kernel_size", _pool_window, "kernel_shape"),
    _computed("strides", spread("strides"), "strides"),
    _computed("pad_mode", _pool_pad_mode, "auto_pad"),
    _computed("pad_list", real_pads, "pads"),
    _computed("format", _layout),
)
_GLOBAL_POOL: Final = (_computed("output_size", lambda node, graph: (1,) * axes(node, graph)),)

_ROWS: Final[Mapping[str, tuple[_Row, ...]]] = {
    "Conv": tuple(
        _convolution(_conv_channels, ("x", "w"), _computed("pad_mod", pad_mode, "auto_pad"))
    ),
    "ConvTranspose": tuple(
        _convolution(
            _transposed_channels,
            ("out_backprop", "filter", "input_sizes"),
            _computed("pad_mode", _pool_pad_mode, "auto_pad"),
        )
    ),
    "MatMul": (_constant("transpose_a", value=False), _constant("transpose_b", value=False)),
    "BiasAdd": (_constant("format", "NCHW"),),
    "Gemm": (
        _renamed("transpose_a", "transA", 0, bool),
        _renamed("transpose_b", "transB", 0, bool),
    ),
    **dict.fromkeys(("MaxPool", "AveragePool"), _POOL),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _GLOBAL_POOL),
    "RoiAlign": (
        _renamed("pooled_height", "output_height", 1),
        _renamed("pooled_width", "output_width", 1),
        _renamed("sample_num", "sampling_ratio", 0),
    ),
    "BatchNormalization": (
        _constant("is_training", value=False),
        _renamed("epsilon", "epsilon", 1e-5),
        # ONNX's momentum weighs the old mean, MindSpore's the new one
        _renamed("momentum", "momentum", 0.9, lambda old: 1 - float(old)),
        _constant("format", "NCHW"),
    ),
    "LayerNormalization": (
        _renamed("begin_norm_axis", "axis", -1),
        _renamed("begin_params_axis", "axis", -1),
        _renamed("epsilon", "epsilon", 1e-5),
    ),
    **dict.fromkeys(("InstanceNormalization", "RMSNormalization"), (_renamed("epsilon", "epsilon", 1e-5),)),
    "GroupNormalization": (_renamed("eps", "epsilon", 1e-5),),
    "LRN": (
        # ONNX counts the whole window, MindSpore the channels on one side of its middle
        _renamed("depth_radius", "size", 1, lambda size: (int(size) - 1) // 2),
        _renamed("bias", "bias", 1.0),
        _computed("alpha", _lrn_alpha, "alpha"),
        _renamed("beta", "beta", 0.75),
    ),
    "Softmax": (_computed("axis", _softmax_axis, "axis"),),
    "LogSoftmax": (_computed("axis", lambda node, graph: _softmax_axis(node, graph)[0], "axis"),),
    "LeakyRelu": (_renamed("negative_slope", "alpha", 0.01),),
    **dict.fromkeys(("Elu", "Celu"), (_renamed("alpha", "alpha", 1.0),)),
    "Gelu": (_renamed("approximate", "approximate", "none"),),
    "Shrink": (_renamed("lambd", "lambd", 0.5),),
    # ONNX states what is dropped, MindSpore what is kept
    "Dropout": (_renamed("keep_prob", "ratio", None, lambda ratio: 1 - float(ratio)),),
    "Concat": (_renamed("axis", "axis", 1),),
    "Split": (
        _renamed("axis", "axis", 0),
        _computed("output_num", lambda node, _graph: len(node.outputs), "num_outputs"),
        _renamed("size_splits", "split"),
    ),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), (_renamed("axis", "axes"),)),
    "Gather": (_renamed("axis", "axis", 0), _constant("batch_dims", 0)),
    "GatherElements": (_renamed("dim", "axis", 0),),
    "ScatterElements": (_renamed("axis", "axis", 0), _renamed("reduction", "reduction", "none")),
    "Slice": tuple(_constant(name, 0) for name in (
        "begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"
    )),
    "Pad": (_renamed("mode", "mode", "constant"), _constant("paddings_contiguous", value=False)),
    "Cast": (_renamed("dst_type", "to", None, lambda number: dtypes.from_onnx(number).title),),
    "OneHot": (_renamed("axis", "axis", -1),),
    "TopK": (_renamed("sorted", "sorted", 1, bool),),
    **dict.fromkeys(
        ("CumSum", "CumProd"),
        (_renamed("exclusive", "exclusive", 0, bool), _renamed("reverse", "reverse", 0, bool)),
    ),
    **dict.fromkeys(
        ("ArgMax", "ArgMin"), (_renamed("axis", "axis", 0), _renamed("keep_dims", "keepdims", 1, bool))
    ),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), (_renamed("block_size", "blocksize"),)),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"), _reduction()),
    "ReduceL1": _reduction(_constant("p", 1)),
    "ReduceL2": _reduction(_constant("p", 2)),
    "GridSample": (
        _renamed("interpolation_mode", "mode", "bilinear"),
        _renamed("padding_mode", "padding_mode", "zeros"),
        _renamed("align_corners", "align_corners", 0, bool),
    ),
    "LSTM": (
        _computed("input_size", _lstm_input),
        _renamed("hidden_size", "hidden_size"),
        _constant("num_layers", 1),
        _computed("has_bias", lambda node, _graph: any(node.inputs[_BIAS])),
        _renamed("bidirectional", "direction", "forward", lambda text: text == "bidirectional"),
        _constant("dropout", 0.0),
    ),
    "GRU": (
        _renamed(
            "direction", "direction", "forward", lambda text: _GRU_DIRECTIONS.get(text, "UNIDIRECTIONAL")
        ),
        _renamed("reset_after", "linear_before_reset", 0, bool),
    ),
}  # fmt: skip
