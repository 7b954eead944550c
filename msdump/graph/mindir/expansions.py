"""Operators that MindSpore's CPU computes by several kernels, in the scope ``Expand/_Muls``.

The emulated Ascend has a kernel of its own for each of them, so that they stay one operator there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.graph.body import BodyValue
from msdump.graph.graph import ValueType
from msdump.graph.kernel.emulation import FLOAT32, HALVES
from msdump.graph.mindir.kernels import TUPLES, Constant, Kernel, Operand
from msdump.graph.primitives import COMPUTED, Call, OperatorBody, op, written


class Expansion:
    """A composite operator while its kernels are written."""

    def __init__(self, whole: Kernel) -> None:
        self.whole = whole
        self.inputs = whole.inputs
        self.scope = f"Expand/_{whole.op_type}"
        self.kernels: list[Kernel] = []

    @property
    def x(self) -> Operand:
        """The first operand."""
        return self.inputs[0]

    def has(self, slot: int) -> bool:
        """Return whether an operand is given, and not None."""
        return slot < len(self.inputs) and getattr(self.inputs[slot], "value", self) is not None

    def given(self, slot: int, default: Any = None) -> Any:
        """Return the value of a constant operand; the default where it is left out or no constant."""
        item = self.inputs[slot] if self.has(slot) else None
        return item.value if isinstance(item, Constant) else default

    def add(self, op_type: str, *inputs: Any, dtype: DType | None = None, outputs: Any = None) -> Kernel:
        """Add a kernel; plain values become constants.

        ``dtype``: of the result, if not the composite's; ``outputs``: its types, if not the one in the shape
        to which the operands broadcast.
        """
        operands = [item if isinstance(item, Operand) else Constant(item) for item in inputs]
        tensors = [
            shape_of(each) for each in operands if not isinstance(each, Constant) or each.type is not None
        ]
        kinds = outputs or (ValueType(dtype or element_of(self.whole), _broadcast(tensors)),)
        kernel = Kernel(op_type, self.scope, operands, kinds, is_new=True)
        kernel.shows_all = op_type == "Cast"  # its type is an operand here, not an attribute
        self.kernels.append(kernel)
        return kernel

    def number(self, slot: int, like: Operand) -> Operand:
        """Return an operand; a number takes the element type of a tensor."""
        item = self.inputs[slot]
        if isinstance(item, Constant) and isinstance(item.value, (int, float)):
            return Constant(item.value, element_of(like))
        return item


def element_of(operand: Operand) -> DType | None:
    """Return the element type of an operand, None where it is no tensor."""
    return None if operand.type is None else operand.type.dtype


def shape_of(operand: Operand) -> tuple[Any, ...] | None:
    """Return the shape of an operand, None where it is unknown."""
    return None if operand.type is None else operand.type.shape


def _broadcast(shapes: Sequence[tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    """Return the shape to which shapes broadcast, None where it is unknown."""
    known = [shape for shape in shapes if shape is not None]
    try:
        return tuple(np.broadcast_shapes(*known)) if len(known) == len(shapes) else None
    except (ValueError, TypeError):  # sizes that are not known
        return None


Rule = Callable[[Expansion], object]
"""Adds the kernels of a composite; the last one gives its result."""


def _scalar(op_type: str, *, divides: bool = False) -> Rule:
    """A tensor and a number; integers beside a float are converted first."""

    def rule(e: Expansion) -> None:
        x, element = e.x, element_of(e.x)
        is_whole = element is not None and element.numpy.kind in "iub"
        if is_whole and (divides or isinstance(e.given(1, 0.0), float)):
            x = e.add("Cast", x, MINDSPORE_NUMBERS["float32"], dtype=dtypes.from_name("float32"))
        e.add(op_type, x, e.number(1, x))

    return rule


def _picked(op_type: str, *slots: int | tuple[Any]) -> Rule:
    """Operands by slot, constants as tuples of one."""
    return lambda e: e.add(
        op_type, *(slot[0] if isinstance(slot, tuple) else e.inputs[slot] for slot in slots)
    )


def _reduced(op_type: str, *flags: bool) -> Rule:
    def rule(e: Expansion) -> None:
        x, element = e.x, element_of(e.whole)
        if element is not None and element_of(x) is not element:
            x = e.add("Cast", x, MINDSPORE_NUMBERS.get(element.name, 0))
        e.add(op_type, x, e.given(1), e.given(2, False), *flags)

    return rule


def _over_all(op_type: str) -> Rule:
    return lambda e: e.add(op_type, e.x, tuple(range(len(shape_of(e.x) or (0,)))), False)


def _clamp(e: Expansion) -> None:
    x = e.x
    for slot, kind in ((1, "Maximum"), (2, "Minimum")):
        if e.has(slot):
            x = e.add(kind, x, e.number(slot, x))


def _divided(e: Expansion) -> None:
    mode = e.given(2)
    if mode == 2:  # noqa: PLR2004 - MindSpore's number of "floor"
        e.add("FloorDiv", *e.inputs[:2])
        return
    quotient = e.add("Div", *e.inputs[:2])
    if mode is not None:
        e.add("Trunc", quotient)


def _product(e: Expansion) -> None:
    operands = e.inputs[:2]
    shapes = [shape for shape in map(shape_of, operands) if shape is not None]
    ranks = [*map(len, shapes)]
    if len(shapes) < len(operands) or ranks == [2, 2] or 1 in ranks:
        e.add("MatMul", *operands, False, False)
        return
    batch = _broadcast([shape[:-2] for shape in shapes])
    for slot, shape in enumerate(shapes):
        if batch is not None and shape[:-2] != batch:
            sizes = (*batch, *shape[-2:])
            kinds = (ValueType(element_of(e.inputs[slot]), sizes),)
            operands[slot] = e.add("BroadcastTo", e.inputs[slot], sizes, outputs=kinds)
    e.add("BatchMatMul", *operands, False, False)


def _dense(e: Expansion) -> None:
    product = e.add("MatMul", *e.inputs[:2], False, True, outputs=e.whole.outputs)
    if e.has(2):
        is_matrix = len(shape_of(e.x) or (0, 0)) == 2  # noqa: PLR2004
        e.add("BiasAdd", product, e.inputs[2], 0) if is_matrix else e.add("Add", product, e.inputs[2])


def _prod(e: Expansion) -> None:
    axis: Any = e.inputs[1]
    if e.has(1):
        axis = e.add("RealMakeTuple", axis, outputs=(None,))
    e.add("ReduceProd", e.x, axis, e.inputs[2])


def _softmax_backward(e: Expansion) -> None:
    dout, out = e.inputs[:2]
    axis, shape = e.given(2, -1), shape_of(out) or shape_of(dout)
    total = e.add("Mul", out, dout)
    if shape is None or shape[axis] != 1:
        sizes: Any = None if shape is None else [*shape]
        if sizes is not None:
            sizes[axis] = 1
        kinds = (ValueType(element_of(out), sizes and tuple(sizes)),)
        total = e.add("ReduceSum", total, (axis,), True, False, outputs=kinds)
    e.add("Mul", out, e.add("Sub", dout, total))


def _silu_grad(e: Expansion) -> None:
    dout, x = e.inputs[:2]
    sigmoid = e.add("Sigmoid", x)
    inner = e.add("SigmoidGrad", sigmoid, e.add("Mul", x, dout))
    e.add("Add", inner, e.add("Mul", sigmoid, dout))


def _bce_backward(e: Expansion) -> None:
    dout, x, target = e.inputs[:3]
    weight, positive = (e.inputs[slot] if e.has(slot) else e.add("OnesLike", target) for slot in (3, 4))
    known = e.add("Mul", target, positive)
    total = e.add("Sub", e.add("Add", known, Constant(1, element_of(x))), target)
    slope = e.add("Sub", e.add("Mul", total, e.add("Sigmoid", x)), known)
    result = e.add("Mul", e.add("Mul", slope, dout), weight)
    if e.given(5) == 1:  # a mean
        e.add("RealDiv", result, Constant(float(np.prod(shape_of(x) or (1,))), element_of(x)))


def _scaled(op_type: str) -> Rule:
    """An operand and another one times alpha."""

    def rule(e: Expansion) -> None:
        alpha = e.number(2, e.x) if len(e.inputs) > 2 else Constant(1, element_of(e.x))  # noqa: PLR2004
        e.add(op_type, e.x, e.add("Mul", e.number(1, e.x), alpha))

    return rule


def _split(e: Expansion) -> None:
    shape, axis, start = [*(shape_of(e.x) or ())], e.given(2, 0), 0
    parts: list[Operand] = [] if len(e.whole.outputs) > 1 else [e.x]
    for size, kind in zip(e.given(1, ()), e.whole.outputs if not parts else (), strict=False):
        begin, lengths = [0] * len(shape), [*shape]
        begin[axis], lengths[axis] = start, size
        parts.append(e.add("Slice", e.x, tuple(begin), tuple(lengths), outputs=(kind,)))
        start += size
    e.kernels.append(Kernel("MakeTuple", e.scope, parts, e.whole.outputs, runs=False))


def _in_place(op_type: str, *, scaled: bool) -> Rule:
    """An operator on a parameter, and the Assign that writes it."""

    def rule(e: Expansion) -> None:
        variable, other = e.x, e.number(1, e.x)
        if scaled:
            other = e.add("Mul", other, e.number(2, variable))
        value = e.add(op_type, variable, other)
        after = Kernel("UpdateState", e.scope, [e.inputs[-1], value], (None,), runs=False)
        operands: list[Operand] = [variable, value, after]
        assign = Kernel("Assign", e.whole.scope, operands, e.whole.outputs, is_new=True, monad=after)
        e.kernels += [after, assign]

    return rule


MINDSPORE_NUMBERS: Final[Mapping[str, int]] = {
    "bool": 30, "int8": 32, "int16": 33, "int32": 34, "int64": 35, "uint8": 37, "uint16": 38, "uint32": 39,
    "uint64": 40, "float16": 42, "float32": 43, "float64": 44, "bfloat16": 45, "complex64": 47,
    "complex128": 48,
}  # fmt: skip
"""MindSpore's numbers of element types (TypeId), which arguments have."""

_RULES: Final[Mapping[str, Rule]] = {
    **{f"Inplace{name}": _in_place(kind, scaled=False) for name, kind in
       (("Muls", "Mul"), ("Mul", "Mul"), ("Divs", "Div"), ("Div", "Div"))},
    **{f"Inplace{name}": _in_place(kind, scaled=True) for name, kind in
       (("AddsExt", "Add"), ("AddExt", "Add"), ("SubsExt", "Sub"), ("SubExt", "Sub"))},
    "AddScalar": _scaled("Add"),
    "SubScalar": _scaled("Sub"),
    "SplitWithSize": _split,
    "ZerosLikeExt": _picked("ZerosLike", 0),
    "InplaceScatterSrc": _picked("TensorScatterElements", 0, 2, 3, 1, (0,)),
    "SoftmaxBackward": _softmax_backward,
    "SiLUGrad": _silu_grad,
    "BinaryCrossEntropyWithLogitsBackward": _bce_backward,
    "ArgMaxExt": _picked("Argmax", 0, 1, (35,)),
    "Embedding": _picked("Gather", 1, 0, (0,), (0,)),
    "ProdExt": _prod,
    "OneHotExt": _picked("OneHot", 0, 1, 2, 3, 4),
    "Muls": _scalar("Mul"),
    "Adds": _scalar("Add"),
    "Divs": _scalar("Div", divides=True),
    **{name: _scalar(kind) for name, kind in (
        ("LessScalar", "Less"), ("EqScalar", "Equal"), ("NeScalar", "NotEqual"), ("GtScalar", "Greater"),
        ("GreaterEqualScalar", "GreaterEqual"), ("LessEqualScalar", "LessEqual"),
        ("RemainderTensorScalar", "FloorMod"), ("PowTensorScalar", "Pow"))},
    "RemainderTensorTensor": _picked("FloorMod", 0, 1),
    "ClampScalar": _clamp,
    "SiLU": lambda e: e.add("Mul", e.x, e.add("Sigmoid", e.x)),
    "DivMod": _divided,
    "MatMulExt": _product,
    "Dense": _dense,
    "Max": _over_all("ReduceMax"),
    "Min": _over_all("ReduceMin"),
    "SumExt": _reduced("ReduceSum", False),
    "MeanExt": _reduced("ReduceMean"),
}  # fmt: skip
"""By composite: the kernels of MindSpore 2.10's CPU."""

COMPOSITES: Final = frozenset(_RULES)


def expanded(kernel: Kernel) -> Sequence[Kernel] | None:
    """Return the kernels of a composite, the one with its result last; None for any other operator."""
    rule = _RULES.get(kernel.op_type)
    if rule is None:
        return None
    expansion = Expansion(kernel)
    rule(expansion)
    last = expansion.kernels[-1]
    if last.runs and last.op_type != "Assign":
        last.outputs = kernel.outputs
    return expansion.kernels


_Results = Sequence[Any]
"""Values of a body; None for an operand that is no tensor."""


def composite(kernel: Kernel) -> OperatorBody | None:
    """Return the body of a composite: the bodies of its kernels in order; None for no composite."""
    kernels = expanded(kernel)
    if kernels is None:
        return None
    operands = kernel.operands()

    def build(*slots: BodyValue) -> tuple[BodyValue, ...]:
        values: dict[Operand, _Results] = {}
        for item, value in zip(operands, slots, strict=False):
            values[item] = (value,)
        for each in kernels:
            if each.runs:
                values[each] = _inlined(each, values)
            elif each.op_type in TUPLES:
                values[each] = [value for item in each.inputs for value in _read(item, values)]
        return tuple(value for value in values[kernels[-1]] if value is not None)

    return OperatorBody(kernel.op_type, build, 0)


def _inlined(kernel: Kernel, values: dict[Operand, _Results]) -> _Results:
    """Write the operator of a kernel, or its body; return the results."""
    operands: list[Operand] = []
    for item in kernel.operands():
        members = item.inputs if isinstance(item, Kernel) and item.op_type == "RealMakeTuple" else ()
        constants = [each.value for each in members if isinstance(each, Constant)]
        is_whole = members and len(constants) == len(members)  # a tuple of constants is one constant
        operands.append(Constant(tuple(constants)) if is_whole else item)
    read = [value for item in operands for value in _read(item, values)]
    call = Call(
        kernel.op_type,
        ["" if value is None else value.name for value in read],
        [item.value if isinstance(item, Constant) else COMPUTED for item in operands],
        [_wide(item.type) for item in operands],
        [_wide(kind) for kind in kernel.outputs],
        kernel.attributes,
    )
    return read if kernel.op_type == "RealMakeTuple" else written(call, read)


def _read(item: Operand, values: dict[Operand, _Results]) -> _Results:
    if item in values:
        return values[item]
    array = item.array() if isinstance(item, Constant) else None
    if array is None:
        return (None,)
    # an element type of half size is float32 in bodies
    is_half = item.type is not None and item.type.dtype in HALVES
    return (op.constant(array.astype(np.float32) if is_half else array),)


def _wide(kind: ValueType | None) -> ValueType | None:
    """Return a type as bodies have it: half types are float32."""
    return replace(kind, dtype=FLOAT32) if kind is not None and kind.dtype in HALVES else kind
