"""A compiled network gives the bits of the one that runs operator by operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from msdump.capture import Process
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, JitLevel, OverflowMode, PrecisionMode
from msdump.session import Network
from sample_nets import data

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"
FILES = sorted(path.stem for path in GRAPHS.glob("*.onnx"))
TEXTS = {"strings": {"words": np.array(["a", "B", "c"], object)}}


def network(graph, level, **context):
    """Return a network on an emulated Ascend."""
    return Network(graph, None, Process(), Context(DeviceTarget.ASCEND, level, **context))


def feeds(graph):
    """Return random inputs."""
    random = np.random.default_rng(0)
    shapes = {v.name: [d if isinstance(d, int) else 2 for d in v.type.shape or ()] for v in graph.inputs}
    floats = {name: random.standard_normal(shape) * 3 for name, shape in shapes.items()}
    dtypes = {value.name: value.type.dtype.numpy for value in graph.inputs}
    return {
        n: (a if dtypes[n].kind in "fV" else np.ones_like(a)).astype(dtypes[n]) for n, a in floats.items()
    }


def assert_same(graph, inputs, **context):
    """Compare the outputs of both levels, bit for bit."""
    expected = network(graph, JitLevel.O0, **context).run(inputs)
    compiled = network(graph, JitLevel.O2, **context).run(inputs)

    assert expected.keys() == compiled.keys()
    for name, want in expected.items():
        np.testing.assert_array_equal(want, compiled[name], strict=isinstance(want, np.ndarray))


@pytest.mark.parametrize("mode", PrecisionMode)
@pytest.mark.parametrize("name", FILES)
def test_small_graphs(name, mode):
    """Folding, fusion and inserted operators change no bit, in any precision mode."""
    graph = loader.load(GRAPHS / f"{name}.onnx")

    assert_same(graph, TEXTS.get(name) or feeds(graph), precision_mode=mode)


BLOCK = """
<ir_version: 10, opset_import: ["": 20]>
g (float[2,4,9,9] x, float[4,4,3,3] v) => (y, z) <
    float[4] a = {0.5, 1.5, -2, 3}, float[4] b = {0.1, 0.2, 0.3, 0.4}, float[4] s = {1, 2, 3, 4},
    float l = {0}, float[2,2] q = {1, -2, 3, 70000}, int64[2] rows = {2, -1}
> {
    c = Conv<pads = [1, 1, 1, 1]>(x, v)
    n = BatchNormalization(c, a, b, b, s)
    r = Relu(n)
    d = Conv<pads = [1, 1, 1, 1]>(r, v)
    p = PRelu(d, t)
    t = Constant<value_floats = [0.25]>()
    k = ConvTranspose<pads = [1, 1, 1, 1]>(p, v)
    h = HardSwish(k)
    e = GlobalAveragePool(h)
    f = Reshape(e, rows)
    m = Transpose(q)
    j = Abs(m)
    i = Gemm<transB = 1>(f, u)
    u = Concat<axis = 1>(m, j)
    y = Clip(i, l)
    o = Add(h, k)
    z = Sqrt(o)
}
"""


@pytest.mark.parametrize("overflow", OverflowMode)
@pytest.mark.parametrize("mode", PrecisionMode)
@pytest.mark.parametrize("fuses", [True, False], ids=["fused", "not fused"])
def test_made_up_block(fuses, mode, overflow):
    """Convolutions, normalizations, activations, constants and values beyond float16 keep their bits too."""
    graph = loader.load(onnx.parser.parse_model(BLOCK))

    assert_same(graph, feeds(graph), precision_mode=mode, overflow_mode=overflow, fuses=fuses)


def test_sample_networks(sample_net):
    """The sample networks keep their bits."""
    graph = loader.load(sample_net("lenet"))

    assert_same(graph, {"x": data.digits(0, 2, 32)})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenetv2", "resnet50"])
def test_deep_sample_networks(sample_net, name):
    """So do the deep ones."""
    graph = loader.load(sample_net(name))

    assert_same(graph, {"x": data.photos(0, 2, 224)})


def test_operators_of_a_deep_network(sample_net):
    """Every original of a deep network is in exactly one kernel, and fewer kernels compute."""
    graph = loader.load(sample_net("mobilenetv2"))

    compiled = network(graph, JitLevel.O2).graph

    originals = [p.name for n in compiled.nodes if not n.name.startswith("trans_") for p in n.members]
    assert sorted(node.name for node in graph.nodes) == sorted(originals)
    kernels = [node for node in compiled.nodes if not node.name.startswith("trans_")]
    assert 71 >= len(kernels)
