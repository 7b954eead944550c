"""Every configuration of torchair's document runs through the backend on a graph with operators of its roles.

The operators of the documents are called as the captured graph calls them: C and D run before A and B.
"""

import json

import numpy as np
import pytest

from msdump import torchair
from tests.frontends.acl.script import read

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

C, D, A, B = "Softmax", "Softmax_1", "Softmax_2", "Softmax_3"
SIZES = (3, 4)


def chain(x):
    """Four operators that stay apart."""
    return x.softmax(-1).softmax(0).softmax(-1).softmax(0)


def values(x):
    """Return the values of each operator of the chain and of the graph's input."""
    c = x.softmax(-1)
    d = c.softmax(0)
    a = d.softmax(-1)
    return {"arg0_1": x, C: c, D: d, A: a, B: a.softmax(0)}


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    """Start each test with nothing compiled, in a directory of its own, which holds that of the dump."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    torch.compiler.reset()
    torch.manual_seed(0)


def call(config, graph=chain, *, times=1, shift=0):
    """Compile the graph, call it and return input and result of the last call."""
    compiled = torch.compile(graph, backend=torchair.get_npu_backend(compiler_config=config))
    for _ in range(times):
        x = torch.randn(*SIZES) + shift
        y = compiled(x)
    return x, y


def from_file(tmp_path, section):
    """Return the configuration that names a file with this dump section."""
    file = tmp_path / "dump_config.json"
    file.write_text(json.dumps({"dump": section}))
    config = torchair.CompilerConfig()
    config.dump_config.dump_config_path = str(file)
    return config


def dumped(folder):
    """Return the files below a directory by the operator that they are named after, for one call."""
    return {path.name.split(".")[1]: path for path in folder.glob("*/0/graph_*/*/0/*")}


def outputs(paths):
    """Return the first output in each file."""
    return {name: read(path)[1]["output", 0] for name, path in paths.items()}


def test_models(tmp_path):
    """The model example dumps named operators of one graph and nothing of models of other names."""
    config = {"dump_path": "output", "dump_mode": "output", "dump_op_switch": "off", "dump_data": "tensor"}
    before = from_file(tmp_path, config | {"dump_list": [{"model_name": "ResNet-101"}]})
    call(before)
    assert {} == dumped(tmp_path / "output")

    torch.compiler.reset()
    x, _ = call(from_file(tmp_path, config | {"dump_list": [{"layer": [D, B]}]}))

    found = outputs(dumped(tmp_path / "output"))
    assert {D, B} == found.keys()
    np.testing.assert_allclose(values(x)[B].numpy(), found[B], rtol=1e-6)


def test_overflow(tmp_path):
    """The overflow example dumps the operator with an infinite result, input and output, and its record."""
    config = from_file(tmp_path, {"dump_path": "output", "dump_debug": "on"})

    x, y = call(config, lambda x: x.exp().softmax(-1), shift=200)

    found = dumped(tmp_path / "output")
    assert torch.isnan(y).all()
    _, tensors = read(found["Exp"])
    assert {("input", 0), ("output", 0)} == tensors.keys()
    assert np.isinf(tensors["output", 0]).all()
    np.testing.assert_array_equal(x.numpy(), tensors["input", 0])
    assert "Node_OpDebug" in found


def test_watcher(tmp_path):
    """The watcher example dumps C and D when they have run, and again after A and after B, unchanged."""
    section = {
        "dump_list": [{"layer": [A, B], "watcher_nodes": [C, D]}],
        "dump_path": "output",
        "dump_mode": "output",
        "dump_scene": "watcher",
    }

    x, _ = call(from_file(tmp_path, section))

    found = outputs(dumped(tmp_path / "output"))
    held = values(x)
    assert {C, D, *(f"{layer}_To_{watched}" for layer in (A, B) for watched in (C, D))} == found.keys()
    for name, value in found.items():
        np.testing.assert_allclose(held[name.rpartition("_To_")[2]].numpy(), value, rtol=1e-6)
