"""Dumped tensors next to the values of one session over the whole graph, bit for bit.

The session has every value as an output and no optimisation (ORT_DISABLE_ALL).
Its kernels pack constant weights as those of single operators do, so packing
stays on.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

from sample_nets import data
from tests.dump import trees

FEEDS = {
    "mini": lambda: {"x": data.digits(0, 2, 6)},
    "lenet": lambda: {"x": data.digits(0, 2, 32)},
    "mobilenetv2": lambda: {"x": data.photos(0, 1, 224)},
    "alexnet": lambda: {"x": data.photos(0, 2, 227)},
    "resnet50": lambda: {"x": data.photos(0, 1, 224)},
    "bert": lambda: data.texts(0, 1, 128, 30522),
}
SLOW = ("alexnet", "resnet50", "bert")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in FEEDS]
)
def test_sample_network(door, sample_net, name):
    """Every dumped tensor of a sample network is the whole graph's, parameters included."""
    path, feeds = sample_net(name), FEEDS[name]()
    network = door.dump(path, feeds, naming="2.7")
    expected = trees.whole_graph(onnx.load(path), feeds)
    nodes = {re.sub(r"[^\w-]", "_", node.operator.full_name): node for node in network.graph.nodes}
    plain = {re.sub(r"[^\w-]", "_", key): value for key, value in expected.items()}

    files = trees.tensors(door.rank / "Net" / "0" / "0")
    for match, file in files:
        found = np.load(file)
        if match["type"] == "Parameter":
            assert trees.same_bits(plain[match["name"]], found), match[0]
            continue
        node = nodes[match["name"]]
        values = node.inputs if match["io"] == "input" else node.outputs
        assert trees.same_bits(expected[values[int(match["slot"])]], found), match[0]

    tensors = sum(len([*node.inputs, *node.outputs]) for node in network.graph.nodes)
    assert tensors + len(network.graph.inputs) + len(network.graph.weights) - len(
        network.graph.constants
    ) == (len(files))
