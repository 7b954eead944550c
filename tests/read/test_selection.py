"""Tensors of a dump that are selected, measured, followed through the graph, and shown as tables."""

import math
from pathlib import Path

import numpy as np
import pytest

import msdump
from msdump.errors import DumpReadError
from msdump.frontends import mindspore
from tests.world import GRAPHS, O2, common_settings

ASCEND = {"device_target": "Ascend"}


def dumped(root, model, context=None, steps=1, feeds=None, **settings):
    """Run a model of graphs/ under a dump of everything, and open the dump."""
    end_to_end = {"enable": True, "trans_flag": True}
    config = {"common_dump_settings": common_settings(root) | settings, "e2e_dump_settings": end_to_end}
    network = msdump.load(GRAPHS / model, config=config, context=context or {})
    for step in range(steps):
        network.run(feeds(step) if feeds else {"x": np.full((1, 1, 32, 32), step, np.float32)})
    mindspore._state.process.close()
    return msdump.open_dump(root)


@pytest.fixture
def lenet(tmp_path):
    """Return two iterations of lenet, inputs and outputs."""
    return dumped(tmp_path / "dump", "lenet.onnx", steps=2)


def test_everything(lenet):
    """Without conditions a selection is every tensor, iteration by iteration, in the order of execution."""
    assert [str(record) for record in lenet.records] == [str(record) for record in lenet.select()]
    assert [0, 1] == sorted({record.iteration for record in lenet.select()})
    assert {0} == {record.rank for record in lenet.select()}


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        ({"scope": "conv1"}, ["Conv2D-op0", "conv1.weight"]),
        ({"scope": "Default/conv2-Conv2d"}, ["Conv2D-op0"]),
        ({"scope": "conv"}, []),
        ({"type": "maxpool"}, ["MaxPool-op0", "MaxPool-op1"]),
        ({"type": ["MaxPool", "Fl*"]}, ["MaxPool-op0", "MaxPool-op1", "Flatten-op0"]),
        ({"name": "Default/fc1-Dense/MatMul-op0"}, ["MatMul-op0"]),
        ({"name": "Default_fc1-Dense_MatMul-op0"}, ["MatMul-op0"]),
        ({"name": "ReLU-op[23]"}, ["ReLU-op2", "ReLU-op3"]),
        ({"name": "*fc3*", "type": "BiasAdd"}, ["BiasAdd-op0"]),
        ({"where": lambda record: record.array.ndim == 4, "type": "ReLU"}, ["ReLU-op0", "ReLU-op1"]),
    ],
)
def test_conditions(lenet, conditions, names):
    """Scope, type, name and any function choose tensors."""
    chosen = lenet.select(io="output", iteration=1, **conditions)
    assert names == [record.full_name.rpartition("/")[2] for record in chosen]


def test_directories_are_listed_when_they_are_needed(lenet, monkeypatch):
    """The first tensor of a selection lists one directory."""
    listed = []
    original = type(lenet.iterations[0]).tensors.func
    monkeypatch.setattr(
        type(lenet.iterations[0]), "tensors", property(lambda self: listed.append(self) or original(self))
    )
    assert lenet.tensors.first is not None
    assert [lenet.iterations[0]] == listed


def test_statistics_of_elements(lenet):
    """Statistics that were not saved are measured from the elements, by their categories."""
    record = lenet.select(type="Conv2D", io="output").first
    array = record.array.astype(np.float64)
    assert math.isclose(float(array.max()), record.stats.max, rel_tol=1e-6)
    assert math.isclose(float(np.linalg.norm(array)), record.stats.l2norm, rel_tol=1e-6)
    assert math.isclose(float(array.mean()), record.stats["avg"], rel_tol=1e-5)
    assert (array.size, 0, False) == (record.stats["count"], record.stats["nan count"], record.stats.has_nan)
    assert {} == dict(record.stats.saved)
    with pytest.raises(KeyError):
        record.stats["md5"]


def test_saved_statistics(tmp_path):
    """Where rows were saved in place of files, each row is a tensor without elements."""
    dump = dumped(
        tmp_path / "dump",
        "lenet.onnx",
        ASCEND,
        saved_data="statistic",
        statistic_category=["max", "l2norm", "md5"],
    )
    record = dump.select(type="Conv2D", io="output").first
    form = record.full_name, record.dtype, record.shape
    assert ("Default/conv1-Conv2d/Conv2D-op0", "float32", (1, 4, 28, 28)) == form
    assert ["max", "l2norm", "md5"] == list(record.stats.saved)
    assert record.stats.min is None
    assert 32 == len(record.stats["md5"])
    with pytest.raises(DumpReadError, match="only its statistics were saved"):
        _ = record.array


def test_files_and_rows(tmp_path):
    """Where both were saved, a tensor has its row's statistics and the rest from its elements."""
    dump = dumped(tmp_path / "dump", "lenet.onnx", ASCEND, saved_data="full", statistic_category=["max"])
    record = dump.select(type="Conv2D", io="output").first
    assert ["max"] == list(record.stats.saved)
    assert math.isclose(float(record.array.min()), record.stats.min)
    assert len(dump.select()) == len(list(dump.records))


def test_neighbours(lenet):
    """A tensor has its operator's sources, its readers, and the line of the program."""
    record = lenet.select(name="Default/conv1-Conv2d/Conv2D-op0", io="output", iteration=1).first
    (relu,) = record.used_by
    image, weight = record.inputs_from
    assert ("ReLU", "Default/relu-ReLU/ReLU-op0") == (relu.op_type, relu.full_name)
    assert [("Parameter", "x"), ("Parameter", "conv1.weight")] == [
        (each.op_type, each.full_name) for each in (image, weight)
    ]
    assert [1] == [each.iteration for each in relu.outputs]
    assert np.array_equal(relu.inputs[0].array, record.array)
    assert np.array_equal(weight.records[0].array, record.operator.inputs[1].array)
    assert ["Default/conv1-Conv2d/Conv2D-op0"] == [each.full_name for each in weight.used_by]
    assert record.source.startswith("layers.py:")
    # of an input: the one that gives it, and its own operator
    (giver,) = relu.inputs[0].inputs_from
    assert record.full_name == giver.full_name
    assert [relu] == list(relu.inputs[0].used_by)


def test_neighbours_of_a_tensor_that_is_no_operator(lenet):
    """A weight is read by operators and made of nothing."""
    record = lenet.select(name="fc1.bias").first
    assert ["Default/fc1-Dense/BiasAdd-op0"] == [each.full_name for each in record.used_by]
    assert () == record.inputs_from
    assert "" == record.source


def test_without_graph_file(tmp_path, lenet):
    """A copy of tensor files alone has no neighbours, and says so by having none."""
    copied = tmp_path / "copied"
    copied.mkdir()
    for path in Path(lenet.iterations[0].path).iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    record = msdump.open_dump(copied).select(type="ReLU", io="output").first
    assert ((), (), "") == (record.inputs_from, record.used_by, record.source)


@pytest.mark.parametrize("saved_data", ["tensor", "statistic"])
def test_first_nonfinite(tmp_path, saved_data):
    """The first NaN or infinity is found in the order of execution, in elements and in statistics."""
    image = np.ones((1, 1, 32, 32), np.float32)

    def feeds(step):
        return {"x": image * (np.float32(3e38) if step else 1)}

    dump = dumped(tmp_path / "dump", "lenet.onnx", ASCEND, 2, feeds, saved_data=saved_data)
    first = dump.first_nonfinite()
    assert (1, "Conv2D", "input") == (first.iteration, first.op_type, first.io)
    assert dump.select(iteration=0).first_nonfinite() is None


def test_masks_are_no_alarm(tmp_path):
    """A tensor of -inf alone is a mask, unless ``masks`` is set."""
    tensor = np.array([-np.inf, 0, 1], np.float32)
    np.save(tmp_path / "Add.Default_Add-op0.0.0.1700000000000000.output.0.DefaultFormat.float32.npy", tensor)
    dump = msdump.open_dump(tmp_path)
    assert dump.first_nonfinite() is None
    assert "Add" == dump.first_nonfinite(masks=True).op_type


def test_compiled_graphs(tmp_path):
    """Dumps of Ascend O2 are selected from alike; their tensors come in the host's layout."""
    dump = dumped(tmp_path / "dump", "lenet.onnx", O2, file_format="bin")
    chosen = dump.select(type="*Conv2D*", io="output")
    assert chosen
    assert {0} == {record.iteration for record in chosen}
    assert chosen[0].host.shape == (1, 4, 28, 28)
    assert chosen[0].stats.max >= float(chosen[0].host.max()) - 1e-3


def test_torn_file(tmp_path, lenet):
    """A torn file is reported where its elements are read, and hides no other tensor."""
    record = lenet.select(type="Flatten", io="output").first
    Path(record.path).write_bytes(b"\x93NUMPY torn")
    with pytest.raises(DumpReadError, match="Flatten"):
        _ = record.stats.max
    assert "unreadable" in lenet.select(type="Flatten")._repr_html_()


def test_tables(lenet):
    """Tables have a row for each tensor, with its place; statistics are measured with ``stats``."""
    pandas = pytest.importorskip("pandas")
    frame = lenet.select(io="output", type="ReLU").to_pandas(stats=True)
    assert isinstance(frame, pandas.DataFrame)
    assert 8 == len(frame)
    assert {"rank", "iteration", "full_name", "slot", "max", "nan count"} <= set(frame.columns)
    assert (frame["min"] >= 0).all()
    assert "max" not in lenet.to_pandas().columns


def test_arrow(lenet):
    """An Arrow table has the same columns."""
    pyarrow = pytest.importorskip("pyarrow")
    table = lenet.select(io="output").to_arrow()
    assert isinstance(table, pyarrow.Table)
    assert table.column("io").to_pylist() == ["output"] * len(lenet.select(io="output"))


def test_missing_library(lenet, monkeypatch):
    """A library that is not installed is named, with the remedy."""
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"msdump\[frames\]"):
        lenet.to_pandas()


def test_notebook(lenet):
    """A notebook shows a dump and a selection as a table, names escaped."""
    page = lenet._repr_html_()
    assert page.startswith("<p>&lt;Dump ")
    assert "Default/conv1-Conv2d/Conv2D-op0" in page
    assert "and more" in page
    assert repr(lenet.select(type="Flatten", io="output")).startswith(
        "<TensorSelection of 2 tensors>\n  Flatten "
    )
