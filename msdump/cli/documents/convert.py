"""The document of ``msdump convert --json``."""

from __future__ import annotations

from msdump.cli.documents.document import JsonDocument, Part
from msdump.tools.convert.conversion import Conversion
from msdump.tools.convert.result import ConvertFailure, FileResult


class FailedTensor(Part):
    """A tensor, or a whole file, that was not converted."""

    tensor: str | None
    """Which, "input:0"; null for the whole file."""

    message: str
    """Why."""

    code: int
    """msaccucmp's return code of the error."""


class ConvertedFile(Part):
    """What became of a dump file."""

    path: str
    """The dump file."""

    files: int
    """Number of files that were written."""

    bytes: int
    """Bytes in all of them."""

    kept: int
    """Tensors of format ND among them, which is the host's layout and no other."""

    failures: list[FailedTensor]
    """What was not converted."""


class ConvertDocument(JsonDocument):
    """What ``msdump convert`` did."""

    output: str
    """Directory of the results."""

    files: int
    """Number of files that were written."""

    bytes: int
    """Bytes in all of them."""

    skipped: dict[str, int]
    """Number of files of other kinds, by their suffix."""

    results: list[ConvertedFile]
    """What became of each dump file, in their order."""


def document(conversion: Conversion) -> ConvertDocument:
    """Return what a conversion did."""
    return ConvertDocument(
        output=conversion.output,
        files=conversion.files,
        bytes=conversion.size,
        skipped=dict(conversion.skipped),
        results=[_file(result) for result in conversion.results],
    )


def _file(result: FileResult) -> ConvertedFile:
    failures = [_failure(failure) for failure in result.failures]
    return ConvertedFile(
        path=result.path, files=result.files, bytes=result.size, kept=result.kept, failures=failures
    )


def _failure(failure: ConvertFailure) -> FailedTensor:
    return FailedTensor(tensor=failure.tensor or None, message=failure.message, code=int(failure.code))
