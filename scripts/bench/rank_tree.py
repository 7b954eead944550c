"""A dump of many ranks that one machine makes: a network runs once, and its files stand for every rank's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import save

from msdump.plan import JitLevel
from scripts.bench import sides
from scripts.bench.networks import chains


def pair(
    folder: Path, ranks: int = 8, operators: int = 24, shape: tuple[int, ...] = (8, 64, 56, 56)
) -> list[Path]:
    """Write two dumps that differ a little; of the default size 2.5 GB of inputs and outputs each."""
    return [
        grow(folder / f"of_{side}", ranks, operators=operators, shape=shape, scale=scale).rename(
            folder / side
        )
        for side, scale in (("mine", 1.0), ("golden", 1.01))
    ]


def grow(folder: Path, ranks: int, *, operators: int, shape: tuple[int, ...], scale: float) -> Path:
    """Write a dump in which all ranks hold the same inputs and outputs of a chain; return its path.

    Args:
        folder: Where the dump, its network and its configuration go.
        ranks: Number of ranks; files of others are links to rank 0's.
        operators: Number of operators of each.
        shape: Shape of their tensors.
        scale: Factor of the input, by which two dumps differ.
    """
    model = _chain(folder, operators, shape, ("Sigmoid", "Relu"))
    dump = folder / "dump"
    network = sides.network(model, sides.plan(dump, "0", input_output=0))
    count = int(np.prod(shape))
    network.run({"v0": np.linspace(-scale, scale, count, dtype=np.float32).reshape(shape)})
    _spread(dump, "rank_{}", ranks)
    return dump


def overflow(folder: Path, ranks: int, *, operators: int, shape: tuple[int, ...]) -> Path:
    """Write a dump of a compiled graph in which all operators of all ranks overflow; return its path.

    Args:
        folder: Where the dump and its network go.
        ranks: Number of ranks; files of others are links to rank 0's.
        operators: Number of operators of each.
        shape: Shape of their tensors.
    """
    model = _chain(folder, operators, shape, ("Softmax",))  # which no pass fuses
    dump = folder / "dump"
    plan = sides.plan(dump, level=JitLevel.O2, input_output=0, op_debug_mode=3)
    sides.network(model, plan).run({"v0": np.full(shape, np.nan, np.float32)})
    _spread(dump, "{}", ranks)
    return dump


def _chain(folder: Path, operators: int, shape: tuple[int, ...], kinds: Sequence[str]) -> Path:
    """Write a network of so many operators in a row, the kinds in turn; return its path."""
    folder.mkdir(parents=True)
    path = folder / "chain.onnx"
    save(chains.unary(operators, shape, kinds), path)
    return path


def _spread(dump: Path, name: str, ranks: int) -> None:
    """Link rank 0's files into directories of the other ranks, under names like its own."""
    for rank in range(1, ranks):
        shutil.copytree(dump / name.format(0), dump / name.format(rank), copy_function=os.link)
