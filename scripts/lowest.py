"""Print the lowest versions that pyproject.toml promises, as constraints for pip: ``numpy==2.0.0``.

pip and pytest with its plugins keep the versions of requirements.lock; import-linter does not: it needs newer
versions of packages that msdump needs, too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
_TOOLS: Final = ("hypothesis", "pip", "pytest", "pytest-timeout", "pytest-xdist")
_BOUND: Final = re.compile(r"([\w.-]+)>=([\d.]+)")


def constraints(project: dict[str, Any], locked: Iterable[str]) -> Iterator[str]:
    """Yield a line for each package that msdump, its samples, MPI and tables need, and for each test tool.

    Args:
        project: pyproject.toml.
        locked: Lines of requirements.lock.

    Raises:
        ValueError: A requirement without a lower bound.
    """
    needed = project["project"]
    extras = needed["optional-dependencies"]
    for requirement in (*needed["dependencies"], *_optional(extras)):
        yield "{}=={}".format(*_bound(requirement))
    yield from (line for line in locked if line.partition("==")[0] in _TOOLS)


def _optional(extras: dict[str, list[str]]) -> Iterator[str]:
    for name in ("samples", "mpi", "frames", "query", "cluster"):
        yield from extras.get(name, ())


def _bound(requirement: str) -> tuple[str, str]:
    found = _BOUND.fullmatch(requirement)
    if found is None:
        raise ValueError(
            f"pyproject.toml: {requirement!r}: must be a name, '>=' and the lowest version that works"
        )
    return found[1], found[2]


if __name__ == "__main__":
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    print("\n".join(constraints(project, text.splitlines())))
