"""The operator graphs of a model: the same values that a dump's ``.ir`` files give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from msdump.graph.files import ir_model, ir_text
from msdump.graph.files.arguments import tensor_text
from msdump.graph.files.ir_model import GraphStatements, Statement, StatementOperand, Type
from msdump.graph.graph import UNKNOWN, ValueType
from msdump.store.read.graphs.operator_graph import (
    ABSENT,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueForm,
    ValueSource,
    connected,
)

if TYPE_CHECKING:
    from msdump.graph.graph import Graph

_ITEM: Final = "TupleGetItem"


def operator_graphs(
    graph: Graph, first: int = 0, *, shows_arguments: bool = True
) -> dict[int, OperatorGraph]:
    """Return the operator graphs of a model and of its branches and bodies, by number.

    Args:
        graph: The model, as it is or compiled; of fused operators the names of all their nodes are kept.
        first: Number of the main graph in its process.
        shows_arguments: Whether the operators have their arguments, which take as long as all the rest.
    """
    return connected(_Reader(inner, first + inner.index, shows_arguments).graph() for inner in graph.walk())


@dataclass(frozen=True)
class _Reader:
    """Turns the program of one graph into operators.

    Attributes:
        graph: The graph.
        number: Its number.
        shows_arguments: Whether its operators have their arguments.
        program: Its statements.
        values: What the value of each statement is.
    """

    model: Graph
    number: int
    shows_arguments: bool
    program: GraphStatements = field(init=False)
    values: dict[int, ValueSource] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "program", ir_model.program(self.model))

    def graph(self) -> OperatorGraph:
        operators = {}
        *statements, outputs = self.program.statements
        for statement in statements:
            if statement.node is not None:
                operators[statement.full_name] = self._operator(statement)
                self.values[statement.number] = ValueSource(SourceKind.OPERATOR, statement.full_name)
            elif statement.op_type == _ITEM:
                whole, index = statement.operands
                slot = self.program.constant(index.number).value
                name = self.values[whole.number].name
                self.values[statement.number] = ValueSource(SourceKind.OPERATOR, name, int(slot))
        parameters = self.program.parameters
        return OperatorGraph(
            operators,
            inputs={each.name: _form(each.type) for each in parameters if not each.is_weight},
            weights={each.name: _form(each.type) for each in parameters if each.is_weight},
            outputs=tuple(map(self._source, outputs.operands)),
            number=self.number,
        )

    def _operator(self, statement: Statement) -> GraphOperator:
        node = statement.node
        assert node is not None
        types = statement.type if isinstance(statement.type, tuple) else (statement.type,)
        first = self.number - self.model.index
        arguments = ir_text.shown_arguments(node, self.model, self.number) if self.shows_arguments else ""
        return GraphOperator(
            full_name=statement.full_name,
            op_type=statement.op_type,
            inputs=tuple(map(self._source, statement.operands)),
            outputs=tuple(map(_form, types)),
            onnx_names=tuple(part.name for part in node.members),
            label=statement.label,
            attributes=arguments,
            source=node.source,
            bodies={attribute: first + body.index for attribute, body in node.bodies.items()},
        )

    def _source(self, operand: StatementOperand) -> ValueSource:
        if operand.kind == "statement":
            return self.values[operand.number]
        if operand.kind == "parameter":
            parameter = self.program.parameters[operand.number - 1]
            return ValueSource(SourceKind.WEIGHT if parameter.is_weight else SourceKind.INPUT, parameter.name)
        if operand.kind == "constant":
            value = self.program.constant(operand.number).value
            return ValueSource(
                SourceKind.CONSTANT, tensor_text(value) if isinstance(value, np.ndarray) else str(value)
            )
        return ABSENT


def _form(value_type: Type) -> ValueForm:
    kind: ValueType = UNKNOWN if isinstance(value_type, tuple) else value_type
    if kind.kind != "tensor":
        return ValueForm()
    dtype = kind.dtype.title.lower() if kind.dtype else ""
    shape = kind.shape
    known = None if shape is None else tuple(size if isinstance(size, int) else -1 for size in shape)
    return ValueForm(dtype, known)
