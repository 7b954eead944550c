"""Captured graphs as files, captured graphs run by torch with a dump, and marked operators."""

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import msdump  # noqa: E402 - only where torch is there
from msdump import torchair  # noqa: E402

NAME = re.compile(r"dynamo_(original_graph|optimized_graph)_\d+_rank_0_pid_\d+_ts_\d{20}\.(\w+)")


class Net(torch.nn.Module):
    """A dense layer, and a result in two parts."""

    def __init__(self):
        """Make the layer."""
        super().__init__()
        self.fc = torch.nn.Linear(4, 6)

    def forward(self, x):
        """Map (N, 4) to two parts of (N, 3)."""
        left, right = torch.split(torch.relu(self.fc(x)), 3, dim=1)
        return left + right, right


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Return a configuration with a new directory for debug files."""
    torch._dynamo.reset()
    debug = tmp_path / "debug"
    debug.mkdir()
    monkeypatch.chdir(tmp_path)
    made = torchair.CompilerConfig()
    made.debug.graph_dump.path = str(debug)
    made.debug.data_dump.path = str(debug)
    return made


def call(config, model, *inputs):
    """Run a model compiled with a configuration; return its outputs."""
    compiled = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))
    with torch.no_grad():
        return compiled(*inputs)


def file_of(folder, kind):
    """Return the text of the one graph file of a kind."""
    (path,) = folder.glob(f"debug/dynamo_{kind}_*")
    return path.read_text(encoding="utf-8")


def operators(text):
    """Return the operators of a graph in protobuf text, line by line as readers do: name -> lines."""
    found = {}
    for block in text.split("\nop {\n")[1:]:
        lines = [line.strip() for line in block.partition("\n}")[0].splitlines()]
        found[lines[0].removeprefix('name: "').removesuffix('"')] = lines
    return found


@pytest.mark.parametrize("kind", ["txt", "pbtxt", "py"])
def test_two_files_for_each_graph(config, tmp_path, kind):
    """A captured graph leaves one file before the device compiles it and one after."""
    config.debug.graph_dump.type = kind

    call(config, Net(), torch.ones(2, 4))

    matches = [NAME.fullmatch(path.name) for path in sorted((tmp_path / "debug").iterdir())]
    assert [("optimized_graph", kind), ("original_graph", kind)] == [match.groups() for match in matches]


def test_no_type_no_files(config, tmp_path):
    """Without a type nothing is written."""
    call(config, Net(), torch.ones(2, 4))

    assert [] == list((tmp_path / "debug").iterdir())


@pytest.mark.parametrize(
    ("operator", "tensors"),
    [
        ("Gemm", ["addmm-aten.addmm.default.OUTPUT.0"]),
        ("Relu", ["relu-aten.relu.default.OUTPUT.0"]),
        ("Add", ["add-aten.add.Tensor.OUTPUT.0"]),
    ],
)
def test_original_graph_names_the_captured_tensors(config, tmp_path, operator, tensors):
    """An output of the original graph names its captured node."""
    config.debug.graph_dump.type = "txt"

    call(config, Net(), torch.ones(2, 4))

    lines = operators(file_of(tmp_path, "original"))[operator]
    places = [at for at, line in enumerate(lines) if line == 'key: "_fx_tensor_name"']
    assert tensors == [lines[at + 2].removeprefix('s: "').removesuffix('"') for at in places]


def test_optimized_graph_is_what_the_device_runs(config, tmp_path):
    """The optimized graph has fused kernels, and transfers that the original one lacks."""
    config.debug.graph_dump.type = "txt"

    call(config, Net(), torch.ones(2, 4))

    before = operators(file_of(tmp_path, "original"))
    after = operators(file_of(tmp_path, "optimized"))
    assert "GemmRelu" in after
    assert "GemmRelu" not in before
    assert not [name for name in before if name.startswith("trans_")]
    assert [name for name in after if name.startswith("trans_TransData")]


def test_python_form_is_python(config, tmp_path):
    """The py form is a function of the graph's inputs, a line for each operator."""
    config.debug.graph_dump.type = "py"

    call(config, Net(), torch.ones(2, 4))

    text = file_of(tmp_path, "original")
    compile(text, "graph.py", "exec")
    assert re.match(r"def graph_\d+\(arg0_1, arg1_1, arg2_1\):\n", text)
    assert "    Relu = ge.ReLU(Gemm)  # DT_FLOAT (2, 6)\n" in text


def test_board_form_has_a_node_for_each_operator(config, tmp_path):
    """The pbtxt form has the operators as TensorFlow's nodes, with their producers."""
    config.debug.graph_dump.type = "pbtxt"

    call(config, Net(), torch.ones(2, 4))

    assert 'node {\n  name: "Relu"\n  op: "ReLU"\n  input: "Gemm:0"\n' in file_of(tmp_path, "original")


def test_unwritable_directory_is_one_error(config, tmp_path):
    """A directory that cannot be made stops the call with the file's name."""
    (tmp_path / "taken").write_text("", encoding="utf-8")
    config.debug.graph_dump.type = "txt"
    config.debug.graph_dump.path = str(tmp_path / "taken" / "below")

    with pytest.raises(Exception, match=r"cannot write .*dynamo_original_graph"):
        call(config, Net(), torch.ones(2, 4))


def test_data_dump_writes_what_torch_computes(config, tmp_path):
    """Every node of the graph that torch runs leaves its inputs and outputs, a directory for each call."""
    config.debug.data_dump.type = "npy"
    model = Net()
    compiled = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))

    with torch.no_grad():
        for value in (1.0, 2.0):
            results = compiled(torch.full((2, 4), value))
            expected = model(torch.full((2, 4), value))

    assert all(torch.equal(mine, its) for mine, its in zip(expected, results, strict=True))
    (graph,) = (tmp_path / "debug" / "worldsize1_global_rank0").glob("graph_*")
    assert ["0", "1"] == sorted(step.name for step in graph.iterdir())
    (total,) = (graph / "1").glob("add-aten.add.Tensor.OUTPUT.0.*.npy")
    assert np.array_equal(expected[0].numpy(), np.load(total))
    places = sorted(path.name.split(".")[3:5] for path in (graph / "1").glob("split-*"))
    assert [["INPUT", "0"], ["OUTPUT", "0"], ["OUTPUT", "1"]] == places


def test_data_dump_widens_bfloat16(config, tmp_path):
    """A bfloat16 tensor is saved as float32."""
    config.debug.data_dump.type = "npy"

    call(config, lambda x: x + 1, torch.ones(2, dtype=torch.bfloat16))

    (path,) = tmp_path.rglob("add-*.OUTPUT.0.*.npy")
    assert np.dtype("<f4") == np.load(path).dtype


def test_data_dump_takes_the_nodes_of_the_filter(config, tmp_path):
    """Nodes for which the filter returns None are run and not dumped."""
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.filter = lambda node: node if "relu" in node.name else None

    call(config, Net(), torch.ones(2, 4))

    assert {"relu-aten"} == {path.name.split(".")[0] for path in tmp_path.rglob("*.npy")}


@pytest.mark.parametrize(
    ("layers", "dumped"),
    [
        pytest.param("", {"Sigmoid"}, id="marked alone"),
        pytest.param("Softmax", {"Sigmoid", "Softmax"}, id="with dump_layer"),
    ],
)
def test_marked_operators_are_dumped(config, tmp_path, layers, dumped):
    """Operators captured inside scope.data_dump are dumped, together with dump_layer."""
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    config.dump_config.dump_mode = "output"
    config.dump_config.dump_layer = layers

    def forward(x):
        x = torch.softmax(x, 1)
        with torchair.scope.data_dump():
            x = torch.sigmoid(x)
        return torch.cumsum(x, 1)

    call(config, forward, torch.ones(2, 4))

    (model,) = msdump.open_dump(tmp_path).models
    names = {record.full_name for record in model.iterations[0].records if record.op_type != "Data"}
    assert dumped == names
