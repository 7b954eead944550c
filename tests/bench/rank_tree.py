"""A dump of many ranks that one machine makes: a network runs once, and its files stand for every rank's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

from tests.bench import sides


def chain(path: Path, operators: int, shape: tuple[int, ...]) -> Path:
    """Write a network of so many operators in a row, which alternate between Sigmoid and Relu."""
    kinds = ("Sigmoid", "Relu")
    nodes = [
        helper.make_node(kinds[number % 2], [f"v{number}"], [f"v{number + 1}"], name=f"/layer{number}/op")
        for number in range(operators)
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
        scale: What the input is multiplied by, which tells two dumps apart.
        is_linked: Whether the files of other ranks are links to those of rank 0, for very many of them.
    """
    folder.mkdir(parents=True)
    model = chain(folder / "chain.onnx", operators, shape)
    dump = folder / "dump"
    network = sides.network(model, sides.plan(dump, "0", input_output=0))
    count = int(np.prod(shape))
    network.run({"v0": np.linspace(-scale, scale, count, dtype=np.float32).reshape(shape)})
    copy = os.link if is_linked else shutil.copyfile
    for rank in range(1, ranks):
        shutil.copytree(dump / "rank_0", dump / f"rank_{rank}", copy_function=copy)
    return dump
