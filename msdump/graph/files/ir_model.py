"""The program of MindSpore's graph files: numbered parameters, constants and statements.

Three operators exist in the files only and are never executed or dumped, as in
MindSpore: ``TupleGetItem`` takes one output of an operator that has several,
``MakeTuple`` gathers the graph's outputs, ``Return`` ends the graph. Control flow is a
statement that names the graphs of its branches.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np

from msdump.dtypes import from_numpy
from msdump.graph.graph import UNKNOWN, Graph, Node, SourceLine, ValueType
from msdump.graph.order import outer_values

ABSENT = ValueType(kind="none")
"""Type of an optional input that is not there."""

INDEX = ValueType(from_numpy(np.dtype("<i8")), kind="scalar")
"""Type of the index of a TupleGetItem."""

Type = ValueType | tuple[ValueType, ...]
"""Type of a value or of a tuple of values."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight or a graph input.

    Attributes:
        number: Position among the parameters, from 1.
        name: Its name in the model.
        type: Element type and shape.
        is_weight: A weight, not an input.
        is_inplace: A weight that a training step writes.
    """

    number: int
    name: str
    type: ValueType
    is_weight: bool
    is_inplace: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that stands in the program itself.

    Attributes:
        number: Position among the constants, from 1.
        name: Its name in the model, "" for the index of a TupleGetItem.
        value: The tensor, or the index.
    """

    number: int
    name: str
    value: np.ndarray | int


@dataclass(frozen=True, slots=True)
class StatementOperand:
    """One operand of a statement.

    Attributes:
        kind: Where it comes from.
        number: Number of the statement (from 0), parameter or constant (from 1).
        name: Value name in the model, "" where it has none.
        type: Element type and shape, of each element where it is a tuple.
    """

    kind: Literal["statement", "parameter", "constant", "absent"]
    number: int
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of the program.

    Attributes:
        number: Position, from 0.
        label: Name of its first output; the variable name in MindSpore's files.
        op_type: Primitive name.
        full_name: Scoped name.
        operands: What it reads, in order.
        type: Type of its value; a tuple where it has several outputs.
        node: The operator, None for the ones that exist in the files only.
    """

    number: int
    label: str
    op_type: str
    full_name: str
    operands: tuple[StatementOperand, ...]
    type: Type
    node: Node | None = None

    @property
    def scope(self) -> str:
        """Full name without its last component."""
        return self.full_name.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class GraphStatements:
    """A whole graph; the last statement is the tuple of its outputs."""

    parameters: tuple[Parameter, ...]
    constants: tuple[Constant, ...]
    statements: tuple[Statement, ...]

    def constant(self, number: int) -> Constant:
        """Return a constant by its number."""
        return self.constants[number - 1]


def parameters(graph: Graph) -> tuple[Parameter, ...]:
    """Return the parameters in order: the weights, then the graph inputs."""
    constants = set(graph.constants)
    weights = [(name, graph.type_of(name), True) for name in graph.weights if name not in constants]
    inputs = [(value.name, value.type, False) for value in graph.inputs]
    return tuple(
        Parameter(number, name, value_type, is_weight, name in graph.bindings)
        for number, (name, value_type, is_weight) in enumerate((*weights, *inputs), start=1)
    )


def graph_name(graph_id: int) -> str:
    """Return the name of the graph of a number."""
    return f"kernel_graph{graph_id}"


def body_names(node: Node, graph: Graph, graph_id: int) -> dict[str, str]:
    """Return the names of a control flow node's bodies, by attribute; a model's graphs have adjacent ids."""
    return {
        attribute: f"@{graph_name(graph_id + body.index - graph.index)}"
        for attribute, body in node.bodies.items()
    }


def outputs_of(node: Node) -> tuple[str, ...]:
    """Return the outputs that a node declares, without the unused ones at the end; "" for those before."""
    count = len(node.declared_outputs)
    # exporters write trailing optional outputs as empty names
    while count and not node.outputs[count - 1]:
        count -= 1
    return node.outputs[:count]


def source_line(line: SourceLine, place: str) -> str:
    """Return a source line as graph files show it; the place is ``(7)`` or ``:7``."""
    return f"      # In file {one_line(line.file)}{place}/{' ' * 8}{one_line(line.code.strip())}/"


def one_line(words: str) -> str:
    """Escape line breaks, which a name of a model may hold."""
    return words.replace("\n", "\\n").replace("\r", "\\r")


def program(graph: Graph) -> GraphStatements:
    """Return the program of a graph."""
    return _Builder(graph).build()


class _Builder:
    """Numbers the statements of one graph in their order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._parameters = parameters(graph)
        self._constants = [
            Constant(number, name, graph.weights[name]) for number, name in enumerate(graph.constants, 1)
        ]
        self._statements: list[Statement] = []
        self._counts: Counter[str] = Counter()
        self._read = {name for node in graph.nodes for name in _operand_names(node)}
        self._read |= {value.name for value in graph.results}
        self._operands = {
            parameter.name: StatementOperand("parameter", parameter.number, parameter.name, parameter.type)
            for parameter in self._parameters
        }
        self._operands |= {
            constant.name: StatementOperand(
                "constant", constant.number, constant.name, graph.type_of(constant.name)
            )
            for constant in self._constants
        }

    def build(self) -> GraphStatements:
        for node in self._graph.nodes:
            self._add_node(node)
        outputs = tuple(self._operand(value.name) for value in self._graph.results)
        types = tuple(_single(operand.type) for operand in outputs)
        # a single output is a tuple of one, too
        self._add("", "MakeTuple", self._virtual_name("Default", "MakeTuple"), outputs, types)
        return GraphStatements(self._parameters, tuple(self._constants), tuple(self._statements))

    def _add_node(self, node: Node) -> None:
        outputs = outputs_of(node)
        types = tuple(self._graph.type_of(name) if name else UNKNOWN for name in outputs)
        statement = self._add(
            next(filter(None, outputs), ""),
            node.operator.op_type,
            node.operator.full_name,
            tuple(self._operand(name) for name in _operand_names(node)),
            types[0] if len(types) == 1 else types,
            node,
        )
        # readers of a new value that is no declared output read the input that it was written to
        for name, written in node.undeclared_outputs.items():
            self._operands[name] = self._operand(written)
        if len(outputs) == 1:
            self._operands[outputs[0]] = StatementOperand("statement", statement.number, outputs[0], types[0])
            return
        # as in MindSpore, outputs that nobody reads have no statement
        for slot, name in enumerate(outputs):
            if name and name in self._read:
                self._add_item(statement, slot, name)

    def _add_item(self, whole: Statement, slot: int, name: str) -> None:
        index = Constant(len(self._constants) + 1, "", slot)
        self._constants.append(index)
        operands = (
            StatementOperand("statement", whole.number, whole.label, whole.type),
            StatementOperand("constant", index.number, "", INDEX),
        )
        full_name = self._virtual_name(whole.scope or "Default", "TupleGetItem")
        item_type = self._graph.type_of(name)
        item = self._add(name, "TupleGetItem", full_name, operands, item_type)
        self._operands[name] = StatementOperand("statement", item.number, name, item_type)

    def _add(  # noqa: PLR0917 - the fields of a Statement in their order
        self,
        label: str,
        op_type: str,
        full_name: str,
        operands: tuple[StatementOperand, ...],
        value_type: Type,
        node: Node | None = None,
    ) -> Statement:
        statement = Statement(len(self._statements), label, op_type, full_name, operands, value_type, node)
        self._statements.append(statement)
        return statement

    def _virtual_name(self, scope: str, op_type: str) -> str:
        stem = f"{scope}/{op_type}"
        self._counts[stem] += 1
        return f"{stem}-op{self._counts[stem] - 1}"

    def _operand(self, name: str) -> StatementOperand:
        return self._operands.get(name, StatementOperand("absent", 0, name, ABSENT))


def _operand_names(node: Node) -> tuple[str, ...]:
    """Return what a node reads; of control flow also what its branches take from outside."""
    if not node.bodies:
        return node.inputs
    return (*node.inputs, *(name for name in outer_values(node.proto) if name not in node.inputs))


def _single(value_type: Type) -> ValueType:
    return value_type if isinstance(value_type, ValueType) else UNKNOWN
