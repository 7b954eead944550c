"""Directories of compiled graphs that hold what another one holds, but for operators whose files are gone.

A network that lacks an operator numbers those behind it otherwise, and their tasks. Where no number has moved
the operators belong together by name, whatever the tensors that are left tell of the graph.
"""

from __future__ import annotations

import re
from typing import Final

from msdump.device.tasks import INSERTED_PREFIX
from msdump.tools.compare.pairing.dump_folder import COMPILED, Folder

_NUMBERED: Final = re.compile(r"(?P<stem>.*-op)(?P<number>\d+)")
_INSERTED: Final = re.compile(rf"(?P<stem>{INSERTED_PREFIX}.*_)(?P<number>\d+)")


def gone(folder: Folder, other: Folder) -> frozenset[str]:
    """Return the operators of another directory of which a directory has lost the files.

    There are none where the directory has operators of its own, where it lacks more than it has, and where a
    network without one of them would have the same names and tasks.

    Args:
        folder: The directory that may lack some.
        other: The one that it is compared with.
    """
    if not {folder.kind, other.kind} <= COMPILED:
        return frozenset()
    absent = other.operators.keys() - folder.operators.keys()
    is_part = all(_has_same(name, folder, other) for name in folder.operators)
    if not is_part or len(absent) > len(folder.operators):
        return frozenset()
    if _has_same_tasks(folder, other):
        is_told = all(_keeps_tasks(name, folder, other) for name in absent)
    else:
        is_told = all(_keeps_numbers(name, folder) for name in absent)
    return frozenset(absent) if is_told else frozenset()


def _has_same(name: str, folder: Folder, other: Folder) -> bool:
    files, others = folder.operators[name], other.operators.get(name)
    return others is not None and files[-1].op_type == others[-1].op_type


def _has_same_tasks(folder: Folder, other: Folder) -> bool:
    """Tell whether operators have numbers of tasks that tell them apart, the same in both directories."""
    tasks = [_task(name, other) for name in other.operators]
    is_told = 2 * len({*tasks}) > len(tasks)
    return is_told and all(_task(name, folder) == _task(name, other) for name in folder.operators)


def _task(name: str, folder: Folder) -> tuple[int | None, int]:
    file = folder.operators[name][-1]
    return file.stream_id, file.task_id


def _keeps_tasks(name: str, folder: Folder, other: Folder) -> bool:
    """Tell whether an operator's task is left out among those that are left.

    The last one is, unless the task before it has the number before in its name: that one may be gone, too.
    """
    stream, task = _task(name, other)
    tasks = [_task(each, folder) for each in folder.operators]
    if any(each[0] == stream and each[1] > task for each in tasks):
        return True
    before = _before(name)
    return before not in other.operators or _task(before, other) != (stream, task - 1)


def _keeps_numbers(name: str, folder: Folder) -> bool:
    """Tell whether an operator's number is left out among those of its kind, or it is the only one.

    What the device inserts is numbered in one row, whatever its type; another compiler may insert less.
    """
    if name.startswith(INSERTED_PREFIX):
        number = _number(name)
        behind = (_number(each) for each in folder.operators if each.startswith(INSERTED_PREFIX))
        return any(each > number for each in behind)
    found = _NUMBERED.fullmatch(name)
    if found is None:
        return True
    number = int(found["number"])
    alike = [_number(each) for each in folder.operators if each.startswith(found["stem"])]
    return not alike or max(alike) > number


def _number(name: str) -> int:
    found = (_INSERTED if name.startswith(INSERTED_PREFIX) else _NUMBERED).fullmatch(name)
    return -1 if found is None else int(found["number"])


def _before(name: str) -> str:
    """Return the name with the number before, "" where it has none."""
    found = (_INSERTED if name.startswith(INSERTED_PREFIX) else _NUMBERED).fullmatch(name)
    return "" if found is None or found["number"] == "0" else f"{found['stem']}{int(found['number']) - 1}"
