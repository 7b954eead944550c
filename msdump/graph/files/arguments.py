"""Attributes of a node under MindSpore's argument names: the .ir's primitive_attrs and save_kernel_args."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.graph import windows
from msdump.graph.graph import Graph, Node

Argument = bool | int | float | str | tuple[Any, ...] | list[Any] | np.ndarray
"""The value of an argument; lists are name lists, everything else that repeats is a tuple."""

_SHOWN: Final = 16  # elements of a tensor that are written out


def arguments(node: Node, graph: Graph) -> dict[str, Argument]:
    """Return a node's arguments, by MindSpore's names where the table has them, else by ONNX's own.

    Every attribute of the model appears once. Defaults appear where the table states
    them. A subgraph attribute appears as ``@`` and the name of the subgraph.
    """
    rows = _rows(node)
    values: dict[str, Argument] = {}
    for row in rows:
        value = row.value(node, graph)
        if value is not None:
            values[row.name] = value
    translated = {row.attribute for row in rows}
    return values | {name: _plain(value) for name, value in node.attributes.items() if name not in translated}


def _rows(node: Node) -> tuple[_Row, ...]:
    if node.domain:
        return ()
    # first by MindSpore's name: a BiasAdd is an Add to ONNX
    return _ROWS.get(node.operator.op_type) or _ROWS.get(node.op_type, ())


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
    extents = windows.window(node, graph)
    return None if extents is None else (1, 1, *extents)


def _pool_pad_mode(node: Node, graph: Graph) -> Argument:
    return windows.pad_mode(node, graph).upper()


def _conv_channels(node: Node, graph: Graph) -> Argument | None:
    weight = windows.weight_shape(node, graph)
    return None if weight is None else weight[0]


def _transposed_channels(node: Node, graph: Graph) -> Argument | None:
    """The weight of a transposed convolution holds the channels of one group."""
    weight = windows.weight_shape(node, graph)
    groups: Any = node.attributes.get("group", 1)
    return None if weight is None else weight[1] * groups


def _softmax_axis(node: Node, graph: Graph) -> tuple[Any]:
    since_last_axis = 13  # the opset in which the default became the last axis
    default = -1 if graph.opsets.get("", since_last_axis) >= since_last_axis else 1
    return (node.attributes.get("axis", default),)


def _pool_output(node: Node, graph: Graph) -> Argument:
    return (1,) * windows.axes(node, graph)


def _cast_type(number: int) -> str:
    return dtypes.from_onnx(number).title


def _lrn_alpha(node: Node, _graph: Graph) -> Argument:
    # ONNX divides by the window's size, MindSpore does not
    alpha: Any = node.attributes.get("alpha", 1e-4)
    size: Any = node.attributes.get("size", 1)
    return float(alpha) / int(size)


def _lstm_input(node: Node, graph: Graph) -> Argument | None:
    shape = graph.type_of(node.inputs[0]).shape
    return shape[-1] if shape and isinstance(shape[-1], int) else None


def _has_bias(node: Node, _graph: Graph) -> Argument:
    bias = 3  # slot
    return len(node.inputs) > bias and bool(node.inputs[bias])


_GRU_DIRECTIONS: Final = {"bidirectional": "BIDIRECTIONAL", "reverse": "REDIRECTIONAL"}


def _gru_direction(direction: str) -> str:
    return _GRU_DIRECTIONS.get(direction, "UNIDIRECTIONAL")


def _is_bidirectional(direction: str) -> bool:
    return direction == "bidirectional"


def _reduction(*leading: _Row) -> tuple[_Row, ...]:
    return (*leading, _renamed("axis", "axes"), _renamed("keep_dims", "keepdims", 1, bool))


def _convolution(channels: Callable[[Node, Graph], Argument | None]) -> Iterator[_Row]:
    # vendor: names, order and the doubled group are what MindSpore prints of its Conv2D
    yield _computed("kernel_size", windows.window, "kernel_shape")
    yield _constant("mode", 1)
    yield _computed("out_channel", channels)
    yield _constant("input_names", ["x", "w"])
    yield _computed("pad", windows.asked_pads, "pads")
    yield _computed("pad_mod", windows.pad_mode, "auto_pad")
    yield _constant("format", "NCHW")
    yield _computed("pad_list", windows.real_pads)
    yield _renamed("groups", "group", 1)
    yield _computed("stride", windows.spread("strides"), "strides")
    yield _renamed("group", "group", 1)
    yield _computed("dilation", windows.spread("dilations"), "dilations")
    yield _constant("output_names", ["output"])


_POOL: Final = (
    _computed("kernel_size", _pool_window, "kernel_shape"),
    _computed("strides", windows.spread("strides"), "strides"),
    _computed("pad_mode", _pool_pad_mode, "auto_pad"),
    _computed("pad_list", windows.real_pads, "pads"),
    _constant("format", "NCHW"),
)
_GLOBAL_POOL: Final = (_computed("output_size", _pool_output),)
_SUMS: Final = (_renamed("exclusive", "exclusive", 0, bool), _renamed("reverse", "reverse", 0, bool))
_ARGUMENT_OF: Final = (_renamed("axis", "axis", 0), _renamed("keep_dims", "keepdims", 1, bool))
_BLOCK: Final = (_renamed("block_size", "blocksize"),)

_ROWS: Final[Mapping[str, tuple[_Row, ...]]] = {
    "Conv": tuple(_convolution(_conv_channels)),
    "ConvTranspose": tuple(_convolution(_transposed_channels)),
    "MatMul": (_constant("transpose_a", value=False), _constant("transpose_b", value=False)),
    "BiasAdd": (_constant("format", "NCHW"),),
    "Gemm": (
        _renamed("transpose_a", "transA", 0, bool),
        _renamed("transpose_b", "transB", 0, bool),
    ),
    "MaxPool": _POOL,
    "AveragePool": _POOL,
    "GlobalAveragePool": _GLOBAL_POOL,
    "GlobalMaxPool": _GLOBAL_POOL,
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
    "InstanceNormalization": (_renamed("epsilon", "epsilon", 1e-5),),
    "RMSNormalization": (_renamed("epsilon", "epsilon", 1e-5),),
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
    "Elu": (_renamed("alpha", "alpha", 1.0),),
    "Celu": (_renamed("alpha", "alpha", 1.0),),
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
    "Squeeze": (_renamed("axis", "axes"),),
    "Unsqueeze": (_renamed("axis", "axes"),),
    "Gather": (_renamed("axis", "axis", 0), _constant("batch_dims", 0)),
    "GatherElements": (_renamed("dim", "axis", 0),),
    "ScatterElements": (_renamed("axis", "axis", 0), _renamed("reduction", "reduction", "none")),
    "Slice": tuple(_constant(name, 0) for name in (
        "begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"
    )),
    "Pad": (_renamed("mode", "mode", "constant"), _constant("paddings_contiguous", value=False)),
    "Cast": (_renamed("dst_type", "to", None, _cast_type),),
    "OneHot": (_renamed("axis", "axis", -1),),
    "TopK": (_renamed("sorted", "sorted", 1, bool),),
    "CumSum": _SUMS,
    "CumProd": _SUMS,
    "ArgMax": _ARGUMENT_OF,
    "ArgMin": _ARGUMENT_OF,
    "DepthToSpace": _BLOCK,
    "SpaceToDepth": _BLOCK,
    "ReduceSum": _reduction(),
    "ReduceMean": _reduction(),
    "ReduceMax": _reduction(),
    "ReduceMin": _reduction(),
    "ReduceProd": _reduction(),
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
        _computed("has_bias", _has_bias),
        _renamed("bidirectional", "direction", "forward", _is_bidirectional),
        _constant("dropout", 0.0),
    ),
    "GRU": (
        _renamed("direction", "direction", "forward", _gru_direction),
        _renamed("reset_after", "linear_before_reset", 0, bool),
    ),
}  # fmt: skip
