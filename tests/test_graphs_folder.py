"""The committed models of graphs/: small, current, listed, valid and runnable."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

ROOT = Path(__file__).resolve().parents[1]
GRAPHS = ROOT / "graphs"
FILES = sorted(GRAPHS.glob("*.onnx"))
LIMIT = 200_000

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
# What a model needs where random numbers will not do.
FEEDS = {
    "dynamic_shapes": {"x": np.ones((3, 4), np.float32)},
    "if": {"x": FLOATS, "flag": np.array(False)},
    "loop": {"count": np.array(10), "start": np.array([1, 2, 3], np.float32)},
    "strings": {"words": np.array(["a", "B", "c"], object)},
    "transformer": {
        "input_ids": np.arange(16).reshape(2, 8),
        "attention_mask": np.ones((2, 8), np.int64),
        "token_type_ids": np.zeros((2, 8), np.int64),
    },
}
NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int64)": np.int64,
}


@pytest.fixture(scope="module")
def make_graphs():
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("make_graphs", ROOT / "scripts" / "make_graphs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_graphs"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["make_graphs"]


def feeds_of(session: ort.InferenceSession, name: str) -> dict[str, np.ndarray]:
    """Return inputs for every required input of a model."""
    if name in FEEDS:
        return FEEDS[name]
    generator = np.random.default_rng(0)
    return {
        value.name: (generator.random([d if isinstance(d, int) else 2 for d in value.shape]) * 9).astype(
            NUMPY[value.type]
        )
        for value in session.get_inputs()
    }


def run(name: str, feeds: dict[str, np.ndarray] | None = None) -> dict[str, object]:
    """Return the outputs of a committed model, run as a whole; bfloat16 outputs are left out."""
    session = ort.InferenceSession(GRAPHS / f"{name}.onnx", providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs() if output.type != "tensor(bfloat16)"]
    return dict(zip(outputs, session.run(outputs, feeds or feeds_of(session, name)), strict=True))


def test_models_are_made_again_byte_for_byte(make_graphs, tmp_path, monkeypatch):
    """The script makes exactly the committed files; run it after a change of the networks or of itself."""
    monkeypatch.setattr(sys, "argv", ["make_graphs.py", str(tmp_path)])

    make_graphs.main()

    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in GRAPHS.iterdir() if path.is_file()}
    for exported in ("torch_export.onnx", "torch_norm.onnx"):
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_models_run_as_a_whole(path):
    """Onnxruntime runs each model, so a difference operator by operator is msdump's."""
    outputs = run(path.stem)

    assert outputs
    numbers = [
        value for value in outputs.values() if isinstance(value, np.ndarray) and value.dtype.kind == "f"
    ]
    assert all(np.isfinite(value).all() for value in numbers)


def test_if_takes_both_branches():
    """The flag chooses between Relu(x) and Relu(-x)."""
    positive = run("if", {"x": FLOATS, "flag": np.array(True)})["y"]
    negative = run("if", {"x": FLOATS, "flag": np.array(False)})["y"]

    np.testing.assert_array_equal(np.maximum(FLOATS, 0), positive)
    np.testing.assert_array_equal(np.maximum(-FLOATS, 0), negative)


def test_loop_ends_by_its_condition():
    """The loop stops once a value has reached fifty, long before its count."""
    outputs = run("loop")

    np.testing.assert_array_equal([32, 64, 96], outputs["last"])
    assert outputs["history"].shape == (5, 3)


def test_scan_sums_up():
    """The scan gives the running sum of the rows."""
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)

    outputs = run("scan", {"start": np.zeros(3, np.float32), "rows": rows})

    np.testing.assert_array_equal(rows.cumsum(axis=0), outputs["partial"])


def test_passthrough_returns_input_and_weight():
    """Two outputs are the input and the initializer themselves."""
    x = np.ones((2, 2), np.float32)

    outputs = run("passthrough", {"x": x})

    np.testing.assert_array_equal(x, outputs["x"])
    np.testing.assert_array_equal(x + outputs["weight"], outputs["y"])


def test_default_input_may_be_left_out():
    """The bias has a default and needs no feed; a feed replaces it."""
    zeros = np.zeros((2, 4), np.float32)

    default = run("inputs_and_outputs", {"a": zeros, "b": zeros})["sum"]
    replaced = run("inputs_and_outputs", {"a": zeros, "b": zeros, "bias": np.ones(4, np.float32)})["sum"]

    np.testing.assert_array_equal([[1, 2, 3, 4]] * 2, default)
    np.testing.assert_array_equal(np.ones((2, 4)), replaced)


def test_dynamic_model_gives_an_empty_tensor():
    """No element is above the limit, so the list of places has no elements."""
    assert run("dynamic_shapes")["places"].shape == (2, 0)


def test_external_data_stands_in_a_second_file():
    """The weights of the external model are offsets into external_data.bin."""
    model = onnx.load(GRAPHS / "external_data.onnx", load_external_data=False)

    locations = {
        entry.value for w in model.graph.initializer for entry in w.external_data if entry.key == "location"
    }
    assert {"external_data.bin"} == locations
    assert (GRAPHS / "external_data.bin").stat().st_size == (64 * 32 + 32) * 4


def test_nameless_model_has_no_names():
    """No node of the nameless model has a name."""
    model = onnx.load(GRAPHS / "nameless.onnx")

    assert [node.name for node in model.graph.node] == [""] * 4


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
