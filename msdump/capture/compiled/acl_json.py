"""``acl_dump_{device_id}.json``: the configuration that MindSpore gives CANN before each step of O2."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from msdump.plan import DumpPlan, Trigger
from msdump.selector import DumpMode, PatternKind

NO_TARGET: Final = "NoSetDumpTarget"
"""The layer that stands for none: ``dump_mode`` 2 without a mark."""

# vendor: a step that no training reaches says "not now"
_NEVER: Final = "2147483647"

_MODES: Final = {(True, True): "all", (True, False): "input", (False, True): "output"}


def content(plan: DumpPlan, layers: tuple[str, ...], root: str, *, is_dumped: bool) -> bytes:
    """Return the file for one step: compact JSON with sorted keys.

    >>> from msdump.plan import Context, FilePlan
    >>> plan = DumpPlan("data_dump.json", b"{}", Context(), FilePlan("/dump"))
    >>> content(plan, (), "/dump/0", is_dumped=True)
    b'{"dump":{"dump_list":[],"dump_mode":"all","dump_op_switch":"on","dump_path":"/dump/0"}}'

    Args:
        plan: The plan.
        layers: What ``layers`` returns.
        root: Absolute directory of the step's files; of the dump for a step that is not dumped.
        is_dumped: Whether the step is dumped.
    """
    settings = _settings(plan, layers, root)
    if not is_dumped and plan.when.trigger is Trigger.ALWAYS:
        settings["dump_step"] = _NEVER
    return json.dumps({"dump": settings}, separators=(",", ":"), sort_keys=True).encode()


def layers(plan: DumpPlan, full_names: Iterable[str], marked: frozenset[str]) -> tuple[str, ...]:
    """Return the names for ``dump_list``: sorted items of ``kernels``, then names that their regexes match.

    Args:
        plan: The plan.
        full_names: The operators of the graph in execution order.
        marked: Those that ``set_dump`` marked.
    """
    selector = plan.what.selector
    if selector.mode is DumpMode.MARKED:
        return tuple(name for name in full_names if name in marked) or (NO_TARGET,)
    if selector.mode is DumpMode.ALL or not selector.patterns:
        return ()
    items = sorted(pattern.item.replace(" ", "") for pattern in selector.patterns)
    searched = [pattern for pattern in selector.patterns if pattern.kind is PatternKind.REGEX]
    # vendor: the items themselves stand in the list, too, expressions as they were written
    matched = (name for name in full_names if any(pattern.matches(name) for pattern in searched))
    return (*items, *matched)


def _settings(plan: DumpPlan, layers: tuple[str, ...], root: str) -> dict[str, Any]:
    """Return the settings of a step that is dumped; overflow and exception dumps select no operators."""
    if plan.when.trigger is Trigger.OVERFLOW:
        return {"dump_debug": "on", "dump_path": root}
    if plan.when.trigger is Trigger.EXCEPTION:
        return {"dump_scene": "lite_exception"}
    return {
        "dump_list": [{"layer": list(layers)}] if layers else [],
        "dump_mode": _MODES[plan.what.keeps_inputs, plan.what.keeps_outputs],
        "dump_op_switch": "on",
        "dump_path": root,
    }
