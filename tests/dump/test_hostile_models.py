"""Models that mean harm: each ends soon, in bounded memory, with an error that names file and place."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.dump import nets
from tests.texts import parsed
from tests.world import ROOT, completed

HUGE = 1 << 62
MANY = 1 << 40
IMAGE = [1, 4, 2, 2]

RUNNER = """
import json, resource, signal, sys
from click.testing import CliRunner
from msdump.cli import main

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
found = {}
for path in sys.argv[1:]:
    signal.alarm(20)
    done = CliRunner().invoke(main, ["run", path])
    found[path] = [done.exit_code, done.stderr]
print(json.dumps(found))
"""


def stored(place="data.bin", **fields):
    """Return an Add of a weight that lies in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": place, **fields}.items():
        tensor.external_data.add(key=key, value=value)
    return with_weight(tensor)


def with_weight(*tensors):
    """Return an Add of a weight."""
    model = parsed("graph (float[4] x) => (y) { [add] y = Add(x, w) }")
    model.graph.initializer.extend(tensors)
    return model


def sparse():
    """Return an Add of a sparse weight with a dense form that fills every memory."""
    model = with_weight()
    weight = model.graph.sparse_initializer.add(dims=[MANY])
    weight.values.CopyFrom(numpy_helper.from_array(np.float32([1]), "w"))
    weight.indices.CopyFrom(numpy_helper.from_array(np.int64([1]), "i"))
    return model


def no_utf8():
    """Return a model with external data in a file of a name that is no text."""
    return stored("PLACE").SerializeToString().replace(b"PLACE", b"\xff\xfe\xff\xfe\xff")


def one(op_type, inputs="x", shape=IMAGE, weights=None, **attributes):
    """Return a model of one operator."""
    read = nets.node(op_type, inputs, "y", "bad", **attributes)
    return nets.model([read], [nets.value("x", shape)], ["y"], weights)


def scan(count):
    """Return a Scan that claims to scan so many inputs."""
    body = helper.make_graph(
        [nets.node("Add", "s i", "t"), nets.node("Identity", "t", "o")],
        "body",
        [nets.value("s", [2]), nets.value("i", [2])],
        [nets.value("t", [2]), nets.value("o", [2])],
    )
    node = nets.node("Scan", "a x", "y z", "bad", body=body, num_scan_inputs=count)
    return nets.model([node], [nets.value("a", [2]), nets.value("x", [3, 2])], ["y"])


def functions(**calls):
    """Return a model with functions that call each other."""
    imports = [helper.make_opsetid("", nets.OPSET), helper.make_opsetid("own", 1)]
    made = [
        helper.make_function(
            "own", name, ["a"], ["b"], [helper.make_node(call, ["a"], ["b"], domain="own")], imports
        )
        for name, call in calls.items()
    ]
    call = helper.make_node(next(iter(calls)), ["x"], ["y"], name="call", domain="own")
    graph = helper.make_graph([call], "g", [nets.value("x", [1])], [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=imports, functions=made, ir_version=nets.IR)


def sizes(*numbers):
    """Return an initializer of sizes."""
    return {"s": np.int64(numbers)}


REFUSED = {
    "place with NUL": (stored("a\0b"), "initializer 'w': external data 'a\\x00b' contains a NUL byte"),
    "place that is no text": (no_utf8(), "the text b'\\xff\\xfe\\xff\\xfe\\xff' is not UTF-8"),
    "absolute place": (stored("/etc/passwd"), "external data '/etc/passwd' is outside the model's folder"),
    "place of a device": (stored("zero"), "external data 'zero' is outside the model's folder"),
    "place of a pipe": (stored("pipe"), "external data file 'pipe' cannot be read: not a regular file"),
    "long place": (stored("n" * 5000), "nnn cannot be read: File name too long"),
    "long offset": (stored(offset="9" * 5000), "999 must be a number of bytes"),
    "weight of 2^40 elements": (
        with_weight(TensorProto(name="w", data_type=1, dims=[MANY])),
        "initializer 'w': cannot reshape array of size 0",
    ),
    "weight of negative size": (
        with_weight(TensorProto(name="w", data_type=1, dims=[-4], float_data=[1] * 4)),
        "initializer 'w' has the shape (-4,): sizes must be 0 or more",
    ),
    "sparse weight": (sparse(), "sparse initializer 'w': Unable to allocate"),
    "weight twice": (
        with_weight(*[numpy_helper.from_array(np.ones(4, "f4"), "w")] * 2),
        "'w': is listed 2 times",
    ),
    "input of 2^40 elements": (
        one("Relu", shape=[MANY]),
        "input 'x' of shape (1099511627776,) cannot be made up",
    ),
    "input of many dimensions": (one("Relu", shape=[1] * 9999), "9999 dimensions, numpy has at most 64"),
    "scan of 2^62 inputs": (
        scan(HUGE),
        "node 'bad' (Scan): attribute 'num_scan_inputs' is 4611686018427387904",
    ),
    "block of 2^40": (
        one("DepthToSpace", blocksize=MANY),
        "node 'bad' (DepthToSpace): attribute 'blocksize'",
    ),
    "groups": (one("Conv", "x x", group=HUGE), "node 'bad' (Conv): attribute 'group' is 4611686018427387904"),
    "outputs of a split": (one("Split", num_outputs=HUGE), "attribute 'num_outputs'"),
    "batches": (one("GatherND", "x s", batch_dims=-(1 << 31), weights=sizes(0)), "attribute 'batch_dims'"),
    "samples": (
        one("RoiAlign", "x r s", sampling_ratio=1 << 31, weights=sizes(0) | {"r": np.ones((1, 4), "f4")}),
        "attribute 'sampling_ratio'",
    ),
    "hidden size": (one("RNN", "x x x", shape=[1, 1, 1], hidden_size=HUGE), "attribute 'hidden_size'"),
    "element type": (one("Cast", to=99), "node 'bad' (Cast): attribute 'to' is not an element type"),
    "function of itself": (functions(f="f"), "functions call each other: own::f calls own::f"),
    "ring of functions": (functions(f="g", g="f"), "own::f calls own::g calls own::f"),
}
"""Models that are refused before anything runs, each with its error message."""

FAILING = {
    "fill": one("ConstantOfShape", "s", weights=sizes(MANY)),
    "negative fill": one("ConstantOfShape", "s", weights=sizes(-5)),
    "expand": one("Expand", "x s", weights=sizes(1 << 20, 1 << 20, 1, 1)),
    "pad": one("Pad", "x s", weights=sizes(0, 0, 0, 0, 0, 0, 0, MANY)),
    "tile": one("Tile", "x s", weights=sizes(1, 1, 1, MANY)),
    "resize": one("Resize", "x - s", weights={"s": np.float32([1, 1, 1e6, 1e6])}),
    "window of a pool": one("MaxPool", kernel_shape=[HUGE, HUGE]),
    "axis": one("Concat", "x x", axis=1 << 30),
}
"""Models with one operator, which fails when it runs."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Run every model in one process of bounded memory; return exit code and errors by the model's name."""
    folder = tmp_path_factory.mktemp("hostile")
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "data.bin").write_bytes(bytes(64))
    models = {name: model for name, (model, _) in REFUSED.items()} | FAILING
    for name, model in models.items():
        data = model if isinstance(model, bytes) else model.SerializeToString()
        (folder / f"{name}.onnx").write_bytes(data)
    done = completed(
        sys.executable,
        "-c",
        RUNNER,
        *(folder / f"{name}.onnx" for name in models),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=100,
        check=True,
    )
    return {Path(path).stem: tuple(result) for path, result in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(outcome, name):
    """A model that cannot be meant is refused with its file and the place in it, and nothing runs."""
    code, message = outcome[name]

    assert 2 == code, message
    assert f"{name}.onnx: " in message
    assert REFUSED[name][1] in message
    assert len(message) < 600


@pytest.mark.parametrize("name", FAILING)
def test_failing(outcome, name):
    """An operator that needs more memory than there is fails by its name."""
    code, message = outcome[name]

    assert 1 == code, message
    assert "error: operator Default/" in message
