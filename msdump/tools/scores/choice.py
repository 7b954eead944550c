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
    """The algorithms that a comparison computes, in the order of their columns.

    Attributes:
        names: Their names, of the table ``ALGORITHMS`` and of the user.
        custom: The user's algorithms among them.
    """

    names: tuple[str, ...] = algorithms.ALL
    custom: tuple[CustomAlgorithm, ...] = ()

    def scores(
        self, dumped: np.ndarray, golden: np.ndarray, *, limit: int = 0, paths: tuple[str, str] = ("", "")
    ) -> tuple[Score, ...]:
        """Return the score of each algorithm for two tensors.

        Args:
            dumped: The tensor that is examined.
            golden: The tensor that it is compared with.
            limit: Only so many elements from the first count, 0: all.
            paths: The files of the two tensors, which the user's algorithms get to know.

        Raises:
            FormatError: The tensors differ in their number of elements, or hold text.
        """
        own = {each.name: each for each in self.custom}
        tabled = [name for name in self.names if name not in own]
        score_of = dict(zip(tabled, algorithms.compare(dumped, golden, tabled, limit=limit), strict=True))
        if own:
            score_of |= _own_scores(self.custom, dumped, golden, limit, paths)
        return tuple(score_of[name] for name in self.names)


EVERY: Final = Choice()
"""All algorithms of the table."""


def _own_scores(
    own: Sequence[CustomAlgorithm],
    dumped: np.ndarray,
    golden: np.ndarray,
    limit: int,
    paths: tuple[str, str],
) -> dict[str, Score]:
    # vendor: the names of these two attributes, which users' scripts read.
    sides = [side.reshape(-1)[: limit or None].astype(np.float32) for side in (dumped, golden)]
    context = {"my_output_dump_file": paths[0], "ground_truth_dump_file": paths[1]}
    return {each.name: each.score(sides[0], sides[1], **context) for each in own}


def choose(selection: str = _ALL, arguments: str = "", folder: str = "") -> Choice:
    """Return the algorithms that options choose.

    >>> choose("MaxAbsoluteError,0").names
    ('MaxAbsoluteError', 'CosineSimilarity')

    Args:
        selection: Names and numbers separated by commas, or "all" (``-alg``).
        arguments: ``Name:key=value,key=value;Name:...`` for the user's algorithms (``-a``).
        folder: Folder of the user's algorithms (``-c``), "" for none.

    Raises:
        ToolError: The selection chooses no algorithm, an argument is malformed, or a script cannot be used.
    """
    arguments_of = _arguments(arguments)
    own = {
        each.name: replace(each, arguments=tuple(arguments_of.pop(each.name, {}).items()))
        for each in (custom_algorithms.find(folder) if folder else ())
    }
    for name in arguments_of:
        _log.warning("-a gives %s arguments, which none of the algorithms of msdump takes", name)
    names = _names(selection, (*algorithms.ALL, *own))
    return Choice(names, tuple(own[name] for name in names if name in own))


def _names(selection: str, all_names: Sequence[str]) -> tuple[str, ...]:
    if selection.strip().lower() == _ALL:
        return tuple(all_names)
    chosen = []
    for item in filter(None, map(str.strip, selection.split(","))):
        name = _numbered(item)
        if name in all_names:
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
    """Return the name of the algorithm with a number; a text that is no such number as it is.

    >>> _numbered("1"), _numbered("99"), _numbered("mine")
    ('MaxAbsoluteError', '99', 'mine')
    """
    # isdigit alone also takes digits of other scripts and superscripts.
    if item.isascii() and item.isdigit() and int(item) < len(algorithms.ALL):
        return algorithms.ALL[int(item)]
    return item


def _arguments(text: str) -> dict[str, dict[str, str]]:
    """Return the arguments of each algorithm that a text names; what comes later wins.

    >>> _arguments("near:low=1,high=2;0:step=3")
    {'near': {'low': '1', 'high': '2'}, 'CosineSimilarity': {'step': '3'}}
    """
    arguments_of: dict[str, dict[str, str]] = {}
    for part in filter(None, text.split(";")):
        name, colon, pairs = part.partition(":")
        malformed = ToolError(ReturnCode.PARAMETER, f"-a {part!r} is not Name:key=value,key=value")
        if not (name.strip() and colon):
            raise malformed
        own_arguments = arguments_of.setdefault(_numbered(name.strip()), {})
        for pair in filter(None, map(str.strip, pairs.split(","))):
            key, equals, value = (piece.strip() for piece in pair.partition("="))
            if not (key and equals and value):
                raise malformed
            own_arguments[key] = value
    return arguments_of
