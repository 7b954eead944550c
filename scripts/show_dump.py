"""Print the tree of a dump and read one tensor, or some statistics, back.

``python scripts/show_dump.py FOLDER``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SHOWN = 6  # files of one folder that are listed by name
FIELDS = 5  # of a name, up to the timestamp


def tree(folder: Path, indent: str = "") -> Iterator[str]:
    """Yield one line per entry below a folder; of many files only the first few."""
    entries = sorted(folder.iterdir(), key=lambda entry: (entry.is_file(), _order(entry)))
    files = [entry for entry in entries if entry.is_file()]
    for entry in entries:
        if entry.is_dir():
            yield f"{indent}{entry.name}/"
            yield from tree(entry, indent + "    ")
    shown = files if len(files) <= SHOWN + 1 else files[:SHOWN]
    yield from (f"{indent}{file.name}  {_size(file.stat().st_size)}" for file in shown)
    if hidden := files[len(shown) :]:
        total = _size(sum(file.stat().st_size for file in hidden))
        yield f"{indent}... and {len(hidden)} more files, {total}"


def first_output(folder: Path) -> Path | None:
    """Return the first operator output that was dumped, in the order of its writing."""
    outputs = [path for path in folder.rglob("*.output.*.npy") if not path.name.startswith("Parameter.")]
    return min(outputs, key=_order, default=None)


def first_statistics(folder: Path) -> Path | None:
    """Return the statistics of the first iteration that has some."""
    return min(folder.rglob("statistic.csv"), default=None)


def show_tensor(path: Path) -> None:
    """Print type, shape and first elements of a tensor."""
    tensor = np.load(path)
    print(f"\nnumpy.load({path.name!r})")
    print(f"{tensor.dtype} {tensor.shape}: {np.array2string(tensor.ravel()[:6], precision=5)} ...")


def show_statistics(path: Path) -> None:
    """Print the header and the first rows of a statistics file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    shown, hidden = lines[: SHOWN + 1], lines[SHOWN + 1 :]
    print(f"\n{path}")
    print("\n".join(shown))
    if hidden:
        print(f"... and {len(hidden)} more rows")


def _order(path: Path) -> tuple[str, str]:
    """Order files of tensors and operators by their timestamp, the fifth field, and others by name."""
    fields = path.name.split(".")
    is_timed = len(fields) >= FIELDS and fields[FIELDS - 1].isdecimal()
    return (fields[FIELDS - 1] if is_timed else "", path.name)


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:  # noqa: PLR2004 - bytes to a KiB
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def main() -> int:
    """Print the tree, and what was read back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    if not folder.is_dir():
        print(f"{folder}: no dump here", file=sys.stderr)
        return 1
    print(f"{folder}/")
    print("\n".join(tree(folder, "    ")))
    if path := first_output(folder):
        show_tensor(path)
    if statistics := first_statistics(folder):
        show_statistics(statistics)
    if path or statistics:
        return 0
    print(f"{folder}: no tensor of an operator's output was dumped", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
