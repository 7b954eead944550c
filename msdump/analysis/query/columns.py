"""Columns, types and meanings of the views of ``msdump query``: one literal table.

The types are given to the readers of csv, JSON and Parquet files; none of them guesses. The empty views
and the page of the reference derive from it:

python -m msdump.analysis.query.columns docs/reference/views.md
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
    """A column of a view.

    Attributes:
        name: Its name in SQL.
        type: Its type in DuckDB's words.
        meaning: Its contents, for the page of the reference.
    """

    name: str
    type: str
    meaning: str


TEXT: Final = "VARCHAR"
NUMBER: Final = "BIGINT"
REAL: Final = "DOUBLE"
TRUTH: Final = "BOOLEAN"
TEXTS: Final = "VARCHAR[]"
NUMBERS: Final = "BIGINT[]"
TIME: Final = "TIMESTAMP"

_SOURCE: Final = Column("dump", TEXT, "the dump as the command line names it, or the NAME of NAME=DUMP")
_RANK: Final = Column("rank", NUMBER, "number of the rank; of the device, in trees of compiled graphs")
_NETWORK: Final = Column("network", TEXT, "directory of the network, or of the model")
_GRAPH: Final = Column("graph", NUMBER, "number of the graph, or of the model in its process")
_ITERATION: Final = Column("iteration", NUMBER, "number of the iteration, as `iteration` selects it")
_PLACE: Final = (_SOURCE, _RANK, _NETWORK, _GRAPH, _ITERATION)
_DIRECTORY: Final = Column(
    "directory", TEXT, "directory of the file, below the dump; `.` for the dump itself"
)
_PATH: Final = Column("path", TEXT, "the file")
_OP_TYPE: Final = Column("op_type", TEXT, "type of the operator, `Conv2D`")
_OP_NAME: Final = Column("op_name", TEXT, "name of the operator as files spell it")
_FULL_NAME: Final = Column("full_name", TEXT, "full scoped name of the operator, plain name of a parameter")
_SCOPE: Final = Column("scope", TEXT, "its scope, `Default/conv1-Conv2d`")
_TASK: Final = Column("task_id", NUMBER, "number of its task")
_STREAM: Final = Column("stream_id", NUMBER, "number of its stream")
_TIMESTAMP: Final = Column(
    "timestamp", NUMBER, "microseconds since the epoch; grows in the order of execution"
)
_IO: Final = Column("io", TEXT, "`input` or `output`")
_SLOT: Final = Column("slot", NUMBER, "number of the input or output")
_BYTES: Final = Column("bytes", NUMBER, "bytes of its elements")
_DTYPE: Final = Column("dtype", TEXT, "element type, `float16`")
_FORMAT: Final = Column("format", TEXT, "memory format, if the file has it")
_SHAPE: Final = Column("shape", NUMBERS, "dimensions in elements; none of a scalar")
_SOURCE_LINE: Final = Column("source", TEXT, "the user's line that made it, `net.py:12: x = self.fc(x)`")


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
                "which execution of the network in its directory, or run in the dump, it is of, from 0",
            ),
            Column("pass", NUMBER, "which run of the operator in that execution, from 0: the turn of a loop"),
            *(_OP_TYPE, _OP_NAME, _FULL_NAME, _SCOPE, _IO, _SLOT, _DTYPE, _SHAPE, _FORMAT, _BYTES),
            *(_TASK, _STREAM, _TIMESTAMP, _DIRECTORY, _PATH),
        ),
        "statistics": (
            *(*_PLACE, _OP_TYPE, _OP_NAME, _TASK, _STREAM, _TIMESTAMP, _IO, _SLOT),
            *(_BYTES, _DTYPE, _FORMAT, _SHAPE, *_STATISTICS, _DIRECTORY, _PATH),
        ),
        "operators": (
            *(_SOURCE, _RANK, _NETWORK, _GRAPH),
            Column("execution_order", NUMBER, "its place in the order of execution, from 0"),
            *(_OP_TYPE, _OP_NAME, _FULL_NAME, _SCOPE, _SOURCE_LINE),
            Column(
                "inputs", TEXTS, "the sources of the inputs: full names of operators, names of parameters"
            ),
            Column(
                "input_kinds",
                TEXTS,
                "kinds of the sources: `operator`, `weight`, `input`, `constant` or `absent`",
            ),
            Column("input_slots", NUMBERS, "output numbers of the sources"),
            Column("output_dtypes", TEXTS, "element types of its outputs, empty where not known"),
            Column("onnx_name", TEXT, "name of its node in the model"),
            Column("attributes", TEXT, "its arguments as the graph file shows them"),
            Column("caller", TEXT, "the control flow operator that holds it in a branch or body"),
        ),
        "files": (
            *_PLACE,
            Column("kind", TEXT, "its content: `tensor`, `operator`, `statistics`, `ir`, ...; `foreign`"),
            Column("name", TEXT, "its name"),
            Column("bytes", NUMBER, "its size"),
            Column("modified", TIME, "when it was written last, UTC"),
            *(_DIRECTORY, _PATH),
        ),
        "comparisons": (
            Column("comparison", TEXT, "the result as the command line names it, or the NAME of NAME=RESULT"),
            *(_RANK, _ITERATION, Column("execution", NUMBER, "number of the execution, where several ran")),
            Column("pass", NUMBER, "which run of the operator in the iteration, where it ran in a loop"),
            Column("execution_order", NUMBER, "place of the operator in the order of execution, from 1"),
            *(_OP_TYPE, _OP_NAME, _FULL_NAME, _SCOPE, _SOURCE_LINE),
            Column("operator_verdict", TEXT, "the verdict: `own`, `inherited`, `agrees`, ..."),
            Column("operator_note", TEXT, "note of the verdict"),
            *(_IO, _SLOT, Column("verdict", TEXT, "verdict on the tensor; of a missing operator `missing`")),
            *(_DTYPE, Column("golden_dtype", TEXT, "element type of its counterpart"), _SHAPE),
            Column("distance", REAL, "norm of the difference, divided by that of golden"),
            Column("error_limit", REAL, "largest distance that was allowed"),
            Column("cosine", REAL, "cosine similarity"),
            Column("max_error", REAL, "largest difference of two elements"),
            Column("scaled_error", REAL, "largest difference, divided by the largest golden element"),
            Column("ulps", REAL, "largest difference in units of the last place"),
            Column("masked", NUMBER, "elements that hold a mask's constant on both sides"),
            Column("own_distance", REAL, "distance to the output when the operator runs again (`--model`)"),
            Column("note", TEXT, "note of the tensor's verdict"),
            _DIRECTORY,
        ),
        "runs": (
            *_PLACE,
            Column("execution", NUMBER, "number of the execution in its directory, from 0"),
            Column("is_whole", TRUTH, "whether it went as far as the one that went farthest"),
            Column("started", TIME, "time of its first tensor, UTC"),
            Column("ended", TIME, "time of its last tensor, UTC"),
            Column("tensors", NUMBER, "number of its tensors that were saved"),
            Column("step", NUMBER, "number of the user's step (Ascend O2)"),
            Column("time", TEXT, "when the dump was configured, `YYYYMMDDHHMMSS` (compiled graphs)"),
            Column("device_target", TEXT, "the device, from the metadata of the dump"),
            Column("version", TEXT, "version of MindSpore, from the metadata of the dump"),
            Column("config", TEXT, "the configuration of the dump, JSON"),
            *(_DIRECTORY, Column("path", TEXT, "the directory")),
        ),
    }
)
"""The columns of every view."""


_HEAD: Final = """\
# Views of `msdump query`

The columns of every view, with DuckDB's names of their types. The readers of files
use them. A value that the dump lacks is NULL. `make schema` writes it from
`msdump/analysis/query/columns.py`; [how to ask](../how-to/ask-questions.md).
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
        sys.exit("usage: python -m msdump.analysis.query.columns FILE")
    Path(arguments[0]).write_text(reference_text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
