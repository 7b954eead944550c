"""Every configuration of the vendor's documents runs through pyACL's door on a network of its names.

Where a document's text is no JSON (a comma too few or too many, dots in place of
items), it is mended; ``/home/output`` and ``$HOME/output`` stand for a directory of the test.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from msdump import acl
from tests.frontends.acl.script import read
from tests.texts import parsed

RNG = np.random.default_rng(3)
SHAPES = {"w1": (4, 1, 3, 3), "w2": (4, 4, 3, 3), "w3": (4, 4, 1, 1)}
WEIGHTS = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
IMAGE = RNG.normal(size=(1, 1, 8, 8)).astype(np.float32)


def resnet():
    """Return the first operators of ResNet by the documents' names."""
    return parsed(
        """graph (float[1,1,8,8] image) => (y) {
            [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(image, w1)
            [conv1_relu] r1 = Relu(c1)
            [pool1] p1 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r1)
            [res2a_branch2a] c2 = Conv<pads = [1, 1, 1, 1]>(p1, w2)
            [res2a_branch2a_relu] r2 = Relu(c2)
            [res2a_branch1] c3 = Conv(p1, w3)
            [res2a] y = Add(r2, c3)
        }""",
        **WEIGHTS,
    )


def ranges():
    """Return a network with operators of the names of the documents' ranges, which do not fuse."""
    return parsed(
        """graph (float[2,2] x) => (y) {
            [first] v0 = Transpose(x) [conv1] v1 = Softmax(v0) [relu1] v2 = Transpose(v1)
            [between] v3 = Softmax(v2) [conv2] v4 = Transpose(v3) [pool1] v5 = Softmax(v4)
            [last] y = Transpose(v5)
        }"""
    )


def letters():
    """Return a network of four operators A to D; C and D run first, and all stay apart."""
    return parsed(
        """graph (float[2,2] x) => (y) {
            [C] c = Softmax(x) [D] d = Transpose(c) [A] a = Softmax(d) [B] b = Transpose(a) [E] y = Add(b, c)
        }"""
    )


LAYERS = ["conv1conv1_relu", "res2a_branch2ares2a_branch2a_relu", "res2a_branch1", "pool1"]
MODELS = [{"model_name": "ResNet-101"}, {"model_name": "ResNet-50", "layer": LAYERS}]
OUTPUT = {"dump_path": "/home/output", "dump_mode": "output"}
BLOCKED = [{"name": "conv", "pos": ["input0", "input1"]}]
IN_RANGE = [{"begin": "conv1", "end": "relu1"}, {"begin": "conv2", "end": "pool1"}]

SELECTED = {
    "Conv2D.conv1conv1_relu",
    "Conv2D.res2a_branch2ares2a_branch2a_relu",
    "Conv2D.res2a_branch1",
    "MaxPool.pool1",
    "Data.image",
}
ALL = SELECTED | {"Add.res2a"}

MODEL_DUMP = OUTPUT | {"dump_list": MODELS, "dump_op_switch": "off", "dump_data": "tensor"}


def configured(script, section):
    """Return the path of a file with the section, its directory in place of the document's."""
    path = section.get("dump_path")
    placed = section if path is None else section | {"dump_path": str(script.path)}
    return script.configure(json.loads(json.dumps(placed)))


def begin(script, section):
    """Initialise and take the section."""
    assert [0, 0, 0] == [
        acl.init(),
        acl.mdl.init_dump(),
        acl.mdl.set_dump(configured(script, section)),
    ]


def operators(script, directory=""):
    """Return ``{type}.{name}`` of the operators below a directory, transfers left out."""
    names = (name.rpartition("/")[2].split(".") for name in script.files() if f"/{directory}" in name)
    return {f"{kind}.{name}" for kind, name, *_ in names if not name.startswith("trans_")}


def test_models(script):
    """Of ResNet-101 everything is dumped, of ResNet-50 the four layers and the data they read."""
    begin(script, MODEL_DUMP)

    for name in ("ResNet-101", "ResNet-50", "ResNet-18"):
        assert 0 == script.run(script.load(resnet(), name), IMAGE)[0]

    assert ALL == operators(script, "ResNet-101/1/0/")
    assert SELECTED == operators(script, "ResNet-50/2/0/")
    assert ALL == operators(script)
    for path in script.path.rglob("Conv2D.conv1conv1_relu.*"):
        header, tensors = read(path)
        assert "conv1conv1_relu" == header.op_name
        assert {("output", 0)} == set(tensors)
        assert (1, 4, 8, 8) == header.outputs[0].original_shape


SINGLE_OPERATORS = {
    "aclmdlSetDump, one operator": {
        "dump_path": "/home/output",
        "dump_list": [{}],
        "dump_op_switch": "on",
        "dump_data": "tensor",
    },
    "offline model, one operator": {
        "dump_path": "output",
        "dump_list": [],
        "dump_op_switch": "on",
        "dump_data": "tensor",
    },
}


@pytest.mark.parametrize("section", SINGLE_OPERATORS.values(), ids=SINGLE_OPERATORS)
def test_single_operators(script, section):
    """A single operator is dumped below time and device, as operator and as kernel."""
    from tests.frontends.acl.test_operators import call

    begin(script, section)
    x = np.float32([[1, 2]])

    assert (0, 0) == call("Add", [x, x], (np.float32, (1, 2)))[:2]

    assert ["{time}/0/Add.Add.0.0", "{time}/0/Add.aclnnAdd_0_AddAiCore.0.0"] == script.files()
    assert np.array_equal(x + x, script.read("Add.Add.*")[1]["output", 0])


@pytest.mark.parametrize("key", ["optype_blacklist", "opname_blacklist"])
def test_black_lists_as_they_stand(script, key):
    """The documents' black lists lack dump_level op and are refused, as CANN's source refuses them."""
    section = {
        "dump_path": "/home/output",
        "dump_mode": "input",
        "dump_list": [{"model_name": "ResNet-50", key: BLOCKED}],
    }

    assert [0, 0, 100009] == [
        acl.init(),
        acl.mdl.init_dump(),
        acl.mdl.set_dump(configured(script, section)),
    ]
    assert (
        "When configuration item dump_level is not set to op,"
        f" configuration item dump_list[0].{key} cannot be configured"
    ) in acl.get_recent_err_msg()


@pytest.mark.parametrize("key", ["optype_blacklist", "opname_blacklist"])
def test_black_list_that_is_no_json(script, key):
    """The documents' text itself, without a comma between name and pos, is no JSON: 100009."""
    text = f"""{{"dump":{{"dump_list":[{{"model_name":"ResNet-50","{key}":[{{
        "name":"conv"
        "pos":["input0", "input1"]}}]}}],"dump_path":"/home/output","dump_mode":"input",}}}}"""

    assert [0, 0, 100009] == [
        acl.init(),
        acl.mdl.init_dump(),
        acl.mdl.set_dump(script.configure(text=text)),
    ]
    assert "line 3: invalid JSON" in acl.get_recent_err_msg()


CONVOLUTIONS = {name for name in ALL if name.startswith("Conv2D")}
BLACK_LISTS = {
    "optype_blacklist": ([{"name": "Conv2D", "pos": ["input0", "input1"]}], CONVOLUTIONS),
    "opname_blacklist": ([{"name": "pool1", "pos": ["input0", "input1"]}], {"MaxPool.pool1"}),
}


@pytest.mark.parametrize(("key", "case"), BLACK_LISTS.items(), ids=BLACK_LISTS)
def test_black_lists_at_level_op(script, key, case):
    """With dump_level op the inputs of the named operators are left out, and no others."""
    entries, left_out = case
    section = {
        "dump_path": "/home/output",
        "dump_mode": "input",
        "dump_level": "op",
        "dump_list": [{"model_name": "ResNet-50", key: entries}],
    }
    begin(script, section)

    assert 0 == script.run(script.load(resnet(), "ResNet-50"), IMAGE)[0]

    assert ALL - {"Data.image"} - left_out == operators(script)


def test_range(script):
    """Both closed ranges are dumped and nothing around them."""
    section = OUTPUT | {
        "dump_level": "op",
        "dump_list": [{"model_name": "ResNet-50", "opname_range": IN_RANGE}],
    }
    begin(script, section)

    assert 0 == script.run(script.load(ranges(), "ResNet-50"), np.eye(2, dtype=np.float32))[0]

    assert {"Softmax.conv1", "Transpose.relu1", "Transpose.conv2", "Softmax.pool1"} == operators(script)


def test_steps(script):
    """dump_step 0|3-5|10 dumps these executions of eleven."""
    section = OUTPUT | {"dump_list": MODELS, "dump_op_switch": "off", "dump_step": "0|3-5|10"}
    begin(script, section)
    model_id = script.load(resnet(), "ResNet-50")

    for _ in range(12):
        script.run(model_id, IMAGE)

    assert {0, 3, 4, 5, 10} == {int(name.split("/")[4]) for name in script.files()}


def test_statistics(script):
    """dump_data stats with Max and Min writes their columns for each output."""
    section = OUTPUT | {"dump_list": MODELS, "dump_data": "stats", "dump_stats": ["Max", "Min"]}
    begin(script, section)

    script.run(script.load(resnet(), "ResNet-50"), IMAGE)

    (path,) = script.path.rglob("MaxPool.pool1.*.csv")
    title, row = path.read_text().splitlines()
    assert "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value,Min Value" == title
    assert ["Output", "0"] == row.split(",")[:2]
    assert 9 == len(row.split(","))


def test_exception(script):
    """A brief exception dump writes nothing while nothing fails, then the operator that does."""
    begin(script, {"dump_path": "output", "dump_scene": "aic_err_brief_dump"})
    proto = parsed("graph (float[2] x, int64[1] i) => (y) { [gather] y = Gather(x, i) }")
    model_id = script.load(proto)

    assert 0 == script.run(model_id, np.float32([1, 2]), np.array([1]))[0]
    assert [] == script.files()
    assert 500002 == script.run(model_id, np.float32([1, 2]), np.array([5]))[0]

    (name,) = script.files()
    assert name.startswith("extra-info/data-dump/0/exception_info.0.0.")


def test_overflow(script):
    """An overflow dump writes the operators whose results are infinite, and their records."""
    begin(script, {"dump_path": "output", "dump_debug": "on"})
    proto = parsed("graph (float[2,2] x) => (y) { [exp] e = Exp(x) [turn] y = Transpose(e) }")

    assert 0 == script.run(script.load(proto), np.float32([[1, 2], [3, 400]]))[0]

    assert {"Exp.exp", "Transpose.turn", "Opdebug.Node_OpDebug"} == operators(script)


WATCHER = {
    "dump_list": [{"layer": ["A", "B"], "watcher_nodes": ["C", "D"]}],
    "dump_path": "/home/",
    "dump_mode": "output",
    "dump_scene": "watcher",
}


def test_watcher(script):
    """After A and B the outputs of C and D are dumped again, and after C and D their own."""
    begin(script, WATCHER)

    assert 0 == script.run(script.load(letters()), np.eye(2, dtype=np.float32))[0]

    assert {
        "Softmax.C",
        "Transpose.D",
        "Softmax.A_To_C",
        "Transpose.A_To_D",
        "Softmax.B_To_C",
        "Transpose.B_To_D",
    } == operators(script)
    own = script.read("Softmax.C.*")[1]["output", 0]
    for layer in "AB":
        header, tensors = script.read(f"Softmax.{layer}_To_C.*")
        assert f"{layer}_To_C" == header.op_name
        assert own.tobytes() == tensors["output", 0].tobytes()
