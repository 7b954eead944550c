"""Models of single operators from MindSpore's graph files, which hold type, arguments and inputs.

Arguments stand among the attributes of an operator or, in files of newer versions, among its inputs as
constants; both places are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump.dtypes import DType
from msdump.errors import UnsupportedOpError
from msdump.graph.cutting.splice import RegionModel, ValueShape, host_type
from msdump.graph.ge.model import onnx_name
from msdump.graph.operators import is_elementwise

_OPSET: Final = 20
_IR: Final = 10


@dataclass(slots=True)
class PrimitiveCall:
    """An operator of MindSpore with inputs that are tensors or constants, and ONNX operators for it."""

    op_type: str
    attributes: Mapping[str, Any]
    tensors: Sequence[tuple[str, ValueShape, np.ndarray] | None]
    constants: Mapping[int, Any]
    result: DType | None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def x(self, slot: int) -> str:
        """Return the name of an input; a constant becomes a tensor of the first input's element type."""
        tensor = self.tensors[slot] if slot < len(self.tensors) else None
        if tensor is not None:
            return tensor[0]
        return self.constant(np.asarray(self.setting("", slot), self.dtype.numpy))

    @property
    def dtype(self) -> DType:
        """Element type of the first tensor."""
        return next(tensor[1].dtype for tensor in self.tensors if tensor is not None)

    @property
    def rank(self) -> int:
        """Number of dimensions of the first input."""
        tensor = self.tensors[0]
        return 0 if tensor is None else tensor[2].ndim

    def setting(self, name: str, slot: int | None = None, default: Any = None) -> Any:
        """Return an argument: an attribute, or else the constant or the elements of an input."""
        if name in self.attributes:
            return self.attributes[name]
        if slot is not None and slot in self.constants:
            return self.constants[slot]
        tensor = None if slot is None or slot >= len(self.tensors) else self.tensors[slot]
        if tensor is not None:
            return tensor[2].tolist()
        if default is None:
            raise UnsupportedOpError(
                f"{self.op_type}: the graph file does not contain its {name or f'input {slot}'}"
            )
        return default

    def numbers(self, name: str, slot: int | None = None, default: Any = None) -> list[int]:
        """Return an argument as a list of integers."""
        value = self.setting(name, slot, default)
        return [int(item) for item in (value if isinstance(value, (list, tuple)) else [value])]

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Append an operator; return the name of its first output."""
        names = [f"v{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return names[0]

    def constant(self, array: np.ndarray) -> str:
        """Add a constant; return its name."""
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def indices(self, numbers: Sequence[int]) -> str:
        """Add a constant of int64; return its name."""
        return self.constant(np.asarray(numbers, np.int64))


Build = Callable[[PrimitiveCall], str]
"""Appends the ONNX operators of a call; returns the name of its first output."""


def primitive_model(
    op_type: str,
    attributes: Mapping[str, Any],
    tensors: Sequence[tuple[str, ValueShape, np.ndarray] | None],
    constants: Mapping[int, Any],
    output: tuple[str, DType | None],
) -> RegionModel:
    """Return the model of an operator of MindSpore; it gives the operator's first output.

    Raises:
        UnsupportedOpError: The primitive is not known, or the file does not tell an argument.
    """
    name, dtype = output
    call = PrimitiveCall(op_type, attributes, tensors, constants, dtype)
    build = BUILDERS.get(op_type) or _elementwise(op_type)
    given = [tensor for tensor in tensors if tensor is not None]
    floats = {form.dtype.name for _, form, array in given if array.dtype.kind == "f"}
    if len(floats) > 1:
        raise UnsupportedOpError(
            f"{op_type}: its inputs are of {' and '.join(sorted(floats))}: the device casts between them;"
            " give the model with --model"
        )
    result = build(call)
    call.nodes.append(helper.make_node("Identity", [result], [name]))
    used = {value for node in call.nodes for value in node.input}
    inputs = {value: form for value, form, _ in given if value in used}
    values = [
        helper.make_tensor_value_info(value, form.dtype.onnx, form.shape) for value, form in inputs.items()
    ]
    graph = helper.make_graph(
        call.nodes, op_type, values, [helper.make_empty_tensor_value_info(name)], call.initializers
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    return RegionModel(
        model.SerializeToString(),
        {value: form.dtype for value, form in inputs.items()},
        {name: None},
    )


def _elementwise(op_type: str) -> Build:
    """Return the builder of an operator that is elementwise in ONNX; UnsupportedOpError for others."""
    try:
        target = onnx_name(op_type)
    except UnsupportedOpError:
        target = ""
    if not is_elementwise(target):
        known = ", ".join(sorted(BUILDERS))
        raise UnsupportedOpError(
            f"{op_type}: the graph file alone does not tell how to compute it (it does for operators by"
            f" element, and for {known}); give the model with --model"
        )
    return lambda call: call.node(
        target,
        *(call.x(slot) for slot in range(max((len(call.tensors), *(slot + 1 for slot in call.constants))))),
    )


def _matmul(call: PrimitiveCall) -> str:
    sides = []
    for slot, name in enumerate(("transpose_a", "transpose_b")):
        side, tensor = call.x(slot), call.tensors[slot]
        if call.setting(name, slot + 2, default=False) and tensor is not None:
            rank = tensor[2].ndim
            side = call.node("Transpose", side, perm=[*range(rank - 2), rank - 1, rank - 2])
        sides.append(side)
    return call.node("MatMul", *sides)


def _bias_add(call: PrimitiveCall) -> str:
    shape = [1] * call.rank
    shape[1] = -1
    tensor = call.tensors[0]
    if call.rank != 4 and tensor is not None and call.tensors[1] is not None:  # noqa: PLR2004 - NCHW
        last = tensor[2].shape[-1] == call.tensors[1][2].size
        shape = [*([1] * (call.rank - 1)), -1] if last else shape
    return call.node("Add", call.x(0), call.node("Reshape", call.x(1), call.indices(shape)))


def _pads(call: PrimitiveCall) -> dict[str, Any]:
    mode = str(call.setting("pad_mode", default="pad")).lower()
    if mode == "same":
        return {"auto_pad": "SAME_UPPER"}
    count = 2 * (call.rank - 2)
    sides = (call.numbers("pad", default=(0,)) * count)[:count] if mode == "pad" else [0] * count
    return {"pads": [*sides[::2], *sides[1::2]]}


def _per_axis(call: PrimitiveCall, numbers: list[int]) -> list[int]:
    """Return the last numbers, one for each spatial axis; numbers of batch and channels are dropped."""
    count = call.rank - 2
    return (numbers * count)[-count:]


def _convolution(call: PrimitiveCall) -> str:
    return call.node(
        "Conv",
        *(call.x(slot) for slot in range(len(call.tensors)) if call.tensors[slot] is not None),
        strides=_per_axis(call, call.numbers("stride", default=(1,))),
        dilations=_per_axis(call, call.numbers("dilation", default=(1,))),
        group=call.numbers("group", default=1)[0],
        **_pads(call),
    )


def _pool(op_type: str) -> Build:
    return lambda call: call.node(
        op_type,
        call.x(0),
        kernel_shape=_per_axis(call, call.numbers("kernel_size")),
        strides=_per_axis(call, call.numbers("strides")),
        **_pads(call),
    )


def _along(op_type: str) -> Build:
    return lambda call: call.node(op_type, call.x(0), axis=call.numbers("axis", 1, -1)[0])


def _reduction(op_type: str) -> Build:
    def build(call: PrimitiveCall) -> str:
        axes = call.numbers("axis", 1, ())
        keeps = bool(call.setting("keep_dims", 2, default=False))
        inputs = (call.x(0), *([call.indices(axes)] if axes else ()))
        return call.node(op_type, *inputs, keepdims=int(keeps))

    return build


def _with_numbers(op_type: str, name: str) -> Build:
    return lambda call: call.node(op_type, call.x(0), call.indices(call.numbers(name, 1)))


def _layer_norm(call: PrimitiveCall) -> str:
    return call.node(
        "LayerNormalization",
        *(call.x(slot) for slot in range(3)),
        axis=call.numbers("begin_norm_axis", 3, -1)[0],
        epsilon=float(call.setting("epsilon", 5, default=1e-7)),
    )


def _cast(call: PrimitiveCall) -> str:
    dtype = call.result
    if dtype is None:
        raise UnsupportedOpError(f"{call.op_type}: the graph file does not contain the type of its output")
    narrow, wide = call.node("Cast", call.x(0), to=dtype.onnx), host_type(dtype)
    return narrow if wide is dtype or wide is None else call.node("Cast", narrow, to=wide.onnx)


def _dense(call: PrimitiveCall) -> str:
    product = call.node("MatMul", call.x(0), call.node("Transpose", call.x(1), perm=(1, 0)))
    return call.node("Add", product, call.x(2)) if len(call.tensors) > 2 else product  # noqa: PLR2004 - a bias


def _relu_grad(call: PrimitiveCall) -> str:
    zero = call.constant(np.asarray(0, call.dtype.numpy))
    passes = call.node("Greater", call.x(1), zero)
    return call.node("Where", passes, call.x(0), zero)


def _bias_add_grad(call: PrimitiveCall) -> str:
    axes = [axis for axis in range(call.rank) if axis != 1]
    return call.node("ReduceSum", call.x(0), call.indices(axes), keepdims=0)


BUILDERS: Final[Mapping[str, Build]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul"), _matmul),
    "Dense": _dense,
    **dict.fromkeys(("Conv1D", "Conv2D", "Conv3D"), _convolution),
    "BiasAdd": _bias_add,
    "BiasAddGrad": _bias_add_grad,
    **dict.fromkeys(("MaxPool", "MaxPool1D"), _pool("MaxPool")),
    **dict.fromkeys(("AvgPool", "AvgPool1D"), _pool("AveragePool")),
    **{name: _along(name) for name in ("Softmax", "LogSoftmax")},
    "Flatten": lambda call: call.node("Flatten", call.x(0)),
    "Reshape": _with_numbers("Reshape", "shape"),
    "ExpandDims": _with_numbers("Unsqueeze", "axis"),
    "BroadcastTo": _with_numbers("Expand", "shape"),
    "Tile": _with_numbers("Tile", "multiples"),
    "Transpose": lambda call: call.node("Transpose", call.x(0), perm=call.numbers("perm", 1)),
    "Gather": lambda call: call.node("Gather", call.x(0), call.x(1), axis=call.numbers("axis", 2, 0)[0]),
    **{name: _reduction(name) for name in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")},
    "LayerNorm": _layer_norm,
    "GeLU": lambda call: call.node(
        "Gelu", call.x(0), approximate=str(call.setting("approximate", default="tanh"))
    ),
    "Cast": _cast,
    "Square": lambda call: call.node("Mul", call.x(0), call.x(0)),
    "Rsqrt": lambda call: call.node("Reciprocal", call.node("Sqrt", call.x(0))),
    "ReLU6": lambda call: call.node(
        "Clip", call.x(0), *(call.constant(np.asarray(bound, call.dtype.numpy)) for bound in (0, 6))
    ),
    "AddN": lambda call: call.node("Sum", *(call.x(slot) for slot in range(len(call.tensors)))),
    "ReluGrad": _relu_grad,
}
"""How operators are computed that take arguments, by their MindSpore primitive."""
