"""The wire models of acl.json: which keys exist, in the order in which CANN checks their types."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, StrictStr, ValidationError

from msdump.config.acl.faults import AclFaults
from msdump.config.source import Path


class _Object(BaseModel):
    """An object of the file; keys that it does not know are ignored."""

    # every value is read as text or list only: what it may be is checked afterwards, in CANN's order
    model_config = ConfigDict(extra="ignore", defer_build=True)

    def has(self, key: str) -> bool:
        """Tell whether the file gives a key."""
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
    """Return the ``dump`` object once the type of each of its values is checked.

    Raises:
        AclError: A value has the wrong type; the error names the first, as CANN does.
    """
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
