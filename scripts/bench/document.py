"""A measured table as JSON: the goals with their figures, and the machine."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from scripts.bench.goals import Goal
from scripts.bench.measure import Figure

FORMAT = 2
"""Number of the document's form: it changes where a reader must."""


class Verdict(StrEnum):
    """Outcomes of a goal."""

    HOLDS = "holds"
    MISSED = "missed"
    UNAVAILABLE = "not available"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    Attributes:
        name: The row's name.
        title: The measured quantity.
        network: The network; "" where none is needed.
        threads: Of one operator.
        limit: The most that the figure may be, or the least.
        is_floor: Whether it is the least.
        verdict: Outcome of the goal.
        figure: The measurement; None where there is none.
        why: Why it is not available or failed.
    """

    name: str
    title: str
    network: str
    threads: int
    limit: float
    is_floor: bool
    verdict: Verdict
    figure: Figure | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A measured table.

    Attributes:
        date: When it was measured: ISO 8601, UTC.
        machine: Facts by name.
        lines: The goals in the order of the table.
    """

    date: str
    machine: Mapping[str, Any]
    lines: tuple[Line, ...]


def line(goal: Goal, verdict: Verdict, figure: Figure | None = None, why: str = "") -> Line:
    """Return the line of a goal."""
    row = goal.row
    return Line(row.name, row.title, goal.on, goal.threads, row.limit, row.is_floor, verdict, figure, why)


def missed(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of goals that were missed or failed."""
    return [each for each in lines if each.verdict in {Verdict.MISSED, Verdict.FAILED}]


def write(document: Document, path: Path) -> None:
    """Write a table, each line of the goals on one of the file."""
    head = {"format": FORMAT, "date": document.date, "machine": document.machine}
    lines = ",\n  ".join(json.dumps(dataclasses.asdict(each)) for each in document.lines)
    text = f'{json.dumps(head, indent=1)[:-2]},\n "goals": [\n  {lines}\n ]\n}}\n'
    path.write_text(text, encoding="utf-8")


def read(path: Path) -> Document:
    """Read a table.

    Raises:
        ValueError: It has another form.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise ValueError(f"{path}: format {content.get('format')!r} instead of {FORMAT}: measure again")
    lines = (_line(each) for each in content["goals"])
    return Document(content["date"], content["machine"], tuple(lines))


def _line(fields: Mapping[str, Any]) -> Line:
    figure = fields["figure"]
    if figure is not None:
        figure = Figure(**{**figure, "seconds": tuple(figure["seconds"])})
    return Line(**{**fields, "figure": figure, "verdict": Verdict(fields["verdict"])})


# --- the machine --------------------------------------------------------------------------------------------

_PACKAGES: Final = ("numpy", "onnx", "onnxruntime", "ml_dtypes", "protobuf", "torch", "mpi4py", "numkong")
_ROOT: Final = Path(__file__).resolve().parents[2]
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def facts(folder: Path) -> dict[str, object]:
    """Return the facts that figures depend on.

    Args:
        folder: Where the files of dumps go.
    """
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": file_system(folder, Path("/proc/mounts").read_text(encoding="utf-8")),
        "python": platform.python_version(),
        "packages": _versions(),
        "commit": commit(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def _cpu() -> str:
    match = re.search(
        r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE
    )
    return match[1] if match else platform.machine()


def file_system(folder: Path, mounts: str) -> str:
    """Return the kind of file system in which a folder lies.

    Args:
        folder: An absolute path.
        mounts: Contents of ``/proc/mounts``.
    """
    kinds: dict[Path, str] = {}
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split(" ")
        kinds[Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), place))] = kind
    return next((kinds[place] for place in (folder, *folder.parents) if place in kinds), "")


def _versions() -> Mapping[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def commit() -> str:
    """Return the commit, with a plus where files differ from it; "" outside of a repository."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
