"""What a plan may ask for that cannot be executed yet: one table, told before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msdump.errors import NotAvailableError
from msdump.plan import DeviceTarget, DumpPlan, JitLevel, Trigger

_MISSING: Final[tuple[tuple[Callable[[DumpPlan], bool], str], ...]] = (
    (lambda p: p.uses_ge_options, "ENABLE_MS_GE_DUMP=1 (GE dump)"),
    (lambda p: p.context.jit_level is JitLevel.O2, "jit_level O2"),
    (lambda p: _on_ascend(p) and p.is_async, "e2e_dump_settings.enable false (asynchronous dump) on Ascend"),
    (lambda p: p.statistics is not None, "saved_data statistic or full"),
    (lambda p: p.sample_count is not None, "sample_mode 1"),
    (lambda p: p.trigger is Trigger.OVERFLOW, "op_debug_mode 3 (overflow)"),
    (lambda p: p.trigger is Trigger.EXCEPTION, "op_debug_mode 4 (exception)"),
    (lambda p: _on_ascend(p) and p.keeps_device_format, "trans_flag false on Ascend"),
    (lambda p: p.precision_mode is not None, "msdump.precision_mode"),
)


def check(plan: DumpPlan) -> None:
    """Refuse a plan that asks for what is not there yet.

    Raises:
        NotAvailableError: Names every such setting.
    """
    missing = [what for is_asked, what in _MISSING if is_asked(plan)]
    if missing:
        raise NotAvailableError(f"{plan.source}: not available in this version: {'; '.join(missing)}")


def _on_ascend(plan: DumpPlan) -> bool:
    return plan.context.device_target is DeviceTarget.ASCEND
