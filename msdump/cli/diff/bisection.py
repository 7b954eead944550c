"""``msdump diff --bisect``: the smallest part of a model whose exchange explains the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msdump.cli import messages
from msdump.cli.counts import plural
from msdump.errors import InputError
from msdump.tools.bisection.arithmetic import of_side
from msdump.tools.bisection.folder import write_folder
from msdump.tools.bisection.search import Bisection, ExchangedPart
from msdump.tools.diff.comparison import LockstepComparison
from msdump.tools.diff.models import pair_models


def bisect(
    comparison: LockstepComparison, fed: Sequence[Mapping[str, Any]], output: str | None
) -> tuple[ExchangedPart, list[str]] | None:
    """Look for the part, print it, and write it where a folder is given; return it and its files.

    Args:
        comparison: The two models, compared.
        fed: The inputs of all runs.
        output: The folder, None: nothing is written.

    Raises:
        MsdumpError: A model cannot run, or a file cannot be written.
    """
    (mine, arithmetic), (golden, golden_arithmetic) = of_side(comparison.mine), of_side(comparison.golden)
    with messages.bar("networks", 0) as advance:
        search = Bisection(
            mine,
            golden,
            pair_models(comparison.mine.model, comparison.golden.model),
            _worst(comparison, fed),
            advance,
            computed_in=(arithmetic, golden_arithmetic),
        )
        try:
            part = search.find()
        except InputError as error:  # there is nothing to look for, or it cannot be exchanged
            messages.say(f"bisect: {error}")
            return None
    print(f"part      {', '.join(part.names)} of {mine.source}")
    print(f"          in place of {', '.join(part.golden_names) or 'nothing'} of {golden.source}")
    print(
        f"explains  {part.difference:.2g} of the relative distance {part.whole:.2g} of the outputs"
        f" ({plural(search.probes, 'network')} run)"
    )
    paths = write_folder(part, mine, golden, output) if output else []
    for path in paths:
        print(f"written   {path}")
    return part, paths


def _worst(comparison: LockstepComparison, fed: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the inputs of the run whose outputs are farthest apart."""
    distances = [0.0] * len(fed)
    for each in comparison.outputs:
        error = each.evidence.error
        if error is not None:
            distances[each.iteration] = max(distances[each.iteration], error.distance)
    return fed[distances.index(max(distances))]
