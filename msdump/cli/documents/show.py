"""The document of ``msdump show --json``."""

from __future__ import annotations

from pathlib import Path

from msdump.cli.documents.document import JsonDocument, Number, Part
from msdump.tools import dump_tree


class DumpFile(Part):
    """A file of a dump."""

    name: str
    """Its name."""

    bytes: int
    """Its size."""


class DumpDirectory(Part):
    """A directory of a dump."""

    path: str
    """Its path below the dump, "" for the dump itself."""

    files: list[DumpFile]
    """Its files: of tensors and operators in the order of their times, behind all others by name."""


class FirstTensor(Part):
    """The output that was dumped first."""

    path: str
    """Its file."""

    dtype: str
    """Element type of the file."""

    shape: list[int]
    """Its shape."""

    elements: list[Number | str]
    """Its first elements; those that are no real numbers as texts."""


class FirstStatistics(Part):
    """The statistics of the first iteration that has some."""

    path: str
    """Their file."""

    titles: list[str]
    """Titles of the columns."""

    rows: list[list[str]]
    """The first rows, cells as they stand in the file."""

    count: int
    """Number of all rows."""


class ShowDocument(JsonDocument):
    """The tree of a dump, and a tensor or some statistics of it."""

    path: str
    """The dump."""

    directories: list[DumpDirectory]
    """Its directories that hold files, by path."""

    output: FirstTensor | None
    """The output that was dumped first; null where there is none."""

    statistics: FirstStatistics | None
    """Some statistics; null where there are none."""


def document(folder: Path) -> ShowDocument:
    """Return the tree of a dump, and its first output and statistics.

    Raises:
        DumpReadError: A file cannot be read.
    """
    output, statistics = dump_tree.first_output(folder), dump_tree.first_statistics(folder)
    return ShowDocument(
        path=str(folder),
        directories=[
            DumpDirectory(
                path=path, files=[DumpFile(name=file.name, bytes=dump_tree.size(file)) for file in files]
            )
            for path, files in dump_tree.folders(folder)
        ],
        output=None if output is None else _tensor(output),
        statistics=None if statistics is None else _statistics(statistics),
    )


def _tensor(path: Path) -> FirstTensor:
    array = dump_tree.elements(path)
    return FirstTensor(
        path=str(path),
        dtype=str(array.dtype),
        shape=[*array.shape],
        elements=[
            float(element) if array.dtype.kind in "biuf" else str(element)
            for element in array.ravel()[: dump_tree.SHOWN].tolist()
        ],
    )


def _statistics(path: Path) -> FirstStatistics:
    titles, *rows = dump_tree.rows(path)
    return FirstStatistics(path=str(path), titles=titles, rows=rows[: dump_tree.SHOWN], count=len(rows))
