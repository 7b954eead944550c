"""Compare the statistics of two dumps: ``python scripts/compare_statistics.py REFERENCE OTHER``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import msdump

Row = dict[str, str]


def rows(folder: str) -> Iterator[Row]:
    """Yield the rows of every ``statistic.csv`` of a dump, in the order of execution."""
    for iteration in msdump.open_dump(folder).iterations:
        yield from iteration.statistics


def difference(reference: Row, other: Row) -> float:
    """Return how far apart the norms of two tensors are, relative to the first one."""
    expected, actual = float(reference["L2Norm Value"]), float(other["L2Norm Value"])
    return abs(actual - expected) / expected if expected else abs(actual)


def main() -> None:
    """Print a line for each tensor: its operator, its largest value and how far the norms are apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reference", help="folder of a dump that holds statistics")
    parser.add_argument("other", help="folder of another one, of the same network and inputs")
    options = parser.parse_args()
    for reference, other in zip(rows(options.reference), rows(options.other), strict=True):
        apart = difference(reference, other)
        mark = "" if math.isfinite(apart) and apart < 1e-2 else "  <--"  # noqa: PLR2004 - a percent
        print(f"{reference['Op Name']:<40}{float(other['Max Value']):>10.3g}{apart:>10.0e}{mark}")


if __name__ == "__main__":
    main()
