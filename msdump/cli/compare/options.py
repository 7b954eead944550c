"""Options of every comparison: its limits, and what of it is listed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click

from msdump.cli.compare.listing import ComparisonView
from msdump.cli.options import applied
from msdump.statistics.table import STATISTICS
from msdump.tools.judge import limits_files
from msdump.tools.judge.grouping import Arrangement
from msdump.tools.judge.limits import COSINE, TYPES, Limits

_Command = TypeVar("_Command", bound=Callable[..., Any])


def limits(command: _Command) -> Callable[..., Any]:
    """Give a command the options of the limits; it gets them as ``limits``."""

    @functools.wraps(command)
    def limited(
        *,
        cosine: float | None,
        distance: float | None,
        precision: str | None,
        limits_file: str | None,
        by_category: Mapping[str, float] = MappingProxyType({}),
        **others: Any,
    ) -> Any:
        written = limits_files.read(limits_file) if limits_file else Limits()
        chosen = replace(
            written,
            cosine=written.cosine if cosine is None else cosine,
            distance=written.distance if distance is None else distance,
            precision=precision or written.precision,
            statistics={**written.statistics, **by_category},
        )
        return command(limits=chosen, **others)

    return applied(_LIMITS, limited)


def view(command: _Command) -> Callable[..., Any]:
    """Give a command the options of what is listed; it gets them as ``view``."""

    @functools.wraps(command)
    def viewed(*, by: str | None, scope: str, top: int | None, **others: Any) -> Any:
        arrangement = None if by is None else Arrangement(by)
        return command(view=ComparisonView(arrangement, scope, top), **others)

    return applied(_VIEW, viewed)


def _parse(_ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, float]:
    by_category = {}
    known = [statistic.category for statistic in STATISTICS]
    for text in texts:
        category, _, number = text.rpartition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        if category not in known or not limit >= 0:
            names = ", ".join(known)
            raise click.BadParameter(f"{text!r} is not CATEGORY=LIMIT, max=0.001; categories are {names}")
        by_category[category] = limit
    return by_category


_LIMITS: Final = (
    click.option(
        "--cosine",
        type=click.FloatRange(0, 1),
        show_default=str(COSINE),
        help="Least similarity.",
    ),
    click.option(
        "--distance",
        type=click.FloatRange(0),
        show_default="by element type",
        help="Largest relative distance.",
    ),
    click.option(
        "--precision",
        type=click.Choice(tuple(TYPES)),
        show_default="what the tensors, graphs or variants tell",
        help="Coarsest type that either side computed in.",
    ),
    click.option(
        "--limits",
        "limits_file",
        type=click.Path(),
        metavar="FILE",
        help="All limits, as a .json file (docs/reference/verdicts.md).",
    ),
)
_VIEW: Final = (
    click.option(
        "--by",
        type=click.Choice([each.value for each in Arrangement]),
        help="List operators by their own error, or in groups.",
    ),
    click.option("--scope", default="", help="List the operators of a scope or module only, such as h.3."),
    click.option("--top", type=click.IntRange(min=1), metavar="N", help="List the N largest errors."),
)

statistic_limits: Final = click.option(
    "--statistic",
    "by_category",
    multiple=True,
    metavar="CATEGORY=LIMIT",
    callback=_parse,
    help="Largest relative difference of a statistic, max=0.001; of a count the share of elements, md5=0.",
)
"""The option of the limits of statistics, for a command that compares some; it stands above ``limits``."""
