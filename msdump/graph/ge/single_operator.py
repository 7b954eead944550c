"""Models of one operator, for callers that name it as GE, MindSpore or ONNX does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx
from onnx import helper

from msdump.errors import UnsupportedOpError
from msdump.graph.ge import model as ge
from msdump.graph.ge.body import REQUIRED, CallOperand
from msdump.graph.operator_types import GE_DOMAIN
from msdump.graph.primitives import PRIMITIVES

_IR: Final = 10

_PLAIN: Final = {name: op_type for op_type, name in PRIMITIVES.items() if isinstance(name, str)}
_NAMES: Final = _PLAIN | {
    # what rules of the table of primitives name
    "AvgPool3D": "AveragePool",
    "MaxPool3D": "MaxPool",
    "TensorScatterUpdate": "ScatterND",
}
"""ONNX operators by their names in MindSpore and GE; every other name is ONNX's own."""

_RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "MaxPool": {"ksize": "kernel_shape", "padding": "auto_pad"},
    "AveragePool": {"ksize": "kernel_shape", "padding": "auto_pad"},
    "Concat": {"concat_dim": "axis"},
    "Gemm": {"transpose_a": "transA", "transpose_b": "transB"},
}
"""ONNX's names of GE's attributes, by ONNX operator, where GE's operator is ONNX's."""

_WINDOWS: Final = frozenset({"MaxPool", "AveragePool"})


def onnx_name(op_type: str) -> str:
    """Return the ONNX operator of a name in GE, MindSpore or ONNX.

    >>> onnx_name("ReLU"), onnx_name("Maximum"), onnx_name("Add")
    ('Relu', 'Max', 'Add')

    Raises:
        UnsupportedOpError: There is none.
    """
    for name in (op_type, _NAMES.get(op_type)):
        if name is not None and onnx.defs.has(name, ge.OPSET, ""):
            return name
    raise UnsupportedOpError(
        f"operator {op_type!r} is not known; names of ONNX, MindSpore and GE such as 'Add', 'ReLU' and"
        " 'MatMulV2' are"
    )


def needed_values(op_type: str, inputs: int, attributes: Mapping[str, Any]) -> frozenset[int]:
    """Return the inputs whose elements ``single_operator`` must be given: axes, shapes and the like."""
    operator = ge.find(op_type, inputs, attributes)
    return frozenset() if operator is None else ge.constant_slots(operator, inputs)


def single_operator(
    op_type: str, inputs: Sequence[CallOperand], outputs: Sequence[CallOperand], attributes: Mapping[str, Any]
) -> bytes:
    """Return a serialised model of one operator; its inputs are x0, x1, ..., its outputs y0, y1, ...

    Args:
        op_type: Name of the operator in GE, MindSpore or ONNX; also the name of node and graph.
        inputs: What it reads; those of ``needed_values`` with their elements.
        outputs: What the caller expects of it.
        attributes: Attributes as GE or ONNX names them; unknown ones are logged.

    Raises:
        UnsupportedOpError: No such operator.
        InputCountError: Inputs that are too few or too many.
        InputError: An attribute is missing, or its value is impossible.
    """
    operator = ge.find(op_type, len(inputs), attributes)
    if operator is None:
        node = _onnx_node(op_type, inputs, len(outputs), attributes)
        functions: list[onnx.FunctionProto] = []
        results = [helper.make_empty_tensor_value_info(name) for name in node.output]
    else:
        node, functions, types = ge.parts(op_type, operator, inputs, outputs, attributes)
        results = [
            helper.make_tensor_value_info(name, number, None)
            for name, number in zip(node.output, types, strict=True)
        ]
    values = [
        helper.make_tensor_value_info(f"x{index}", item.dtype.onnx, item.shape)
        for index, item in enumerate(inputs)
    ]
    graph = helper.make_graph([node], op_type, values, results)
    opsets = [helper.make_opsetid("", ge.OPSET), helper.make_opsetid(GE_DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=_IR)
    return bytes(model.SerializeToString())


def _onnx_node(
    op_type: str, inputs: Sequence[CallOperand], outputs: int, attributes: Mapping[str, Any]
) -> onnx.NodeProto:
    target = onnx_name(op_type)
    renamed = dict(attributes)
    # ONNX's operators have no such attribute: their data are NCHW
    renamed.pop("data_format", None)
    for old, new in _RENAMED.get(target, {}).items():
        if old in renamed:
            renamed[new] = renamed.pop(old)
    # called by another name, the windows are in the other library's terms
    if target in _WINDOWS and op_type != target:
        _window(renamed, len(inputs[0].shape) if inputs else 0)
    defaults = {
        name: REQUIRED if item.required else None
        for name, item in onnx.defs.get_schema(target, ge.OPSET).attributes.items()
    }
    complete = ge.complete(op_type, defaults, renamed)
    kept = {name: value for name, value in complete.items() if value is not None}
    names = [f"x{index}" for index in range(len(inputs))]
    return helper.make_node(target, names, [f"y{index}" for index in range(outputs)], name=op_type, **kept)


def _window(attributes: dict[str, Any], rank: int) -> None:
    """Rewrite windows with numbers for batch and channels, and pads in GE's order, as ONNX has them."""
    for name in ("strides", "dilations", "kernel_shape"):
        if isinstance(attributes.get(name), list) and len(attributes[name]) == rank:
            attributes[name] = attributes[name][2:]
    if isinstance(attributes.get("pads"), list):
        attributes["pads"] = attributes["pads"][0::2] + attributes["pads"][1::2]
    if attributes.get("auto_pad") == "SAME":
        attributes["auto_pad"] = "SAME_UPPER"
