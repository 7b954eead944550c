"""The step graph while it is written: typed values, operators in their places, functions, weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError
from msdump.graph import MINDSPORE_DOMAIN, primitive_name, value_type
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.training.body import OPERATORS, Structure, array_of, function, overload
from msdump.training.symbols import (
    ROOT,
    Item,
    Place,
    StepOperator,
    StepTensor,
    absent_slots,
    constant_node,
    info,
    use_of,
)

WIDE_KERNELS: Final = frozenset({"MatMul", "BatchMatMul", "BiasAdd", "BiasAddGrad"})
"""Kernels of MindSpore's CPU that compute in float32 where the graph has a half type, by MindSpore's name.

Its graphs have a Cast in front of each half input of such a kernel. The output stays float32 as well: the
next such kernel reads it as it is, and any other operator reads it behind a Cast, in its own place, that
rounds it. (MindSpore's files call that output by the half type and hold the first half of its bytes.)
"""

IR_VERSION: Final = 10
"""The first one that knows overloads of functions."""


@dataclass(frozen=True, slots=True)
class WrittenBody:
    """The body of a branch.

    Attributes:
        nodes: Its nodes in order.
        operators: Its operators.
    """

    nodes: list[onnx.NodeProto]
    operators: list[StepOperator]

    def graph(self, name: str, outputs: Sequence[StepTensor]) -> onnx.GraphProto:
        """Return it as a graph that gives some values."""
        inside = [info(tensor) for operator in self.operators for tensor in operator.outputs]
        return helper.make_graph(self.nodes, name, [], [info(item) for item in outputs], value_info=inside)


def names_read(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names of everything that nodes read, in their bodies as well."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from names_read(attribute.g.node)


class StepWriter:
    """Writes operators one behind the other; every operator of ONNX is a method (``Mul(a, b)``).

    Methods of ONNX's operators take tensors and constants, attributes by keyword, and ``outputs`` (their
    number, 1, or the values that they write). They return a ``StepTensor`` or a tuple. ``call`` adds an
    operator of MindSpore's.

    Attributes:
        types: All values so far, by name.
        operators: Everything so far, in order, as gradient rules see it.
        place: Where operators are written at the moment.
        bindings: The new value of each variable, by its name.
        layouts: Values that are others in another shape or order, by type, origin and that shape or order.
        origins: What a value is a reshaping of, by its name.
        batch_statistics: Whether normalisations use and move the statistics of the batch.
        drops: Whether Dropout drops anything.
        wide: Values of a half type that are float32 in the graph, as they are there, by name.
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
        """Begin an empty graph.

        Args:
            opset: Version of ONNX's operators.
            seed: What the seeds of all random operators come from.
            batch_statistics: Whether normalisations use and move the statistics of the batch.
            drops: Whether Dropout drops anything.
            has_wide_kernels: Whether some kernels compute in float32 in place of half types, as on CPU.
        """
        self.types: dict[str, StepTensor] = {}
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], StepTensor] = {}
        self._names: set[str] = set()
        self._counts: Counter[str] = Counter()
        self.opset = opset
        self.batch_statistics = batch_statistics
        self.drops = drops
        self.operators: list[StepOperator] = []
        self.nodes: list[onnx.NodeProto] = []
        self.functions: dict[tuple[str, str], onnx.FunctionProto] = {}
        self.place = ROOT
        self.bindings: dict[str, StepTensor] = {}
        self.wide: dict[str, StepTensor] = {}
        self.layouts: dict[tuple[str, str, tuple[int, ...]], StepTensor] = {}
        self.origins: dict[str, StepTensor] = {}
        self._has_wide_kernels = has_wide_kernels
        self._seeds = np.random.SeedSequence(seed)

    def constant(self, array: np.ndarray) -> StepTensor:
        """Return a constant; equal ones are one value. Those that an operator reads are written."""
        key = (array.tobytes(), array.dtype.str, array.shape)
        if key not in self._constants:
            name = self.free_name("constant")
            self._constants[key] = self.declare(
                StepTensor(name, dtypes.from_numpy(array.dtype), array.shape, array)
            )
        return self._constants[key]

    def reserve(self, names: Iterable[str]) -> None:
        """Keep names for values that are still to come."""
        self._names.update(names)

    def declare(self, tensor: StepTensor) -> StepTensor:
        """Note a value that comes from elsewhere: an input, a weight."""
        self._names.add(tensor.name)
        self.types[tensor.name] = tensor
        return tensor

    def free_name(self, base: str) -> str:
        """Return a name that nothing has yet, and keep it."""
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
        """Write at a place for a while."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    @contextmanager
    def as_one(self, primitive: str, *inputs: StepTensor) -> Iterator[None]:
        """Write operators that gradient rules see as one, with the name and the outputs of the last one.

        MindSpore calls such an operator a composite: its gradient is that of the whole.

        Args:
            primitive: MindSpore's name of the whole; its rule is a ``mindspore_gradient``.
            inputs: What the whole reads.
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
        """Return everything that operators write, in order, as it is in the graph."""
        written = [self.types[name] for node in self.nodes for name in node.output if name]
        return [self.wide.get(tensor.name, tensor) for tensor in written]

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        """Return the function that adds an operator of ONNX."""
        if op_type.startswith("_"):
            raise AttributeError(op_type)

        def add(*inputs: Item, outputs: int | Sequence[StepTensor | None] = 1, **attributes: Any) -> Any:
            return self._single(self.emit(op_type, inputs, attributes, outputs=outputs))

        return add

    @contextmanager
    def body(self) -> Iterator[WrittenBody]:
        """Write into the body of a branch for a while."""
        around = self.nodes, self.operators
        body = WrittenBody([], [])
        self.nodes, self.operators = body.nodes, body.operators
        try:
            yield body
        finally:
            self.nodes, self.operators = around

    def branch(
        self,
        condition: StepTensor,
        then: tuple[WrittenBody, Sequence[StepTensor]],
        otherwise: tuple[WrittenBody, Sequence[StepTensor]],
    ) -> tuple[StepTensor, ...]:
        """Add an If of two bodies; return its outputs.

        Args:
            condition: Decides.
            then: The body for a true condition, and what it gives.
            otherwise: The one for a false condition; it gives tensors of the same types.
        """
        graphs = {
            name: body.graph(f"{self.place.path}/{name}", outputs)
            for name, (body, outputs) in (("then_branch", then), ("else_branch", otherwise))
        }
        results = [replace(item, name=self._value_name("If"), value=None) for item in then[1]]
        return self.emit("If", [condition], graphs, outputs=results)

    @staticmethod
    def _single(tensors: tuple[StepTensor, ...]) -> Any:
        return tensors[0] if len(tensors) == 1 else tensors

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
        """Add an operator of ONNX's.

        Args:
            op_type: ONNX's type.
            inputs: Its inputs.
            attributes: Its attributes; None for one that is not set.
            outputs: Their number, or the values that it writes (None: unused).
            domain: ONNX domain.
            primitive: MindSpore's name, where it is known better than by the table of names.
        """
        tensors = self._inputs(inputs)
        fed = self._fed(tensors)
        present = {name: value for name, value in attributes.items() if value is not None}
        if isinstance(outputs, int):
            names = [self._value_name(op_type) for _ in range(outputs)]
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
        return results

    def call(
        self,
        name: str,
        *inputs: Item,
        like: StepTensor | Sequence[StepTensor] | None = None,
        outputs: Sequence[StepTensor | None] | None = None,
        **structure: Structure,
    ) -> Any:
        """Add an operator of MindSpore's; return its output, or a tuple where it has several.

        Args:
            name: MindSpore's name, a key of ``OPERATORS``.
            inputs: Its inputs in MindSpore's slots.
            like: Tensors of the types of its outputs, where they are known; else they are inferred.
            outputs: The values that it writes, the first of them or None where they have no names yet.
            structure: What its body depends on.
        """
        tensors = self._inputs(inputs)
        element = (tensors[OPERATORS[name].element] or tensors[0]).dtype  # type: ignore[union-attr]
        is_wide = self._has_wide_kernels and element in HALVES and name in WIDE_KERNELS
        fed = self._fed(tensors, is_wide=is_wide)
        body = self._function(name, len(fed), structure, FLOAT32 if is_wide else element)
        names = [item.name if item else self._value_name(name) for item in outputs or ()]
        names += [self._value_name(name) for _ in range(len(body.output) - len(names))]
        node = helper.make_node(name, _names(fed), names, domain=MINDSPORE_DOMAIN, overload=body.overload)
        node.attribute.extend(_attribute(name, value) for name, value in structure.items())
        results = self._called(node, fed, like, outputs)
        if is_wide:
            results = tuple(replace(item, dtype=element) for item in results)
            self.wide |= {item.name: replace(item, dtype=FLOAT32) for item in results}
        # the casts that a kernel needs are none of the network's: gradients go past them
        self._add(node, name, tensors, results, structure)
        return self._single(results)

    def _function(
        self, name: str, count: int, structure: Mapping[str, Structure], element: DType
    ) -> onnx.FunctionProto:
        """Return the function of an operator, made once for each structure and type."""
        key = (name, overload(structure, element))
        if key not in self.functions:
            self.functions[key] = function(name, count, structure, element, self.opset)
        return self.functions[key]

    def _fed(
        self, tensors: Sequence[StepTensor | None], *, is_wide: bool = False
    ) -> tuple[StepTensor | None, ...]:
        """Return inputs as a kernel reads them, behind the casts that it needs.

        Args:
            tensors: The inputs as the network has them.
            is_wide: Whether it reads float32 in place of half types.
        """
        return tuple(item and self._read(item, is_wide=is_wide) for item in tensors)

    def _read(self, item: StepTensor, *, is_wide: bool) -> StepTensor:
        if item.dtype not in HALVES:
            return item
        held = self.wide.get(item.name)
        if is_wide:
            return held or self.Cast(item, to=FLOAT32.onnx)
        return item if held is None else self.Cast(held, to=item.dtype.onnx)

    def _called(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[StepTensor | None],
        like: StepTensor | Sequence[StepTensor] | None,
        outputs: Sequence[StepTensor | None] | None,
    ) -> tuple[StepTensor, ...]:
        known = tuple(filter(None, outputs or ()))
        if len(known) == len(node.output):
            return known
        if like is None:
            return self.infer(node, inputs)
        likes = (like,) if isinstance(like, StepTensor) else tuple(like)
        return tuple(
            StepTensor(name, item.dtype, item.shape) for name, item in zip(node.output, likes, strict=True)
        )

    def without_body(self, name: str, tensor: StepTensor, **attributes: Any) -> StepTensor:
        """Add an operator that no function describes, and which keeps type and shape; return its output.

        Args:
            name: MindSpore's name: a collective (``AllReduce``), or an operator of the overflow status.
            tensor: Its input.
            attributes: The operator's attributes.
        """
        output = StepTensor(self._value_name(name), tensor.dtype, tensor.shape)
        self.emit(name, [tensor], attributes, outputs=[output], domain=MINDSPORE_DOMAIN, primitive=name)
        return output

    def written(self) -> list[onnx.NodeProto]:
        """Return all nodes in order, behind the constants that they read."""
        read = set(names_read(self.nodes))
        constants = [tensor for tensor in self.types.values() if tensor.value is not None]
        return [*(constant_node(tensor) for tensor in constants if tensor.name in read), *self.nodes]

    def _inputs(self, items: Sequence[Item]) -> tuple[StepTensor | None, ...]:
        first = next((item for item in items if isinstance(item, StepTensor) and item.is_float), None)
        return tuple(self._input(item, first) for item in items)

    def _input(self, item: Item, first: StepTensor | None) -> StepTensor | None:
        if item is None or isinstance(item, StepTensor):
            return item
        if isinstance(item, float):
            dtype = FLOAT32 if first is None else first.dtype
            return self.constant(np.array(item, dtype.numpy))
        return self.constant(array_of(item))

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
                *(node.name, node.op_type, node.domain, primitive, inputs, outputs, dict(attributes)),
                self.place,
                absent_slots(node.output),
            )
        )

    def _value_name(self, op_type: str) -> str:
        return self.free_name(f"{self.place.cells[-1][0]}.{op_type}")

    def infer(self, node: onnx.NodeProto, inputs: Sequence[StepTensor | None]) -> tuple[StepTensor, ...]:
        """Return the outputs of a node, typed by ONNX's shape inference.

        Args:
            node: The node.
            inputs: What it reads, None for what is absent.

        Raises:
            GraphError: It does not fit what it reads, or the rank of what it writes is not known.
        """
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
                    f"{self.place.path}: the rank of what {node.op_type} writes is not known; "
                    "give the model's dynamic dimensions sizes"
                )
            results.append(StepTensor(name, kind.dtype, kind.shape))
        return tuple(results)

    def opsets(self) -> list[onnx.OperatorSetIdProto]:
        """Return the operator sets of the step graph."""
        return [helper.make_opsetid("", self.opset), helper.make_opsetid(MINDSPORE_DOMAIN, 1)]


def _attribute(name: str, value: Structure) -> onnx.AttributeProto:
    """Return an attribute; a tuple may be empty."""
    kind = onnx.AttributeProto.INTS if value == () else None
    return helper.make_attribute(name, value, attr_type=kind)


def _names(tensors: Sequence[StepTensor | None]) -> list[str]:
    return ["" if tensor is None else tensor.name for tensor in tensors]
