"""What is converted, to what, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msdump.tools.convert.names import OutputKind
from msdump.tools.return_codes import ReturnCode

VERSION: Final = 2
"""Version of dump files with tensors behind the header; in version 1 they are inside."""


@dataclass(frozen=True, slots=True)
class Target:
    """What every file of a conversion becomes.

    Attributes:
        format: Name of the format that tensors are converted to, "": they stay as they are.
        kind: What tensors are written as.
        shape: The shape that the one tensor is to have, empty: the one that the header implies.
        only: Section and number of the one tensor that is converted, None: all.
        scripts: Directory of the user's own conversions, "": none.
        version: Of the dump files, 1 or 2.
    """

    format: str = ""
    kind: OutputKind = OutputKind.NPY
    shape: tuple[int, ...] = ()
    only: tuple[str, int] | None = None
    scripts: str = ""
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Source:
    """A dump file and where its tensors go.

    Attributes:
        path: The file.
        directory: Where the converted files are written.
    """

    path: str
    directory: str


@dataclass(frozen=True, slots=True)
class ConvertFailure:
    """A tensor, or a whole file, that was not converted.

    Attributes:
        tensor: ``input:0``; "" for the whole file.
        code: msaccucmp's return code.
        message: What is wrong.
    """

    tensor: str
    code: int
    message: str


@dataclass(slots=True)
class FileResult:
    """What became of a dump file.

    Attributes:
        path: The dump file.
        files: Number of files that were written.
        size: Their bytes.
        kept: Tensors that were written in their own format: nothing converts it, nothing needs to.
        failures: What was not converted.
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
