"""Models of one operator, for callers that name it as GE, MindSpore or ONNX does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump.dtypes import DTYPES, DType
from msdump.errors import InputError, UnsupportedOpError
from msdump.graph.primitives import GE_TYPES, PRIMITIVES

_OPSET: Final = 20
_IR: Final = 10

Attributes = dict[str, Any]

_PLAIN: Final = {name: op_type for op_type, name in PRIMITIVES.items() if isinstance(name, str)}
_NAMES: Final = _PLAIN | {
    # what rules of the table of primitives name
    **dict.fromkeys(("Conv2D", "Conv3D"), "Conv"),
    **dict.fromkeys(("Conv2DTranspose", "Conv3DTranspose", "Conv2DTransposeD"), "ConvTranspose"),
    **dict.fromkeys(("MatMulV2", "MatMulV3", "BatchMatMul", "BatchMatMulV2"), "MatMul"),
    **dict.fromkeys(("AvgPool", "AvgPoolV2", "AvgPool3D"), "AveragePool"),
    **dict.fromkeys(("MaxPoolV2", "MaxPoolV3", "MaxPool3D"), "MaxPool"),
    **dict.fromkeys(("ReLU6", "Relu6", "ClipByValue"), "Clip"),
    "BiasAdd": "Add",
    "FloorMod": "Mod",
    "TensorScatterUpdate": "ScatterND",
    # what GE alone spells
    **{spelled: _PLAIN[primitive] for primitive, spelled in GE_TYPES.items()},
    "GEMM": "Gemm",
    "BNInference": "BatchNormalization",
    **{f"{name}V2": name for name in ("Softmax", "LogSoftmax", "Gather", "ArgMax")},
    **{f"{name}D": name for name in ("Concat", "Transpose", "Tile", "Pad")},
    **{f"Reduce{kind}D": f"Reduce{kind}" for kind in ("Sum", "Mean", "Max", "Min", "Prod")},
    "ConcatV2D": "Concat",
    "GatherV2D": "Gather",
}
"""ONNX operators by their names in MindSpore and GE; every other name is ONNX's own."""

_LIMITS: Final = {"ReLU6": (0.0, 6.0), "Relu6": (0.0, 6.0)}
"""Inputs of ``Clip`` that an operator's name says."""


def onnx_name(op_type: str) -> str:
    """Return the ONNX operator that GE, MindSpore or ONNX calls by a name.

    Raises:
        UnsupportedOpError: There is none.
    """
    for found in (op_type, _NAMES.get(op_type)):
        if found is not None and onnx.defs.has(found, _OPSET, ""):
            return found
    raise UnsupportedOpError(
        f"operator {op_type!r} is not known; names of ONNX, MindSpore and GE such as 'Add', 'ReLU' and"
        " 'MatMulV2' are"
    )


def single_operator(
    op_type: str,
    inputs: Sequence[tuple[DType, tuple[int, ...]]],
    outputs: int,
    attributes: Mapping[str, Any],
) -> bytes:
    """Return a serialised model of one operator; its inputs are x0, x1, ..., its outputs y0, y1, ...

    Args:
        op_type: Name of the operator in GE, MindSpore or ONNX; also the name of node and graph.
        inputs: Element type and shape of each input.
        outputs: How many outputs it has.
        attributes: Attributes as GE or ONNX names them.

    Raises:
        UnsupportedOpError: No such operator.
        InputError: An attribute that the operator has not.
    """
    target = onnx_name(op_type)
    given = dict(attributes)
    _translate(op_type, target, given)
    constants = _constants(op_type, target, given)
    _check(op_type, target, given)
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(
        target, [*names, *constants], [f"y{index}" for index in range(outputs)], name=op_type, **given
    )
    values = [
        helper.make_tensor_value_info(name, dtype.onnx, shape)
        for name, (dtype, shape) in zip(names, inputs, strict=True)
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], op_type, values, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    return bytes(model.SerializeToString())


def _translate(op_type: str, target: str, given: Attributes) -> None:
    """Rewrite GE's attributes as ONNX's."""
    given.pop("data_format", None)
    for old, new in _RENAMED.get(target, {}).items():
        if old in given:
            given[new] = given.pop(old)
    rewrite = _REWRITTEN.get(target)
    if rewrite is not None and op_type != target:
        rewrite(given)
    axis = given.get("axis")
    if target in _ONE_AXIS and isinstance(axis, list) and len(axis) == 1:
        (given["axis"],) = axis
    if "dst_type" in given:
        given["to"] = next((row.onnx for row in DTYPES if row.acl == given["dst_type"]), 0)
        del given["dst_type"]


_REDUCTIONS: Final = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
_RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "Conv": {"groups": "group"},
    "ConvTranspose": {"groups": "group"},
    "MaxPool": {"ksize": "kernel_shape", "padding": "auto_pad"},
    "AveragePool": {"ksize": "kernel_shape", "padding": "auto_pad"},
    "Softmax": {"axes": "axis"},
    "LogSoftmax": {"axes": "axis"},
    "Concat": {"concat_dim": "axis"},
    "ArgMax": {"dimension": "axis", "keep_dims": "keepdims"},
    "LeakyRelu": {"negative_slope": "alpha"},
    "Gemm": {"transpose_a": "transA", "transpose_b": "transB"},
    **{name: {"keep_dims": "keepdims"} for name in _REDUCTIONS},
}
"""ONNX's names of GE's attributes, by ONNX operator."""

_ONE_AXIS: Final = frozenset({"Softmax", "LogSoftmax"})
_AXES_INPUT: Final = frozenset({*_REDUCTIONS, "Squeeze", "Unsqueeze"})
"""Operators whose axes are an attribute in GE and an input in ONNX."""


def _window(given: Attributes) -> None:
    """Rewrite what GE gives for batch and channels too, and pads in GE's order."""
    for name in ("strides", "dilations", "kernel_shape"):
        if isinstance(given.get(name), list):
            given[name] = given[name][2:]
    if isinstance(given.get("pads"), list):
        given["pads"] = given["pads"][0::2] + given["pads"][1::2]
    if given.get("auto_pad") == "SAME":
        given["auto_pad"] = "SAME_UPPER"


def _untransposed(given: Attributes) -> None:
    """Take off flags that say that nothing is transposed."""
    for name in (
        "transpose_x1",
        "transpose_x2",
        "adj_x1",
        "adj_x2",
        "transpose_a",
        "transpose_b",
        "offset_x",
    ):
        if not given.get(name):
            given.pop(name, None)


_REWRITTEN: Final[Mapping[str, Callable[[Attributes], None]]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "MaxPool", "AveragePool"), _window),
    "MatMul": _untransposed,
    "Concat": lambda given: given.pop("N", None),
}
"""How attributes change that GE gives an operator under a name of its own."""


def _constants(op_type: str, target: str, given: Attributes) -> dict[str, np.ndarray]:
    """Return the inputs that GE gives as attributes, or that the operator's name says."""
    if target in _AXES_INPUT and "axes" in given:
        return {"axes": np.array(given.pop("axes"), np.int64).reshape(-1)}
    if op_type in _LIMITS:
        low, high = _LIMITS[op_type]
        return {"low": np.array(low, np.float32), "high": np.array(high, np.float32)}
    return {}


def _check(op_type: str, target: str, given: Attributes) -> None:
    allowed = onnx.defs.get_schema(target, _OPSET).attributes
    for name in given:
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise InputError(f"operator {op_type!r} has no attribute {name!r}; ONNX's {target} has {known}")
