"""The bodies of MindSpore's operators, written as functions of ONNX's own operators.

A body is a Python function that is called once for each structure (strides, flags) in which the operator
occurs, and leaves an ONNX function behind; ``op`` has ONNX's operators, and writes them down:

    @operator("BiasAddGrad")
    def bias_add_grad(dy: Value, *, rank: int) -> Value:
        return op.ReduceSum(dy, [axis for axis in range(rank) if axis != 1], keepdims=0)

It takes the operator's inputs up to the last one that it reads; with a parameter ``slot``, all of them as
attributes of one object, under their names in ``SLOTS``.

Any runtime with functions runs a model with such operators; msdump runs, names and dumps each of them as one
operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import Parameter, signature
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, TypeVar

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.graph.body import BodyValue, Constant, OnnxBody, Tape
from msdump.graph.graph import MINDSPORE_DOMAIN
from msdump.graph.kernel.emulation import FLOAT32, HALVES
from msdump.graph.primitives.slots import SLOTS

_written: ContextVar[Tape] = ContextVar("_written")


class _Operators:
    """Proxy of the tape that is being written: has its methods and attributes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # inspection by Python, without a tape
            raise AttributeError(name)
        return getattr(_written.get(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_written.get(), name, value)


op: Final[Any] = _Operators()


@contextmanager
def writing(tape: Tape) -> Iterator[None]:
    """Make ``op`` write to a tape within a context."""
    token = _written.set(tape)
    try:
        yield
    finally:
        _written.reset(token)


BOOL: Final = int(onnx.TensorProto.BOOL)
INT32: Final = int(onnx.TensorProto.INT32)
INT64: Final = int(onnx.TensorProto.INT64)
DOUBLE: Final = int(onnx.TensorProto.DOUBLE)

Ints = tuple[int, ...]
Value = BodyValue
Slots = SimpleNamespace
Structure = int | float | str | tuple[int, ...] | tuple[float, ...]
"""A keyword of a body, and an attribute of its operator: strides, flags."""


class Body(OnnxBody):
    """The body of one of MindSpore's operators, with tensors of one element type."""

    def __init__(self, element: DType, pattern: str, opset: int) -> None:
        """Begin an empty body of an element type, which plain numbers take; ``pattern``: a value of it."""
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
"""Writes a body: takes its first inputs and, by keyword, the structure; returns the results."""

_Built = TypeVar("_Built", bound=BodyFunction)


@dataclass(frozen=True, slots=True)
class OperatorBody:
    """The body of a MindSpore operator."""

    name: str  # MindSpore's name
    build: BodyFunction  # writes the body
    element: int  # slot of the input that decides the operator's element type
    variant: Mapping[str, Structure] = field(default_factory=dict)  # distinguishes functions of one structure

    def overload(self, structure: Mapping[str, Structure], element: DType) -> str:
        """Return the overload of its function, ``strides_2_2_group_1_float16``; float32 is not named."""
        parts = [f"{name}_{_text(value)}" for name, value in {**structure, **self.variant}.items()]
        if element is not FLOAT32:
            parts.append(element.name)
        return "_".join(parts)

    def results(
        self,
        slots: Sequence[Value],
        structure: Mapping[str, Structure],
        computed: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Value, ...]:
        """Write the body with values of all slots, of which it reads the first ones; return its results.

        ``computed``: slots of the values that are keywords of the body, but computed in a run.
        """
        parameters = signature(self.build).parameters
        kinds = [each.kind for each in parameters.values()]
        read: Sequence[Any] = slots
        if "slot" in parameters:
            names = [slot.name for slot in SLOTS[self.name]]
            read = [Slots(**dict.fromkeys(names) | dict(zip(names, slots, strict=False)))]
        elif Parameter.VAR_POSITIONAL not in kinds:
            read = slots[: kinds.count(Parameter.POSITIONAL_OR_KEYWORD)]
        known = {name: slots[slot] for name, slot in computed.items()}
        result = self.build(*read, **structure, **known)
        return (result,) if isinstance(result, Value) else tuple(result)


OPERATORS: Final[dict[str, OperatorBody]] = {}
"""Every operator that has a body, by MindSpore's name; ``families`` imports the modules that fill it."""


def operator(names: str, *, element: int = 0) -> Callable[[_Built], _Built]:
    """Register the body of one of MindSpore's operators, or of several that compute the same.

    ``element``: the slot of the input that decides the operator's element type.
    """

    def register(build: _Built) -> _Built:
        OPERATORS.update({name: OperatorBody(name, build, element) for name in names.split()})
        return build

    return register


def operators(table: Mapping[str, BodyFunction]) -> None:
    """Register bodies, most of one expression, by MindSpore's names."""
    for names, build in table.items():
        operator(names)(build)


def _text(value: Structure) -> str:
    text = "_".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
    return text.replace("-", "m").replace(".", "p").replace("+", "")


def function(
    entry: OperatorBody,
    count: int,
    structure: Mapping[str, Structure],
    element: DType,
    opset: int,
    computed: Mapping[str, int] = MappingProxyType({}),
) -> onnx.FunctionProto:
    """Return the function of an operator for a number of inputs, a structure and an element type.

    ``computed``: slots of the inputs that are keywords of the body, but computed in a run.
    """
    inputs = [f"i{slot}" for slot in range(count)]
    body = Body(element, inputs[entry.element], opset)
    with writing(body):
        slots = [Value(body, each) for each in inputs]
        results = [value.name for value in entry.results(slots, structure, computed)]
    outputs = [f"o{slot}" for slot in range(len(results))]
    return helper.make_function(
        MINDSPORE_DOMAIN,
        entry.name,
        inputs,
        outputs,
        _returning(body, results, outputs),
        [helper.make_opsetid("", opset)],
        list(structure),
        overload=entry.overload(structure, element),
    )


def around(
    name: str, node: onnx.NodeProto, reads: Sequence[int | np.ndarray | None], opset: int
) -> tuple[OperatorBody, dict[str, Structure]]:
    """Return the body of a MindSpore operator that computes as one of ONNX's does, and its structure.

    ``reads`` has for each of ONNX's inputs the slot of MindSpore's operator, a constant, or None (absent).
    """
    titles = [item.name for item in defs.get_schema(node.op_type, opset, "").inputs]
    constants = {titles[slot]: item for slot, item in enumerate(reads) if isinstance(item, np.ndarray)}
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    structure = {name: _structural(value) for name, value in (attributes | constants).items()}

    def build(*slots: Value, **_: Structure) -> Any:
        operands = [slots[item] if isinstance(item, int) else _constant(item) for item in reads]
        results = getattr(op, node.op_type)(*operands, outputs=len(node.output))
        op.nodes[-1].attribute.extend(node.attribute)
        return results

    slots = tuple(item if isinstance(item, int) else -1 for item in reads)
    return OperatorBody(name, build, 0, {"slots": slots, "outputs": len(node.output)}), structure


def _constant(value: np.ndarray | None) -> Value | None:
    """Return a constant in a body; of a half type, in the type that the first input has."""
    if value is None or dtypes.from_numpy(value.dtype) not in HALVES:
        return value if value is None else op.constant(value)
    return op.of_element(op.constant(value.astype(np.float32)))


def _structural(value: Any) -> Structure:
    """Return an attribute or a constant as an attribute of a function."""
    if isinstance(value, onnx.TensorProto):
        return f"{numpy_helper.to_array(value).dtype}_{numpy_helper.to_array(value).item()}"
    if isinstance(value, np.ndarray):
        return tuple(value.reshape(-1).tolist()) if value.ndim else value.item()
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, (list, tuple)) else value


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
