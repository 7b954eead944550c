"""Operators by the names that users write: full, an end, a pattern, or a part."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import translate
from typing import TYPE_CHECKING, Final

from msdump.errors import name_hint
from msdump.store import sanitize

if TYPE_CHECKING:
    from msdump.read.operator_graph import OperatorGraph

_LISTED: Final = 8  # most names in a message


def find_operators(text: str, operators: Mapping[str, Collection[str]]) -> list[str]:
    """Return the full names of the operators that a text names.

    The first reading of the text that fits an operator counts: a full name or an alias; the last components
    of a full name, or a pattern with ``*`` and ``?``; the end of a name as files spell it; a part of a full
    name in any case.

    Args:
        text: The text.
        operators: The aliases of each operator, such as its names in files, by full name.
    """
    spelled, part = sanitize(text), text.strip("*?").lower()
    matches = re.compile(translate(text)).match
    readings: tuple[Callable[[str], bool], ...] = (
        lambda name: text in (name, *operators[name]) or spelled in (sanitize(name), *operators[name]),
        lambda name: (
            name.endswith(f"/{text}") or any(map(matches, (name, name.rpartition("/")[2], *operators[name])))
        ),
        lambda name: bool(text) and sanitize(name).endswith(f"_{spelled}"),
        lambda name: bool(part) and part in name.lower(),
    )
    found = ([name for name in operators if fits(name)] for fits in readings)
    return next(filter(None, found), [])


def add_onnx_names(operators: Mapping[str, set[str]], graph: OperatorGraph | None) -> None:
    """Add the names of ONNX nodes to the aliases of operators, as a graph file has them."""
    for each in graph.operators.values() if graph is not None else ():
        if each.full_name in operators:
            operators[each.full_name].update({each.onnx_name, *each.onnx_names} - {""})


def describe_miss(text: str, operators: Mapping[str, Collection[str]], found: Sequence[str] = ()) -> str:
    """Return the message about a text that names no operator, or several: ``found``."""
    if found:
        return f"{len(found)} operators match {text!r}; give a full name:{_name_lines(found)}"
    words = [word for name in operators for word in name.split("/")]
    aliases = [alias for others in operators.values() for alias in others if alias]
    hint = name_hint(text, dict.fromkeys([*operators, *words, *(w.split("-")[0] for w in words), *aliases]))
    there = f"; there are:{_name_lines([*operators])}" if operators and not hint else ""
    return f"no operator {text!r}{hint}{there}"


def _name_lines(names: Sequence[str]) -> str:
    more = [f"... and {len(names) - _LISTED} more"] if len(names) > _LISTED else []
    return "".join(f"\n  {name}" for name in [*names[:_LISTED], *more])
