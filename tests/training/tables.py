"""The cases of operators in all test modules of this folder.

A module has them in tables, ``CASES`` or others: by name, the arguments of ``differences.one_operator``, of
which ``test_rules`` checks the gradients by differences, or a tuple of them and what the module itself checks
them against. Rules that it tests otherwise stand in ``COVERED``, as domain and type.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def modules():
    """Yield the test modules of this folder, but for those that need what is not installed."""
    for path in sorted(_HERE.glob("test_*.py")):
        try:
            yield import_module(f"tests.training.{path.stem}")
        except pytest.skip.Exception:
            continue


def entries():
    """Return the rows of all tables of operators, by module, table and name."""
    return {
        f"{module.__name__.rpartition('.test_')[2]}-{table}-{name}": entry
        for module in modules()
        for table, rows in vars(module).items()
        if table.isupper() and not table.startswith("_") and isinstance(rows, dict)
        for name, entry in rows.items()
        if _is_case(entry)
    }


def operator_cases():
    """Return the arguments of every case of an operator, by module, table and name."""
    return {name: entry if isinstance(entry[0], str) else entry[0] for name, entry in entries().items()}


def _is_case(entry):
    """Tell whether a row of a table begins with type, arrays and attributes of an operator."""
    match entry:
        case (str(), [*_], dict(), *_) | ((str(), [*_], dict(), *_), *_):
            return True
    return False


def covered():
    """Return the rules that modules test without cases."""
    return {rule for module in modules() for rule in getattr(module, "COVERED", ())}


def kind(arguments):
    """Return domain and type of the operator of a case."""
    return (arguments[5] if len(arguments) > 5 else ""), arguments[0]
