"""The bodies of MindSpore's operators, written as functions of ONNX's own operators.

A body is a Python function that is called once for each structure (strides, flags) in which the operator
occurs, and leaves an ONNX function behind:

    @operator("BiasAddGrad")
    def bias_add_grad(dy: Value, _format: Value, *, rank: int) -> Value:
        return op.ReduceSum(dy, [axis for axis in range(rank) if axis != 1], keepdims=0)

Any runtime with functions runs a model with such operators; msdump runs, names and dumps each of them as one
operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.graph import MINDSPORE_DOMAIN, BodyValue, Constant, OnnxBody
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.training.tape import Tape, writing

INT32: Final = int(onnx.TensorProto.INT32)
INT64: Final = int(onnx.TensorProto.INT64)

Ints = tuple[int, ...]
Value = BodyValue
Structure = int | float | str | tuple[int, ...] | tuple[float, ...]
"""A keyword of a body, and an attribute of its operator: strides, flags."""


class Body(OnnxBody, Tape):
    """The body of one of MindSpore's operators, with tensors of one element type."""

    def __init__(self, element: DType, pattern: str, opset: int) -> None:
        """Begin an empty body.

        Args:
            element: Element type of the tensors; plain numbers become constants of it.
            pattern: Name of a value of that type.
            opset: Version of ONNX's operators, the model's.
        """
        super().__init__()
        self.opset = opset
        self._element = element
        self._pattern = Value(self, pattern)

    def number(self, number: float) -> Value:
        """Return a scalar constant of the tensors' element type."""
        # CastLike: an emulated device computes half types in float32, so inputs may differ from ``element``
        return self.of_element(super().number(number))

    def of_element(self, value: Value) -> Value:
        """Return a float32 value, a learning rate for instance, in the element type of the tensors."""
        return value if self._element is FLOAT32 else self.CastLike(value, self._pattern)

    def scatter_sum(
        self, op_type: str, shape: Value, indices: Value, updates: Value, **attributes: Constant
    ) -> Value:
        """Sum updates into zeros of a shape by ``ScatterND`` or ``ScatterElements``.

        Half types are summed in float32: onnxruntime has no kernels for them.
        """
        is_half = self._element.numpy.itemsize < FLOAT32.numpy.itemsize
        zeros = self.Expand(np.zeros((), np.float32) if is_half else 0.0, shape)
        wide = self.Cast(updates, to=FLOAT32.onnx) if is_half else updates
        add = getattr(self, op_type)
        total = add(zeros, indices, wide, reduction="add", **attributes)
        return self.of_element(total) if is_half else total


BodyFunction = Callable[..., "Value | tuple[Value, ...]"]
"""Writes a body: takes the inputs and, by keyword, the structure; returns the results."""

_Built = TypeVar("_Built", bound=BodyFunction)


@dataclass(frozen=True, slots=True)
class OperatorBody:
    """The body of a MindSpore operator, and the slot of the input that decides its element type."""

    build: BodyFunction
    element: int


OPERATORS: Final[dict[str, OperatorBody]] = {}
"""Every operator that has a body, by MindSpore's name; the modules of ``operators`` fill it."""


def operator(name: str, *, element: int = 0) -> Callable[[_Built], _Built]:
    """Register the body of one of MindSpore's operators.

    Args:
        name: MindSpore's name.
        element: Slot of the input that decides the operator's element type.
    """

    def register(build: _Built) -> _Built:
        OPERATORS[name] = OperatorBody(build, element)
        return build

    return register


def operators(table: Mapping[str, tuple[str, BodyFunction]]) -> None:
    """Register bodies of one expression with their summaries, by MindSpore's name."""
    for name, (summary, build) in table.items():
        build.__doc__ = summary
        OPERATORS[name] = OperatorBody(build, 0)


def overload(structure: Mapping[str, Structure], element: DType) -> str:
    """Return the overload of an operator's function, which differs by structure and element type.

    >>> overload({"strides": (2, 2), "group": 1}, FLOAT32)
    'strides_2_2_group_1'
    """
    parts = [f"{name}_{_text(value)}" for name, value in structure.items()]
    if element is not FLOAT32:
        parts.append(element.name)
    return "_".join(parts)


def _text(value: Structure) -> str:
    text = "_".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
    return text.replace("-", "m").replace(".", "p").replace("+", "")


def function(
    name: str, count: int, structure: Mapping[str, Structure], element: DType, opset: int
) -> onnx.FunctionProto:
    """Return the function of an operator for a number of inputs, a structure and an element type."""
    entry = OPERATORS[name]
    inputs = [f"i{slot}" for slot in range(count)]
    body = Body(element, inputs[entry.element], opset)
    with writing(body):
        result = entry.build(*(Value(body, name) for name in inputs), **structure)
    results = [value.name for value in ((result,) if isinstance(result, Value) else result)]
    outputs = [f"o{slot}" for slot in range(len(results))]
    return helper.make_function(
        MINDSPORE_DOMAIN,
        name,
        inputs,
        outputs,
        _returning(body, results, outputs),
        [helper.make_opsetid("", opset)],
        list(structure),
        overload=overload(structure, element),
    )


def wrapped(
    node: onnx.NodeProto, name: str, slots: Sequence[str], constants: Mapping[str, np.ndarray], opset: int
) -> tuple[onnx.FunctionProto, dict[str, Structure]]:
    """Return MindSpore's operator as a function around one operator of ONNX's, and the function's structure.

    Args:
        node: ONNX's operator.
        name: MindSpore's name.
        slots: Names of the inputs of MindSpore's operator, "" for none. ONNX's operator reads some of
            them; the others are constants for dumps alone.
        constants: The inputs of ONNX's operator that are no slots, by name; they become part of the function.
        opset: Version of ONNX's operators.
    """
    structure = {item.name: _structural(helper.get_attribute_value(item)) for item in node.attribute}
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    inner.ClearField("metadata_props")
    outputs = [f"o{slot}" for slot in range(len(node.output))]
    inner.output[:] = [
        output if written else "" for output, written in zip(outputs, node.output, strict=True)
    ]
    nodes = []
    titles = [item.name for item in defs.get_schema(node.op_type, opset, "").inputs]
    for slot, item in enumerate(node.input):
        if item in constants:
            inner.input[slot] = f"c{slot}"
            structure[titles[slot]] = _structural(constants[item])
            nodes += _constant(f"c{slot}", constants[item])
        elif item:
            inner.input[slot] = f"i{slots.index(item)}"
    inputs = [f"i{slot}" for slot in range(len(slots))]
    text = overload({**structure, "slots": len(slots), "outputs": len(outputs)}, FLOAT32)
    result = helper.make_function(
        *(MINDSPORE_DOMAIN, name, inputs, outputs, [*nodes, inner]),
        [helper.make_opsetid("", opset)],
        list(structure),
        overload=text,
    )
    return result, structure


def _structural(value: Any) -> Structure:
    """Return an attribute or a constant as an attribute of a function."""
    if isinstance(value, onnx.TensorProto):
        return f"{numpy_helper.to_array(value).dtype}_{numpy_helper.to_array(value).item()}"
    if isinstance(value, np.ndarray):
        return tuple(value.reshape(-1).tolist()) if value.ndim else value.item()
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _constant(name: str, value: np.ndarray) -> list[onnx.NodeProto]:
    """Return the nodes that give a constant; of a half type, in the type that the first input has."""
    is_half = dtypes.from_numpy(value.dtype) in HALVES
    # an emulated device computes half types in float32, so that inputs may differ from the model's type
    wide = f"{name}_wide" if is_half else name
    tensor = numpy_helper.from_array(value.astype(np.float32) if is_half else value)
    nodes = [helper.make_node("Constant", [], [wide], value=tensor)]
    return [*nodes, helper.make_node("CastLike", [wide, "i0"], [name])] if is_half else nodes


def _returning(body: Body, results: Sequence[str], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Return the nodes with the function's outputs under their final names."""
    made = {name for node in body.nodes for name in node.output}
    renamed: dict[str, str] = {}
    for result, output in zip(results, outputs, strict=True):
        if result in made and result not in renamed:
            renamed[result] = output
        else:  # results that are inputs, or returned twice, need an Identity
            body.nodes.append(helper.make_node("Identity", [result], [output]))
    for node in body.nodes:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    return body.nodes
