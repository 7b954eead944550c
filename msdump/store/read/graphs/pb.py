"""Operator graphs from ``.pb`` files: the program of an ``.ir`` file as a protobuf message (anf_ir.proto).

The message does not tell weights from inputs of the graph: all of its parameters count as inputs, unless an
``.ir`` file beside it tells them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from msdump import dtypes
from msdump.errors import DumpReadError
from msdump.store.read import texts
from msdump.store.read.graphs import ir, ir_statements
from msdump.store.read.graphs.ir_statements import IrParameter, IrProgram, IrStatement
from msdump.store.read.graphs.operator_graph import (
    UNKNOWN_FORM,
    OperatorGraph,
    SourceKind,
    ValueForm,
    ValueSource,
)
from msdump.wire.faults import WireError
from msdump.wire.fields import Span, fields

_PRIMITIVE_FUNCTION: Final = "PrimFunc_"
_GRAPH_NAME: Final = re.compile(r"kernel_graph(\d+)$")
_DTYPES: Final = {dtype.ir: dtype.title.lower() for dtype in dtypes.DTYPES}
_TOP: Final = 1 << 63
_FIELD_OF_GRAPH: Final = 4  # ModelProto.graph


def read(path: str) -> OperatorGraph:
    """Return the graph of a .pb file, its operators in the order of the file.

    Raises:
        DumpReadError: The file cannot be read, is no such message, or there is no graph in it.
    """
    return replace(_read(path, frozenset()), tells_weights=False)


def restored(path: str, torn: OperatorGraph) -> OperatorGraph:
    """Return the graph of a .pb file that stands for an .ir file which breaks off.

    Args:
        path: The .pb file.
        torn: What the .ir file holds; its parameters come first.

    Returns:
        The whole graph; ``torn`` where that breaks off among its parameters, or this file is torn, too.
    """
    try:
        graph = _read(path, frozenset(torn.weights))
    except DumpReadError:
        return torn
    is_known = {*graph.weights, *graph.inputs} == {*torn.weights, *torn.inputs}
    return replace(_with_shapes(graph), is_restored=True) if is_known else torn


def _with_shapes(graph: OperatorGraph) -> OperatorGraph:
    """Return a graph whose operators hold their tensors in the shapes that it declares."""
    parameters = {**graph.inputs, **graph.weights}

    def form(source: ValueSource) -> ValueForm:
        if source.kind is not SourceKind.OPERATOR:
            return parameters.get(source.name, UNKNOWN_FORM)
        outputs = graph.operators[source.name].outputs
        return outputs[source.slot] if source.slot < len(outputs) else UNKNOWN_FORM

    operators = {
        name: replace(
            each,
            device_inputs=tuple(ValueForm(shape=form(source).shape) for source in each.inputs),
            device_outputs=tuple(ValueForm(shape=output.shape) for output in each.outputs),
        )
        for name, each in graph.operators.items()
    }
    return replace(graph, operators=operators)


def _read(path: str, weights: Collection[str]) -> OperatorGraph:
    message = _Message(memoryview(texts.read_bytes(path)))
    try:
        program = _program(message.inner(_FIELD_OF_GRAPH), weights)
    except (WireError, UnicodeDecodeError) as error:
        raise DumpReadError(path, f"no graph of MindSpore: {error}") from error
    return ir.graph_of(program, path)


class _Message:
    """The fields of a message, by number."""

    def __init__(self, view: memoryview, span: Span | None = None) -> None:
        self._view = view
        self._span = span or (0, len(view))

    def each(self, number: int) -> Iterator[_Message]:
        """Yield the messages of a field that repeats."""
        for tag, _, _, start, end in fields(self._view, *self._span):
            if tag >> 3 == number:
                yield _Message(self._view, (start, end))

    def inner(self, number: int) -> _Message:
        """Return the last message of a field, an empty one where it is absent."""
        return next(reversed([*self.each(number)]), _Message(self._view, (0, 0)))

    def text(self, number: int) -> str:
        """Return a text, "" where it is absent."""
        start, end = self.inner(number)._span  # noqa: SLF001 - of the same class
        return bytes(self._view[start:end]).decode()

    def number(self, number: int) -> int | None:
        """Return a number, None where it is absent."""
        values = [value for tag, value, *_ in fields(self._view, *self._span) if tag >> 3 == number]
        return values[-1] if values else None


def _program(graph: _Message, weights: Collection[str]) -> IrProgram:
    """Return the program of a GraphProto: node 1, name 2, parameters 3, outputs 4, const_vals 5."""
    name = _GRAPH_NAME.match(graph.text(2))
    program = IrProgram(graph=int(name[1]) if name else 0, is_whole=True)
    # as in the text, an operand is a statement, a parameter or the text of a constant
    operands: dict[str, str] = {}
    for number, parameter in enumerate(graph.each(3), 1):
        own = parameter.text(1)
        form = (_forms(parameter.inner(2)) or (ValueForm(),))[0]
        program.parameters[number] = IrParameter(
            own or f"para{number}", form, is_weight=own in weights, is_monad=False
        )
        operands[own] = f"%para{number}_{own}"
    operands |= {constant.text(1): _literal(constant.inner(2)) for constant in graph.each(5)}
    for node in graph.each(1):
        statement = _statement(node, operands)
        program.statements[statement.number] = statement
        operands[node.text(2)] = f"%{statement.number}"
    program.returned = tuple(operands.get(output.text(1), "None") for output in graph.each(4))
    return program


def _statement(node: _Message, operands: Mapping[str, str]) -> IrStatement:
    """Return a NodeProto: input 1, name 2, op_type 3, attribute 5, output_type 6, full_name 8, source 9."""
    number = int(node.text(2)) if node.text(2).isdecimal() else len(operands)
    lines = (line for text in node.text(9).splitlines() for line in ir_statements.source_lines(text))
    return IrStatement(
        number,
        label="",
        op_type=node.text(3).removeprefix(_PRIMITIVE_FUNCTION),
        operands=tuple(operands.get(each.text(1), "None") for each in node.each(1)),
        instance="",
        attributes=", ".join(f"{each.text(1)}: {_literal(each.inner(2))}" for each in node.each(5)),
        full_name=node.text(8) or node.text(2),
        outputs=_forms(node.inner(6)),
        source=[*lines][::-1],  # the innermost call comes first here
    )


def _forms(kind: _Message) -> tuple[ValueForm, ...]:
    """Return element types and shapes of a TypeProto: tensor_type 2, or sequence_type 3 of several."""
    items = [*kind.inner(3).each(1)]
    if items:
        return tuple(form for item in items for form in _forms(item))
    tensors = [*kind.each(2)]
    if not tensors:
        return ()
    element, shapes = tensors[-1].number(1), [*tensors[-1].each(2)]
    sizes = [size.number(1) or 0 for shape in shapes for size in shape.each(1)]
    shape = tuple(size - 2 * _TOP if size >= _TOP else size for size in sizes)
    # a tensor of unknown rank has no shape, as a scalar has none
    return (ValueForm(_DTYPES.get(element or 0, ""), shape if shapes else None),)


def _literal(value: _Message) -> str:
    """Return the text of a ValueProto: bool 2, integers 3 and 4, text 7, tensor 8, items of a tuple 18."""
    numbers = (value.number(field) for field in (3, 4))
    number = next((each for each in numbers if each is not None), None)
    if number is not None:
        return str(number - 2 * _TOP if number >= _TOP else number)
    truth = value.number(2)
    if truth is not None:
        return str(bool(truth)).lower()
    items = [_literal(item) for item in value.each(18)]
    return f"({', '.join(items)})" if items else value.text(7)
