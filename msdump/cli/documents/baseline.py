"""The document of ``msdump baseline --json``."""

from __future__ import annotations

from msdump.cli.documents.document import JsonDocument
from msdump.tools.baseline import Baseline


class BaselineDocument(JsonDocument):
    """The statistics that were kept of a dump."""

    path: str
    """Directory of the baseline."""

    directories: int
    """Number of directories with statistics in it."""

    tensors: int
    """Number of tensors whose statistics were kept."""

    unreadable: list[str]
    """Tensors whose file cannot be read, and why."""


def document(baseline: Baseline) -> BaselineDocument:
    """Return the document of a baseline."""
    return BaselineDocument(
        path=baseline.path,
        directories=baseline.directories,
        tensors=baseline.rows,
        unreadable=[*baseline.unreadable],
    )
