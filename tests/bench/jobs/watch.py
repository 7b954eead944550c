"""Watch rules beside what they are compared with.

Every output of every operator is looked at; nothing hits, so that nothing is written.
"""

from __future__ import annotations

from typing import Final

from msdump.session import Network
from tests.bench import sides
from tests.bench.case import Case
from tests.bench.measure import Figure

_RULES: Final = (
    {"condition": "tensor_overflow"},
    {"condition": "tensor_too_large", "max_gt": 1e30},
    {"condition": "tensor_all_zero"},
)


def of_run(case: Case) -> Figure:
    """Rules on every output against a run without a dump."""
    return sides.beside(case, _watched(case), sides.network(case.path))


def of_statistics(case: Case) -> Figure:
    """Rules on every output against a dump of their default statistics."""
    categories = ["max", "min", "l2norm"]
    plan = sides.plan(case.folder / "rows", saved_data="statistic", statistic_category=categories)
    return sides.beside(case, _watched(case), sides.network(case.path, plan))


def _watched(case: Case) -> Network:
    return sides.network(case.path, sides.plan(case.folder / "rules", msdump={"watch": _RULES}))
