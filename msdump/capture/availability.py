"""What a plan may ask for that cannot be executed yet: one table, told before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msdump.errors import NotAvailableError
from msdump.plan import DumpPlan, JitLevel

_MISSING: Final[tuple[tuple[Callable[[DumpPlan], bool], str], ...]] = (
    (lambda p: p.uses_ge_options, "ENABLE_MS_GE_DUMP=1 (GE dump)"),
    (lambda p: p.context.jit_level is JitLevel.O2, "jit_level O2"),
)


def check(plan: DumpPlan) -> None:
    """Refuse a plan that asks for what is not there yet.

    Raises:
        NotAvailableError: Names every such setting.
    """
    missing = [what for is_asked, what in _MISSING if is_asked(plan)]
    if missing:
        raise NotAvailableError(f"{plan.source}: not available in this version: {'; '.join(missing)}")
