"""The plan of a finished dump, from a configuration that may name a path of another machine."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from msdump.config import acl, mindspore, source
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel

_ANYWHERE: Final = "/dump"  # stands for any path that MindSpore allows


def parse(data: bytes, path: str, context: Context, root: str) -> DumpPlan | None:
    """Return the plan of a configuration of MindSpore or acl; None if acl's configures no dump.

    Messages name ``path``; ``root`` is the dump of an acl.json without a usable path. A MsdumpError is raised
    if the bytes are not JSON, or values are wrong.
    """
    parsed = source.parse(data, path).value
    value: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
    block, key, place = (
        ("dump", "dump_path", root) if "dump" in value else ("common_dump_settings", "path", _ANYWHERE)
    )
    settings, placed = value.get(block), data
    if isinstance(settings, dict):
        text = str(settings.get(key, ""))
        if not (os.path.isdir(text) if block == "dump" else text):
            placed = json.dumps(value | {block: settings | {key: place}}).encode()
    if block != "dump":
        return mindspore.parse(placed, path, context, has_lines=placed is data)
    target, level = DeviceTarget.ASCEND, JitLevel.O2
    context = replace(context, device_target=target, jit_level=level, keeps_node_names=True)
    return acl.plan.parse(placed, path, context)


@contextmanager
def silence() -> Iterator[None]:
    """Leave out the parser's warnings, which the user saw when the dump was made."""
    log = logging.getLogger("msdump.config")

    def refuse(_: logging.LogRecord) -> bool:
        return False

    log.addFilter(refuse)
    try:
        yield
    finally:
        log.removeFilter(refuse)
