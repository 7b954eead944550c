"""Facts of the machine and of the measured packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

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
