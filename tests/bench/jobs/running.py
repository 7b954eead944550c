"""Runs that dump nothing, or little, beside the session of the whole graph."""

from __future__ import annotations

from functools import partial

from msdump.session import Network
from tests.bench import measure, sides, whole
from tests.bench.measure import Case, Figure

_EVERY = 100
"""One operator of so many is dumped by a filtered dump."""


def of_whole(case: Case) -> Figure:
    """Run without a dump against the session of the whole graph."""
    return _of_whole(sides.network(case.path), case)


def idle_of_whole(case: Case) -> Figure:
    """Run with a configuration that dumps nothing in this iteration against the session."""
    return _of_whole(sides.network(case.path, sides.plan(case.folder, sides.NEVER)), case)


def idle_of_run(case: Case) -> Figure:
    """Run with such a configuration against a run without one."""
    idle = sides.network(case.path, sides.plan(case.folder, sides.NEVER))
    return sides.beside(case, idle, sides.network(case.path))


def filtered(case: Case, optimize: str) -> Figure:
    """Dump one operator of a hundred against the session, both optimised for "all"."""
    names = [operator.full_name for operator in sides.network(case.path).operators]
    kernels = names[_EVERY // 2 :: _EVERY] or [names[len(names) // 2]]
    plan = sides.plan(case.folder, dump_mode=1, kernels=kernels, msdump={"optimize": optimize})
    return _of_whole(sides.network(case.path, plan), case, is_optimised=optimize == "all")


def _of_whole(ours: Network, case: Case, *, is_optimised: bool = False) -> Figure:
    feeds = sides.inputs(case.path)
    theirs = whole.session(case.path, case.threads, is_optimised=is_optimised)
    tidy = sides.emptying(case.folder)
    return measure.ratio(partial(ours.run, feeds), partial(theirs.run, None, feeds), case, tidy=tidy)
