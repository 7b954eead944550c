"""``modify_mixlist``: a JSON file that moves operator types between the lists of mixed precision.

``{"black-list": {"to-add": [...], "to-remove": [...]}, "white-list": {...}, "gray-list": {...}}``.
What is removed from the blocklist or the trustlist moves to the graylist. A type that is added to a list
leaves the one that it was in.
"""

from __future__ import annotations

from typing import Any, Final

from msdump.config.faults import FaultReport, did_you_mean, show
from msdump.config.source import Document, Path, parse
from msdump.precision.operator_dtypes import MixLists

_BLACK: Final = "black-list"
_WHITE: Final = "white-list"
_GRAY: Final = "gray-list"
_LISTS: Final = (_BLACK, _WHITE, _GRAY)
_ADDED: Final = "to-add"
_REMOVED: Final = "to-remove"
_CHANGES: Final = (_ADDED, _REMOVED)


def parse_mix_lists(data: bytes, source: str) -> MixLists:
    """Return the changes that a ``modify_mixlist`` file asks for.

    Args:
        data: Its bytes.
        source: Its path, for messages.

    Raises:
        ConfigSyntaxError: It is no JSON.
        ConfigValueError: Values are wrong or contradict each other; all of them are told.
    """
    document = parse(data, source)
    report = FaultReport(document)
    if not isinstance(document.value, dict):
        report.error((), f"= {show(document.value)}: the file must hold one JSON object")
        report.close()
    changes = _changes(document, report)
    _refuse_contradictions(changes, report)
    report.close()
    removed = (name for name in changes if changes[name][1] == _REMOVED)
    return MixLists(
        source,
        blocked=tuple(name for name, path in changes.items() if path[:2] == (_BLACK, _ADDED)),
        trusted=tuple(name for name, path in changes.items() if path[:2] == (_WHITE, _ADDED)),
        follows=(*removed, *(name for name, path in changes.items() if path[:2] == (_GRAY, _ADDED))),
    )


def _changes(document: Document, report: FaultReport) -> dict[str, Path]:
    """Return the change of each type as a path; adding it to a list counts more than removing it from one."""
    added: dict[str, Path] = {}
    removed: dict[str, Path] = {}
    for path, name in _entries(document.value, report):
        place = removed if path[1] == _REMOVED else added
        earlier = place.setdefault(name, path)
        if path[1] == _ADDED and earlier[0] != path[0]:
            report.error(path, f"= {show(name)}: is added to the {earlier[0]}, too")
    return removed | added


def _refuse_contradictions(changes: dict[str, Path], report: FaultReport) -> None:
    for name, path in changes.items():
        if path[:2] == (_GRAY, _REMOVED):
            report.error(path, f"= {show(name)}: add it to the {_BLACK} or the {_WHITE} instead")


def _entries(lists: dict[str, Any], report: FaultReport) -> list[tuple[Path, str]]:
    entries: list[tuple[Path, str]] = []
    for key, section in lists.items():
        if key not in _LISTS:
            report.warn_of_key((key,), f"is unknown and ignored{did_you_mean(key, _LISTS)}")
        elif not isinstance(section, dict):
            report.error((key,), f"= {show(section)}: must be an object with {' or '.join(_CHANGES)}")
        else:
            entries += _entries_of(key, section, report)
    return entries


def _entries_of(key: str, section: dict[str, Any], report: FaultReport) -> list[tuple[Path, str]]:
    entries: list[tuple[Path, str]] = []
    for change, names in section.items():
        path = (key, change)
        if change not in _CHANGES:
            report.warn_of_key(path, f"is unknown and ignored{did_you_mean(change, _CHANGES)}")
        elif not isinstance(names, list):
            report.error(path, f"= {show(names)}: must be a list of operator types")
        else:
            for index, name in enumerate(names):
                if isinstance(name, str) and name:
                    entries.append(((*path, index), name))
                else:
                    report.error((*path, index), f"= {show(name)}: must be an operator type")
    return entries
