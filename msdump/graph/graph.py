"""The graph that is executed and dumped: ordered, named, typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msdump.dtypes import DType
from msdump.errors import NotAvailableError, UnsupportedOpError
from msdump.record import OperatorRef

if TYPE_CHECKING:
    import numpy as np

MINDSPORE_DOMAIN: Final = "mindspore.ops"
"""Domain of MindSpore's operators that ONNX lacks, under their primitive names.

A model defines each as a function of standard operators, so that any runtime runs it. Here such a function
is one operator with one kernel; functions of one name that differ in structure differ in their overloads.
"""

GE_DOMAIN: Final = "ge"
"""Domain of functions that stand for operators of GE; they compute as ONNX's own do."""

GE_PREFIX: Final = "GE_"
"""Begins their names: onnxruntime takes a function for ONNX's operator of the same name, and crashes."""

LOSS_CELL: Final = "/_loss_fn-"
"""Stands in the full names of the operators of MindSpore's cell of the loss."""

WORLD_GROUP: Final = "hccl_world_group"
"""HCCL's name of the group of all ranks, in which collectives take part that name none."""

CLEAR_FLOAT_STATUS: Final = "NPUClearFloatStatusV2"
"""Lowers the device's overflow status."""

GET_FLOAT_STATUS: Final = "NPUGetFloatStatusV2"
"""Reads the device's overflow status: whether an operator has saturated since it was lowered."""


def uses_float_status(domain: str, op_type: str) -> bool:
    """Return whether an operator lowers or reads the device's overflow status.

    No function of ONNX's operators can describe it: it depends on the operators that ran before.

    >>> uses_float_status("mindspore.ops", "NPUGetFloatStatusV2"), uses_float_status("", "Relu")
    (True, False)
    """
    return domain == MINDSPORE_DOMAIN and op_type in {CLEAR_FLOAT_STATUS, GET_FLOAT_STATUS}


def canonical_domain(domain: str) -> str:
    """Return a domain by the name that it has in a ``Graph``: models write ONNX's own as "" or "ai.onnx".

    >>> canonical_domain("ai.onnx"), canonical_domain("ai.onnx.ml")
    ('', 'ai.onnx.ml')
    """
    return "" if domain == "ai.onnx" else domain


Attribute = int | float | str | bytes | tuple[Any, ...] | Any
"""A decoded ONNX attribute; tensors are numpy arrays, graphs stay protobuf messages."""

Shape = tuple[int | str | None, ...]
"""Dimensions: a size, a name, or None for each."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """Static type of a value."""

    dtype: DType | None = None  # element type of a tensor or of a sequence's tensors; None where unknown
    shape: Shape | None = None  # dimensions; None where unknown
    kind: str = "tensor"  # "tensor", "sequence", "optional", "map", or "" where nothing is known

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The size of every dimension; None where one is unknown."""
        sizes = tuple(size for size in self.shape or () if isinstance(size, int))
        return sizes if self.shape is not None and len(sizes) == len(self.shape) else None

    @property
    def is_settled(self) -> bool:
        """Whether the size of every dimension is known."""
        return self.sizes is not None

    @property
    def shown_shape(self) -> tuple[int, ...]:
        """The shape as GE and graph files write it: -1 is an unknown size, (-2,) an unknown rank."""
        if self.shape is None:
            return UNKNOWN_RANK
        return tuple(size if isinstance(size, int) else -1 for size in self.shape)


UNKNOWN = ValueType(kind="")

UNKNOWN_RANK: Final = (-2,)
"""Shape of a tensor of unknown rank in files."""

IN_MEMORY: Final = "<ModelProto>"
"""The source of a model that comes from no file."""


@dataclass(frozen=True, slots=True)
class Value:
    """A graph input or output."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the program that made a node."""

    file: str
    line: int
    code: str


@dataclass(frozen=True, slots=True)
class Update:
    """Inputs that an operator writes in place."""

    # number of outputs, from the first on, that MindSpore's primitive declares; None: all
    declared: int | None = None
    # position of the output with the new value, by slot of the input that is written
    new_values: Mapping[int, int] = field(default_factory=dict)


NO_UPDATE: Final = Update()
"""The ``Update`` of an operator that writes no input in place."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the graph.

    Attributes:
        name: ONNX node name; made up and unique where the model has none.
        inputs: Value names, "" for an absent optional input and for one that no file shows; ``proto`` has
            the latter's name.
        outputs: Value names, "" for an unused output.
        attributes: Decoded attributes in the model's order.
        operator: Primitive name and full scoped name.
        source: Source lines, outermost call first.
        proto: The NodeProto; of a fused operator, that of its last part.
        parts: The original operators of a fused one, in order.
        bodies: The graphs of an If, Loop or Scan by attribute, in order. Such a node is control
            flow, no operator: its bodies run operator by operator, and it is never dumped itself.
            One that runs as a single operator has none.
        is_added: Compilation has added it (TransData, Cast); the model has no such operator.
        update: Which of its inputs it writes in place, and how many outputs it declares.
        forward: Name of the forward node of a gradient operator, "" for any other operator.
        arguments: MindSpore's arguments, where a file of MindSpore's has them; None: the table of operators
            translates the attributes.
        kernel_graph: Number of its kernel graph, where calls of functions cut the network into several.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    operator: OperatorRef
    source: tuple[SourceLine, ...]
    proto: Any = field(repr=False)
    parts: tuple[Node, ...] = ()
    bodies: Mapping[str, Graph] = field(default_factory=dict)
    is_added: bool = False
    update: Update = NO_UPDATE
    forward: str = ""
    arguments: Mapping[str, Any] | None = None
    kernel_graph: int | None = None

    @property
    def declared_outputs(self) -> tuple[str, ...]:
        """The outputs that files show; further outputs only hold new values of inputs."""
        return self.outputs[: self.update.declared]

    @property
    def inputs_after_run(self) -> tuple[str, ...]:
        """Names of the inputs after the run: of one written in place, the output with the new value."""
        if not self.update.new_values:
            return self.inputs
        written = dict(self._written())
        return tuple(written.get(slot, name) for slot, name in enumerate(self.inputs))

    @property
    def undeclared_outputs(self) -> dict[str, str]:
        """Name of the input written in place, by output that files do not show since it is the new value."""
        shown = set(self.declared_outputs)
        return {value: self.inputs[slot] for slot, value in self._written() if value not in shown}

    def _written(self) -> Iterator[tuple[int, str]]:
        for slot, position in self.update.new_values.items():
            # an unused output may be left out
            if slot < len(self.inputs) and position < len(self.outputs) and self.outputs[position]:
                yield slot, self.outputs[position]

    @property
    def members(self) -> tuple[Node, ...]:
        """The original operators of a fused one, else the node itself."""
        return self.parts or (self,)

    @property
    def scope(self) -> str:
        """Scope of the full name, ``Default/conv1-Conv2d``."""
        return self.operator.full_name.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Training:
    """How a model is trained, beyond the graph that it runs for inference."""

    step: Graph | None = None  # the graph of a whole training step; None: the model's own graph is the step
    # the graph that computes initial values of variables; None: the model's initializers
    initialization: Graph | None = None
    # name of the output of ``initialization`` for each variable that it sets
    initial_values: Mapping[str, str] = field(default_factory=dict)
    obstacle: str = ""  # why the step cannot run, "" where it can


@dataclass(frozen=True, slots=True)
class Graph:
    """A model, or the body of a branch or loop in it, ready to be compiled.

    A body holds all that it reads: values of outer graphs are inputs behind its own
    ones, weights and constants of outer graphs are among its own.

    Attributes:
        source: Path of the model file, or "<ModelProto>".
        inputs: Graph inputs that must be fed (initializers excluded).
        weights: Initializers by name: read-only arrays, views of the mapped file where possible;
            packed types are unpacked to their ml_dtypes type, strings are object arrays.
        constants: Names of the weights that come from Constant nodes, not from initializers.
        overridable: Names of the initializers that a caller may feed.
        types: Types of all values, initializers included.
        proto: The ModelProto without large weights.
        index: Position among the graphs of the model, in the order in which they appear; 0: the main one.
        outer: Names of the inputs, weights and constants that belong to outer graphs.
        bindings: By initializer, the output with the new value that it takes after a training step.
        variables: Names of the weights that training changes: bound here, or in the model's step.
        training: How the model is trained; None where it is not.
        declared: By value, the element type that files and results show, where kernels hold another one.
        returns: Names of the results of a call in order, if it returns a value twice, or the new value of a
            weight; else empty.
        kernel_graphs: Number of the kernel graphs into which calls cut the network of a .mindir file; 0: each
            graph is one of its own.
        is_stateful: Whether each run is a step: operators write weights, as in MindSpore's own networks.
    """

    source: str
    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: Mapping[str, np.ndarray]
    constants: tuple[str, ...]
    overridable: frozenset[str]
    types: Mapping[str, ValueType]
    opsets: Mapping[str, int]
    ir_version: int
    proto: Any = field(repr=False)
    index: int = 0
    outer: frozenset[str] = frozenset()
    bindings: Mapping[str, str] = field(default_factory=dict)
    variables: frozenset[str] = frozenset()
    training: Training | None = None
    declared: Mapping[str, DType] = field(default_factory=dict)
    returns: tuple[str, ...] = ()
    kernel_graphs: int = 0
    is_stateful: bool = False

    @property
    def changeable(self) -> frozenset[str]:
        """Names of the weights that may have other values in another run: variables and overridable ones."""
        return self.overridable | self.variables

    @property
    def step(self) -> Graph:
        """The graph of a training step: that of the model's training where it has one of its own."""
        return self if self.training is None or self.training.step is None else self.training.step

    def training_step(self) -> Graph:
        """Return the graph of a training step.

        Raises:
            NotAvailableError: The model describes no training.
            UnsupportedOpError: It describes one that cannot run.
        """
        if self.training is not None and self.training.obstacle:
            raise UnsupportedOpError(f"{self.source}: {self.training.obstacle}")
        if self.training is None:
            raise NotAvailableError(
                f"{self.source}: the model describes no training; bind initializers to outputs with"
                " msdump.load(model, update_binding={initializer: output}) or in its training_info"
            )
        return self.step

    @property
    def results(self) -> tuple[Value, ...]:
        """The outputs that a training step returns: all that are not bound to initializers."""
        bound = set(self.bindings.values()) - set(self.returns)
        return tuple(value for value in self.outputs if value.name not in bound)

    @property
    def losses(self) -> frozenset[str]:
        """Names of the values that MindSpore's cell of the loss writes."""
        return frozenset(
            name for node in self.nodes if LOSS_CELL in node.operator.full_name for name in node.outputs
        )

    @property
    def file_stem(self) -> str:
        """Name of the model's file without suffix, "" for a model from memory."""
        return "" if self.source == IN_MEMORY else Path(self.source).stem

    @property
    def operators(self) -> tuple[Node, ...]:
        """The nodes that run as operators: all but control flow."""
        return tuple(node for node in self.nodes if not node.bodies)

    @property
    def bodies(self) -> tuple[Graph, ...]:
        """The graphs directly inside its branches and loops, in order."""
        return tuple(body for node in self.nodes for body in node.bodies.values())

    def walk(self) -> Iterator[Graph]:
        """Yield the graph and, in order of index, the graphs inside it."""
        yield self
        # depth first, which is how bodies were numbered
        for body in self.bodies:
            yield from body.walk()

    def shown_type(self, value: str) -> ValueType:
        """Return the type of a value as files show it: with the element type that the model declares."""
        kind, declared = self.type_of(value), self.declared.get(value)
        return kind if declared is None else replace(kind, dtype=declared)

    def type_of(self, value: str) -> ValueType:
        """Return the type of a value, ``UNKNOWN`` where the model has none."""
        return self.types.get(value, UNKNOWN)
