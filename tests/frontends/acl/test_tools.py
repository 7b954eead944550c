"""The tools on dumps of pyACL's door, with tensors of every odd kind."""

import csv
import re

import numpy as np
import onnx
import pytest

from msdump import acl
from tests.dump.nets import model, node, value
from tests.frontends.acl.script import dataset, read
from tests.world import cli

X = np.float32([[-1, 0.5, 200], [3, -90, 0]])
"""Exp of it overflows, Log of it is NaN and -inf."""
CASTS = {
    "half": onnx.TensorProto.FLOAT16,
    "brain": onnx.TensorProto.BFLOAT16,
    "double": onnx.TensorProto.DOUBLE,
    "int8": onnx.TensorProto.INT8,
    "int64": onnx.TensorProto.INT64,
    "flag": onnx.TensorProto.BOOL,
    "float8": onnx.TensorProto.FLOAT8E4M3FN,
}


def network():
    """Return operators with results of many types, an empty one, one without axes, and some not finite."""
    nodes = [
        node("Exp", "x", "e", 'Größe, "exp"'),
        node("Log", "x", "l", "名前/log"),
        node("Slice", "x zero zero zero", "none", "empty"),
        node("ReduceMax", "x", "single", "scalar", keepdims=0),
        *(node("Cast", "x", kind, f"to {kind}", to=number) for kind, number in CASTS.items()),
    ]
    inputs, outputs = [value("x", [2, 3])], ["e", "l", "none", "single", *CASTS]
    return model(nodes, inputs, outputs, {"zero": np.zeros(1, np.int64)})


def run(script, section):
    """Dump one run of the network."""
    script.begin(section, msdump={"precision_mode": "must_keep_origin_dtype"})
    model_id, outputs = script.load(network()), acl.mdl.create_dataset()
    for _ in range(4 + len(CASTS)):
        assert 0 == acl.mdl.add_dataset_buffer(outputs, acl.create_data_buffer(0, 0))[1]
    assert 0 == acl.mdl.execute(model_id, dataset(X), outputs)


def call(*arguments):
    """Call msdump; return its output."""
    done = cli(*arguments)
    assert 0 == done.exit_code, done.output
    return done.stdout


@pytest.fixture
def dumped(script):
    """Give a script that has dumped every operator."""
    run(script, {"dump_list": [{}], "dump_mode": "all"})
    return script


def test_every_tensor_is_converted(dumped):
    """Convert gives each tensor of a dump as the array that the reader reads."""
    out = dumped.folder / "out"

    call("convert", "-d", dumped.path, "-out", out)

    found = [np.load(path) for path in out.rglob("*.npy")]
    assert sorted(map(written, tensors(dumped.path))) == sorted(map(written, found))


def tensors(root):
    """Return the tensors of all files: a graph input, inputs and outputs of the operators."""
    found = [tensor for path in root.rglob("*.*.*.*.*") for tensor in read(path)[1].values()]
    assert 1 + 2 * (4 + len(CASTS)) + 3 == len(found)
    return found


def written(array):
    """Return shape and values of an array; types that numpy lacks widen."""
    return str((array.shape, array.astype(np.float64).tolist()))


def test_dump_agrees_with_itself(dumped):
    """Compare finds every tensor of a dump equal to itself."""
    said = call("compare", dumped.path, dumped.path, "-out", dumped.folder / "out")

    (table,) = (dumped.folder / "out").rglob("*.csv")
    rows = list(csv.DictReader(table.open(newline="", encoding="utf-8")))
    assert len(tensors(dumped.path)) == len(rows)
    assert {("equal", "0")} == {(row["Verdict"], row["Distance"]) for row in rows}
    assert f"{len(rows)} agree ({len(rows)} exactly), 0 differ, 0 failed" in said


def test_overflows_are_told(script):
    """Overflow joins the record of each overflow with the dump of the operator, which it converts."""
    run(script, {"dump_debug": "on"})

    said = call("overflow", script.path, "-out", script.folder / "out")

    assert ['[Exp] Größe, "exp"', "[Log] 名前/log"] == re.findall(r"^\[[A-Z][a-z]+\] .*$", said, re.MULTILINE)
    assert "2 of 2 overflows" in said
    converted = {path.name.partition(".")[0]: np.load(path) for path in script.folder.rglob("*.output.0.npy")}
    assert np.array_equal(np.isinf(converted["Exp"]), X > 100)
    assert np.array_equal(np.isnan(converted["Log"]), X < 0)
