"""The configuration that a dump was made with: the copy in it, or one that is given, as it was compiled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from msdump.cli import messages
from msdump.config import mindspore as config_reader
from msdump.config import source
from msdump.config.acl import plan as acl_reader
from msdump.frontends import mindspore
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, Tree
from msdump.store.read.reader import Dump

_ANYWHERE: Final = "/dump"  # a path that MindSpore takes


def context_of(dump: Dump, options_given: dict[str, Any]) -> Context:
    """Return the context in which the dump was made: from the options, the dump, or the environment."""
    implied: dict[str, Any] = {}
    rank = next(iter(dump.ranks.values()), None)
    if dump.all_models:
        implied = {"device_target": DeviceTarget.ASCEND, "jit_level": JitLevel.O2}
    elif rank is not None and isinstance(rank.device, dict):
        implied = {"device_target": rank.device.get("device_target")}
    elif rank is not None and rank.is_known:  # the metadata of CPU and GPU names the device
        implied = {"device_target": DeviceTarget.ASCEND}
    explicit = {name: value for name, value in options_given.items() if value is not None}
    mindspore.set_options(**(implied | explicit))
    return mindspore.current_context()


def kept(dump: Dump) -> str | None:
    """Return the path of the copy of the configuration in a dump, None where there is none."""
    return next((path for rank in dump.ranks.values() if (path := rank.config_file)), None)


def plan_of(path: str, context: Context, dump: Dump) -> DumpPlan | None:
    """Return the plan of a configuration, None (and a warning) where it makes no dump of this kind."""
    data = source.read(path, "--config")
    value = _json_object(data)
    if "dump" in value:
        context = replace(
            context, device_target=DeviceTarget.ASCEND, jit_level=JitLevel.O2, keeps_node_names=True
        )
        plan = acl_reader.parse(
            _placed(data, value, ("dump", "dump_path"), os.path.isdir, dump.path), path, context
        )
    else:
        placed = _placed(data, value, ("common_dump_settings", "path"), bool, _ANYWHERE)
        plan = config_reader.parse(placed, path, context, has_lines=placed is data)
    is_empty = not (dump.ranks or dump.all_models)
    if plan is not None and (is_empty or (plan.files.tree is Tree.RANKS) == bool(dump.ranks)):
        return plan
    messages.say(f"warning: {path}: makes no dump like {dump.path}; not used (--device-target, --jit-level)")
    return None


def _json_object(data: bytes) -> dict[str, Any]:
    """Return the value of a configuration, nothing where its reader will tell a fault."""
    try:
        value = json.loads(data)
    except ValueError:  # the reader of configurations reports the fault, with its place
        return {}
    return value if isinstance(value, dict) else {}


def _placed(
    data: bytes, value: dict[str, Any], key: tuple[str, str], is_usable: Callable[[str], bool], place: str
) -> bytes:
    """Return a configuration with a usable path: a dump may be read elsewhere than where it was made.

    Args:
        data: The configuration.
        value: The same, parsed.
        key: The block of the path, and its key there.
        is_usable: Tells whether a path can stay.
        place: The path that stands in for one that cannot.
    """
    block, name = key
    settings = value.get(block)
    if not isinstance(settings, dict) or is_usable(str(settings.get(name, ""))):
        return data
    return json.dumps(value | {block: settings | {name: place}}).encode()
