"""Graphs in Graphviz's language, as MindSpore saves them beside .ir files under MS_DEV_SAVE_GRAPHS=3."""

from __future__ import annotations

from collections.abc import Iterator

from msdump.graph.files.ir_model import GraphStatements, Statement, program
from msdump.graph.graph import Graph


def text(graph: Graph, name: str) -> str:
    """Return a digraph: a box for each operator and parameter, an arrow for each value that is read.

    Args:
        graph: The graph.
        name: Its name in the file.
    """
    code = program(graph)
    return "\n".join((f"digraph {_quoted(name)} {{", *_boxes(code), *_arrows(code), "}", ""))


def _boxes(code: GraphStatements) -> Iterator[str]:
    for parameter in code.parameters:
        yield f"  para{parameter.number} [label={_quoted(parameter.name)}, shape=octagon];"
    for statement in code.statements:
        label = f"{statement.op_type}\n{statement.full_name}"
        yield f"  node{statement.number} [label={_quoted(label)}, shape=box];"


def _arrows(code: GraphStatements) -> Iterator[str]:
    for statement in code.statements:
        yield from _arrows_to(statement)


def _arrows_to(statement: Statement) -> Iterator[str]:
    sources = {"statement": "node", "parameter": "para"}
    for slot, operand in enumerate(statement.operands):
        if operand.kind in sources:
            yield f"  {sources[operand.kind]}{operand.number} -> node{statement.number} [label={slot}];"


def _quoted(words: str) -> str:
    escaped = words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
