"""A dump of many ranks that one machine makes: a network runs once, and its files stand for every rank's."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from onnx import TensorProto, helper, save

from msdump.plan import JitLevel
from tests.bench import sides

_KINDS: Final = ("Sigmoid", "Relu")


def chain(path: Path, operators: int, shape: tuple[int, ...], kinds: Sequence[str] = _KINDS) -> Path:
    """Write a network of so many operators in a row, of which each kind follows the one before it."""
    nodes = [
        helper.make_node(kind, [f"v{number}"], [f"v{number + 1}"], name=f"/layer{number}/op")
        for number, kind in zip(range(operators), itertools.cycle(kinds), strict=False)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("v0", f"v{operators}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def grow(
    folder: Path, ranks: int, *, operators: int, shape: tuple[int, ...], scale: float, is_linked: bool
) -> Path:
    """Write a dump in which all ranks hold the same inputs and outputs of a chain; return its path.

    Args:
        folder: Where the dump, its network and its configuration go.
        ranks: Number of ranks.
        operators: Number of operators of each.
        shape: Shape of their tensors.
        scale: Factor of the input, by which two dumps differ.
        is_linked: Whether the files of other ranks are links to rank 0's, for very many of them.
    """
    folder.mkdir(parents=True)
    model = chain(folder / "chain.onnx", operators, shape)
    dump = folder / "dump"
    network = sides.network(model, sides.plan(dump, "0", input_output=0))
    count = int(np.prod(shape))
    network.run({"v0": np.linspace(-scale, scale, count, dtype=np.float32).reshape(shape)})
    _spread(dump, "rank_{}", ranks, is_linked=is_linked)
    return dump


def overflow(folder: Path, ranks: int, *, operators: int, shape: tuple[int, ...]) -> Path:
    """Write a dump of a compiled graph in which all operators of all ranks overflow; return its path.

    Args:
        folder: Where the dump and its network go.
        ranks: Number of ranks; files of others are links to rank 0's.
        operators: Number of operators of each.
        shape: Shape of their tensors.
    """
    folder.mkdir(parents=True)
    model = chain(folder / "chain.onnx", operators, shape, ["Softmax"])  # which no pass fuses
    dump = folder / "dump"
    plan = sides.plan(dump, level=JitLevel.O2, input_output=0, op_debug_mode=3)
    sides.network(model, plan).run({"v0": np.full(shape, np.nan, np.float32)})
    _spread(dump, "{}", ranks, is_linked=True)
    return dump


def _spread(dump: Path, name: str, ranks: int, *, is_linked: bool) -> None:
    """Copy rank 0's directory for the other ranks, under names like its own."""
    copy = os.link if is_linked else shutil.copyfile
    for rank in range(1, ranks):
        shutil.copytree(dump / name.format(0), dump / name.format(rank), copy_function=copy)
