"""The nodes of a MindIR graph as MindSpore's backend has them: kernels, and nodes that only order or group.

The rules were measured with MindSpore 2.10 on the CPU, on 851 models: which nodes become kernels, which are
made anew, which operands a kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError
from msdump.graph.graph import ValueType
from msdump.graph.mindir.file import MONAD, MindIR, abstract_types, decoded, tensor_type

REFERENCE: Final = "REF::"
CONSTANT: Final = "Constant"
CALL: Final = "call"
"""Type of a node that calls a function of the file, or the branch that a Switch has chosen."""

TUPLES: Final = frozenset({"MakeTuple", "make_list", "MakeList"})
ITEMS: Final = frozenset({"TupleGetItem", "list_getitem", "ListGetItem"})
PASSING: Final = frozenset({"Load", "Depend"})
PICKING: Final = PASSING | ITEMS
VIRTUAL: Final = frozenset(
    {*TUPLES, *ITEMS, *PASSING, "UpdateState", "Return", "Partial", "Switch", "make_dict"}
)
"""Nodes without a kernel: they group values or order side effects."""

_FEWEST: Final = {
    **dict.fromkeys(ITEMS, 2),
    **dict.fromkeys((*PASSING, "UpdateState", "Partial"), 1),
    "Switch": 3,
}
"""By type of such a node: the operands that it needs."""

_MOST_MEMBERS: Final = 1 << 20

_KERNELS: Final[Mapping[str, str]] = {"Conv2DTranspose": "Conv2DBackpropInput"}
"""Types that the backend gives other names."""


@dataclass(eq=False)
class Constant:
    """A constant operand: a number, text, array, tuple of these, None or ``MONAD``."""

    value: Any
    dtype: DType | None = None  # element type that its numbers take; None: int64, float32 or bool

    @cached_property
    def type(self) -> ValueType | None:
        """Type of the tensor that the kernel gets; None for texts, None and monads."""
        value = self.value
        shape: tuple[int, ...] = ()
        if isinstance(value, np.ndarray):
            return ValueType(dtypes.from_numpy(value.dtype), value.shape)
        if isinstance(value, tuple) and value:
            value, shape = value[0], (len(value),)
        for kind, name in ((bool, "bool"), (int, "int64"), (float, "float32")):
            if isinstance(value, kind):
                return ValueType(self.dtype or dtypes.from_name(name), shape)
        return None

    def array(self) -> np.ndarray | None:
        """Return the tensor that the kernel gets; None for texts, None, monads and empty tuples."""
        if isinstance(self.value, np.ndarray):
            return self.value
        if self.type is None or self.type.dtype is None:
            return None
        try:
            return np.array(self.value, self.type.dtype.numpy)
        except (ValueError, TypeError, OverflowError):
            return None


@dataclass(eq=False, slots=True)
class Variable:
    """A weight or an input of a graph, by its name without the graph's."""

    name: str
    type: ValueType | None = None
    # whether it is an argument of a function, and no weight: each call gives it a value
    is_local: bool = False


@dataclass(eq=False, slots=True)
class Kernel:
    """A node of a kernel graph."""

    op_type: str  # MindSpore's name
    scope: str  # scope of its name, ``Default/fc1-Dense``
    inputs: list[Operand]  # operands, monads included
    outputs: tuple[ValueType | None, ...]  # types of the outputs; None where it is no tensor
    runs: bool = True  # whether it is a kernel; else a node of ``VIRTUAL``
    front_name: str = ""  # the front end's full name, "" for a kernel that the backend has made
    attributes: Mapping[str, Any] = field(default_factory=dict)  # the primitive's attributes
    is_new: bool = False  # the backend has made it: its number in .ir, .pb and csv is a new one
    # the element type in which the kernel holds float16 outputs; None: as declared
    device: DType | None = None
    name: str = ""  # full name in file names
    listed_name: str = ""  # full name in .ir, .pb and csv
    monad: Kernel | None = None  # the monad behind the kernel, if it is an Assign that the backend has made
    shows_all: bool = False  # whether operands that the kernel does not read have files as well
    is_cast: bool = False  # it is a Cast that the backend has inserted

    @property
    def type(self) -> ValueType | None:
        """Type of its first output."""
        return self.outputs[0] if self.outputs else None

    def operands(self) -> list[Operand]:
        """Return the operands by slot: tuples flattened, monads left out."""
        return [each for item in self.inputs if not is_monad(item) for each in flattened(item)]


Operand = Constant | Variable | Kernel


def is_monad(operand: Operand) -> bool:
    """Return whether an operand only orders side effects."""
    if isinstance(operand, Constant):
        return operand.value is MONAD
    return isinstance(operand, Kernel) and operand.op_type == "UpdateState"


def source(operand: Operand, passing: Collection[str] = PASSING) -> Operand:
    """Return the weight, input or kernel that an operand is behind nodes of some types: that only order."""
    while isinstance(operand, Kernel) and operand.op_type in passing:
        operand = operand.inputs[0]
    return operand


def flattened(operand: Operand) -> list[Operand]:
    """Return the members of a tuple, nested ones too; any other operand alone."""
    if isinstance(operand, Kernel) and operand.op_type in TUPLES:
        return [each for item in operand.inputs for each in flattened(item)]
    members = operand.value if isinstance(operand, Constant) else ()
    if isinstance(members, tuple) and members and all(isinstance(item, np.ndarray) for item in members):
        return [Constant(item) for item in members]
    return [operand]


@dataclass(slots=True)
class KernelNodes:
    """The nodes of one graph of the file, in its order: depth first from the result."""

    name: str
    kernels: list[Kernel] = field(default_factory=list)
    results: list[Operand] = field(default_factory=list)
    inputs: list[Variable] = field(default_factory=list)  # without the weights


def plain_name(name: str) -> str:
    """Return the name of a weight or an input without the name of its graph.

    >>> plain_name("301_2_net_Encoder_construct_88:fc1.weight")
    'fc1.weight'
    """
    return name.rpartition(":")[2]


Expand = Callable[["Kernel"], "Sequence[Kernel] | None"]
"""Returns the kernels by which the backend computes a composite, None for an operator with a kernel."""


class NodeReader:
    """Reads the nodes of the file's graphs."""

    def __init__(self, file: MindIR, expand: Expand, loaded: Mapping[str, str]) -> None:
        """Keep the file; ``loaded``: full names by value, once MindSpore has loaded the file, or empty."""
        self._file = file
        self._expand = expand
        self._loaded = loaded
        self._members: dict[Operand, int] = {}
        self._constants: dict[str, Operand] = {
            name: Constant(next((decoded(each) for each in node.attribute), None))
            for graph in (file.graph, *file.functions.values())
            for node in graph.node
            if node.op_type == CONSTANT
            for name in node.output
        }  # names of constants hold in all graphs of the file

    def nodes(self, graph: Any, *, is_main: bool) -> KernelNodes:
        """Return the nodes of a graph."""
        read = KernelNodes(graph.name)
        values = dict(self._constants)
        for info in graph.input:
            if len(info.tensor) != 1 and is_main:
                raise GraphError(
                    f"input {plain_name(info.name)!r} is no tensor; export the network with tensors as inputs"
                )
            kind = tensor_type(info.tensor[0]) if info.tensor else None
            weight = info.tensor[0].ref_key if info.tensor and not is_main else ""
            is_local = not is_main and not weight
            values[info.name] = variable = Variable(weight or plain_name(info.name), kind, is_local)
            read.inputs.append(variable)
        for tensor in graph.parameter:
            values[tensor.name] = Variable(plain_name(tensor.name), tensor_type(tensor))
        for node in graph.node:
            if not node.output:
                raise GraphError(f"node {node.name!r} ({node.op_type}) has no output")
            if node.op_type == CONSTANT:
                continue
            made = self._made(self._kernel(node, values))
            read.kernels += [each for each in made if isinstance(each, Kernel)]
            values.update(dict.fromkeys(node.output, made[-1]))
        if not graph.output:
            raise GraphError(f"graph {graph.name!r} returns nothing")
        for info in graph.output:
            if info.name not in values:
                raise GraphError(f"graph {graph.name!r} returns {info.name!r}, which no node gives")
            read.results.append(values[info.name])
        return read

    def _kernel(self, node: Any, values: Mapping[str, Operand]) -> Kernel:
        """Return a node as it stands in the file."""
        shape = next((each for each in reversed(node.attribute) if each.name == "shape"), None)
        outputs = abstract_types(shape, node.domain or node.name)
        inputs = [values.get(name) or self._function(node, name) for name in node.input]
        if not node.op_type.startswith(REFERENCE):
            raise GraphError(f"node {node.name!r}: operator {node.op_type!r} has an unknown form")
        name = node.op_type.removeprefix(REFERENCE)
        primitive = self._file.primitives.get(name)
        scope = "Default" if self._loaded else node.domain.rpartition("/")[0] or "Default"
        if primitive is None:
            callee = values.get(name) or self._function(node, name)
            return Kernel(CALL, scope, [callee, *inputs], outputs, runs=False)
        kind, front_name = primitive.op_type, self._loaded.get(node.output[0], node.domain)
        if len(inputs) < _FEWEST.get(kind, 0):
            raise GraphError(f"{node.domain}: {kind} needs {_FEWEST[kind]} operands, not {len(inputs)}")
        kernel = Kernel(kind, scope, inputs, outputs, kind not in VIRTUAL, front_name, primitive.attributes)
        if kind in TUPLES:
            count = sum(self._members.get(source(item, PICKING), 1) for item in inputs)
            if count > _MOST_MEMBERS:
                raise GraphError(
                    f"node {node.output[0]!r}: a tuple has more than {_MOST_MEMBERS} values inside"
                )
            self._members[kernel] = count
        return kernel

    def _function(self, node: Any, name: str) -> Constant:
        if name not in self._file.functions:
            raise GraphError(
                f"node {node.name!r} reads {name!r}, which no input, parameter or earlier node provides"
            )
        return Constant(Function(name))

    def _made(self, kernel: Kernel) -> Sequence[Operand]:
        """Return the backend's nodes for a node, the one with its value last."""
        try:
            return self._in_backend(kernel)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            name = f"{kernel.front_name}: {kernel.op_type}"
            raise GraphError(f"{name} has other operands than MindSpore gives it: {error}") from error

    def _in_backend(self, kernel: Kernel) -> Sequence[Operand]:
        kind, first = kernel.op_type, kernel.inputs[0] if kernel.inputs else None
        if kind == "UpdateState":
            for item in kernel.inputs[1:]:
                if isinstance(item, Kernel) and item.monad is not None:
                    kernel.inputs[0] = item.monad
        elif kind in ITEMS and isinstance(first, Kernel):
            index = kernel.inputs[1]
            number = index.value if isinstance(index, Constant) else None
            if first.op_type in TUPLES and isinstance(number, int):
                return [first.inputs[number]]
            if first.op_type == "Shape":
                return [_real(kernel, "RealTupleGetItem")]
        elif kind in TUPLES:
            sizes = {"RealTupleGetItem", "ScalarAdd", "ScalarMul"}
            if any(isinstance(item, Kernel) and item.op_type in sizes for item in kernel.inputs):
                return [_real(kernel, "RealMakeTuple")]
        elif kernel.runs:
            return self._expand(kernel) or [_backend_kernel(kernel)]
        return [kernel]


def _backend_kernel(kernel: Kernel) -> Kernel:
    """Return an operator as the backend's kernel."""
    if kernel.op_type == "Transpose" and moves_only_ones(kernel):
        shape = Constant(None if kernel.type is None else kernel.type.sizes)
        return replace(kernel, op_type="Reshape", inputs=[kernel.inputs[0], shape], is_new=True)
    if kernel.op_type == "Shape":
        kernel.outputs = (None,)
    kernel.op_type = _KERNELS.get(kernel.op_type, kernel.op_type)
    return kernel


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the file as a value."""

    name: str


def _real(kernel: Kernel, kind: str) -> Kernel:
    """Return a node that groups sizes as the kernel that it is where they are computed."""
    return replace(kernel, op_type=kind, runs=True, is_new=True, outputs=(None,))


def moves_only_ones(kernel: Kernel) -> bool:
    """Return whether a Transpose keeps the order of all axes with more than one element."""
    kind, order = kernel.inputs[0].type, kernel.inputs[1]
    if kind is None or kind.sizes is None or not isinstance(order, Constant):
        return False
    sizes, axes = kind.sizes, order.value
    if not isinstance(axes, tuple) or len(axes) != len(sizes):
        return False
    kept = [axis % len(sizes) for axis in axes if sizes[axis] != 1]
    return kept == sorted(kept)
