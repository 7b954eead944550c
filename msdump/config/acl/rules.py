"""The keys of acl.json, their values and the demands between them, in the order of CANN's checks.

The order is part of the behaviour: CANN stops at the first fault, and a user looks up its number and text.
"""

from __future__ import annotations

import os
import pathlib
import re
import stat
from typing import Final

from pydantic import BaseModel, ConfigDict, StrictStr, ValidationError

from msdump.config.acl.faults import EMPTY, NOT_FOUND, AclFaults
from msdump.config.source import Path, clamped_number
from msdump.plan import DumpLevel, OperatorStatistic, Scene
from msdump.selector import IterationSet


class _Object(BaseModel):
    """An object of the file; keys that it does not know are ignored."""

    # every value is read as text or list only, and checked afterwards, in CANN's order
    model_config = ConfigDict(extra="ignore", defer_build=True)

    def has(self, key: str) -> bool:
        """Return whether the file gives a key."""
        return key in self.model_fields_set


class BlackListEntry(_Object):
    """An entry of ``optype_blacklist`` or ``opname_blacklist``."""

    name: StrictStr = ""
    pos: list[StrictStr] = []


class NameRange(_Object):
    """An entry of ``opname_range``."""

    begin: StrictStr = ""
    end: StrictStr = ""


class DumpListItem(_Object):
    """An item of ``dump_list``."""

    model_name: StrictStr = ""
    layer: list[StrictStr] = []
    watcher_nodes: list[StrictStr] = []
    optype_blacklist: list[BlackListEntry] = []
    opname_blacklist: list[BlackListEntry] = []
    opname_range: list[NameRange] = []


class DumpSection(_Object):
    """The ``dump`` object."""

    dump_path: StrictStr = ""
    dump_mode: StrictStr = "output"
    dump_op_switch: StrictStr = "off"
    dump_level: StrictStr = "all"
    dump_scene: StrictStr = ""
    dump_data: StrictStr = "tensor"
    dump_debug: StrictStr = "off"
    dump_kernel_data: StrictStr = "all"
    dump_step: StrictStr = ""
    dump_stats: list[StrictStr] = []
    dump_list: list[DumpListItem] = []


_REASONS: Final = {
    "string_type": ("This configuration item must be of the string type", "string"),
    "list_type": ("This configuration item must be of the array type", "array"),
    "model_type": ("This configuration item must be of the object type", "object"),
}
"""Words for a wrong type: of an item, and of a member of an array."""


def typed(section: object, faults: AclFaults) -> DumpSection:
    """Return the ``dump`` object; AclError for its first value of a wrong type, as in CANN."""
    try:
        return DumpSection.model_validate(section)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        reason, kind = _REASONS[first["type"]]
        is_member = isinstance(first["loc"][-1], int) and first["loc"][-2] != "dump_list"
        if is_member:
            reason = f"The member type of this configuration item must be {kind}"
        raise faults.item(item_path(first["loc"]), reason) from None


def item_path(path: Path) -> str:
    """Return a path as CANN's messages write it.

    >>> item_path(("dump_list", 0, "layer"))
    'dump_list[0].layer'
    """
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


_KERNEL_DATA: Final = ("all", "printf", "tensor", "assert", "timestamp")
_CHOICES: Final = {
    "dump_mode": ("input", "output", "all"),
    "dump_data": ("tensor", "stats"),
    "dump_op_switch": ("on", "off"),
    "dump_level": tuple(DumpLevel),
    "dump_debug": ("on", "off"),
    "dump_scene": tuple(Scene),
}
"""Values by key, in the order of the checks."""

_LONGEST_PATH: Final = 512
_MOST_STEPS: Final = 100
_MOST_ENTRIES: Final = 100  # of a black list
_ADDRESS: Final = re.compile(r"(?P<address>[0-9]+(?:\.[0-9]+){3}):(?P<path>.+)", re.DOTALL)
_BIGGEST_BYTE: Final = 255
_REMOTE_PATH: Final = re.compile(r"[A-Za-z0-9\-=\[\];\\,./!@#$%^&*()_+{}:?]+")
_DIGITS: Final = re.compile(r"[0-9]+")

_RANGE_INCOMPLETE: Final = "The item is incomplete, begin and end must be configured together and non-empty"
_SIZE_EXCEEDED: Final = f"The value size exceeds the maximum limit of {_MOST_ENTRIES}"


def check_values(section: DumpSection, faults: AclFaults) -> None:
    """Check the keys that take one of a few values; AclError if one is not allowed, or empty."""
    for key, allowed in _CHOICES.items():
        if section.has(key):
            _check_choice(getattr(section, key), key, allowed, faults)
    if section.has("dump_kernel_data"):
        for kind in section.dump_kernel_data.split(","):
            _check_choice(kind, "dump_kernel_data", _KERNEL_DATA, faults)
    for index, statistic in enumerate(section.dump_stats):
        _check_choice(statistic, f"dump_stats[{index}]", tuple(OperatorStatistic), faults)


def check_constraints(section: DumpSection, faults: AclFaults) -> None:
    """Check demands between keys; AclError for the first that is not met."""
    if section.dump_scene:
        condition = f"dump_scene is set to {section.dump_scene}"
        for key in ("dump_debug", "dump_op_switch"):
            if getattr(section, key) == "on":
                raise faults.exclusion(condition, key, "set to on")
        if section.dump_scene == Scene.WATCHER and section.dump_mode != "output":
            raise faults.exclusion(condition, "dump_mode", f"set to {section.dump_mode}")
        if section.dump_scene != Scene.WATCHER:
            return  # the rest is not looked at: an exception dump has no use for it
    _check_path(section, faults)
    if section.dump_debug == "on":
        if section.dump_op_switch == "on":
            raise faults.exclusion("dump_debug is set to on", "dump_op_switch", "set to on")
        if section.dump_list:
            raise faults.exclusion("dump_debug is set to on", "dump_list")
        return
    _check_steps(section, faults)
    for index, item in enumerate(section.dump_list):
        _check_item(item, f"dump_list[{index}]", section, faults)
    if section.has("dump_stats") and not section.dump_stats:
        raise faults.item("dump_stats", EMPTY)
    if section.has("dump_stats") and section.dump_data == "tensor":
        raise faults.exclusion("dump_data is set to tensor", "dump_stats")


def _check_choice(value: str, item: str, allowed: tuple[str, ...], faults: AclFaults) -> None:
    if not value:
        raise faults.item(item, EMPTY)
    if value not in allowed:
        raise faults.choice(value, item, allowed)


def _check_path(section: DumpSection, faults: AclFaults) -> None:
    path = section.dump_path
    if not section.has("dump_path"):
        raise faults.item("dump_path", NOT_FOUND)
    if not path:
        raise faults.item("dump_path", EMPTY)
    if len(path) > _LONGEST_PATH:
        reason = f"The path length exceeds the maximum limit of {_LONGEST_PATH} characters"
        raise faults.value(path, "dump_path", reason)
    remote = remote_path(path)
    if remote is None:
        try:
            mode = pathlib.Path(path).stat().st_mode
        except (OSError, ValueError):
            raise faults.value(path, "dump_path", "The path does not exist") from None
        if not stat.S_ISDIR(mode):
            raise faults.value(path, "dump_path", "The path is not a directory path")
        if not os.access(path, os.R_OK | os.W_OK):
            reason = "The value is a path without read and write permissions"
            raise faults.value(path, "dump_path", reason)
    elif not _REMOTE_PATH.fullmatch(remote):
        raise faults.value(remote, "dump_path", "The value contains invalid characters")


def remote_path(path: str) -> str | None:
    """Return the path of ``address:path`` with an IPv4 address, None for a path without an address.

    >>> remote_path("192.168.0.1:/home/output")
    '/home/output'
    >>> remote_path("/home/output")
    """
    match = _ADDRESS.fullmatch(path)
    if match is None or any(int(part) > _BIGGEST_BYTE for part in match["address"].split(".")):
        return None
    return match["path"]


def _check_steps(section: DumpSection, faults: AclFaults) -> None:
    if not section.dump_step:
        return
    segments = section.dump_step.split("|")
    if len(segments) > _MOST_STEPS:
        reason = f"The value exceeds the maximum limit of {_MOST_STEPS} intervals"
        raise faults.value(section.dump_step, "dump_step", reason)
    for index, segment in enumerate(segments):
        if reason := _step_fault(segment):
            raise faults.value(segment, f"dump_step[{index}]", reason)


def _step_fault(segment: str) -> str:
    parts = segment.split("-")
    if len(parts) > 2:  # noqa: PLR2004 - first and last
        return "The value has invalid format, expected format: 5-10"
    if not all(_DIGITS.fullmatch(part) for part in parts):
        return "The value contains non-digit characters,  expected format: 1 or 5-10"
    if _number(parts[0]) > _number(parts[-1]):
        return "The value has invalid format, start step must not exceed end step, expected format: 5-10"
    return ""


def iterations(text: str) -> IterationSet | None:
    """Return the iterations that a ``dump_step`` names, None where it is malformed.

    >>> str(iterations("0|5-8|6"))
    '0|5-8'
    >>> iterations("8-5")
    """
    if not text:
        return IterationSet()
    segments = text.split("|")
    if any(_step_fault(segment) for segment in segments):
        return None
    ends = (segment.split("-") for segment in segments)
    return IterationSet.of([(_number(parts[0]), _number(parts[-1])) for parts in ends])


def _number(digits: str) -> int:
    """Return the number that decimal digits write, at most 2^63 - 1."""
    return clamped_number(digits, (1 << 63) - 1)


def _check_item(item: DumpListItem, path: str, section: DumpSection, faults: AclFaults) -> None:
    # vendor: an empty name or list of layers is a fault only where single operators are not dumped
    if section.dump_op_switch == "off":
        for key in ("model_name", "layer"):
            if item.has(key) and not getattr(item, key):
                raise faults.item(f"{path}.{key}", EMPTY)
    _check_watched(item, path, section, faults)
    for key in ("optype_blacklist", "opname_blacklist"):
        entries = len(getattr(item, key))
        if entries > _MOST_ENTRIES:
            raise faults.value(str(entries), f"{path}.{key}", _SIZE_EXCEEDED)
    for key in ("optype_blacklist", "opname_blacklist", "opname_range"):
        if getattr(item, key) and section.dump_level != DumpLevel.OP:
            raise faults.exclusion("dump_level is not set to op", f"{path}.{key}")
    if item.opname_range and not item.model_name:
        raise faults.item(f"{path}.model_name", EMPTY if item.has("model_name") else NOT_FOUND)
    for index, entry in enumerate(item.opname_range):
        if not (entry.begin and entry.end):
            value = f"begin={entry.begin}, end={entry.end}"
            raise faults.value(value, f"{path}.opname_range[{index}]", _RANGE_INCOMPLETE)


def _check_watched(item: DumpListItem, path: str, section: DumpSection, faults: AclFaults) -> None:
    if section.dump_scene != Scene.WATCHER:
        if item.watcher_nodes:
            raise faults.exclusion("dump_scene is not set to watcher", f"{path}.watcher_nodes")
        return
    if not item.watcher_nodes:
        raise faults.item(f"{path}.watcher_nodes", EMPTY)
    if item.model_name:
        raise faults.exclusion("dump_scene is set to watcher", f"{path}.model_name")
