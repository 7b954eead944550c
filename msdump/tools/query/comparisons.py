"""The view ``comparisons``: results of ``msdump compare``, its document (``--json``) or its table (csv)."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msdump import reading
from msdump.errors import DumpReadError
from msdump.store import names

_OF_OPERATOR: Final = MappingProxyType(
    {
        "rank": "rank",
        "iteration": "iteration",
        "execution": "execution",
        "pass_number": "pass",
        "order": "execution_order",
        "op_type": "op_type",
        "operator": "full_name",
        "scope": "scope",
        "source": "source",
        "verdict": "operator_verdict",
        "note": "operator_note",
        "directory": "directory",
    }
)
"""Columns by the fields of a document's operators."""

_OF_TENSOR: Final = MappingProxyType(
    {
        "verdict": "verdict",
        "dtype": "dtype",
        "golden_dtype": "golden_dtype",
        "shape": "shape",
        "limit": "error_limit",
        "note": "note",
    }
)
_OF_ERROR: Final = MappingProxyType(
    {
        "distance": "distance",
        "cosine": "cosine",
        "largest": "max_error",
        "scaled": "scaled_error",
        "ulps": "ulps",
        "masked": "masked",
    }
)
_OF_TABLE: Final = MappingProxyType(
    {
        "Directory": "directory",
        "Order": "execution_order",
        "Operator": "op_name",
        "Type": "op_type",
        "Pass": "pass",
        "DataType": "dtype",
        "GoldenDataType": "golden_dtype",
        "Verdict": "verdict",
        "CosineSimilarity": "cosine",
        "MaxAbsoluteError": "max_error",
        "Distance": "distance",
        "Limit": "error_limit",
        "Note": "note",
        "OperatorVerdict": "operator_verdict",
        "OperatorNote": "operator_note",
        "ScaledError": "scaled_error",
        "Ulps": "ulps",
        "Masked": "masked",
        "OwnError": "own_distance",
        "FullName": "full_name",
        "Scope": "scope",
        "Source": "source",
        "Iteration": "iteration",
        "Rank": "rank",
        "Execution": "execution",
    }
)
"""Columns by the titles of the table."""

_REALS: Final = frozenset(
    {"distance", "error_limit", "cosine", "max_error", "scaled_error", "ulps", "own_distance"}
)
_COUNTS: Final = frozenset({"rank", "iteration", "execution", "pass", "execution_order", "masked"})


def rows(path: str, label: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each compared tensor, and for each operator that one side lacks.

    Args:
        path: The document or the table.
        label: What the column ``comparison`` holds.

    Raises:
        DumpReadError: The file cannot be read, or is no result of a comparison.
    """
    try:
        text = reading.read_bytes(path).decode()
        each = _of_document(path, text) if Path(path).suffix == ".json" else _of_table(path, text)
        yield from ({"comparison": label} | row for row in each)
    except OSError as error:
        if isinstance(error, DumpReadError):
            raise
        raise DumpReadError(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise DumpReadError(path, "not UTF-8 text", error.start) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _no_result(path) from error


def _no_result(path: str) -> DumpReadError:
    message = (
        "no result of msdump compare: its --json document, or the compare_*.csv that it writes, is needed"
    )
    return DumpReadError(path, message)


def _of_document(path: str, text: str) -> Iterator[dict[str, Any]]:
    document = json.loads(text)
    if not isinstance(document, dict) or "operators" not in document:
        raise _no_result(path)
    for operator in document["operators"]:
        told = _renamed(operator, _OF_OPERATOR)
        told["op_name"] = names.sanitize(operator["operator"])
        own = {f"output:{each['output']}": each["error"]["distance"] for each in operator["own"]}
        tensors = (*operator["inputs"], *operator["outputs"])
        for tensor in tensors:
            error = _renamed(tensor["error"] or {}, _OF_ERROR)
            numbers = {"own_distance": own.get(tensor["tensor"])} | error
            yield told | numbers | _renamed(tensor, _OF_TENSOR) | _slot(tensor["tensor"])
        if not tensors:
            yield told | {"verdict": operator["verdict"]}


def _renamed(fields: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    return {column: fields[name] for name, column in columns.items() if name in fields}


def _slot(tensor: str) -> dict[str, Any]:
    io, _, slot = tensor.partition(":")
    return {"io": io, "slot": int(slot)} if slot else {}


def _of_table(path: str, text: str) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if not {"Operator", "Tensor", "Verdict"} <= {*(reader.fieldnames or ())}:
        raise _no_result(path)
    for line in reader:
        cells = ((column, line.get(title)) for title, column in _OF_TABLE.items())
        told = {column: _cell(column, cell) for column, cell in cells if cell}
        shape = [int(size) for size in line["Shape"].split("x") if size]
        yield told | _slot(line["Tensor"]) | ({"shape": shape} if line["Tensor"] else {})


def _cell(column: str, text: str) -> object:
    if column in _COUNTS:
        return int(text)
    if column not in _REALS:
        return text
    try:
        number = float(text)
    except ValueError:  # CANN's words for a score that could not be computed
        return None
    return None if column == "ulps" and math.isnan(number) else number
