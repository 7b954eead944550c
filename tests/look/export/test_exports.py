"""``msdump report`` for other programs: files for Model Explorer, Netron and TensorBoard."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import types
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from msdump.capture import Process
from msdump.cli import main
from msdump.frontends import mindspore
from msdump.look import export
from msdump.look.report import ReportedOperator

ROOT = Path(__file__).resolve().parents[3]
CULPRIT = "Default/norm-RMSNorm/Mul-op0"


def call(*arguments):
    """Run a command; return exit code and both outputs."""
    done = CliRunner().invoke(main, [*map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _fresh(fresh, quiet):
    """Let each test begin as a new process."""


@pytest.fixture(scope="module")
def model(tmp_path_factory, forks):
    """Build the network that overflows in float16 and return its file."""
    folder = tmp_path_factory.mktemp("model")
    subprocess.run(
        [forks / "python", "sample_nets/build.py", "overflow", "--out", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder / "overflow_b1_s0.onnx"


@pytest.fixture
def dumps(model, tmp_path, monkeypatch):
    """Dump the statistics of three steps in float16 and in float32; return both dumps."""

    def dump(name, config):
        monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))
        monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", str(tmp_path / name))
        config = ROOT / "sample_nets" / "overflow" / config
        code, _, told = call(
            "run", model, "--config", config, "--steps", 3, "--device-target", "Ascend", "--jit-level", "O0"
        )
        assert 0 == code, told
        return tmp_path / name / "debug_dump"

    return dump("mine", "data_dump_statistic.json"), dump("golden", "data_dump_statistic_float32.json")


@pytest.fixture(scope="module")
def builders():
    """Return Model Explorer's builders of node data and graphs, without the server around them."""
    try:
        (package,) = {
            Path(file.locate()).parent
            for file in files("ai-edge-model-explorer")
            if file.name == "node_data_builder.py"
        }
    except PackageNotFoundError:
        pytest.skip("Model Explorer is not installed; scripts/test.sh does so")
    # its own package imports a web server and readers of other formats
    holder = types.ModuleType("model_explorer")
    holder.__path__ = [str(package)]
    sys.modules["model_explorer"] = holder
    yield tuple(
        importlib.import_module(f"model_explorer.{name}") for name in ("node_data_builder", "graph_builder")
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "model_explorer"]:
        del sys.modules[name]


def rebuilt(data, builder):
    """Return node data as Model Explorer's builder writes it."""
    graphs = {
        graph: builder.GraphNodeData(
            results={node: builder.NodeDataResult(**result) for node, result in told["results"].items()},
            name=told["name"],
            gradient=[builder.GradientItem(**item) for item in told.get("gradient", ())],
        )
        for graph, told in data.items()
    }
    return json.loads(builder.ModelNodeData(graphsData=graphs).to_json_string())


def test_node_data_is_what_the_builder_makes(dumps, builders, tmp_path):
    """Each file of data equals the output of Model Explorer's own builder and names nodes of the graph."""
    mine, golden = dumps

    code, text, _ = call("report", mine, golden, "--model-explorer", tmp_path / "me")

    assert 0 == code
    graph = json.loads((tmp_path / "me" / "graph.json").read_text(encoding="utf-8"))
    nodes = {each["id"]: {node["id"] for node in each["nodes"]} for each in graph["graphs"]}
    metrics = sorted(path.name for path in (tmp_path / "me").glob("*.json") if path.name != "graph.json")
    assert {"verdict.json", "distance.json", "own_error.json", "state.json", "max.json"} <= {*metrics}
    assert f"written   {tmp_path}/me: {len(metrics) + 1} files" in text
    for name in metrics:
        data = json.loads((tmp_path / "me" / name).read_text(encoding="utf-8"))
        for number, (graph_id, built) in enumerate(rebuilt(data, builders[0]).items()):
            assert data[graph_id].items() <= {**built, "gradient": built.get("gradient", [])}.items(), name
            assert {*data[graph_id]["results"]} <= nodes[graph_id]
            assert not number


def test_verdict_has_the_fault(dumps, tmp_path):
    """The operator where infinity begins is marked, and no other as such."""
    mine, golden = dumps

    call("report", mine, golden, "--model-explorer", tmp_path / "me")

    (data,) = json.loads((tmp_path / "me" / "verdict.json").read_text(encoding="utf-8")).values()
    assert {"value": "nonfinite", "bgColor": "#d55e00"} == data["results"][CULPRIT]
    assert [CULPRIT] == [name for name, each in data["results"].items() if each["value"] == "nonfinite"]


def test_graph_is_what_the_builder_makes(dumps, builders, tmp_path):
    """The graph has nodes as Model Explorer's builder declares them, with edges from nodes that are there."""
    _, builder = builders

    call("report", dumps[0], "--model-explorer", tmp_path / "me")

    collection = json.loads((tmp_path / "me" / "graph.json").read_text(encoding="utf-8"))
    graphs = [
        builder.Graph(
            id=graph["id"],
            nodes=[
                builder.GraphNode(
                    **node
                    | {
                        "attrs": [builder.KeyValue(**each) for each in node["attrs"]],
                        "incomingEdges": [builder.IncomingEdge(**each) for each in node["incomingEdges"]],
                    }
                )
                for node in graph["nodes"]
            ],
        )
        for graph in builder.GraphCollection(**collection).graphs
    ]
    (graph,) = graphs
    names = [node.id for node in graph.nodes]
    assert len(names) == len({*names})
    assert all(names)
    edges = [edge for node in graph.nodes for edge in node.incomingEdges]
    assert len(edges) > len(names) // 2
    assert {edge.sourceNodeId for edge in edges} <= {*names}
    (culprit,) = (node for node in graph.nodes if node.id == CULPRIT)
    assert ("Mul", "Default/norm-RMSNorm") == (culprit.label, culprit.namespace)


@given(st.lists(st.tuples(st.integers(0, 1), *[st.sampled_from(["", "a", "a#2", "b"])] * 3)))
def test_ids_are_unique_and_never_empty(fields):
    """Whatever operators are called, each has an id of its own in its graph."""
    operators = [ReportedOperator((rank, "g", op_type, file), name) for rank, op_type, file, name in fields]

    ids = export.node_ids(operators)

    assert all(ids)
    assert len(ids) == len({(operator.rank, name) for operator, name in zip(operators, ids, strict=True)})


def test_annotated_model(dumps, model, tmp_path):
    """The nodes of the model tell verdicts, errors and statistics; nothing else of it changes."""
    mine, golden = dumps

    code, text, told = call("report", mine, golden, "--annotate", model, tmp_path / "out.onnx")

    assert 0 == code, told
    before, after = onnx.load(model), onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(after)
    texts = {
        node.name: {each.key: each.value for each in node.metadata_props if each.key.startswith("msdump ")}
        for node in after.graph.node
    }
    (culprit,) = (each for each in texts.values() if each.get("msdump operator") == CULPRIT)
    assert "nonfinite" == culprit["msdump verdict"]
    assert "inf" == culprit["msdump state"]
    assert float(culprit["msdump positive inf count"]) > 0
    assert f"{sum(map(bool, texts.values()))} nodes with texts" in text
    for node in after.graph.node:
        kept = [each for each in node.metadata_props if not each.key.startswith("msdump ")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    assert before == after


def test_annotating_again_replaces(dumps, model, tmp_path):
    """A model that was annotated before has each text once."""
    call("report", dumps[0], "--annotate", model, tmp_path / "once.onnx")
    call("report", dumps[0], "--annotate", tmp_path / "once.onnx", tmp_path / "twice.onnx")

    assert onnx.load(tmp_path / "once.onnx") == onnx.load(tmp_path / "twice.onnx")


def test_weights_in_other_files(dumps, tmp_path):
    """A model with weights in files beside it is written into the folder of these files only."""
    path = ROOT / "graphs" / "external_data.onnx"

    code, _, told = call("report", dumps[0], "--annotate", path, tmp_path / "out.onnx")

    assert 2 == code
    assert "its weights are in other files" in told


FAULTS = {
    "another model": (ROOT / "graphs" / "strings.onnx", "give the model of the dump"),
    "no model": (ROOT / "graphs" / "README.md", "not an ONNX model"),
    "nothing": (ROOT / "graphs" / "none.onnx", "the model cannot be read"),
}


@pytest.mark.parametrize(("path", "message"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_annotated(dumps, tmp_path, path, message):
    """A file that is not the model of the dump is refused."""
    code, _, told = call("report", dumps[0], "--annotate", path, tmp_path / "out.onnx")

    assert 2 == code
    assert message in told
    assert not (tmp_path / "out.onnx").exists()


def accumulated(folder):
    """Return TensorBoard's own reader of a run."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = reader.EventAccumulator(str(folder), size_guidance={"tensors": 0})
    run.Reload()
    return run


def test_tensorboard_reads_scalars(dumps, tmp_path):
    """TensorBoard's reader finds the statistics at their iterations, grouped by scope."""
    code, text, told = call("report", dumps[0], "--tensorboard", tmp_path / "run")

    assert 0 == code, told
    run = accumulated(tmp_path / "run")
    scalars = run.summary_metadata
    tag = "Default.norm-RMSNorm/Mul-op0 output 0 max"
    assert "scalars" == scalars[tag].plugin_data.plugin_name
    assert [(0, np.inf), (1, np.inf), (2, np.inf)] == [
        (event.step, float(event.tensor_proto.float_val[0] if event.tensor_proto.float_val else
                           np.frombuffer(event.tensor_proto.tensor_content, np.float32)[0]))
        for event in run.Tensors(tag)
    ]  # fmt: skip
    assert "events of 12 tensors" in text


def test_tensorboard_reads_histograms(dumps, tmp_path):
    """The spread of a statistic over all operators is a histogram at each iteration."""
    call("report", dumps[0], "--tensorboard", tmp_path / "run")

    run = accumulated(tmp_path / "run")
    tag = "all operators/max of their outputs"
    assert "histograms" == run.summary_metadata[tag].plugin_data.plugin_name
    events = run.Tensors(tag)
    bins = np.frombuffer(events[0].tensor_proto.tensor_content, np.float64).reshape(-1, 3)
    assert [0, 1, 2] == [event.step for event in events]
    assert 30 == len(bins)
    assert (bins[:-1, 1] == bins[1:, 0]).all()
    assert 1 < bins[:, 2].sum() < 12


def test_tags_are_capped(dumps, tmp_path):
    """Of many tensors the ones that are not finite are reported first, with the number of the others."""
    _, text, _ = call("report", dumps[0], "--tensorboard", tmp_path / "run", "--tensorboard-tensors", 2)

    tags = {tag for tag in accumulated(tmp_path / "run").summary_metadata if tag.startswith("Default")}
    assert 2 == len({tag.rpartition(" output ")[0] for tag in tags})
    assert any(tag.startswith("Default.norm-RMSNorm/Mul-op0 ") for tag in tags)
    assert "of 2 tensors (10 more tensors: --tensorboard-tensors)" in text


def test_a_missing_package_is_named(dumps, tmp_path, monkeypatch):
    """Without tensorboard the message names the pip command."""
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)

    code, _, told = call("report", dumps[0], "--tensorboard", tmp_path / "run")

    assert 2 == code
    assert 'pip install "msdump[tensorboard]"' in told


def test_no_page_unless_asked_for(dumps, tmp_path, monkeypatch):
    """With other files alone no page is written, with -o it is."""
    monkeypatch.chdir(tmp_path)

    call("report", dumps[0], "--model-explorer", tmp_path / "me")
    assert not (tmp_path / "report.html").exists()
    call("report", dumps[0], "--model-explorer", tmp_path / "me", "-o", "page.html")
    assert (tmp_path / "page.html").exists()
