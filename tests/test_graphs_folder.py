"""The committed models of graphs/: small, current, listed, valid and runnable."""

import importlib.util
import sys

import onnx
import pytest

from tests.world import ROOT

GRAPHS = ROOT / "graphs"
FILES = sorted(GRAPHS.glob("*.onnx"))
LIMIT = 200_000


@pytest.fixture(scope="module")
def make_graphs():
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("make_graphs", ROOT / "scripts" / "make_graphs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_graphs"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["make_graphs"]


def test_models_are_made_again_byte_for_byte(make_graphs, tmp_path, monkeypatch):
    """The script makes exactly the committed files; run it after a change of the networks or of itself."""
    monkeypatch.setattr(sys, "argv", ["make_graphs.py", str(tmp_path)])

    make_graphs.main()

    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in GRAPHS.iterdir() if path.is_file()}
    for exported in ("torch_export.onnx", "torch_norm.onnx", "mindspore_cnn.mindir", "mindspore_cnn.py"):
        committed.pop(exported)
    assert sorted(committed) == sorted(made)
    assert [name for name in sorted(made) if made[name] != committed[name]] == []


def test_table_lists_every_model(make_graphs):
    """The README's table has one row per committed file."""
    listed = [line.split("`")[1] for line in make_graphs.table(GRAPHS).splitlines() if "`" in line]

    assert sorted(path.name for path in FILES) == sorted(listed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_models_are_small_and_valid(path):
    """Each model passes onnx's checker, is small and carries no path of the machine that made it."""
    onnx.checker.check_model(path)

    content = path.read_bytes()
    assert len(content) < LIMIT
    assert not [
        mark
        for mark in (b"/home/", b"/root", b"/tmp", b"/work", b"/usr", b"site-packages")
        if mark in content
    ]


def test_exported_model_keeps_modules_and_lines():
    """PyTorch's metadata names the modules and lines that stand in torch_export/net.py."""
    model = onnx.load(GRAPHS / "torch_export.onnx")
    source = (GRAPHS / "torch_export" / "net.py").read_text(encoding="utf-8").splitlines()

    first = {entry.key: entry.value for entry in model.graph.node[0].metadata_props}
    line = source.index("        x = self.stem(x)") + 1
    assert first["pkg.torch.onnx.name_scopes"] == "['', 'stem', 'conv2d']"
    assert (
        first["pkg.torch.onnx.class_hierarchy"]
        == "['net.Net', 'torch.nn.modules.conv.Conv2d', 'aten.conv2d.default']"
    )
    trace = first["pkg.torch.onnx.stack_trace"].splitlines()
    assert trace[:2] == [f'File "net.py", line {line}, in forward', "    x = self.stem(x)"]
    assert trace[2].startswith('  File "torch/nn/modules/conv.py", line ')
