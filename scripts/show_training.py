"""Print the training in a dump: files of the backward pass, a weight before and after each step.

``python scripts/show_training.py FOLDER`` reads a dump in MindSpore's tree: all ranks, or under a launcher
the rank of the process.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import msdump
from msdump import communication
from msdump.cli import streams
from msdump.errors import MsdumpError
from msdump.read import Record
from msdump.record import IO

BACKWARD = "Gradients_"
"""Beginning of the names of the backward pass's operators in files."""

UPDATES = ("ApplyMomentum", "Adam", "AdamWeightDecay", "SGD")


def findings(folder: Path) -> Iterator[str]:
    """Yield lines on every training graph of a dump."""
    own = communication.get_rank() if communication.get_group_size() > 1 else None
    for number, rank in msdump.open_dump(folder).ranks.items():
        if own not in {None, number}:  # its ranks may still be writing
            continue
        graphs = (graph for network in rank.networks.values() for graph in network.graphs.values())
        for graph in graphs:
            steps = {step: iteration.records for step, iteration in graph.iterations.items()}
            first = next(iter(steps.values()), ())
            files = [Path(record.path).name for record in first if record.op_name.startswith(BACKWARD)]
            if files:
                yield f"rank_{number}: the backward pass of step {min(steps)}, {len(files)} files:"
                yield from (f"    {name}" for name in files)
                yield f"rank_{number}: the first weight, as it was read and as the optimizer left it:"
                yield from (f"    step {step}: {change(records)}" for step, records in steps.items())


def change(records: Sequence[Record]) -> str:
    """Yield the first weight as the forward pass read it, and as the optimizer left it.

    An Ascend's convolutions and products read float32 weights rounded to float16.
    """
    weight = next(record for record in records if (record.io, record.slot) == (IO.INPUT, 1))
    new = next(
        record
        for record in records
        if record.op_type in UPDATES
        and (record.io, record.slot) == (IO.INPUT, 0)
        and record.shape == weight.shape
    )
    return f"{shown(weight.array)} before, {shown(new.array)} after"


def shown(array: np.ndarray) -> str:
    """Return the first elements of an array."""
    return " ".join(f"{value:.6f}" for value in array.flat[:3])


@streams.standard()
def main() -> int:
    """Print the files and the weight of each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    try:
        lines = list(findings(parser.parse_args().folder))
    except MsdumpError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines) or "no training step was dumped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
