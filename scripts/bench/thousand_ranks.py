"""Cost of commands on a dump of very many ranks: ``python -m scripts.bench.thousand_ranks --ranks 1000``.

Two dumps of small tensors are made, and one of a compiled graph in which all operators overflow, in memory
where the machine has such a place; every command is a program of its own. The table has its seconds, its CPU
seconds and its largest process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from scripts.bench import rank_tree, work
from scripts.bench.programs import MSDUMP, Ran, run

OPERATORS: Final = 100
SHAPE: Final = (4, 16)

COMMANDS: Final[Mapping[str, tuple[int | str, ...]]] = {
    "query: tensors by rank": (0, "query", "mine", "select rank, count(*) from tensors group by all"),
    "query --measure: the largest": (
        *(0, "query", "mine", "--measure"),
        "select op_name, max(max) from statistics group by all order by 2 desc limit 3",
    ),
    "pack --measure": (0, "pack", "mine", "--measure", "-out", "pack"),
    "query of the pack": (
        0,
        "query",
        "pack",
        "select op_name, max(max) from statistics group by all limit 3",
    ),
    "compare, 1 job": (1, "compare", "mine", "golden", "-out", "out", "-j", "1"),
    "compare, 2 jobs": (1, "compare", "mine", "golden", "-out", "out", "-j", "2"),
    "report": (0, "report", "mine", "-o", "report.html"),
    "baseline, 2 jobs": (0, "baseline", "mine", "-out", "baseline", "-j", "2"),
    "compare with the baseline": (1, "compare", "golden", "baseline", "-out", "out"),
    "watch, 2 jobs": (0, "watch", "mine", "--rules", "rules.json", "-j", "2"),
    "convert, 2 jobs": (0, "convert", "overflow", "-out", "converted", "-j", "2"),
    "overflow": (0, "overflow", "overflow", "-out", "overflows"),
}
"""Exit code and arguments of each command by its name; they run in the folder of the dumps."""


RULES: Final = [{"condition": "tensor_overflow"}, {"condition": "tensor_too_large", "max_gt": 10}]


def fill(folder: Path, ranks: int) -> None:
    """Write two dumps of so many ranks with tensors that differ a little, and one of overflows."""
    rank_tree.pair(folder, ranks, OPERATORS, SHAPE)
    made = rank_tree.overflow(folder / "of_overflow", ranks, operators=OPERATORS, shape=SHAPE)
    made.rename(folder / "overflow")
    (folder / "rules.json").write_text(json.dumps(RULES))


def costs(folder: Path, names: Iterable[str] = COMMANDS) -> Iterator[tuple[str, Ran]]:
    """Run commands one after the other and yield name and cost of each."""
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    for name in names:
        expected, *arguments = COMMANDS[name]
        command = (*MSDUMP, *map(str, arguments))
        yield name, run(*command, environment=environment, expected=int(expected), folder=folder)


def main() -> None:
    """Make the dumps, run the commands and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--only", default="", help="commands whose names begin so, or so: pack,watch")
    given = parser.parse_args()
    names = [name for name in COMMANDS if name.startswith(tuple(given.only.split(",")))]
    with tempfile.TemporaryDirectory(dir=work.scratch(), prefix="msdump-ranks-") as folder:
        fill(Path(folder), given.ranks)
        files = sum(len(names) for *_, names in os.walk(folder))
        sys.stdout.write(f"{given.ranks} ranks x {OPERATORS} operators, {files:,} files\n\n")
        sys.stdout.write("| command | seconds | CPU seconds | MiB |\n|---|---|---|---|\n")
        for name, cost in costs(Path(folder), names):
            sys.stdout.write(f"| {name} | {cost.seconds:.1f} | {cost.cpu:.1f} | {cost.mib:.0f} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
