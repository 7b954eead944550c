"""The statements of an ``.ir`` file, their parts as they stand in its lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msdump.graph.graph import SourceLine
from msdump.store.read import texts
from msdump.store.read.graphs import ir_values
from msdump.store.read.graphs.operator_graph import ValueForm

_PARAMETER: Final = re.compile(r"%para(?P<number>\d+)_(?P<name>.*?): +(?P<type><.*)$")
_STATEMENT: Final = re.compile(r"  %(?P<number>\d+)\((?P<label>.*?)\) = (?P<type>[^\s(]+)\(")
_RETURN: Final = "  Return("
_GRAPH: Final = re.compile(r"subgraph @kernel_graph(?P<number>\d+)\(")
_FULL_NAME: Final = re.compile(r"(?:Fullname with scope|full_name_with_scope): \((?P<name>.+)\)$")
_SOURCE: Final = re.compile(
    r" +# In file (?P<file>.*?)(?::(?P<line>\d+)(?:~\d+)?(?:, \d+~\d+)?|\((?P<number>\d+)\))/(?P<code>.*)/$"
)
_INSTANCE: Final = re.compile(r" \{instance name: (?P<name>.*?)\}(?= \w+: \{|$)")
_ATTRIBUTES: Final = " primitive_attrs: {"
_BEHIND_ATTRIBUTES: Final = re.compile(r"\} (?:cnode_attrs|cnode_primal_attrs): \{")
_PRIMITIVE_FUNCTION: Final = "PrimFunc_"
_ARROW: Final = ") -> ("
_NO_ADDRESS: Final = " : 0x0"
"""MindSpore prints the address of its graph; msdump has none."""


@dataclass(frozen=True, slots=True)
class IrParameter:
    """A weight or an input of the graph.

    Attributes:
        name: Its plain name.
        form: Element type and shape.
        is_weight: A weight, not an input.
        is_monad: No value: it states an order alone.
    """

    name: str
    form: ValueForm
    is_weight: bool
    is_monad: bool


@dataclass(slots=True)
class IrStatement:
    """A statement.

    Attributes:
        number: Its number.
        label: Name of its value.
        op_type: Primitive name.
        operands: Its operands as the line has them.
        instance: The text of its "instance name".
        attributes: The text of its arguments.
        full_name: Scoped name, the label where the file breaks off before it.
        outputs: Element types and shapes of its outputs.
        device_inputs: Element types and shapes in which a device holds its inputs; none where the file does
            not tell.
        device_outputs: The same of its outputs.
        source: Source lines, outermost call first.
    """

    number: int
    label: str
    op_type: str
    operands: tuple[str, ...]
    instance: str
    attributes: str
    full_name: str
    outputs: tuple[ValueForm, ...] = ()
    device_inputs: tuple[ValueForm, ...] = ()
    device_outputs: tuple[ValueForm, ...] = ()
    source: list[SourceLine] = field(default_factory=list)


@dataclass(slots=True)
class IrProgram:
    """All of a file.

    Attributes:
        parameters: Weights and inputs by number.
        statements: Statements by number, in order.
        returned: Operands of the return.
        graph: Number of the graph.
        is_ours: Whether msdump wrote the file.
        is_whole: Whether the file goes to the end of the graph.
    """

    parameters: dict[int, IrParameter] = field(default_factory=dict)
    statements: dict[int, IrStatement] = field(default_factory=dict)
    returned: tuple[str, ...] = ()
    graph: int = 0
    is_ours: bool = False
    is_whole: bool = False

    @property
    def names(self) -> Mapping[int, str]:
        """Names of the parameters by number."""
        return {number: each.name for number, each in self.parameters.items()}


def read(path: str) -> IrProgram:
    """Return the statements of an .ir file; of a file that breaks off, those before its end.

    Raises:
        DumpReadError: The file cannot be read.
    """
    program = IrProgram()
    names: Mapping[int, str] = {}
    last: IrStatement | None = None
    for line in texts.read_lines(path):
        if line.startswith("   "):
            if last is not None:
                _add_line(last, line)
        elif line.startswith("  %"):
            last = _statement(line, names)
            if last is not None:
                program.statements[last.number] = last
        elif line.startswith(_RETURN):
            program.returned, last = ir_values.operands(line, len(_RETURN), names)[0], None
            program.is_whole = True
        elif line.startswith("%para"):
            _add_parameter(program, line)
        elif line.startswith("subgraph "):
            names = program.names
            _add_graph(program, line)
    return program


def _add_graph(program: IrProgram, line: str) -> None:
    graph = _GRAPH.match(line)
    if graph is not None:
        program.graph = int(graph["number"])
    elif line.endswith(_NO_ADDRESS):
        program.is_ours = True


def _add_parameter(program: IrProgram, line: str) -> None:
    match = _PARAMETER.match(line)
    if match is None:
        return
    kind = match["type"]
    program.parameters[int(match["number"])] = IrParameter(
        # MindSpore has parameters without a name
        match["name"] or f"para{match['number']}",
        ir_values.forms(kind)[0],
        is_weight=kind.rstrip().endswith("IsWeight: true"),
        is_monad=kind.startswith(("<UMonad", "<IOMonad")),
    )


def _statement(line: str, names: Mapping[int, str]) -> IrStatement | None:
    match = _STATEMENT.match(line)
    if match is None:
        return None
    operands, end = ir_values.operands(line, match.end(), names)
    rest = line[end:]
    instance = _INSTANCE.match(rest)
    _, _, attributes = rest.partition(_ATTRIBUTES)
    behind = _BEHIND_ATTRIBUTES.search(attributes)
    return IrStatement(
        int(match["number"]),
        match["label"],
        match["type"].removeprefix(_PRIMITIVE_FUNCTION),
        operands,
        "" if instance is None else instance["name"],
        attributes[: behind.start()] if behind else attributes.removesuffix("}"),
        match["label"],
    )


def _add_line(statement: IrStatement, line: str) -> None:
    """Add what a line below a statement tells of it."""
    words = line.lstrip()
    if words.startswith("# In file"):
        statement.source += source_lines(line)
    elif words.startswith(": (<"):
        # the first such line is the host's; the one below it tells formats of the device
        if not statement.outputs and _ARROW in words:
            outputs = words.rpartition(_ARROW)[2].removesuffix(")")
            statement.outputs = tuple(
                form for part in ir_values.split(outputs) for form in ir_values.forms(part)
            )
        elif not statement.device_outputs and _ARROW in words:
            read, _, written = words.rpartition(_ARROW)
            statement.device_inputs = ir_values.device_forms(read)
            statement.device_outputs = ir_values.device_forms(written)
    elif "ull" in words:
        name = _FULL_NAME.search(line)
        statement.full_name = statement.full_name if name is None else name["name"]


def source_lines(line: str) -> tuple[SourceLine, ...]:
    """Return the source line that a line of a graph file tells; none where it tells another thing."""
    match = _SOURCE.match(line)
    if match is None:
        return ()
    return (SourceLine(match["file"], int(match["line"] or match["number"]), match["code"].strip()),)
