"""Every configuration of the vendor's documents runs through pyACL's door on a network of its names.

Where a document's text is no JSON (a comma too few or too many, dots in place of
items), it is mended; ``/home/output`` and ``$HOME/output`` stand for a directory of the test.
"""

import json

import numpy as np

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


LAYERS = ["conv1conv1_relu", "res2a_branch2ares2a_branch2a_relu", "res2a_branch1", "pool1"]
MODELS = [{"model_name": "ResNet-101"}, {"model_name": "ResNet-50", "layer": LAYERS}]
OUTPUT = {"dump_path": "/home/output", "dump_mode": "output"}
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
    assert [0, 0, 0] == [acl.init(), acl.mdl.init_dump(), acl.mdl.set_dump(configured(script, section))]


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


def test_range(script):
    """Both closed ranges are dumped and nothing around them."""
    section = OUTPUT | {
        "dump_level": "op",
        "dump_list": [{"model_name": "ResNet-50", "opname_range": IN_RANGE}],
    }
    begin(script, section)

    assert 0 == script.run(script.load(ranges(), "ResNet-50"), np.eye(2, dtype=np.float32))[0]

    assert {"Softmax.conv1", "Transpose.relu1", "Transpose.conv2", "Softmax.pool1"} == operators(script)
