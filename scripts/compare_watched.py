"""Compare the outputs of a watched operator with the same memory after other operators.

``python scripts/compare_watched.py FOLDER`` reads a dump of acl's watcher. For each execution and output of a
watched operator, it prints the first operator after which the output has changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import msdump
from msdump.cli import streams
from msdump.errors import MsdumpError

TO = "_To_"


def findings(folder: Path) -> Iterator[str]:
    """Yield a line for each execution and output of a watched operator."""
    for model in msdump.open_dump(folder).models:
        for iteration in model.iterations:
            own: dict[tuple[str, int], np.ndarray] = {}
            later: dict[tuple[str, int], list[tuple[str, np.ndarray]]] = {}
            for record in iteration.records:
                layer, to, watched = (record.full_name or record.op_name).rpartition(TO)
                key = (watched, record.slot)
                if to:
                    later.setdefault(key, []).append((layer, record.array))
                else:
                    own[key] = record.array
            for (watched, slot), readings in later.items():
                yield f"{model.name}, execution {iteration.number}: output {slot} of {watched}"
                wrote = own.get((watched, slot))
                yield f"    {'its own output is missing' if wrote is None else verdict(wrote, readings)}"


def verdict(own: np.ndarray, later: list[tuple[str, np.ndarray]]) -> str:
    """Say which operator changed an output first, and how."""
    changed = [(layer, array) for layer, array in later if changes(own, array).size]
    if not changed:
        return f"unchanged after {len(later)} operators"
    layer, array = changed[0]
    found = changes(own, array)
    first = found[0]
    values = f"number {first} was {own.flat[first]:.6g}, is {array.flat[first]:.6g}"
    where = f"{found.size} of {own.size} elements, {values}"
    return f"overwritten by {layer}: {where}; {len(changed)} of {len(later)} operators see it so"


def changes(own: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Return the positions of the elements that have other bytes."""
    differs = np.frombuffer(own.tobytes(), np.uint8) != np.frombuffer(array.tobytes(), np.uint8)
    return np.unique(np.flatnonzero(differs) // own.itemsize)


@streams.standard()
def main() -> int:
    """Print the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    try:
        lines = list(findings(parser.parse_args().folder))
    except MsdumpError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines) or "no watched operator was dumped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
