"""The tables that a comparison of directories writes: results, and which file belongs to which."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.tools.compare.cann.comparison import Row
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.compare.pairing.pairs import Pair
from msdump.tools.compare.pairing.sides import Sides
from msdump.tools.scores.algorithms import NAN


@dataclass(frozen=True, slots=True)
class OptionalColumns:
    """Which of the optional columns a result has.

    Attributes:
        dumped_address: Address of each tensor on the examined side.
        golden_address: Address of each golden tensor.
        overflow: Whether the tensor is float16 and overflows (``-overflow_detection``).
        sequence: Place of the operator in the execution (``-r``, ``-s``).
    """

    dumped_address: bool = True
    golden_address: bool = True
    overflow: bool = False
    sequence: bool = False

    @classmethod
    def of(cls, sides: Sides, *, overflow: bool = False, sequence: bool = False) -> OptionalColumns:
        """Return the columns for two directories; .npy files have no addresses."""
        return cls(_has_addresses(sides.dumped), _has_addresses(sides.golden), overflow, sequence)


# vendor: .npy files have no column for an address at all, dump files without one have "NaN" in it.
def _has_addresses(folder: Folder) -> bool:
    return folder.kind is FolderKind.DUMPS


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cell: Callable[[Row], str]
    is_shown: Callable[[OptionalColumns], bool] = lambda _: True


_INDEX: Final = "Index"
_SEQUENCE: Final = "OpSequence"

# vendor: two columns are named DataType and two Address; a reader has to go by their place.
_COLUMNS: Final = (
    _Column(_INDEX, lambda row: str(row.pair.index)),
    _Column(_SEQUENCE, lambda row: str(row.pair.sequence), lambda shown: shown.sequence),
    _Column("OpType", lambda row: row.pair.op_type),
    _Column("NPUDump", lambda row: row.pair.dumped),
    _Column("DataType", lambda row: row.dumped_dtype),
    _Column("Address", lambda row: row.dumped_address, lambda shown: shown.dumped_address),
    _Column("GroundTruth", lambda row: row.pair.golden),
    _Column("DataType", lambda row: row.golden_dtype),
    _Column("Address", lambda row: row.golden_address, lambda shown: shown.golden_address),
    _Column("TensorIndex", lambda row: row.pair.tensor),
    _Column("Shape", lambda row: row.shape),
    _Column("OverFlow", lambda row: row.overflow, lambda shown: shown.overflow),
)

_REASON: Final = "CompareFailReason"
_MAPPING: Final = ("OpType", "NPUDump", "GroundTruth", "TensorIndex", "NPUDumpPath", "GroundTruthPath")


def result(rows: Iterable[Row], algorithms: Sequence[str], shown: OptionalColumns) -> str:
    """Return the text of ``result_{time}.csv``, the table of a comparison.

    Args:
        rows: The rows, in their order.
        algorithms: Titles of the algorithms' columns.
        shown: Which of the other columns there are.
    """
    columns = [column for column in _COLUMNS if column.is_shown(shown)]
    lines: list[Sequence[str]] = [[*(column.title for column in columns), *algorithms, _REASON]]
    lines += ([*(column.cell(row) for column in columns), *row.scores, row.reason] for row in rows)
    return _text(lines)


def mapping(pairs: Iterable[Pair], *, has_sequence: bool) -> str:
    """Return the text of ``mapping_{time}.csv`` (``-map``): the files of each tensor and its counterpart."""
    return _text(_mapping_lines(pairs, has_sequence=has_sequence))


def _mapping_lines(pairs: Iterable[Pair], *, has_sequence: bool) -> Iterator[Sequence[str]]:
    yield [_INDEX, *[_SEQUENCE][:has_sequence], *_MAPPING]
    for pair in pairs:
        paths = (_path(pair.dumped_tensor), _path(pair.golden_tensor))
        sequence = [str(pair.sequence)][:has_sequence]
        yield [str(pair.index), *sequence, pair.op_type, pair.dumped, pair.golden, pair.tensor, *paths]


def _path(tensor: DumpedOperand | None) -> str:
    return NAN if tensor is None else tensor.path


def _text(lines: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    return text.getvalue()
