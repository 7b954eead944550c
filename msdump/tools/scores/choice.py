"""Which algorithms a command runs: the texts of ``-alg``, ``-a`` and ``-c``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from msdump.errors import ToolError
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores import algorithms
from msdump.tools.scores import custom as custom_algorithms
from msdump.tools.scores.algorithms import Score
from msdump.tools.scores.custom import CustomAlgorithm

_ALL: Final = "all"
_log = logging.getLogger("msdump.tools")


@dataclass(frozen=True, slots=True)
class Choice:
    """Algorithms in the order of their columns.

    Attributes:
        names: Their names.
        custom: Those of the user among them.
    """

    names: tuple[str, ...] = algorithms.ALL
    custom: tuple[CustomAlgorithm, ...] = ()

    def scores(
        self, mine: np.ndarray, golden: np.ndarray, *, limit: int = 0, paths: tuple[str, str] = ("", "")
    ) -> tuple[Score, ...]:
        """Return what each says of two tensors.

        Args:
            mine: The tensor that is examined.
            golden: The one that it is compared with.
            limit: Only so many elements from the first count, 0: all.
            paths: Their files, for the user's algorithms.

        Raises:
            FormatError: The tensors differ in their number of elements, or hold text.
        """
        own = {each.name: each for each in self.custom}
        known = [name for name in self.names if name not in own]
        found = dict(zip(known, algorithms.compare(mine, golden, known, limit=limit), strict=True))
        if own:
            found |= _own_scores(self.custom, mine, golden, limit, paths)
        return tuple(found[name] for name in self.names)


EVERY: Final = Choice()
"""All algorithms of the table."""


def _own_scores(
    own: Sequence[CustomAlgorithm],
    mine: np.ndarray,
    golden: np.ndarray,
    limit: int,
    paths: tuple[str, str],
) -> dict[str, Score]:
    sides = [side.reshape(-1)[: limit or None].astype(np.float32) for side in (mine, golden)]
    context = {"my_output_dump_file": paths[0], "ground_truth_dump_file": paths[1]}
    return {each.name: each.score(sides[0], sides[1], **context) for each in own}


def choose(selection: str = _ALL, arguments: str = "", folder: str = "") -> Choice:
    """Return the algorithms that options choose.

    Args:
        selection: Names and numbers separated by commas, or "all".
        arguments: ``Name:key=value,key=value;Name:...``.
        folder: Of the user's algorithms, "" for none.

    Raises:
        ToolError: Nothing known is chosen, or an argument is malformed.
    """
    given = _arguments(arguments)
    own = {
        each.name: replace(each, arguments=tuple(given.pop(each.name, {}).items()))
        for each in (custom_algorithms.find(folder) if folder else ())
    }
    for name in given:
        _log.warning("-a gives %s arguments, which none of the algorithms of msdump takes", name)
    names = _names(selection, (*algorithms.ALL, *own))
    return Choice(names, tuple(own[name] for name in names if name in own))


def _names(selection: str, known: Sequence[str]) -> tuple[str, ...]:
    if selection.strip().lower() == _ALL:
        return tuple(known)
    chosen = []
    for item in filter(None, map(str.strip, selection.split(","))):
        name = _numbered(item)
        if name in known:
            chosen.append(name)
        else:
            _log.warning("-alg: no algorithm %r; it is left out", item)
    if not chosen:
        numbers = ", ".join(f"{number}={name}" for number, name in enumerate(algorithms.ALL))
        raise ToolError(
            ReturnCode.ALGORITHM, f"-alg {selection!r} chooses no algorithm; there are all, {numbers}"
        )
    return tuple(dict.fromkeys(chosen))


def _numbered(item: str) -> str:
    """Return the name of a number; another text as it is."""
    if item.isascii() and item.isdigit() and int(item) < len(algorithms.ALL):
        return algorithms.ALL[int(item)]
    return item


def _arguments(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for part in filter(None, text.split(";")):
        name, colon, pairs = part.partition(":")
        malformed = ToolError(ReturnCode.PARAMETER, f"-a {part!r} is not Name:key=value,key=value")
        if not (name.strip() and colon):
            raise malformed
        given = found.setdefault(_numbered(name.strip()), {})
        for pair in filter(None, map(str.strip, pairs.split(","))):
            key, equals, value = (piece.strip() for piece in pair.partition("="))
            if not (key and equals and value):
                raise malformed
            given[key] = value
    return found
