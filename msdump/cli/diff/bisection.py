"""``msdump diff --bisect``: the smallest part of a model whose exchange explains the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msdump.cli import messages
from msdump.cli.counts import plural
from msdump.errors import InputError
from msdump.graph.graph import Node
from msdump.tools.bisection.folder import write_folder
from msdump.tools.bisection.search import Bisection
from msdump.tools.diff.comparison import LockstepComparison


def bisect(comparison: LockstepComparison, fed: Sequence[Mapping[str, Any]], output: str | None) -> None:
    """Look for the part, print it, and write it where a folder is given.

    Args:
        comparison: The two models, compared.
        fed: The inputs of all runs.
        output: The folder, None: nothing is written.

    Raises:
        MsdumpError: A model cannot run, or a file cannot be written.
    """
    mine, golden = comparison.mine.model, comparison.golden.model
    with messages.bar("networks", 0) as advance:
        search = Bisection(mine, golden, comparison.pairing, _worst(comparison, fed), advance)
        try:
            part = search.find()
        except InputError as error:  # there is nothing to look for, or it cannot be exchanged
            messages.say(f"bisect: {error}")
            return
    print(f"part      {_names(part.spliced.taken)} of {mine.source}")
    print(f"          in place of {_names(part.spliced.given)} of {golden.source}")
    print(
        f"explains  {part.difference:.2g} of the relative distance {part.whole:.2g} of the outputs"
        f" ({plural(search.probes, 'network')} run)"
    )
    for path in write_folder(part, mine, golden, output) if output else ():
        print(f"written   {path}")


def _worst(comparison: LockstepComparison, fed: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the inputs of the run whose outputs are farthest apart."""
    distances = [0.0] * len(fed)
    for each in comparison.outputs:
        error = each.evidence.error
        if error is not None:
            distances[each.iteration] = max(distances[each.iteration], error.distance)
    return fed[distances.index(max(distances))]


def _names(nodes: Sequence[Node]) -> str:
    names = [node.operator.full_name.removeprefix("other:") for node in nodes]
    return ", ".join(names) if names else "nothing"
