"""Columns, types and meanings of the views of ``msdump query``: one literal table.

The types are given to the readers of csv, JSON and Parquet files; none of them guesses. The empty views
and the page of the reference derive from it:

python -m msdump.look.query.columns docs/reference/views.md
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msdump.statistics import STATISTICS, Nature, Statistic


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view."""

    name: str
    type: str
    meaning: str  # its contents, for the page of the reference


TEXT: Final = "VARCHAR"
NUMBER: Final = "BIGINT"
REAL: Final = "DOUBLE"
TRUTH: Final = "BOOLEAN"
TEXTS: Final = "VARCHAR[]"
NUMBERS: Final = "BIGINT[]"
TIME: Final = "TIMESTAMP"

_SOURCE: Final = Column("dump", TEXT, "the dump as the command line names it, or the NAME of NAME=DUMP")
_RANK: Final = Column("rank", NUMBER, "number of the rank, or of the device in trees of compiled graphs")
_NETWORK: Final = Column("network", TEXT, "directory of the network, or of the model")
_GRAPH: Final = Column("graph", NUMBER, "number of the graph, or of the model in the process")
_ITERATION: Final = Column("iteration", NUMBER, "number of the iteration, as `iteration` selects it")
_PLACE: Final = (_SOURCE, _RANK, _NETWORK, _GRAPH, _ITERATION)
_DIRECTORY: Final = Column(
    "directory", TEXT, "directory of the file, below the dump; `.` for the dump's root"
)
_PATH: Final = Column("path", TEXT, "path of the file")
_OP_TYPE: Final = Column("op_type", TEXT, "type of the operator, `Conv2D`")
_OP_NAME: Final = Column("op_name", TEXT, "name of the operator in file names")
_FULL_NAME: Final = Column("full_name", TEXT, "full scoped name of the operator, plain name of a parameter")
_SCOPE: Final = Column("scope", TEXT, "scope of the operator, `Default/conv1-Conv2d`")
_TASK: Final = Column("task_id", NUMBER, "number of the task")
_STREAM: Final = Column("stream_id", NUMBER, "number of the stream")
_TIMESTAMP: Final = Column("timestamp", NUMBER, "microseconds since the epoch; increases in execution order")
_IO: Final = Column("io", TEXT, "`input` or `output`")
_SLOT: Final = Column("slot", NUMBER, "number of the input or output")
_BYTES: Final = Column("bytes", NUMBER, "size of the elements in bytes")
_DTYPE: Final = Column("dtype", TEXT, "element type, `float16`")
_FORMAT: Final = Column("format", TEXT, "memory format, if the file contains it")
_SHAPE: Final = Column("shape", NUMBERS, "dimensions in elements; empty for a scalar")
_SOURCE_LINE: Final = Column("source", TEXT, "source line of the operator, `net.py:12: x = self.fc(x)`")


def column_of(statistic: Statistic) -> str:
    """Return the name of the column of a statistic: its category with ``_`` for the spaces.

    >>> from msdump.statistics.table import BY_CATEGORY
    >>> column_of(BY_CATEGORY["nan count"])
    'nan_count'
    """
    return statistic.category.replace(" ", "_")


_TYPES: Final = {Nature.COUNT: NUMBER, Nature.SIGN_COUNT: NUMBER, Nature.DIGEST: TEXT}

_STATISTICS: Final = tuple(
    Column(column_of(each), _TYPES.get(each.nature, REAL), each.definition.rstrip(".")) for each in STATISTICS
)

VIEWS: Final[Mapping[str, tuple[Column, ...]]] = MappingProxyType(
    {
        "tensors": (
            *_PLACE,
            Column(
                "execution",
                NUMBER,
                "number of the execution in the directory of the network, or of the run in the dump, from 0",
            ),
            Column("pass", NUMBER, "number of the pass of a loop's body, from 0"),
            *(_OP_TYPE, _OP_NAME, _FULL_NAME, _SCOPE, _IO, _SLOT, _DTYPE, _SHAPE, _FORMAT, _BYTES),
            *(_TASK, _STREAM, _TIMESTAMP, _DIRECTORY, _PATH),
        ),
        "statistics": (
            *(*_PLACE, _OP_TYPE, _OP_NAME, _TASK, _STREAM, _TIMESTAMP, _IO, _SLOT),
            *(_BYTES, _DTYPE, _FORMAT, _SHAPE, *_STATISTICS, _DIRECTORY, _PATH),
        ),
        "operators": (
            *(_SOURCE, _RANK, _NETWORK, _GRAPH),
            Column("execution_order", NUMBER, "position in execution order, from 0"),
            *(_OP_TYPE, _OP_NAME, _FULL_NAME, _SCOPE, _SOURCE_LINE),
            Column("inputs", TEXTS, "source of each input: full name of an operator, or name of a parameter"),
            Column(
                "input_kinds",
                TEXTS,
                "kind of each source: `operator`, `weight`, `input`, `constant` or `absent`",
            ),
            Column("input_slots", NUMBERS, "output number of each source"),
            Column("output_dtypes", TEXTS, "element types of the outputs, empty if unknown"),
            Column("onnx_name", TEXT, "name of the node in the model"),
            Column("attributes", TEXT, "arguments of the operator, as in the graph file"),
            Column(
                "caller", TEXT, "control flow operator with the branch or body that contains the operator"
            ),
        ),
        "files": (
            *_PLACE,
            Column(
                "kind", TEXT, "kind of contents: `tensor`, `operator`, `statistics`, `ir`, ...; `foreign`"
            ),
            Column("name", TEXT, "name of the file"),
            Column("bytes", NUMBER, "size of the file"),
            Column("modified", TIME, "time of the last change, UTC"),
            *(_DIRECTORY, _PATH),
        ),
        "comparisons": (
            Column("comparison", TEXT, "the result as the command line names it, or the NAME of NAME=RESULT"),
            *(
                _RANK,
                _ITERATION,
                Column("execution", NUMBER, "number of the execution, if there are several"),
            ),
            Column("pass", NUMBER, "number of the pass, in a loop"),
            Column("execution_order", NUMBER, "position in execution order, from 1"),
            *(_OP_TYPE, _OP_NAME, _FULL_NAME, _SCOPE, _SOURCE_LINE),
            Column("operator_verdict", TEXT, "verdict on the operator: `own`, `inherited`, `agrees`, ..."),
            Column("operator_note", TEXT, "reason of the operator's verdict"),
            *(_IO, _SLOT, Column("verdict", TEXT, "verdict on the tensor; `missing` for a missing operator")),
            *(_DTYPE, Column("golden_dtype", TEXT, "element type of the golden tensor"), _SHAPE),
            Column("distance", REAL, "norm of the difference, divided by the norm of golden"),
            Column("error_limit", REAL, "largest allowed distance"),
            Column("cosine", REAL, "cosine similarity"),
            Column("max_error", REAL, "largest difference of two elements"),
            Column("scaled_error", REAL, "largest difference, divided by the largest golden element"),
            Column("ulps", REAL, "largest difference in units of the last place"),
            Column("masked", NUMBER, "number of elements that equal a mask's constant on both sides"),
            Column("own_distance", REAL, "distance to the output when the operator runs again (`--model`)"),
            Column("note", TEXT, "reason of the tensor's verdict"),
            _DIRECTORY,
        ),
        "runs": (
            *_PLACE,
            Column("execution", NUMBER, "number of the execution in the directory, from 0"),
            Column("is_whole", TRUTH, "whether the execution got as far as the longest one"),
            Column("started", TIME, "time of the first tensor, UTC"),
            Column("ended", TIME, "time of the last tensor, UTC"),
            Column("tensors", NUMBER, "number of saved tensors"),
            Column("step", NUMBER, "number of the user's step (Ascend O2)"),
            Column("time", TEXT, "time of the configuration, `YYYYMMDDHHMMSS` (compiled graphs)"),
            Column("device_target", TEXT, "device, as recorded in the dump"),
            Column("version", TEXT, "version of MindSpore, as recorded in the dump"),
            Column("config", TEXT, "configuration of the dump, JSON"),
            *(_DIRECTORY, Column("path", TEXT, "path of the directory")),
        ),
    }
)
"""The columns of every view."""


_HEAD: Final = """\
# Views of `msdump query`

The columns of every view, with their DuckDB types. A value that the dump does not contain is NULL.
`make schema` writes this page from
`msdump/look/query/columns.py`; [how to ask](../how-to/ask-questions.md).
"""


def reference_text() -> str:
    """Return the page."""
    parts = [_HEAD]
    for view, columns in VIEWS.items():
        rows = "".join(f"| `{each.name}` | {each.type} | {each.meaning} |\n" for each in columns)
        parts.append(f"\n## {view}\n\n| column | type | meaning |\n|---|---|---|\n{rows}")
    return "".join(parts)


def main(arguments: list[str]) -> None:
    """Write the page to the file that the only argument names."""
    if len(arguments) != 1:
        sys.exit("usage: python -m msdump.look.query.columns FILE")
    Path(arguments[0]).write_text(reference_text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
