"""Rank and number of processes, from the environment variables of the launchers: one table.

A process that no launcher has distributed is rank 0 of 1. A launcher counts where it gives both a rank and a
number of ranks; one that gives a rank alone is only compared with the others. One that has started several
processes beats one that has started a single one.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from msdump import env
from msdump.errors import InputError

_log = logging.getLogger("msdump.config")

_MOST: Final = (1 << 31) - 1


class Launcher(NamedTuple):
    """Variables of a launcher; if several hold the same number, the first set variable is used."""

    name: str
    rank: str
    sizes: tuple[str, ...]
    local_ranks: tuple[str, ...]


LAUNCHERS: Final = (
    Launcher("Open MPI", env.OMPI_RANK, (env.OMPI_SIZE,), (env.OMPI_LOCAL_RANK,)),
    Launcher("PMI", env.PMI_RANK, (env.PMI_SIZE,), (env.HYDRA_LOCAL_RANK, env.PMI_LOCAL_RANK)),
    Launcher("torchrun", env.RANK, (env.WORLD_SIZE,), (env.LOCAL_RANK,)),
    Launcher("MindSpore", env.RANK_ID, (env.RANK_SIZE,), (env.DEVICE_ID,)),
    Launcher("Slurm", env.SLURM_RANK, (env.SLURM_SIZE, env.SLURM_JOB_SIZE), (env.SLURM_LOCAL_RANK,)),
    Launcher("PMIx", env.PMIX_RANK, (env.PMIX_SIZE,), (env.PMIX_LOCAL_RANK,)),
)
"""Every launcher, in order of precedence; the first ones also give the addresses of the other processes."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Rank of a process, from 0, among all and on its machine (else the rank again), and its launcher."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    launcher: str = ""


class _Answer(NamedTuple):
    """Values of a launcher's variables, (variable, text), None where it is not set."""

    launcher: Launcher
    rank: tuple[str, str]
    size: tuple[str, str] | None
    local_rank: tuple[str, str] | None


def identity() -> Identity:
    """Return which process this is; log contradictions of launchers once; InputError for a wrong number."""
    return _settled(tuple(_answers()))


def ranks_without_size() -> Iterator[tuple[str, str]]:
    """Yield variable and text of each rank that has no effect: not 0, and without a number of ranks."""
    answers = tuple(_answers())
    if not any(answer.size for answer in answers):
        yield from (answer.rank for answer in answers if answer.rank[1].strip("0"))


def _answers() -> Iterator[_Answer]:
    for launcher in LAUNCHERS:
        rank = _first((launcher.rank,))
        if rank is not None:
            yield _Answer(launcher, rank, _first(launcher.sizes), _first(launcher.local_ranks))


def _first(names: tuple[str, ...]) -> tuple[str, str] | None:
    return next(((name, text) for name in names if (text := env.read(name)) is not None), None)


@functools.lru_cache(maxsize=64)
def _settled(answers: tuple[_Answer, ...]) -> Identity:
    """Return the identity that a launcher gives; remembered, so that warnings come once."""
    whole = [answer for answer in answers if answer.size is not None]
    if not whole:
        return Identity()
    first = next((answer for answer in whole if answer.size is not None and answer.size[1] != "1"), whole[0])
    assert first.size is not None
    size = _number(first.size, "must be a number of processes from 1", least=1)
    expected = f"must be a rank from 0 to {size - 1}, since {first.size[0]} = {first.size[1]!r}"
    rank = _number(first.rank, expected, most=size - 1)
    for other in answers:
        for mine, theirs, value in zip(first[1:3], other[1:3], (rank, size), strict=True):
            if mine is not None and theirs is not None and env.number(theirs[1], _MOST) != value:
                _log.warning(
                    "%s = %r of %s and %s = %r of %s contradict each other; %s is used",
                    *mine,
                    first.launcher.name,
                    *theirs,
                    other.launcher.name,
                    mine[0],
                )
    if first.local_rank is None:
        return Identity(rank, size, rank, first.launcher.name)
    local_rank = _number(first.local_rank, "must be a number from 0")
    return Identity(rank, size, local_rank, first.launcher.name)


def _number(answer: tuple[str, str], expected: str, least: int = 0, most: int = _MOST) -> int:
    number = env.number(answer[1], most)
    if number is None or number < least:
        raise InputError(f"{answer[0]} = {answer[1]!r}: {expected}")
    return number
