"""Check the built files of a release: ``python contents.py REPOSITORY FOLDER``.

Both wheels hold the tracked files of msdump/ and the licence. One also holds the compiled library. The sdist
holds the same files and the files of the build. The metadata is valid.
"""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from packaging.metadata import Metadata

BUILD = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "scripts/compile_kernel.py"}
LIBRARY = "msdump/statistics/kernel/_kernel.so"


def check(repository: Path, folder: Path) -> None:
    """Raise AssertionError if a file lacks a member, has too many, or has invalid metadata."""
    listed = subprocess.run(
        ["git", "ls-files", "msdump"], cwd=repository, capture_output=True, check=True, text=True
    )
    package = set(listed.stdout.split())
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    assert len(sdists) == 1, f"{folder}: {len(sdists)} sdists"
    assert wheels, f"{folder}: no wheel"
    for wheel in wheels:
        library = set() if wheel.name.endswith("-py3-none-any.whl") else {LIBRARY}
        members = set(_members(wheel))
        info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
        files = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
        _same(
            wheel,
            package | library | {f"{info}/{name}" for name in files},
            members,
        )
        Metadata.from_email(zipfile.ZipFile(wheel).read(f"{info}/METADATA"), validate=True)
    with tarfile.open(sdists[0]) as sdist:
        _same(
            sdists[0],
            package | BUILD,
            {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in sdist.getnames()},
        )


def _members(wheel: Path) -> Iterator[str]:
    """Yield the names of the files in a wheel."""
    return (name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/"))


def _same(file: Path, wanted: set[str], found: set[str]) -> None:
    lacking, extra = sorted(wanted - found), sorted(found - wanted)
    assert not lacking, f"{file.name}: lacks {lacking}"
    assert not extra, f"{file.name}: has too many files: {extra}"


if __name__ == "__main__":
    check(Path(sys.argv[1]), Path(sys.argv[2]))
