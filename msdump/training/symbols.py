"""Values, operators and places of a step graph, as the rules of its making see them.

Places are the scopes of a training step's operators, in the words of ``TrainOneStepCell`` and of MindSpore's
gradients:

Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/       the network
Default/network-WithLossCell/_loss_fn-MSELoss/                    the loss
Gradients/Default/network-WithLossCell/.../Grad_Conv2D/           gradients, each in its forward operator's
Default/optimizer-Momentum/                                       the optimizer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError
from msdump.graph import Graph, Node, Use, names

Cell = tuple[str, str]
"""Name and class of a cell in the one around it, ``("fc1", "Dense")``; without class: ""."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator stands in the user's program.

    Attributes:
        cells: From the root inwards.
        trace: The source lines, as an exporter writes them; "" for none.
        forward: ONNX name of the forward operator that a gradient belongs to.
    """

    cells: tuple[Cell, ...]
    trace: str = ""
    forward: str = ""

    def inside(self, *cells: Cell) -> Place:
        """Return a place further in."""
        return replace(self, cells=(*self.cells, *cells))

    def gradients(self, forward: str = "") -> Place:
        """Return the place of gradients of what stands here."""
        return replace(self, cells=(("Gradients", ""), *self.cells), forward=forward)

    @property
    def path(self) -> str:
        """The scope as MindSpore writes it, ``Default/fc1-Dense``."""
        return "/".join(f"{name}-{kind}" if kind else name for name, kind in self.cells)

    @property
    def source(self) -> str:
        """The last source line and its code, to stand in a message behind what it is about; "" for none."""
        lines = [line.strip() for line in self.trace.splitlines() if line.strip()]
        return f", {'; '.join(lines[-2:])}" if lines else ""

    def metadata(self) -> dict[str, str]:
        """Return what the nodes of this place carry, in onnxscript's keys."""
        entries = {
            names.ONNXSCRIPT + "name_scopes": repr([name for name, _ in self.cells]),
            names.ONNXSCRIPT + "class_hierarchy": repr([kind for _, kind in self.cells]),
        }
        if self.trace:
            entries[names.ONNXSCRIPT + "stack_trace"] = self.trace
        if self.forward:
            entries[names.FORWARD] = self.forward
        return entries


ROOT = Place((("Default", ""),))

WITH_LOSS = ROOT.inside(("network", "WithLossCell"))


def backbone(graph: Graph) -> Place:
    """Return the place of the network itself, ``_backbone-LeNet5``."""
    return WITH_LOSS.inside(("_backbone", names.root_class(graph) or "Cell"))


def place_of(node: Node, around: Place) -> Place:
    """Return the place of an operator of a network.

    Args:
        node: The operator, with the scope that the model gives it.
        around: The place of the network.
    """
    components = node.scope.split("/")
    # a model that already has MindSpore's scopes of a training cell keeps them
    cells = [_cell(component) for component in components]
    whole = len(cells) > 1 and cells[1] == WITH_LOSS.cells[1]
    trace = names.trace_of(names.metadata_of(node.proto))
    return Place(tuple(cells) if whole else (*around.cells, *cells[1:]), trace)


def _cell(component: str) -> Cell:
    name, _, kind = component.rpartition("-")
    return (name, kind) if name else (component, "")


Shape = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class StepTensor:
    """A value of the step graph.

    Attributes:
        name: Its name.
        dtype: Element type.
        shape: Its dimensions, those of free size by name.
        value: The elements of a constant, else None.
    """

    name: str
    dtype: DType
    shape: Shape
    value: np.ndarray | None = field(default=None, compare=False)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether it can have a gradient."""
        return self.dtype.numpy.kind == "f" or self.dtype is dtypes.BFLOAT16

    @property
    def is_fixed(self) -> bool:
        """Whether no dimension is free."""
        return all(isinstance(size, int) for size in self.shape)

    def shaped(self, shape: Shape) -> StepTensor:
        """Return a value without a name that has this element type and another shape."""
        return StepTensor("", self.dtype, shape)

    def sizes(self) -> tuple[int, ...]:
        """Return the dimensions.

        Raises:
            GraphError: A dimension is free.
        """
        if self.is_fixed:
            return tuple(size for size in self.shape if isinstance(size, int))
        raise GraphError(f"value {self.name!r} has the shape {self.shape}; its gradient needs fixed sizes")

    def sizes_from(self, start: int, stop: int | None = None) -> tuple[int, ...]:
        """Return the dimensions from an axis on, or between two; others may be free.

        Raises:
            GraphError: A dimension is free.
        """
        return StepTensor(self.name, self.dtype, self.shape[start:stop]).sizes()


Item = StepTensor | float | int | bool | Sequence[int] | np.ndarray | None
"""What an operator is given: a value, a number of the first one's type, whole numbers, an array, nothing."""


@dataclass(frozen=True, slots=True)
class StepOperator:
    """An operator of the step graph, as gradient rules see it.

    Attributes:
        name: ONNX node name.
        op_type: ONNX's type, or MindSpore's.
        domain: "" for ONNX's own.
        primitive: MindSpore's name.
        inputs: None for an absent one.
        outputs: All that are there.
        attributes: Attributes, or the structure of one of MindSpore's operators.
        place: Where it stands.
        absent: Slots of optional outputs that the model leaves out.
    """

    name: str
    op_type: str
    domain: str
    primitive: str
    inputs: tuple[StepTensor | None, ...]
    outputs: tuple[StepTensor, ...]
    attributes: Mapping[str, Any]
    place: Place
    absent: tuple[int, ...] = ()

    @property
    def x(self) -> StepTensor:
        """The first input, which must be there."""
        return self.input(0)

    @property
    def y(self) -> StepTensor:
        """The first output."""
        return self.outputs[0]

    def output(self, slot: int) -> StepTensor | None:
        """Return the output in a slot, None for an absent one."""
        number = slot - sum(other < slot for other in self.absent)
        return self.outputs[number] if slot not in self.absent and number < len(self.outputs) else None

    def optional(self, slot: int) -> StepTensor | None:
        """Return the input in a slot, None for an absent one."""
        return self.inputs[slot] if slot < len(self.inputs) else None

    def input(self, slot: int) -> StepTensor:
        """Return an input that must be there.

        Raises:
            GraphError: It is absent.
        """
        tensor = self.optional(slot)
        if tensor is None:
            raise GraphError(f"{self.place.path}/{self.primitive}: input {slot} is missing")
        return tensor

    def constant(self, slot: int) -> np.ndarray | None:
        """Return the value of an input that is a constant, None for any other."""
        tensor = self.optional(slot)
        return None if tensor is None else tensor.value

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)


def absent_slots(names: Sequence[str]) -> tuple[int, ...]:
    """Return the slots of optional values that a node leaves out: they have no name."""
    return tuple(slot for slot, name in enumerate(names) if not name)


def constant_node(tensor: StepTensor) -> onnx.NodeProto:
    """Return the node that gives a constant."""
    assert tensor.value is not None, "only constants have a node of their own"
    value = numpy_helper.from_array(np.ascontiguousarray(tensor.value).reshape(tensor.value.shape))
    return helper.make_node("Constant", [], [tensor.name], name=tensor.name, value=value)


def info(tensor: StepTensor) -> onnx.ValueInfoProto:
    """Return the declaration of a value."""
    return helper.make_tensor_value_info(tensor.name, tensor.dtype.onnx, list(tensor.shape))


def use_of(tensors: Sequence[StepTensor | None], attributes: Mapping[str, Any]) -> Use:
    """Return what the table of MindSpore's names looks at."""
    arrays = [None if tensor is None else tensor.value for tensor in tensors]
    return Use(
        input_ranks=tuple(None if tensor is None else tensor.rank for tensor in tensors),
        attributes=attributes,
        scalars=tuple(
            float(array.reshape(-1)[0])
            if array is not None and array.size == 1 and array.dtype.kind in "biuf"
            else None
            for array in arrays
        ),
    )
