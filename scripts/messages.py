"""Collect the templates of the messages of msdump from its source: scripts/messages.py [WORD...]."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "msdump"

_REPORTERS: Final = frozenset(
    {"critical", "error", "exception", "log", "Problem", "Rule", "raise", "warn", "warning", "warn_explicit"}
)
"""Names of calls with a message among their arguments; ``raise`` stands for raised errors."""

_ADDING: Final = frozenset({"append", "extend"})
_PLACEHOLDER: Final = re.compile(r"\{\{.*?\}\}|\{[^{}]*\}|%[-0-9.]*[a-z]")
_WORDS: Final = re.compile(r"^[^\\]*[A-Za-z]{2}[^\\]* [^\\]*[A-Za-z]{2}[^\\]* [^\\]*[A-Za-z]{2}[^\\]*$")
"""At least three words, and no escape of a regular expression."""


class Template(NamedTuple):
    """A message, or a part of one, with placeholders.

    Attributes:
        room: Its folder below msdump, "" for modules of the package itself.
        text: The text; each placeholder is ``{name}``.
    """

    room: str
    text: str


def normal(text: str) -> str:
    """Return a template with ``{}`` for each placeholder.

    >>> normal("%s: rank {call.rank} of {size:d}")
    '{}: rank {} of {}'
    """
    return _PLACEHOLDER.sub("{}", text)


def templates() -> list[Template]:
    """Return the templates of all messages, each once, by room and text."""
    modules = [_Module(path) for path in sorted(PACKAGE.rglob("*.py"))]
    reporters, size = set(_REPORTERS), 0
    while len(reporters) > size:
        size = len(reporters)
        for module in modules:
            reporters.update(
                function for name, used in module.passed for function in used if name in reporters
            )
    results: dict[str, list[tuple[_Module, ast.AST]]] = defaultdict(list)
    for module in modules:
        for name, value in module.results():
            results[name].append((module, value))
    waiting = [(module, node) for module in modules for node in module.arguments(reporters)]
    found, seen = set[Template](), set[tuple[str, _Module | None]]()
    while waiting:
        module, node = waiting.pop()
        text = _text(node)
        if text is not None and _WORDS.search(_PLACEHOLDER.sub("xx", text)):
            found.add(Template(module.room, " ".join(text.split())))
        name = _name(node)
        values = module.values.get(name)
        key = name, module if values else None
        if key not in seen:
            seen.add(key)
            waiting += [(module, value) for value in values] if values else results.get(name, ())
        waiting += (
            (module, each)
            for each in ast.iter_child_nodes(node)
            if text is None or not isinstance(each, ast.Constant)
        )
    return sorted(found)


class _Module:
    """The syntax tree of a module.

    Attributes:
        room: Its folder below msdump.
        values: The expressions of each variable, and of each function under its name with ``()``.
        passed: Called functions, each with the functions that pass on a parameter to the call.
    """

    def __init__(self, path: Path) -> None:
        """Read a module."""
        parts = path.relative_to(PACKAGE).parts
        self.room = parts[0] if len(parts) > 1 else ""
        self.passed: list[tuple[str, list[str]]] = []
        self._calls: list[tuple[str, list[ast.expr]]] = []
        self.values: dict[str, list[ast.expr]] = defaultdict(list)
        self._visit(ast.parse(path.read_text(encoding="utf-8")), "", frozenset())

    def _visit(self, node: ast.AST, function: str, parameters: frozenset[str]) -> None:
        """Record calls, and the values of variables and functions, in a node of the tree."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            names = {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
            function, parameters = node.name, frozenset(names - {"self", "cls"})
        for name, value in _assigned(node):
            self.values[name].append(value)
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value is not None:
            self.values[f"{function}()"].append(node.value)
        call = node.exc if isinstance(node, ast.Raise) else node
        if isinstance(call, ast.Call):
            name = "raise" if isinstance(node, ast.Raise) else _name(call)[:-2]
            arguments = [*call.args, *(each.value for each in call.keywords)]
            self._calls.append((name, arguments))
            inside = (_name(inner) for each in arguments for inner in ast.walk(each)) if parameters else ()
            self.passed.append((name, [function] if any(each in parameters for each in inside) else []))
        for child in ast.iter_child_nodes(node):
            self._visit(child, function, parameters)

    def arguments(self, reporters: set[str]) -> Iterator[ast.AST]:
        """Yield the arguments of the calls of reporters."""
        for name, given in self._calls:
            if name in reporters:
                yield from given

    def results(self) -> Iterator[tuple[str, ast.AST]]:
        """Yield the expressions that functions return, each with the name of the function."""
        for name, values in self.values.items():
            if name.endswith("()"):
                yield from ((name, value) for value in values)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the variables that a statement assigns or appends to, each with the value."""
    if isinstance(node, ast.Assign):
        yield from ((name, node.value) for target in node.targets if (name := _name(target)))
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        yield _name(node.target), node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
        yield _name(node.func.value), node.args[0]


def _name(node: ast.AST) -> str:
    """Return the name of a variable, an attribute or, with ``()`` behind, a called function; else ""."""
    if isinstance(node, ast.Call):
        return f"{_name(node.func)}()"
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST) -> str | None:
    """Return the text of a string with ``{name}`` for each placeholder, None for another expression."""
    if isinstance(node, ast.Constant):
        return _PLACEHOLDER.sub(_placeholder, node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            f"{{{_name(part.value).strip('()') or '...'}}}"
            if isinstance(part, ast.FormattedValue)
            else str(getattr(part, "value", ""))
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_text(side) for side in (node.left, node.right)]
        known = [f"{{{_name(side).strip('()') or '...'}}}" for side in (node.left, node.right)]
        return (
            None
            if None in parts and parts == [None, None]
            else "".join(part or name for part, name in zip(parts, known, strict=True))
        )
    return None


def _placeholder(match: re.Match[str]) -> str:
    return "{...}" if match[0].startswith("%") else match[0]


def main(words: list[str]) -> None:
    """Print the templates that contain all of some words."""
    for template in templates():
        if all(word in template.text for word in words):
            print(f"{template.room or 'msdump'}: {template.text}")


if __name__ == "__main__":
    main(sys.argv[1:])
