"""The step graph while it is written: typed values, operators in their places, functions, weights.

Places are the scopes of a training step's operators, in the words of ``TrainOneStepCell`` and of MindSpore's
gradients:

Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/       the network
Default/network-WithLossCell/_loss_fn-MSELoss/                    the loss
Gradients/Default/network-WithLossCell/.../Grad_Conv2D/           gradients, each in its forward operator's
Default/optimizer-Momentum/                                       the optimizer
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError
from msdump.graph import (
    MINDSPORE_DOMAIN,
    Graph,
    Node,
    Operand,
    Tape,
    Use,
    array_of,
    names,
    primitive_name,
    scalar_of,
    single,
    value_type,
)
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.graph.primitives import OPERATORS, SLOTS, OperatorBody, Structure, around, filled, function, op

Cell = tuple[str, str]
"""Name and class of a cell in the one around it, ``("fc1", "Dense")``; without class: ""."""


@dataclass(frozen=True, slots=True)
class Place:
    """Scope and source lines of an operator."""

    cells: tuple[Cell, ...]  # name and class of each cell, from the root inwards
    trace: str = ""  # source lines as an exporter writes them, "" for none
    forward: str = ""  # ONNX name of the forward operator of a gradient

    def inside(self, *cells: Cell) -> Place:
        """Return a scope inside this one."""
        return replace(self, cells=(*self.cells, *cells))

    def gradients(self, forward: str = "") -> Place:
        """Return the scope of the gradients of this scope's operators."""
        return replace(self, cells=(("Gradients", ""), *self.cells), forward=forward)

    @property
    def path(self) -> str:
        """The scope as MindSpore writes it, ``Default/fc1-Dense``."""
        return "/".join(f"{name}-{kind}" if kind else name for name, kind in self.cells)

    @property
    def source(self) -> str:
        """The last source line and its code, for the end of a message; "" for none."""
        lines = [line.strip() for line in self.trace.splitlines() if line.strip()]
        return f", {'; '.join(lines[-2:])}" if lines else ""

    def metadata(self) -> dict[str, str]:
        """Return the metadata of nodes in this scope, in onnxscript's keys."""
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
    """Return the scope of the network itself, ``_backbone-LeNet5``."""
    return WITH_LOSS.inside(("_backbone", names.root_class(graph) or "Cell"))


def place_of(node: Node, around: Place) -> Place:
    """Return the scope of an operator of a network, inside the scope around the network."""
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
class StepTensor(Operand):
    """A value of the step graph; free dimensions have names, constants a ``value``."""

    name: str
    dtype: DType
    shape: Shape
    value: np.ndarray | None = field(default=None, compare=False)

    @property
    def body(self) -> Any:
        """The tape that is being written."""
        return op

    def __mul__(self, other: Any) -> Any:
        """Add Mul, but for a factor of ones, which MindSpore's passes leave out."""
        for factor, rest in ((self, other), (other, self)):
            if isinstance(factor, StepTensor) and isinstance(rest, StepTensor) and factor.is_one_for(rest):
                return rest
        return op.Mul(self, other)

    def is_one_for(self, other: StepTensor) -> bool:
        """Return whether the product with another tensor is the other one itself: it is constant, of ones."""
        return self.value is not None and self.shape in {(), other.shape} and bool((self.value == 1).all())

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating point, so that the value can have a gradient."""
        return self.dtype.numpy.kind == "f" or self.dtype is dtypes.BFLOAT16

    @property
    def is_fixed(self) -> bool:
        """Whether no dimension is free."""
        return all(isinstance(size, int) for size in self.shape)

    def typed(self, like: StepTensor) -> StepTensor:
        """Return a value of this name with element type and shape of ``like``."""
        return StepTensor(self.name, like.dtype, like.shape)

    def shaped(self, shape: Shape) -> StepTensor:
        """Return a value without a name that has this element type and another shape."""
        return StepTensor("", self.dtype, shape)

    def sizes(self) -> tuple[int, ...]:
        """Return the dimensions; GraphError if one is free."""
        if self.is_fixed:
            return tuple(size for size in self.shape if isinstance(size, int))
        raise GraphError(
            f"value {self.name!r} has the shape {self.shape}; its gradient needs fixed sizes: give the "
            "model's dynamic dimensions sizes"
        )

    def sizes_from(self, start: int, stop: int | None = None) -> tuple[int, ...]:
        """Return the dimensions from an axis on, or between two; GraphError if one of them is free."""
        return StepTensor(self.name, self.dtype, self.shape[start:stop]).sizes()


Item = StepTensor | float | int | bool | Sequence[int] | np.ndarray | None
"""An operand: a value, a number of the first value's type, whole numbers, an array; None: absent."""


@dataclass(frozen=True, slots=True)
class StepOperator:
    """An operator of the step graph, as gradient rules see it."""

    name: str
    op_type: str  # ONNX's type, or MindSpore's
    domain: str  # "" for ONNX's own
    primitive: str  # MindSpore's name
    inputs: tuple[StepTensor | None, ...]
    outputs: tuple[StepTensor, ...]  # outputs, absent ones left out
    attributes: Mapping[str, Any]  # ONNX attributes; of MindSpore's operators, the keywords of their body
    place: Place
    absent: tuple[int, ...] = ()  # slots of optional outputs that the model leaves out

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
        """Return an input that must be there; GraphError if it is absent."""
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


Form = Callable[[StepOperator], Sequence[Item] | None]
"""Returns the inputs that MindSpore's kernel reads, in order; None: ONNX's own inputs."""

FORMS: Final[dict[str, Form]] = {}
"""By type of ONNX's operators that have constant inputs in MindSpore; ``operators.forms`` fills it."""


def absent_slots(outputs: Sequence[str]) -> tuple[int, ...]:
    """Return the slots of optional outputs without a name."""
    return tuple(slot for slot, name in enumerate(outputs) if not name)


def info(tensor: StepTensor) -> onnx.ValueInfoProto:
    """Return the declaration of a value."""
    return helper.make_tensor_value_info(tensor.name, tensor.dtype.onnx, list(tensor.shape))


def use_of(tensors: Sequence[StepTensor | None], attributes: Mapping[str, Any]) -> Use:
    """Return the facts that MindSpore's name of an operator depends on."""
    return Use(
        input_ranks=tuple(None if tensor is None else tensor.rank for tensor in tensors),
        attributes=attributes,
        scalars=tuple(None if tensor is None else scalar_of(tensor.value) for tensor in tensors),
    )


WIDE_KERNELS: Final = frozenset({"MatMul", "BatchMatMul", "BiasAdd", "BiasAddGrad"})
"""Kernels of MindSpore's CPU that compute in float32 where the graph has a half type, by MindSpore's name.

Its graphs have a Cast in front of each half input of such a kernel. The output stays float32 as well: the
next such kernel reads it as it is, and any other operator reads it behind a Cast, in its own place, that
rounds it. (MindSpore's files call that output by the half type and hold the first half of its bytes.)
"""

IR_VERSION: Final = 10
"""The first one with overloads of functions."""


class StepWriter(Tape):
    """Writes operators one behind the other.

    Methods of ONNX's operators take tensors and constants, attributes by keyword, and ``outputs`` (their
    number, 1, or the values that they write). They return a ``StepTensor`` or a tuple. ``call`` adds an
    operator of MindSpore's.
    """

    def __init__(
        self,
        opset: int,
        *,
        seed: int = 0,
        batch_statistics: bool = True,
        drops: bool = True,
        has_wide_kernels: bool = True,
    ) -> None:
        """Begin an empty graph."""
        self.types: dict[str, StepTensor] = {}  # all values so far, by name
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], StepTensor] = {}
        self._names: set[str] = set()
        self._counts: Counter[str] = Counter()
        self.opset = opset
        self.batch_statistics = batch_statistics
        self.drops = drops
        self.operators: list[StepOperator] = []  # all operators so far, as gradient rules see them
        self.nodes: list[onnx.NodeProto] = []
        self.functions: dict[tuple[str, str], onnx.FunctionProto] = {}
        self.place = ROOT
        self.bindings: dict[str, StepTensor] = {}  # the new value of each variable, by its name
        # by name, the float32 tensors that the graph has in place of values of a half type
        self.wide: dict[str, StepTensor] = {}
        # reshaped or transposed values by operator, name of the original, and shape or order
        self.layouts: dict[tuple[str, str, tuple[int, ...]], StepTensor] = {}
        self.origins: dict[str, StepTensor] = {}  # the original of each reshaped value, by its name
        self._has_wide_kernels = has_wide_kernels
        self._seeds = np.random.SeedSequence(seed)

    def constant(self, array: np.ndarray) -> StepTensor:
        """Return a constant; equal arrays share one value, and the model has only constants with readers."""
        key = (array.tobytes(), array.dtype.str, array.shape)
        if key not in self._constants:
            name = self.free_name("constant")
            self._constants[key] = self.declare(
                StepTensor(name, dtypes.from_numpy(array.dtype), array.shape, array)
            )
        return self._constants[key]

    def reserve(self, names: Iterable[str]) -> None:
        """Reserve names of later values."""
        self._names.update(names)

    def declare(self, tensor: StepTensor) -> StepTensor:
        """Register a value, such as an input or a weight."""
        self._names.add(tensor.name)
        self.types[tensor.name] = tensor
        return tensor

    def free_name(self, base: str) -> str:
        """Return a name that no value has, and reserve it."""
        name = base
        while name in self._names:
            self._counts[base] += 1
            name = f"{base}_{self._counts[base]}"
        self._names.add(name)
        return name

    def next_seed(self) -> int:
        """Return a seed for one more random operator, below 2^24, which float32 holds exactly."""
        return int(self._seeds.spawn(1)[0].generate_state(1)[0]) >> 8

    @contextmanager
    def at(self, place: Place) -> Iterator[None]:
        """Write operators in a scope within a context."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    @contextmanager
    def as_one(self, primitive: str, *inputs: StepTensor) -> Iterator[None]:
        """Write operators that gradient rules see as one operator, such as MatMulExt, within a context.

        This operator has name and outputs of the last one written; its rule is a ``mindspore_gradient``.
        """
        start = len(self.operators)
        yield
        last = self.operators[-1]
        self.operators[start:] = [
            replace(
                last,
                op_type=primitive,
                domain=MINDSPORE_DOMAIN,
                primitive=primitive,
                inputs=inputs,
                attributes={},
            )
        ]

    def results(self) -> list[StepTensor]:
        """Return the outputs of all operators with the types that they have in the graph (``wide``)."""
        written = [self.types[name] for node in self.nodes for name in node.output if name]
        return [self.wide.get(tensor.name, tensor) for tensor in written]

    def body(
        self, name: str, write: Callable[[], Sequence[StepTensor]]
    ) -> tuple[onnx.GraphProto, Sequence[StepTensor]]:
        """Return a branch's graph with the operators that ``write`` adds, and the results of ``write``."""
        around = self.nodes, self.operators
        self.nodes, self.operators = [], []
        outputs = write()
        inside = [info(tensor) for operator in self.operators for tensor in operator.outputs]
        results = [info(tensor) for tensor in outputs]
        graph = helper.make_graph(self.nodes, f"{self.place.path}/{name}", [], results, value_info=inside)
        self.nodes, self.operators = around
        return graph, outputs

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Item],
        attributes: Mapping[str, Any],
        *,
        outputs: int | Sequence[StepTensor | None] = 1,
        domain: str = "",
        primitive: str = "",
    ) -> tuple[StepTensor, ...]:
        """Add an operator of ONNX's."""
        tensors = self._inputs(inputs)
        fed = self._fed(tensors)
        present = {name: value for name, value in attributes.items() if value is not None}
        if isinstance(outputs, int):
            names = [self.value_name(op_type) for _ in range(outputs)]
        else:
            names = [tensor.name if tensor else "" for tensor in outputs]
        # ONNX has an array as a tensor
        settings: dict[str, Any] = {
            name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
            for name, value in present.items()
        }
        node = helper.make_node(op_type, _names(fed), names, domain=domain, **settings)
        title = primitive or primitive_name(op_type, domain, use_of(tensors, present))
        results = self.infer(node, fed) if isinstance(outputs, int) else tuple(filter(None, outputs))
        self._add(node, title, tensors, results, present)
        if op_type in FORMS and not domain and title in SLOTS:
            self._fill_slots(FORMS[op_type](self.operators[-1]))
        return results

    def _fill_slots(self, given: Sequence[Item] | None) -> None:
        """Give the last operator, one of ONNX's, the inputs of MindSpore's; gradient rules see ONNX's."""
        node, operator = self.nodes[-1], self.operators[-1]
        slots = self._inputs(filled(operator.primitive, given or ()))
        own = {item.name: fed for item, fed in zip(operator.inputs, node.input, strict=True) if item}
        known: dict[str, int | np.ndarray] = {
            item.name: item.value for item in operator.inputs if item and item.value is not None
        }
        known |= {item.name: slot for slot, item in enumerate(slots) if item}
        if given is None or not own.keys() <= known.keys():
            return  # an input that MindSpore has as a constant is computed
        reads = [known[item.name] if item else None for item in operator.inputs]
        entry, structure = around(operator.primitive, node, reads, self.opset)
        body = self._function(entry, len(slots), structure, operator.x.dtype)
        names = ["" if item is None else own.get(item.name, item.name) for item in slots]
        call = _call(body, names, [*node.output], structure)
        call.name = node.name
        call.metadata_props.extend(node.metadata_props)
        self.nodes[-1] = call

    def call(
        self,
        name: str,
        *inputs: Item,
        like: StepTensor | Sequence[StepTensor] | None = None,
        outputs: Sequence[StepTensor | None] | None = None,
        **structure: Structure,
    ) -> Any:
        """Add an operator of MindSpore's; return its output, or a tuple where it has several."""
        tensors = self._inputs(filled(name, inputs))
        entry = OPERATORS[name]
        element = (tensors[entry.element] or tensors[0]).dtype  # type: ignore[union-attr]
        is_wide = self._has_wide_kernels and element in HALVES and name in WIDE_KERNELS
        fed = self._fed(tensors, is_wide=is_wide)
        body = self._function(entry, len(fed), structure, FLOAT32 if is_wide else element)
        names = [item.name if item else self.value_name(name) for item in outputs or ()]
        names += [self.value_name(name) for _ in range(len(body.output) - len(names))]
        node = _call(body, _names(fed), names, structure)
        known = tuple(filter(None, outputs or ()))
        if len(known) == len(node.output):
            results = known
        elif like is None:
            results = self.infer(node, fed)
        else:
            likes = (like,) if isinstance(like, StepTensor) else tuple(like)
            results = tuple(
                StepTensor(name, item.dtype, item.shape)
                for name, item in zip(node.output, likes, strict=True)
            )
        if is_wide:
            results = tuple(replace(item, dtype=element) for item in results)
            self.wide |= {item.name: replace(item, dtype=FLOAT32) for item in results}
        # gradient rules see the inputs without the casts that a kernel needs
        self._add(node, name, tensors, results, structure)
        return single(results)

    def _function(
        self, entry: OperatorBody, count: int, structure: Mapping[str, Structure], element: DType
    ) -> onnx.FunctionProto:
        key = (entry.name, entry.overload(structure, element))
        if key not in self.functions:
            self.functions[key] = function(entry, count, structure, element, self.opset)
        return self.functions[key]

    def _fed(
        self, tensors: Sequence[StepTensor | None], *, is_wide: bool = False
    ) -> tuple[StepTensor | None, ...]:
        """Return inputs behind the casts that a kernel needs: to float32 from half types if ``is_wide``."""
        return tuple(item and self._read(item, is_wide=is_wide) for item in tensors)

    def _read(self, item: StepTensor, *, is_wide: bool) -> StepTensor:
        if item.dtype not in HALVES:
            return item
        held = self.wide.get(item.name)
        if is_wide:
            return held or self.Cast(item, to=FLOAT32.onnx)
        return item if held is None else self.Cast(held, to=item.dtype.onnx)

    def without_body(self, name: str, tensor: StepTensor, **attributes: Any) -> StepTensor:
        """Add a collective (``AllReduce``) or an operator of the overflow status, which keep type and shape.

        No function describes them: msdump alone runs a graph with them.
        """
        output = StepTensor(self.value_name(name), tensor.dtype, tensor.shape)
        self.emit(name, [tensor], attributes, outputs=[output], domain=MINDSPORE_DOMAIN, primitive=name)
        return output

    def _inputs(self, items: Sequence[Item]) -> tuple[StepTensor | None, ...]:
        first = next((item for item in items if isinstance(item, StepTensor) and item.is_float), None)
        dtype = FLOAT32 if first is None else first.dtype
        return tuple(
            item
            if item is None or isinstance(item, StepTensor)
            else self.constant(np.array(item, dtype.numpy) if isinstance(item, float) else array_of(item))
            for item in items
        )

    def _add(
        self,
        node: onnx.NodeProto,
        primitive: str,
        inputs: tuple[StepTensor | None, ...],
        outputs: tuple[StepTensor, ...],
        attributes: Mapping[str, Any],
    ) -> None:
        node.name = self.free_name(f"{self.place.path}/{primitive}")
        for key, text in self.place.metadata().items():
            node.metadata_props.add(key=key, value=text)
        self.nodes.append(node)
        for tensor in outputs:
            self.declare(tensor)
        self.operators.append(
            StepOperator(
                node.name,
                node.op_type,
                node.domain,
                primitive,
                inputs,
                outputs,
                dict(attributes),
                self.place,
                absent_slots(node.output),
            )
        )

    def value_name(self, op_type: str) -> str:
        """Return a name for an output of an operator in the present scope."""
        return self.free_name(f"{self.place.cells[-1][0]}.{op_type}")

    def infer(self, node: onnx.NodeProto, inputs: Sequence[StepTensor | None]) -> tuple[StepTensor, ...]:
        """Return the outputs of a node, typed by ONNX's shape inference; GraphError if inputs do not fit."""
        functions = [self.functions[node.op_type, node.overload]] if node.domain == MINDSPORE_DOMAIN else []
        present = {tensor.name: tensor for tensor in inputs if tensor is not None}
        constants = {name: tensor.value for name, tensor in present.items() if tensor.value is not None}
        alone = helper.make_graph(
            [node],
            "node",
            [info(tensor) for name, tensor in present.items() if name not in constants],
            [helper.make_empty_tensor_value_info(name) for name in node.output],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        model = helper.make_model(
            alone, opset_imports=self.opsets(), functions=functions, ir_version=IR_VERSION
        )
        try:
            graph = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
        except shape_inference.InferenceError as error:
            raise GraphError(f"{self.place.path}: {node.op_type}: {error}") from error
        types = {value.name: value_type(value.type) for value in graph.output}
        results = []
        for name in node.output:
            kind = types[name]
            if kind.dtype is None or kind.shape is None:
                raise GraphError(
                    f"{self.place.path}: the rank of the output of {node.op_type} is unknown; "
                    "give the model's dynamic dimensions sizes"
                )
            results.append(StepTensor(name, kind.dtype, kind.shape))
        return tuple(results)

    def opsets(self) -> list[onnx.OperatorSetIdProto]:
        """Return the operator sets of the step graph."""
        return [helper.make_opsetid("", self.opset), helper.make_opsetid(MINDSPORE_DOMAIN, 1)]


def _call(
    body: onnx.FunctionProto, inputs: list[str], outputs: list[str], structure: Mapping[str, Structure]
) -> onnx.NodeProto:
    node = helper.make_node(body.name, inputs, outputs, domain=MINDSPORE_DOMAIN, overload=body.overload)
    for name, value in structure.items():
        # of an empty tuple ONNX cannot infer the kind
        kind = onnx.AttributeProto.INTS if value == () else None
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    return node


def _names(tensors: Sequence[StepTensor | None]) -> list[str]:
    return ["" if tensor is None else tensor.name for tensor in tensors]
