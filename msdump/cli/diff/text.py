"""What ``msdump diff`` prints below the table of operators."""

from __future__ import annotations

from collections.abc import Iterator

from msdump.cli.counts import plural
from msdump.tools.diff.comparison import LockstepComparison, OutputDifference


def head(comparison: LockstepComparison, seconds: float) -> str:
    """Return what ran beside what."""
    mine, golden = comparison.mine, comparison.golden
    source = mine.model.source
    other = "" if golden.model.source == source else f"{golden.model.source} on "
    runs = plural(comparison.runs, "step" if comparison.trains else "run")
    return (
        f"ran       {runs} of {source} on {mine.variant.text} beside {other}{golden.variant.text}"
        f" in {seconds:.2f} s"
    )


def outputs(comparison: LockstepComparison) -> Iterator[str]:
    """Yield a line for each output of the network: its worst run."""
    worst: dict[str, OutputDifference] = {}
    for output in comparison.outputs:
        before = worst.setdefault(output.evidence.name, output)
        if _badness(output) > _badness(before):
            worst[output.evidence.name] = output
    for name, output in worst.items():
        where = f" in run {output.iteration}" if comparison.runs > 1 else ""
        yield f"output    {name}: {_apart(output)}{where}"


def _badness(output: OutputDifference) -> float:
    error = output.evidence.error
    return -1.0 if error is None else error.distance


def _apart(output: OutputDifference) -> str:
    error = output.evidence.error
    if error is None:
        return output.evidence.note or output.evidence.fault or "not compared"
    if error.is_same:
        return "equal"
    if error.misplaced:
        return f"NaN or infinities differ at {plural(error.misplaced, 'element')}"
    return f"distance {error.distance:.2g}, largest difference {error.largest:.2g}"
