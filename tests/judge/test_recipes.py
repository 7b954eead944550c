"""Recipes of made-up inputs: sizes, indices, masks, positions."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from msdump.graph import loader
from msdump.judge import inputs, recipes_of

TABLE = "float[30,4] table = {" + ", ".join(["0.5"] * 120) + "}"
HEADS = "num_heads=2, kv_num_heads=1"


def graph_of(takes, nodes, weights="", opset=20):
    """Return a graph of nodes, with inputs and weights."""
    text = (
        f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>'
        f" g ({takes}) => (y) <{weights}> {{ {nodes} }}"
    )
    return loader.load(onnx.parser.parse_model(text))


def recipes(takes, nodes, weights="", sizes=None):
    """Return shape and elements in words of each input."""
    made = recipes_of(graph_of(takes, nodes, weights), sizes or {})
    return {each.name: (each.shape, each.how) for each in made}


ELEMENTS = {
    "token ids": ("int64[1,3] x", "y = Gather(table, x)", TABLE, "token ids below 30"),
    "through a cast": ("int32[3] x", "a = Cast<to=7>(x) y = Gather(table, a)", TABLE, "token ids below 30"),
    "another axis": ("int64[3] x", "y = Gather<axis=1>(table, x)", TABLE, "indices below 4"),
    "the smallest table": (
        "int64[3] x",
        "a = Gather(table, x) b = Gather<axis=1>(table, x) y = Concat<axis=1>(a, b)",
        TABLE,
        "indices below 4",
    ),
    "a table of one row": (
        "int64[3] x",
        "y = Gather(t, x)",
        "float[1,2] t = {1, 2}",
        "token ids below 1",
    ),
    "a table of a dynamic size": ("float[?,4] t, int64[3] x", "y = Gather(t, x)", "", "indices below 1"),
    "a table of unknown size": (
        "float[4] t, int64[3] x",
        "a = NonZero(t) y = Gather<axis=1>(a, x)",
        "",
        "indices below 1",
    ),
    "one hot": (
        "int64[3] x",
        "y = OneHot(x, n, v)",
        "int64[1] n = {7}, float[2] v = {0, 1}",
        "indices below 7",
    ),
    "compared with a range": (
        "int64[3,1] x",
        "y = Equal(x, n)",
        "int64[4] n = {0, 1, 2, 3}",
        "indices below 4",
    ),
    "a mask": ("int64[1,3] attention_mask", "y = Cast<to=1>(attention_mask)", "", "all ones, as a mask"),
    "a mask of bool": ("bool[1,3] mask", "y = Not(mask)", "", "all ones, as a mask"),
    "positions": (
        "int64[1,3] position_ids",
        "y = Cast<to=1>(position_ids)",
        "",
        "counted from 0, as positions",
    ),
    "a sampling rate": (
        "int64 sr",
        "y = Equal(sr, n)",
        "int64 n = {16000}",
        "16,000, the constant that it is compared with",
    ),
    "a cache": ("bool[1] use_cache_branch", "y = Not(use_cache_branch)", "", "false"),
    "lengths": ("int64[1] lengths", "y = Cast<to=1>(lengths)", "", "1, as a length"),
    "a plain flag": ("bool[1] x", "y = Not(x)", "", "0 or 1"),
    "a plain integer": ("int64[1] x", "y = Cast<to=1>(x)", "", "0 or 1"),
    "a plain byte": ("uint8[1] x", "y = Cast<to=1>(x)", "", "all values of uint8"),
    "a plain float": ("float[1] mask", "y = Neg(mask)", "", "normally distributed"),
    "texts": ("string[1] x", "y = Identity(x)", "", "random words"),
}


@pytest.mark.parametrize(("takes", "nodes", "weights", "how"), ELEMENTS.values(), ids=ELEMENTS)
def test_consumers_decide_about_elements(takes, nodes, weights, how):
    """The elements of an input follow from the operators that read it."""
    assert how == recipes(takes, nodes, weights).popitem()[1][1]


SIZES = {
    "batches": ("float[N,4] x", "y = Neg(x)", "", {"x": (1, 4)}),
    "batches by name": ("float[4,batch] x", "y = Neg(x)", "", {"x": (4, 1)}),
    "states": ("float[2,N,4] x", "y = Neg(x)", "", {"x": (2, 1, 4)}),
    "sequences": ("float[N,S] x", "y = Neg(x)", "", {"x": (1, 8)}),
    "sequences by name": ("float[seq,4] x", "y = Neg(x)", "", {"x": (8, 4)}),
    "images": ("float[N,3,H,W] x", "y = Neg(x)", "", {"x": (1, 3, 64, 64)}),
    "images with channels last": ("float[N,H,W,3] x", "y = Neg(x)", "", {"x": (1, 64, 64, 3)}),
    "channels": (
        "float[N,C,H,W] x",
        "y = Conv(x, k)",
        "float[1,3,1,1] k = {1, 1, 1}",
        {"x": (1, 3, 64, 64)},
    ),
    "images of one size": (
        "float[N,3,H,W] x",
        "y = Add(x, b)",
        "float[1,1,1,224] b = {" + ", ".join(["1"] * 224) + "}",
        {"x": (1, 3, 224, 224)},
    ),
    "long kernels": (
        "float[N,T] x",
        "a = Unsqueeze(x, i) y = Conv(a, k)",
        "int64[1] i = {1}, float[1,1,100] k = {" + ", ".join(["1"] * 100) + "}",
        {"x": (1, 512)},
    ),
    "a window that leaves nothing of 8": (
        "float[N,1,T] x",
        "y = Conv(x, k)",
        "float[1,1,9] k = {1, 1, 1, 1, 1, 1, 1, 1, 1}",
        {"x": (1, 1, 64)},
    ),
    "a window behind another operator": (
        "float[N,4,L] x",
        "a = Relu(x) y = MaxPool<kernel_shape=[9]>(a)",
        "",
        {"x": (1, 4, 64)},
    ),
    "waveforms": (
        "float[T] x",
        "a = Unsqueeze(x, i) y = Conv(a, k)",
        "int64[2] i = {0, 1}, float[1,1,9] k = {1, 1, 1, 1, 1, 1, 1, 1, 1}",
        {"x": (64,)},
    ),
    "unknown sizes": ("float[?,3,?,?] x", "y = Neg(x)", "", {"x": (1, 3, 64, 64)}),
    "a convolution without a kernel": ("float[N,3,H,W] x", "y = Conv(x)", "", {"x": (1, 3, 64, 64)}),
    "sums": (
        "int64[N,S] x, float[N,1,past_S,4] past, int64[N,total_S] mask",
        "y = Neg(x)",
        "",
        {"x": (1, 8), "past": (1, 1, 8, 4), "mask": (1, 16)},
    ),
}


@pytest.mark.parametrize(("takes", "nodes", "weights", "shapes"), SIZES.values(), ids=SIZES)
def test_dynamic_dimensions_have_sizes(takes, nodes, weights, shapes):
    """Sizes of dynamic dimensions follow from their places, names and consumers."""
    assert shapes == {name: shape for name, (shape, _) in recipes(takes, nodes, weights).items()}


@pytest.mark.parametrize(
    ("name", "sizes", "size"),
    [
        ("past_S + S", {}, 16),
        ("past_S + 1", {}, 9),
        ("past_S * 2", {}, 16),
        ("past_S / 2", {"past_S": 6}, 3),
        ("past_S - 99", {}, 0),
    ],
)
def test_dimensions_are_arithmetic(name, sizes, size):
    """The name of a dimension may be arithmetic of other dimensions."""
    graph = decoder(("x", 1, ["N", "past_S"]), ("z", 1, ["N", name]))
    made = {each.name: each.shape for each in recipes_of(graph, sizes)}
    assert (1, size) == made["z"]


def decoder(*inputs_):
    """Return a model with inputs of names and dimensions, which nothing reads."""
    values = [onnx.helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs_]
    node = onnx.helper.make_node("Neg", [inputs_[0][0]], ["y"])
    outputs = [onnx.helper.make_tensor_value_info("y", inputs_[0][1], None)]
    return loader.load(onnx.helper.make_model(onnx.helper.make_graph([node], "g", values, outputs)))


IDS = ("ids", 7, ["N", "S"])
PAST = ("past", 1, ["N", 4, "past_S", 16])
DECODERS = {
    "a prompt and a past": ([IDS, PAST, ("m", 7, ["N", "past_S + S"])], [(1, 8), (1, 4, 8, 16), (1, 16)]),
    "one new token": ([IDS, PAST, ("m", 7, ["N", "past_S + 1"])], [(1, 1), (1, 4, 8, 16), (1, 9)]),
    "no past without a cache": (
        [IDS, PAST, ("m", 7, ["N", "past_S + 1"]), ("use_cache_branch", 9, [1])],
        [(1, 1), (1, 4, 0, 16), (1, 1), (1,)],
    ),
}


@pytest.mark.parametrize(("takes", "shapes"), DECODERS.values(), ids=DECODERS)
def test_decoders_have_consistent_lengths(takes, shapes):
    """The lengths of tokens, past and mask of a decoder fit each other."""
    assert shapes == [each.shape for each in recipes_of(decoder(*takes), {})]


def test_a_dimension_without_a_name_takes_a_size():
    """--dim names a dimension by its input and axis."""
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[?,3] x) => (y) { y = Neg(x) }'
    )

    made = recipes_of(loader.load(model), {"x[0]": 7})
    assert [(7, 3)] == [each.shape for each in made]


def test_sizes_that_do_not_fit_are_reported(caplog):
    """A warning names --dim where no made-up size fits."""
    made = recipes("float[N,3,H,W] x", "y = MatMul(x, b)", "float[7,1] b = {1, 1, 1, 1, 1, 1, 1}")

    assert {"x": ((1, 3, 64, 64), "normally distributed")} == made
    assert "do not fit the shapes of the model; give others with --dim" in caplog.text


def test_contradicted_outputs_do_not_count(caplog):
    """The declared shape of an output, which the model contradicts, does not make a size unfit."""
    relu = onnx.helper.make_node("Relu", ["x"], ["y"])
    takes, gives = (
        onnx.helper.make_tensor_value_info(name, 1, shape)
        for name, shape in (("x", ["N", "S"]), ("y", [3, 3]))
    )
    model = onnx.helper.make_model(onnx.helper.make_graph([relu], "g", [takes], [gives]))

    made = recipes_of(loader.load(model), {})

    assert [(1, 8)] == [each.shape for each in made]
    assert "" == caplog.text


def test_inputs_are_the_same_for_a_seed():
    """Token ids, masks and positions are the same for the same seed and step."""
    graph = graph_of("int64[2,3] x, int64[2,3] mask, int64[2,3] position_ids", "y = Gather(table, x)", TABLE)

    first, same, other = (inputs.made_up(graph, {}, 0, step) for step in (0, 0, 1))
    np.testing.assert_equal(first, same)
    assert first["x"].tolist() != other["x"].tolist()
    assert 1 < first["x"].max() < 30
    assert [[1, 1, 1]] * 2 == first["mask"].tolist()
    assert [[0, 1, 2]] * 2 == first["position_ids"].tolist()


def test_attention_gets_fitting_lengths():
    """GroupQueryAttention runs on made-up lengths."""
    takes = (
        "float[1,S,8] q, float[1,S,4] k, float[1,S,4] v, float[1,1,past_S,4] pk, float[1,1,past_S,4] pv,"
        " int32[1] seqlens_k, int32 total"
    )
    nodes = f"y, a, b = com.microsoft.GroupQueryAttention<{HEADS}>(q, k, v, pk, pv, seqlens_k, total)"

    made = recipes(takes, nodes)
    assert ((1,), "15, the last position") == made["seqlens_k"]
    assert ((), "16, the total length") == made["total"]
