"""The document of ``msdump show --json``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msdump.cli.documents.document import JsonDocument, Number, Part
from msdump.tools import dump_tree
from msdump.tools.inspection.inspection import Extreme, Inspection
from msdump.tools.inspection.subjects import InspectedTensor


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


class ShownExtreme(Part):
    """The smallest or the largest finite element of a tensor."""

    value: Number
    """The element."""

    place: list[int]
    """Its indices."""


class ShownStrangers(Part):
    """Elements of a tensor that are NaN, or inf, or -inf."""

    count: int
    """How many there are."""

    places: list[list[int]]
    """The indices of the first ones."""


class ShownHistogram(Part):
    """How the finite elements of a tensor are spread."""

    edges: list[Number]
    """The bounds of intervals of equal width."""

    counts: list[int]
    """The elements in each."""


class ShownTensor(Part):
    """A tensor of a file or of an operator."""

    name: str
    """Its operator, type and slot; the name of the file where that is all that is known."""

    path: str
    """Its file."""

    dtype: str
    """Element type."""

    shape: list[int]
    """Its shape."""

    statistics: dict[str, Number | bool | str | None]
    """Statistics by the names of statistic_category."""

    smallest: ShownExtreme | None
    """Its smallest finite element."""

    largest: ShownExtreme | None
    """Its largest finite element."""

    strangers: dict[str, ShownStrangers]
    """Its elements that are not finite, by "nan", "inf", "-inf"; empty where only statistics were saved."""

    histogram: ShownHistogram | None
    """Of its finite elements."""


class ShowDocument(JsonDocument):
    """The tree of a dump with a tensor or some statistics of it, or the tensors of a file or an operator."""

    path: str
    """The dump, or the file."""

    directories: list[DumpDirectory]
    """Its directories that hold files, by path."""

    output: FirstTensor | None
    """The output that was dumped first; an input where no output was; null where there is neither."""

    statistics: FirstStatistics | None
    """Some statistics; null where there are none."""

    tensors: list[ShownTensor]
    """The tensors of a file or an operator; empty for the tree of a dump."""


def document(folder: Path) -> ShowDocument:
    """Return the tree of a dump, and its first output and statistics.

    Raises:
        DumpReadError: A file cannot be read.
    """
    first, statistics = dump_tree.first_tensor(folder), dump_tree.first_statistics(folder)
    return ShowDocument(
        path=str(folder),
        directories=[
            DumpDirectory(
                path=path, files=[DumpFile(name=file.name, bytes=dump_tree.size(file)) for file in files]
            )
            for path, files in dump_tree.folders(folder)
        ],
        output=None if first is None else _tensor(first),
        statistics=None if statistics is None else _statistics(statistics),
        tensors=[],
    )


def document_of_tensors(tensors: Iterable[tuple[InspectedTensor, Inspection | None]]) -> ShowDocument:
    """Return tensors with what their elements look like, None where they were not saved."""
    shown = [_shown(subject, inspection) for subject, inspection in tensors]
    return ShowDocument(path=shown[0].path, directories=[], output=None, statistics=None, tensors=shown)


def _shown(subject: InspectedTensor, inspection: Inspection | None) -> ShownTensor:
    histogram = None if inspection is None else inspection.histogram
    strangers = {} if inspection is None else inspection.strangers
    return ShownTensor(
        name=subject.name,
        path=subject.path,
        dtype=subject.dtype,
        shape=[*subject.shape],
        statistics=dict(subject.statistics),
        smallest=None if inspection is None else _extreme(inspection.smallest),
        largest=None if inspection is None else _extreme(inspection.largest),
        strangers={
            name: ShownStrangers(count=each.count, places=[[*place] for place in each.places])
            for name, each in strangers.items()
        },
        histogram=None
        if histogram is None
        else ShownHistogram(edges=[*histogram.edges], counts=[*histogram.counts]),
    )


def _extreme(extreme: Extreme | None) -> ShownExtreme | None:
    return None if extreme is None else ShownExtreme(value=extreme.value, place=[*extreme.place])


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
