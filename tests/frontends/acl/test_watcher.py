"""The watcher: outputs of watched operators, written again after other operators."""

import logging
import re

import numpy as np
import pytest

from msdump import acl
from tests.frontends.acl.script import read
from tests.texts import parsed

PLAIN = {"msdump": {"precision_mode": "must_keep_origin_dtype"}}
X = np.linspace(0.5, 2, 128, dtype=np.float32).reshape(2, 64)
SOFTMAX = np.exp(X) / np.exp(X).sum(1, keepdims=True)


def network():
    """Return Softmax, Transpose, Softplus and the product of both in a row."""
    return parsed(
        """graph (float[2,64] x) => (y) {
            [softmax] s = Softmax(x) [transpose] t = Transpose(s) [softplus] p = Softplus(t)
            [back] q = Transpose(p) [mul] y = Mul(s, q)
        }"""
    )


def begin(script, item, **settings):
    """Set the watcher's dump with one item of dump_list; without PLAIN's settings the device's types hold."""
    section = {"dump_scene": "watcher", "dump_mode": "output", "dump_list": [item]}
    script.begin(section | settings, **PLAIN)


def watch(script, item, proto=None, **settings):
    """Run a network under the watcher; return its output."""
    begin(script, item, **settings)
    ret, (output,) = script.run(script.load(network() if proto is None else proto), X)
    assert 0 == ret
    return output


def names(script):
    """Return the files of the one execution in the order of their times, without these."""
    found = [path for path in script.path.rglob("*") if path.is_file()]
    found.sort(key=lambda path: re.search(r"\.(\d{16})", path.name)[1])
    return [re.sub(r"\.\d{16}", "", path.name) for path in found]


def outputs(script, pattern):
    """Yield name and output of each file."""
    for path in script.path.rglob(pattern):
        header, tensors = read(path)
        yield header.op_name, tensors["output", 0]


SELECTIONS = {
    "no layer": (
        {"watcher_nodes": ["transpose"]},
        [
            "Transpose.transpose.1.0",
            "Transpose.softplus_To_transpose.2.0",
            "Transpose.back_To_transpose.3.0",
            "Transpose.mul_To_transpose.4.0",
        ],
    ),
    "layers": (
        {"watcher_nodes": ["transpose"], "layer": ["mul", "softplus"]},
        ["Transpose.transpose.1.0", "Transpose.softplus_To_transpose.2.0", "Transpose.mul_To_transpose.4.0"],
    ),
    "layer before": ({"watcher_nodes": ["transpose"], "layer": ["softmax"]}, ["Transpose.transpose.1.0"]),
    "own layer": ({"watcher_nodes": ["transpose"], "layer": ["transpose"]}, ["Transpose.transpose.1.0"]),
    "two watched": (
        {"watcher_nodes": ["softmax", "transpose"], "layer": ["transpose", "mul"]},
        [
            "Softmax.softmax.0.0",
            "Transpose.transpose.1.0",
            "Softmax.mul_To_softmax.4.0",
            "Transpose.mul_To_transpose.4.0",
        ],
    ),
    "unknown": (
        {"watcher_nodes": ["none", "softplus"], "layer": ["back"]},
        ["Softplus.softplus.2.0", "Softplus.back_To_softplus.3.0"],
    ),
}


@pytest.mark.parametrize(("item", "expected"), SELECTIONS.values(), ids=SELECTIONS)
def test_files(script, item, expected):
    """Each layer's file has the watched type, both names, and the task and stream of the layer."""
    watch(script, item)

    assert expected == names(script)


def test_collectives_are_no_layers(script):
    """Watched outputs are not read again after an operator that exchanges tensors of ranks."""
    proto = parsed("""graph (float[2,64] x) => (y) { [first] a = Softmax(x)
        [sum] b = mindspore.ops.AllReduce<op = "sum">(a) [last] y = Softplus(b) }""")
    proto.opset_import.add(domain="mindspore.ops", version=1)

    watch(script, {"watcher_nodes": ["first"]}, proto)

    assert ["Softmax.first", "Softmax.last_To_first"] == [name.rsplit(".", 2)[0] for name in names(script)]


def test_operators_without_a_task_are_not_watched(script):
    """The device does not run a change of shape: it is neither watched nor a layer."""
    text = (
        "graph (float[2,64] x) => (y) { [first] a = Softmax(x) [flat] b = Flatten(a) [last] y = Softplus(b) }"
    )

    watch(script, {"watcher_nodes": ["first", "flat"]}, parsed(text))

    assert ["Softmax.first", "Softmax.last_To_first"] == [name.rsplit(".", 2)[0] for name in names(script)]


def test_last_item_counts(script):
    """Of several items of dump_list the last one counts."""
    items = [{"watcher_nodes": ["softmax"]}, {"watcher_nodes": ["back"]}]

    script.begin({"dump_scene": "watcher", "dump_mode": "output", "dump_list": items})
    script.run(script.load(network()), X)

    assert ["Transpose.back.3.0", "Transpose.mul_To_back.4.0"] == names(script)


def test_contents_of_a_sound_network(script):
    """A watched output reads the same after every operator: its memory is not given to others."""
    output = watch(script, {"watcher_nodes": ["softmax"]})

    tensors = [read(path)[1]["output", 0] for path in script.path.rglob("Softmax.*")]
    assert 5 == len(tensors)
    assert all(np.array_equal(tensors[0], tensor) for tensor in tensors)
    assert np.allclose(SOFTMAX, tensors[0], atol=1e-6)
    assert np.allclose(SOFTMAX * np.log1p(np.exp(SOFTMAX)), output, atol=1e-6)


def test_header_names_both_operators(script):
    """The header has the name as it was before file names were made of it, and the watched output alone."""
    watch(script, {"watcher_nodes": ["softmax"], "layer": ["mul"]})

    own, _ = script.read("Softmax.softmax.*")
    later, _ = script.read("Softmax.mul_To_softmax.*")
    assert ("softmax", "mul_To_softmax") == (own.op_name, later.op_name)
    assert ((), 1, own.outputs) == (later.inputs, len(later.outputs), later.outputs)


def test_every_output_of_a_watched_operator_is_read(script):
    """An operator with two outputs has both in each of its files."""
    text = "graph (float[2,64] x) => (y) { [top] v, i = TopK(x, k) [softmax] y = Softmax(v) }"
    proto = parsed(text, k=np.array([3]))

    begin(script, {"watcher_nodes": ["top"], "layer": ["softmax"]})
    script.run(script.load(proto), X)

    assert 2 == len(names(script))
    for path in script.path.rglob("TopK.*"):
        _, tensors = read(path)
        assert np.array_equal(X[:, :-4:-1], tensors["output", 0])
        assert [[63, 62, 61]] * 2 == tensors["output", 1].tolist()


def test_device_types_and_formats_stay(script):
    """A convolution's output lies in memory, and is read again, as it does for an ordinary dump."""
    proto = parsed(
        """graph (float[1,1,8,16] x) => (y) {
            [conv] c = Conv<pads = [1, 1, 1, 1]>(x, w)
            [pool] y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
        }""",
        w=np.ones((4, 1, 3, 3), np.float32),
    )
    image = X.reshape(1, 1, 8, 16)

    contents = []
    for section in (
        {"dump_list": [{"layer": ["conv"]}], "dump_mode": "output"},
        {"dump_scene": "watcher", "dump_list": [{"watcher_nodes": ["conv"]}], "dump_mode": "output"},
    ):
        acl.state.replace_state(acl.state.AclState())
        script.begin(section)
        script.run(script.load(proto), image)
        contents.append(dict(outputs(script, "Conv2D.*")))
        for path in script.path.rglob("Conv2D.*"):
            path.unlink()

    (expected,) = contents[0].values()
    assert ["conv", "pool_To_conv"] == sorted(contents[1])[:2]
    assert (1, 1, 8, 16, 16) == expected.shape
    assert all(np.array_equal(expected, tensor) for tensor in contents[1].values())


def test_statistics(script):
    """With dump_data stats the watched outputs become rows."""
    watch(script, {"watcher_nodes": ["softmax"], "layer": ["mul"]}, dump_data="stats")

    assert ["Softmax.softmax.0.0.csv", "Softmax.mul_To_softmax.4.0.csv"] == names(script)
    tables = [path.read_text().splitlines() for path in script.path.rglob("*.csv")]
    assert tables[0] == tables[1]
    assert tables[0][1].startswith("Output,0,512,DT_FLOAT,ND,2x64,")


FUSED = parsed(
    """graph (float[1,1,8,16] image) => (y) {
        [conv] c = Conv<pads = [1, 1, 1, 1]>(image, w)
        [relu] r = Relu(c)
        [pool] y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    }""",
    w=np.ones((4, 1, 3, 3), np.float32),
)


def test_fused_layer_has_its_old_names_and_its_new_one(script):
    """A layer is found by the name of a part of it; the file has its present name."""
    begin(script, {"watcher_nodes": ["trans_TransData_0"], "layer": ["relu"]})

    script.run(script.load(FUSED), X.reshape(1, 1, 8, 16))

    assert ["TransData.trans_TransData_0.0.0", "TransData.convrelu_To_trans_TransData_0.1.0"] == names(script)


def test_names_that_are_of_no_use_are_told(script, caplog):
    """Unknown names, and watched ones that fusion has hidden, are warned of."""
    begin(script, {"watcher_nodes": ["relu", "none"], "layer": ["nowhere", "pool"]})

    with caplog.at_level(logging.WARNING, "msdump"):
        script.run(script.load(FUSED), X.reshape(1, 1, 8, 16))

    messages = [record.getMessage() for record in caplog.records]
    said = [message.partition(": ")[2] for message in messages if "acl.json" in message]
    assert [
        "layer 'nowhere': model graph has no such operator; it has 'conv', 'convrelu', 'relu', ...",
        "watcher_nodes 'relu': is fused into 'convrelu'; name the fused operator",
        "watcher_nodes 'none': model graph has no such operator; it has 'conv', 'convrelu', 'relu', ...",
    ] == said
    assert [] == names(script)


def branching():
    """Return Softmax, then in a branch Neg and Softmax of it, then Softplus."""
    return parsed(
        """graph (float[2,64] x) => (y) <float zero = {0}> {
            [softmax] s = Softmax(x)
            [largest] m = ReduceMax<keepdims = 0>(s)
            [flag] flag = Greater(m, zero)
            [choice] c = If (flag) <
                then_branch = yes () => (float[2,64] a) { [neg] n = Neg(s) [again] a = Softmax(n) },
                else_branch = no () => (float[2,64] b) { [abs] b = Abs(s) }>
            [softplus] p = Softplus(c)
            [back] y = Transpose(p)
        }"""
    )


INSIDE = {
    "watched inside": (
        {"watcher_nodes": ["neg"]},
        ["Neg.neg.0.1", "Neg.again_To_neg.1.1", "Neg.softplus_To_neg.3.0", "Neg.back_To_neg.4.0"],
    ),
    "layer inside": (
        {"watcher_nodes": ["softmax"], "layer": ["again"]},
        ["Softmax.softmax.0.0", "Softmax.again_To_softmax.1.1"],
    ),
    "not taken": ({"watcher_nodes": ["abs"]}, []),
}


@pytest.mark.parametrize(("item", "expected"), INSIDE.values(), ids=INSIDE)
def test_branches_are_watched(script, item, expected, caplog):
    """Operators of a branch that runs are watched and layers, as ``layer`` of a data dump finds them."""
    with caplog.at_level(logging.WARNING, "msdump"):
        watch(script, item, branching())

    assert expected == names(script)
    assert [] == [record for record in caplog.records if "no such operator" in record.getMessage()]
    tensors = [tensor for _, tensor in outputs(script, "Neg.*")]
    assert all(np.allclose(-SOFTMAX, tensor, atol=1e-6) for tensor in tensors)


def test_branches_share_the_memory_around_them(script):
    """Memory that a branch has watched is given to no other tensor, and is new in every run."""
    begin(script, {"watcher_nodes": ["neg", "softmax"], "layer": ["back"]})
    model_id = script.load(branching())

    for factor in (1, 2):
        assert 0 == script.run(model_id, X * np.float32(factor))[0]

    for run, factor in enumerate((1, 2)):
        scaled = np.exp(X * factor) / np.exp(X * factor).sum(1, keepdims=True)
        (folder,) = script.path.glob(f"*/0/graph/1/{run}")
        files = [next(folder.glob(pattern)) for pattern in ("Neg.neg.*", "Neg.back_To_neg.*")]
        found = [read(file)[1]["output", 0] for file in files]
        assert all(np.allclose(-scaled, tensor, atol=1e-6) for tensor in found)
        assert np.allclose(scaled, read(next(folder.glob("Softmax.back*")))[1]["output", 0], atol=1e-6)


def looping(rounds=2):
    """Return Softplus, then a loop of Neg and Softmax of it, then Transpose."""
    return parsed(
        """graph (float[2,64] x) => (y) {
            [softplus] p = Softplus(x)
            [rounds] c = Loop (count, , p) <
                body = round (int64 i, bool go, float[2,64] v) => (bool go2, float[2,64] v2)
                    { [neg] n = Neg(v) [again] v2 = Softmax(n) [still] go2 = Identity(go) }>
            [back] y = Transpose(c)
        }""",
        count=np.array(rounds),
    )


def rounds_of(x, rounds):
    """Return Neg's result in each round of the loop."""
    found, v = [], np.log1p(np.exp(x))
    for _ in range(rounds):
        found.append(-v)
        v = np.exp(-v) / np.exp(-v).sum(1, keepdims=True)
    return found


ROUNDS = rounds_of(X, 2)
LOOKS = {
    "Softplus.*": [-ROUNDS[0]] * 4,
    "Neg.neg.*": ROUNDS,
    "Neg.again_To_neg.*": ROUNDS,
    "Neg.back_To_neg.*": ROUNDS[1:],
}
"""What lies in memory whenever a file of the pattern is written."""


def test_loops_are_watched(script):
    """The operators of a loop are watched and layers in every round, around the loop too."""
    watch(script, {"watcher_nodes": ["neg", "softplus"]}, looping())

    inside = ["Neg.neg.0.1", "Softplus.again_To_softplus.1.1", "Neg.again_To_neg.1.1"]
    around = ["Softplus.back_To_softplus.1.0", "Neg.back_To_neg.1.0"]
    assert ["Softplus.softplus.0.0", *inside, *inside, *around] == names(script)
    for pattern, expected in LOOKS.items():
        paths = sorted(script.path.rglob(pattern), key=lambda path: path.name.rpartition(".")[2])
        found = [read(path)[1]["output", 0] for path in paths]
        assert len(expected) == len(found)
        assert all(np.allclose(*pair, atol=1e-6) for pair in zip(expected, found, strict=True))
