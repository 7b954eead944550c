"""Operator graphs read from GE's files; files of graphs that have none."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump.cli.compile import write_graph_file
from msdump.errors import DumpReadError
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.read import (
    SourceKind,
    ValueForm,
    ValueSource,
    open_dump,
    read_ge,
    read_pb,
)
from tests.read.written import put

O2 = Context(DeviceTarget.ASCEND, JitLevel.O2)
BUILD = """\
graph {
  name: "net"
  op { }
  op {
    name: "x"
    type: "Data"
    output_desc {
      dtype: DT_FLOAT
      shape {
        dim: 2
        dim: 3
      }
    }
  }
  op {
    name: "w\\346\\235\\203"
    type: "Const"
  }
  op {
    name: "conv1conv1_relu"
    type: "Conv2D"
    input: "x:0"
    input: "w\\346\\235\\203:0"
    input: ""
    input: "x:-1"
    attr {
      key: "_datadump_original_op_names"
      value {
        list {
          s: "conv1"
          s: "conv1_relu"
        }
      }
    }
    output_desc {
      dtype: DT_FLOAT16
      attr {
        key: "origin_shape"
        value {
          list {
            i: 2
            i: -1
          }
        }
      }
    }
  }
  op {
    name: "Node_Output"
    type: "NetOutput"
    input: "conv1conv1_relu:0"
  }
}
"""


def test_text_of_ge(tmp_path):
    """Operators, their originals, inputs and outputs are read from protobuf's text form."""
    (graph,) = read_ge(put(tmp_path / "ge_proto_00000004_graph_0_Build.txt", BUILD)).values()

    conv = graph.operators["conv1conv1_relu"]
    assert ["net", ("conv1", "conv1_relu")] == [graph.name, conv.onnx_names]
    assert (
        ValueSource(SourceKind.INPUT, "x"),
        ValueSource(SourceKind.WEIGHT, "w权"),
        ValueSource(SourceKind.ABSENT),
    ) == conv.inputs
    assert (ValueForm("float16", (2, -1)),) == conv.outputs
    assert {"x": ValueForm("float32", (2, 3))} == graph.inputs
    assert (ValueSource(SourceKind.OPERATOR, "conv1conv1_relu"),) == graph.outputs


@pytest.mark.parametrize("model", ["transformer", "if", "loop", "torch_export"])
def test_both_forms_of_ge(tmp_path, model):
    """The JSON and the text of a compiled model give the same graphs, bodies called by their operators."""
    paths = [str(tmp_path / f"{model}{suffix}") for suffix in (".json", ".txt")]
    for path in paths:
        write_graph_file(loader.load(f"graphs/{model}.onnx"), path, O2)

    graphs, others = map(read_ge, paths)

    assert graphs == others
    read = {each.kind for graph in graphs.values() for one in graph.operators.values() for each in one.inputs}
    assert SourceKind.ABSENT not in read
    assert all(graph.caller in graphs[0].operators for number, graph in graphs.items() if number)


def test_graph_of_a_compiled_model(tmp_path):
    """Where GE's last stage lies in a dump of compiled models, it has their graphs, by their names."""
    place = tmp_path / "0/20260101000000/0/net/1/0"
    place.mkdir(parents=True)
    files = tmp_path / "pid_7_deviceid_0"
    put(files / "ge_proto_00000004_graph_0_Build.txt", BUILD)
    put(
        files / "ge_proto_00000009_graph_1_Build.txt",
        BUILD.replace('"net"', '"other"').replace("Conv2D", "X"),
    )
    put(files / "ge_proto_00000010_graph_1_PreRunAfterBuild.txt", "torn {")

    (model,) = open_dump(tmp_path).models

    assert model.operator_graph.operators["conv1conv1_relu"].op_type == "Conv2D"
    (files / "ge_proto_00000004_graph_0_Build.txt").write_text("torn {", encoding="utf-8")
    assert open_dump(tmp_path).models[0].operator_graph is not None
    put(files / "ge_proto_00000011_graph_1_Build.txt", BUILD.replace('"net"', '"third"'))
    assert open_dump(tmp_path).models[0].operator_graph is None


def test_unlistable_directory_of_graph_files_is_told(tmp_path, caplog, monkeypatch):
    """A dump beside GE's directory that may not be listed is read without its graph, and a line says so."""
    (tmp_path / "0/20260101000000/0/net/1/0").mkdir(parents=True)
    folder = tmp_path / "pid_7_deviceid_0"
    put(folder / "ge_proto_00000004_graph_0_Build.txt", BUILD)
    scandir = os.scandir

    def refusing(path="."):
        if str(path) == str(folder):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)

    assert open_dump(tmp_path).models[0].operator_graph is None
    assert [f"{folder}: Permission denied; its graph files are left out"] == caplog.messages


FILES = ["", "{}", "graph: 3", '{"graph": 3}', '{"graph": [{"op": [{"attr": 3}]}]}', "\x0a\xff", "graph {"]


@pytest.mark.parametrize(("reader", "name"), [(read_ge, "a.txt"), (read_ge, "a.json"), (read_pb, "a.pb")])
@pytest.mark.parametrize("text", FILES)
def test_files_without_a_graph(tmp_path, reader, name, text):
    """A file without a graph is refused by its name, or gives one without an operator."""
    path = put(tmp_path / name, text)

    assert outcome(reader, path) in {"refused", 0}


@given(st.binary(max_size=200))
def test_any_message(tmp_path_factory, data):
    """Whatever bytes a .pb file holds, reading gives a graph or names the file."""
    path = tmp_path_factory.getbasetemp() / "any.pb"
    path.write_bytes(data)

    assert outcome(read_pb, str(path)) is not None


def outcome(reader, path):
    """Return the number of operators that a reader finds, or that it refuses the file, which it names."""
    try:
        read = reader(path)
    except DumpReadError as error:
        return "refused" if Path(path).name in str(error) else None
    return sum(len(graph.operators) for graph in (read.values() if isinstance(read, dict) else [read]))
