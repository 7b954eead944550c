"""Keeps, refuses or removes the files of earlier programs where a run is about to write."""

from __future__ import annotations

import logging
import os
from functools import partial

from msdump.capture.process import Process
from msdump.communication.world import current, own
from msdump.errors import DumpWriteError
from msdump.plan import DumpPlan, Existing, Tree
from msdump.store import existing
from msdump.store.existing import ExistingFiles, RunPlace
from msdump.store.layouts import Key, PathKind
from msdump.store.write import rank_lock
from msdump.store.write.sinks import reason

_log = logging.getLogger("msdump.capture")


def claim(plan: DumpPlan, process: Process) -> None:
    """Keep, refuse or remove files where a plan's files go, unless this process has written them.

    A place is a network of a rank, or a device of a compiled graph. In MindSpore's tree only iterations
    from the plan's first one on count, so that a run may go on where another one ended.

    Raises:
        DumpWriteError: Something lies there and the plan refuses it, or it cannot be removed.
    """
    _hold_rank(plan)
    place = _place(plan)
    # two spellings of a path are one place
    identity = (os.path.realpath(place.root), place.rank, place.net, place.device)
    process.settle(identity, partial(_settle, plan, place))


def _hold_rank(plan: DumpPlan) -> None:
    """Let one process of all that a launcher has started be the rank.

    Raises:
        DumpWriteError: Another process is, or the directory of the rank cannot be made.
    """
    identity = current().identity
    if identity.size == 1 or own() is not None or plan.files.tree is not Tree.RANKS:
        return
    directory = f"{plan.files.path.rstrip('/')}/{Key(PathKind.RANK, identity.rank).path}"
    try:
        is_ours = rank_lock.hold(directory, plan.files.path)
    except OSError as error:
        raise DumpWriteError(f"dump path {directory!r} cannot be made: {reason(error)}") from error
    if not is_ours:
        raise DumpWriteError(
            f"{plan.source}: another process dumps into {directory} as rank {identity.rank} of its launcher:"
            f" two processes were told this rank (here by {identity.launcher}), or two jobs share the path"
        )


def _place(plan: DumpPlan) -> RunPlace:
    if plan.files.tree is Tree.RANKS:
        rank = current().identity.rank
        return RunPlace(plan.files.path, rank, plan.files.net_name, first=plan.when.initial_iteration)
    return RunPlace(plan.files.path, device=plan.context.device_id, first=plan.when.initial_iteration)


def _settle(plan: DumpPlan, place: RunPlace) -> None:
    """Do with the files of earlier programs as ``msdump.existing`` says."""
    is_apart = plan.files.tree is not Tree.RANKS  # a directory for each program, named after its time
    if plan.files.existing is Existing.KEEP and is_apart:
        return  # nothing is added to older files: they need not even be counted
    if plan.files.existing is Existing.REPLACE:
        _remove(plan, place)
        return
    earlier = existing.find(place)
    if not earlier.files:
        return
    if plan.files.existing is Existing.REFUSE:
        raise DumpWriteError(
            f"{plan.source}: {_held(plan, earlier)}, and msdump.existing is 'refuse'; choose another path,"
            " begin after them (initial_iteration), or say 'keep' or 'replace'"
        )
    _log.warning(
        "%s: %s; this run adds to them, and readers keep the executions apart"
        " (msdump.existing: 'replace' removes them first, 'refuse' stops instead)",
        plan.source,
        _held(plan, earlier),
    )


def _remove(plan: DumpPlan, place: RunPlace) -> None:
    try:
        count = existing.remove(place)
    except OSError as error:
        raise DumpWriteError(
            f"dump path {place.root!r}: what an earlier run left cannot be removed: {reason(error)}"
        ) from error
    if count:
        _log.warning("%s: removed %s files of earlier runs in %s", plan.source, f"{count:,}", plan.files.path)


def _held(plan: DumpPlan, earlier: ExistingFiles) -> str:
    """Return the path, numbers and owner of the files in a place, for messages."""
    owner = (
        f"network {plan.files.net_name}"
        if plan.files.tree is Tree.RANKS
        else f"device {plan.context.device_id}"
    )
    return (
        f"{plan.files.path} already holds {earlier.files:,} files ({earlier.bytes:,} bytes) of {owner}"
        f" in {earlier.iterations:,} {'directory' if earlier.iterations == 1 else 'directories'}"
    )
