"""Kernels that are faulty on purpose."""

from __future__ import annotations

import pytest

from msdump.errors import GraphError
from msdump.graph import compile_graph
from msdump.graph.kernel import stomped_bytes
from msdump.graph.loader import load
from tests.texts import parsed


def graph_of(tmp_path, *, size=None, key="msdump.stomp"):
    """Return a graph of two operators, the first of which may have metadata."""
    model = parsed("graph (float[4] x) => (y) { [neg] v = Neg(x) [relu] y = Relu(v) }")
    if size is not None:
        model.graph.node[0].metadata_props.add(key=key, value=size)
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return load(path)


SIZES = {
    "none": ({}, [0, 0]),
    "some": ({"size": "16"}, [16, 0]),
    "zero": ({"size": "0"}, [0, 0]),
    "other metadata": ({"size": "16", "key": "namespace"}, [0, 0]),
}


@pytest.mark.parametrize(("settings", "expected"), SIZES.values(), ids=SIZES)
def test_metadata_says_how_many_bytes(tmp_path, settings, expected):
    """A node's own metadata counts; without it a kernel is sound."""
    graph = graph_of(tmp_path, **settings)

    assert expected == [stomped_bytes(found) for found in graph.nodes]


def test_fused_kernel_has_the_fault_of_its_part(tmp_path):
    """Where a faulty operator is fused with another one, the kernel of both is faulty."""
    graph = compile_graph(graph_of(tmp_path, size="16"))

    (fused,) = graph.nodes
    assert (2, 16) == (len(fused.parts), stomped_bytes(fused))


@pytest.mark.parametrize("size", ["", "-1", "1.5", "many"])
def test_other_metadata_is_refused(tmp_path, size):
    """Anything but a number of bytes is an error that names node, key and value."""
    graph = graph_of(tmp_path, size=size)

    with pytest.raises(
        GraphError, match=f"node 'neg': metadata msdump.stomp = '{size}': must be a number of bytes"
    ):
        stomped_bytes(graph.nodes[0])
