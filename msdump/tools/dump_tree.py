"""Shows the tree of a dump as text, and one tensor or some statistics of it."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from msdump.encode import npy
from msdump.store import names, operator_names
from msdump.store.layouts import STATISTICS
from msdump.store.operator_names import OperatorFileKind
from msdump.store.read import mapped, texts
from msdump.tools.inspection import subjects

_log = logging.getLogger("msdump.tools")

SHOWN: Final = 6
"""Elements of a tensor, rows of a table and files of one folder that are shown."""

_NPY: Final = ".npy"
_FIELDS: Final = 5  # fields of a name, up to the timestamp
_KIBI: Final = 1024


def lines(folder: Path, indent: str = "") -> Iterator[str]:
    """Yield a line for each entry below a folder, folders first; of many files only the first few.

    A folder that cannot be listed has a line that says so.
    """
    try:
        listed = list(folder.iterdir())
    except OSError as error:
        yield f"{indent}({error.strerror or error})"
        return
    entries = sorted(listed, key=lambda entry: (not _is_folder(entry), _order(entry)))
    files = [entry for entry in entries if not _is_folder(entry)]
    for entry in entries[: len(entries) - len(files)]:
        yield f"{indent}{entry.name}/"
        yield from lines(entry, indent + "    ")
    shown = files if len(files) <= SHOWN + 1 else files[:SHOWN]
    yield from (f"{indent}{file.name}  {_size(size(file))}" for file in shown)
    if hidden := files[len(shown) :]:
        yield f"{indent}... and {len(hidden)} more files, {_size(sum(map(size, hidden)))}"


def folders(root: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield each folder with files by its path below a root, "" for the root, and the files in order.

    What cannot be listed is told by a warning.
    """
    for folder, below, files in os.walk(root, onerror=_tell):
        below.sort()  # in place: os.walk goes on in this order
        # Links to folders are shown as files, and not followed.
        links = [name for name in below if not _is_folder(Path(folder, name))]
        if files or links:
            path = os.path.relpath(folder, root)
            yield (
                "" if path == "." else path,
                sorted((Path(folder, name) for name in (*files, *links)), key=_order),
            )


def _tell(error: OSError) -> None:
    _log.warning("%s: %s", error.filename, error.strerror or error)


def size(path: Path) -> int:
    """Return the bytes of a file, of a link those of itself."""
    return path.lstat().st_size


def elements(path: Path) -> np.ndarray:
    """Return the tensor in a ``.npy`` file, or the last one, an output if it has any, in a dump file of CANN.

    Raises:
        DumpReadError: It cannot be read.
    """
    if path.suffix == _NPY:
        return npy.decode(mapped.load(str(path)), str(path))
    return _of_dump_file(path)[1]


def _of_dump_file(path: Path) -> tuple[str, np.ndarray]:
    """Return name and elements of the last tensor in a dump file."""
    last = subjects.of_file(str(path))[-1]
    return last.name, np.empty(0) if last.load is None else last.load()


def rows(path: Path) -> list[list[str]]:
    """Return the lines of a table of statistics, titles first, as cells; DumpReadError as for a tensor."""
    return [*csv.reader(_table(path))]


def _table(path: Path) -> list[str]:
    return texts.read_bytes(str(path)).decode(errors="replace").splitlines()


def first_tensor(folder: Path) -> Path | None:
    """Return the file of the operator output that was dumped first.

    Where no output has a file of its own, it is the first one with tensors of an operator: a dump file
    of CANN, an input, or a file whose name was too long.
    """
    outputs = [path for path in folder.rglob("*.output.*.npy") if not path.name.startswith("Parameter.")]
    found = outputs or [path for path in folder.rglob("*") if _holds_tensors(path.name)]
    return min(found, key=_order, default=None)


def _holds_tensors(name: str) -> bool:
    """Tell whether a file of this name has tensors of an operator."""
    operator = operator_names.parse(name)
    if operator is not None:
        return not operator.is_op_debug
    tensor_name = names.parse(name)
    if tensor_name is not None:
        return tensor_name.op_type != names.PARAMETER
    return name.endswith(_NPY) and name.removesuffix(_NPY).isdecimal()


def first_statistics(folder: Path) -> Path | None:
    """Return the statistics of the first iteration that has some; of acl's those of the first operator."""
    tables = list(folder.rglob(STATISTICS)) or [
        path
        for path in folder.rglob("*.csv")
        if operator_names.parse(path.name, OperatorFileKind.STATISTICS) is not None
    ]
    return min(tables, key=lambda path: (_order(path)[0], path), default=None)


def tensor(path: Path) -> Iterator[str]:
    """Yield type, shape and first elements of a tensor.

    Raises:
        DumpReadError: It cannot be read.
    """
    if path.suffix == _NPY:
        array = elements(path)
        yield f"numpy.load({path.name!r})"
    else:
        title, array = _of_dump_file(path)
        yield title
    yield f"{array.dtype} {array.shape}: {np.array2string(array.ravel()[:SHOWN], precision=5)} ..."


def statistics(path: Path) -> Iterator[str]:
    """Yield the header and the first rows of a table of statistics.

    Raises:
        DumpReadError: It cannot be read.
    """
    table = _table(path)
    yield str(path)
    yield from table[: SHOWN + 1]
    if len(table) > SHOWN + 1:
        yield f"... and {len(table) - SHOWN - 1} more rows"


def _is_folder(entry: Path) -> bool:
    # A link is shown as a file and not followed: it may lead back up.
    return entry.is_dir() and not entry.is_symlink()


def _order(path: Path) -> tuple[str, str]:
    """Return a sort key: files of tensors and operators by their timestamp, behind all others by name.

    >>> _order(Path("Add.Default_Add-op0.0.0.1700000000000000.output.0.DefaultFormat.npy"))[0]
    '1700000000000000'
    """
    fields = path.name.split(".")
    is_timed = len(fields) >= _FIELDS and fields[_FIELDS - 1].isdecimal()
    return (fields[_FIELDS - 1] if is_timed else "", path.name)


def _size(count: float) -> str:
    """Return a number of bytes in words.

    >>> _size(512), _size(1536), _size(5 << 30)
    ('512 B', '2 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if count < _KIBI:
            return f"{count:.0f} {unit}"
        count /= _KIBI
    return f"{count:.1f} GiB"
