"""Operator graphs from ``.ir`` files: msdump's own, and those of MindSpore itself.

    %para4_x: <Tensor[Float32], (2, 3, 8, 8)> : [2, 3, 8, 8]  :  <...>  :  IsWeight: false
    subgraph @kernel_graph0() {
      %1(output) = PrimFunc_ReLU(%para4_x) {instance name: relu} primitive_attrs: {...} cnode_attrs: {...}
          : (<Tensor[Float32], (2, 3, 8, 8)>) -> (<Tensor[Float32], (2, 3, 8, 8)>)
          # Fullname with scope: (Default/relu-ReLU/ReLU-op0)
          # In file net.py:13, 12~21/        x = self.relu(x)/
      Return(%2)

In the form of MindSpore's documents the full name stands in a line ``: full_name_with_scope: (...)``. What is
no operator is looked through: tuples and their items, loaded parameters, and what states an order alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msdump.errors import DumpReadError
from msdump.store.read.graphs import ir_statements, ir_values
from msdump.store.read.graphs.ir_statements import IrProgram, IrStatement
from msdump.store.read.graphs.operator_graph import (
    ABSENT,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueSource,
)

_PASSING: Final = frozenset({"Load", "Depend"})
_ORDERING: Final = frozenset({"UpdateState"})
_ITEMS: Final = frozenset({"TupleGetItem", "RealTupleGetItem"})
_TUPLES: Final = frozenset({"MakeTuple", "RealMakeTuple", "MakeList"})
_IN_FILES_ALONE: Final = _PASSING | _ORDERING | _ITEMS | _TUPLES
_PARAMETER: Final = re.compile(r"%para(\d+)_")
_VALUE: Final = re.compile(r"%(\d+)$")
_MONAD: Final = re.compile(r"(?:UMonad|IOMonad)\[")
_NUMBER: Final = re.compile(r"\d+(?=\)?$)")
_CALLED: Final = re.compile(r"(?:^|[{ ])(\w+): @kernel_graph([0-9]+)(?=,|\}|$)")


def read(path: str) -> OperatorGraph:
    """Return the graph of an .ir file, its operators in the order of the file.

    Raises:
        DumpReadError: The file cannot be read, or there is no graph in it.
    """
    return graph_of(ir_statements.read(path), path)


def graph_of(program: IrProgram, path: str) -> OperatorGraph:
    """Return the graph that a program describes.

    Args:
        program: The program.
        path: Its file, for messages.

    Raises:
        DumpReadError: There is no graph in it.
    """
    if not (program.statements or program.parameters or program.returned):
        raise DumpReadError(path, "no graph in it: neither parameters nor statements")
    sources = _Sources(program)
    for statement in program.statements.values():
        sources.add(statement)
    parameters = [each for each in program.parameters.values() if not each.is_monad]
    return OperatorGraph(
        operators=sources.operators,
        inputs={each.name: each.form for each in parameters if not each.is_weight},
        weights={each.name: each.form for each in parameters if each.is_weight},
        outputs=sources.of_all(program.returned),
        number=program.graph,
        is_whole=program.is_whole,
    )


class _Sources:
    """What the values of a program are, once tuples and what passes them on are looked through."""

    def __init__(self, program: IrProgram) -> None:
        self._program = program
        self._values: dict[int, tuple[ValueSource, ...]] = {}
        self.operators: dict[str, GraphOperator] = {}

    def add(self, statement: IrStatement) -> None:
        """Take in the statement behind those before it."""
        sources = self.of_all(statement.operands)
        self._values[statement.number] = (
            self._passed_on(statement, sources)
            if statement.op_type in _IN_FILES_ALONE
            else self._operator(statement, sources)
        )

    def _operator(self, statement: IrStatement, sources: tuple[ValueSource, ...]) -> tuple[ValueSource, ...]:
        name = statement.full_name
        bodies = _CALLED.findall(statement.attributes)
        # MindSpore's instances are attributes of a cell: several operators may be of one
        onnx_names = (statement.instance,) if self._program.is_ours and statement.instance else ()
        self.operators[name] = GraphOperator(
            full_name=name,
            op_type=statement.op_type,
            inputs=sources,
            outputs=statement.outputs,
            onnx_names=onnx_names,
            label=statement.label,
            attributes=statement.attributes,
            device_inputs=statement.device_inputs,
            device_outputs=statement.device_outputs,
            source=tuple(statement.source),
            bodies={attribute: int(number) for attribute, number in bodies},
        )
        count = max(len(statement.outputs), 1)
        return tuple(ValueSource(SourceKind.OPERATOR, name, slot) for slot in range(count))

    def _passed_on(self, statement: IrStatement, sources: tuple[ValueSource, ...]) -> tuple[ValueSource, ...]:
        if statement.op_type in _TUPLES:
            return sources
        if statement.op_type in _PASSING and statement.operands:
            return self._of(statement.operands[0])
        if statement.op_type in _ITEMS and statement.operands:
            index = _NUMBER.search(statement.operands[-1])
            items = self._of(statement.operands[0])
            number = int(index[0]) if index else 0
            return items[number : number + 1] or (ABSENT,)
        return ()

    def of_all(self, operands: Iterable[str]) -> tuple[ValueSource, ...]:
        """Return where the values of operands come from, those of tuples one by one."""
        return tuple(source for operand in operands for source in self._of(operand))

    def _of(self, operand: str) -> tuple[ValueSource, ...]:
        parameter = _PARAMETER.match(operand)
        if parameter is not None:
            return self._of_parameter(int(parameter[1]), operand[parameter.end() :])
        value = _VALUE.match(operand)
        if value is not None:
            return self._values.get(int(value[1]), (ABSENT,))
        if operand.startswith("(") and "%" in operand:
            return self.of_all(ir_values.split(operand[1:-1]))
        if _MONAD.match(operand):
            return ()
        return (ABSENT if operand == "None" else ValueSource(SourceKind.CONSTANT, operand),)

    def _of_parameter(self, number: int, name: str) -> tuple[ValueSource, ...]:
        parameter = self._program.parameters.get(number)
        if parameter is None:
            return (ValueSource(SourceKind.INPUT, name),)
        if parameter.is_monad:
            return ()
        kind = SourceKind.WEIGHT if parameter.is_weight else SourceKind.INPUT
        return (ValueSource(kind, parameter.name),)
