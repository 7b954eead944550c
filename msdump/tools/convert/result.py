"""The values that a conversion takes and returns: source, target, and the result for each file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msdump.tools.convert.names import OutputKind
from msdump.tools.return_codes import ReturnCode

VERSION: Final = 2
"""Version of dump files with tensors behind the header; in version 1 they are inside."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the tensors of all files are converted to.

    Attributes:
        format: Name of the memory format that tensors are converted to, "": they stay as they are.
        kind: Type of the files that tensors are written to.
        shape: Shape of the one tensor that is converted, empty: the one that its header implies.
        only: Section and number of the one tensor that is converted, None: all.
        scripts: Directory of the user's own conversions, "": none.
        version: Version of the dump files, 1 or 2.
    """

    format: str = ""
    kind: OutputKind = OutputKind.NPY
    shape: tuple[int, ...] = ()
    only: tuple[str, int] | None = None
    scripts: str = ""
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Source:
    """A dump file and the directory for its results.

    Attributes:
        path: The file.
        directory: Directory that the converted files are written to.
    """

    path: str
    directory: str


@dataclass(frozen=True, slots=True)
class ConvertFailure:
    """A tensor, or a whole file, that was not converted.

    Attributes:
        tensor: ``input:0``; "" for the whole file.
        code: msaccucmp's return code.
        message: Text of the error.
    """

    tensor: str
    code: int
    message: str


@dataclass(slots=True)
class FileResult:
    """The result of converting one dump file.

    Attributes:
        path: The dump file.
        files: Number of files that were written.
        size: Number of bytes that were written.
        kept: Number of tensors that were written in their own format, ND, which needs no conversion.
        failures: The tensors that were not converted.
        renamed: Directory, hash and name of each file whose name was too long.
    """

    path: str
    files: int = 0
    size: int = 0
    kept: int = 0
    failures: list[ConvertFailure] = field(default_factory=list)
    renamed: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def code(self) -> int:
        """Return code of msaccucmp: that of the last failure."""
        return self.failures[-1].code if self.failures else ReturnCode.DONE
