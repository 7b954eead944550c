"""The cases of operators in all test modules of this folder.

A module has them in tables, ``CASES`` or others: by name, the arguments of ``differences.one_operator`` and
something of its own. Rules that it tests otherwise stand in ``COVERED``, as domain and type.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Arguments = tuple[Any, ...]

_HERE = Path(__file__).parent


def modules() -> Iterator[ModuleType]:
    """Yield the test modules of this folder, but for those that need what is not installed."""
    for path in sorted(_HERE.glob("test_*.py")):
        try:
            yield import_module(f"tests.training.{path.stem}")
        except pytest.skip.Exception:
            continue


def operator_cases() -> dict[str, Arguments]:
    """Return the arguments of every case of an operator, by module, table and name."""
    return {
        f"{module.__name__.rpartition('.')[2]}-{table}-{name}": entry[0]
        for module in modules()
        for table, entries in vars(module).items()
        if table.isupper() and isinstance(entries, dict)
        for name, entry in entries.items()
        if _is_case(entry)
    }


def _is_case(entry: object) -> bool:
    """Tell whether a row of a table begins with type, arrays and attributes of an operator."""
    match entry:
        case ((str(), [*_], dict(), *_), *_):
            return True
    return False


def covered() -> set[tuple[str, str]]:
    """Return the rules that modules test without cases."""
    return {rule for module in modules() for rule in getattr(module, "COVERED", ())}


def kind(arguments: Arguments) -> tuple[str, str]:
    """Return domain and type of the operator of a case."""
    return (arguments[5] if len(arguments) > 5 else ""), arguments[0]
