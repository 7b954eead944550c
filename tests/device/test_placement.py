"""The formats that operators hold, and the places where formats change."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from msdump.device import placement
from msdump.device.operators import HOST as ON_HOST
from msdump.device.operators import Elementwise
from msdump.device.placement import operator_formats
from msdump.graph import compile_graph

CONV = "c = Conv<pads = [1, 1, 1, 1]>(x, w)"
IMAGE = "float[2,16,8,8]"
HEAD = f"g ({IMAGE} x, float[16,16,3,3] w"

HOST, HD, Z, NZ = "DefaultFormat", "NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ"

CHAINS = {
    "convolution": ("float[16] b", "y = Conv(x, w, b)", [([HD, Z, HOST], [HD])]),
    "agnostic": ("", f"{CONV} y = Relu(c)", [([HD, Z], [HD]), ([HD], [HD])]),
    "Add follows its second input": (
        f"{IMAGE} s",
        f"{CONV} y = Add(s, c)",
        [([HD, Z], [HD]), ([HD, HD], [HD])],
    ),
    "a single element stays": ("float s", f"{CONV} y = Mul(c, s)", [([HD, Z], [HD]), ([HD, HOST], [HD])]),
    "axes that are not cut may differ": (
        "float[2,16,1,1] s",
        f"{CONV} y = Mul(c, s)",
        [([HD, Z], [HD]), ([HD, HD], [HD])],
    ),
    "channels must not be broadcast": (
        "float[2,1,8,8] s",
        f"{CONV} y = Mul(c, s)",
        [([HD, Z], [HD]), ([HOST, HOST], [HOST])],
    ),
    "ranks must agree": ("float[8] s", f"{CONV} y = Sub(c, s)", [([HD, Z], [HD]), ([HOST, HOST], [HOST])]),
    "batch norm follows": (
        "float[16] a, float[16] b, float[16] m, float[16] v",
        f"{CONV} y = BatchNormalization(c, a, b, m, v)",
        [([HD, Z], [HD]), ([HD] * 5, [HD])],
    ),
    "matrices": (
        "float[17,33] a, float[33,5] b",
        "m = MatMul(a, b) y = Tanh(m)",
        [([NZ, NZ], [NZ]), ([NZ], [NZ])],
    ),
    "Add takes no FRACTAL_NZ": (
        "float[17,33] a, float[33,5] b, float[17,5] s",
        "m = MatMul(a, b) y = Add(m, s)",
        [([NZ, NZ], [NZ]), ([HOST, HOST], [HOST])],
    ),
    "Mul takes FRACTAL_NZ": (
        "float[17,33] a, float[33,5] b, float[17,5] s",
        "m = MatMul(a, b) y = Mul(m, s)",
        [([NZ, NZ], [NZ]), ([NZ, NZ], [NZ])],
    ),
    "a product that is a number": ("float[3] a, float[3] b", "y = MatMul(a, b)", [([NZ, NZ], [HOST])]),
    "volumes": (
        "float[1,3,4,5,5] v, float[8,3,3,3,3] k",
        "y = Conv(v, k)",
        [(["NDC1HWC0", "FRACTAL_Z_3D"], ["NDC1HWC0"])],
    ),
    "a cast to another C0": ("", f"{CONV} y = Cast<to = 3>(c)", [([HD, Z], [HD]), ([HOST], [HOST])]),
    "fused with a convolution": (
        "float[16] b, float[16] s",
        f"{CONV} n = BatchNormalization(c, b, b, b, s) y = Relu(n)",
        [([HD, Z, HOST, HOST], [HD])],
    ),
    "fused with a normalization": (
        "float[16] b",
        f"{CONV} d = MaxPool<kernel_shape = [1, 1]>(c) n = BatchNormalization(d, b, b, b, b) y = Relu(n)",
        [([HD, Z], [HD]), ([HD], [HD]), ([HD] * 2, [HD])],
    ),
    "absent inputs": ("float m", f"{CONV} y = Clip(c, , m)", [([HD, Z], [HD]), ([HD, None, HOST], [HD])]),
}


CELLS = {
    "LSTM": ("LSTM", 4, (1, 1, 8, 16, 16), (1, 2, 8, 16, 16), (1, 256)),
    "GRU": ("GRU", 3, (1, 1, 6, 16, 16), (1, 2, 6, 16, 16), (1, 192)),
}


@pytest.mark.parametrize(("name", "gates", "weight", "state", "bias"), CELLS.values(), ids=CELLS)
def test_recurrent_operators(network, name, gates, weight, state, bias):
    """Weights lie in FRACTAL_ZN_RNN, each gate's 30 units in blocks of their own, the bias in ND_RNN_BIAS."""
    columns = gates * 30
    graph = network(
        f"g (float[7,2,13] x, float[1,{columns},13] w, float[1,{columns},30] r, float[1,{2 * columns}] b)"
        f" => (y) {{ y = {name}<hidden_size = 30>(x, w, r, b) }}"
    )

    (node,) = placement.place(graph).nodes

    assert [NZ, "FRACTAL_ZN_RNN", "FRACTAL_ZN_RNN", "ND_RNN_BIAS"] == held(node.inputs)
    assert [(7, 1, 1, 16, 16), weight, state, bias] == [tensor.shape for tensor in node.inputs]
    assert [NZ] == held(node.outputs)


def test_recurrent_weights_of_unknown_size(network):
    """Weights of sizes that are known only in the run lie as on the host."""
    graph = network(
        "g (float[7,2,13] x, float[1,N,M] w, float[1,N,30] r) => (y) { y = GRU<hidden_size = 30>(x, w, r) }"
    )

    (node,) = placement.place(graph).nodes

    assert [NZ, HOST, HOST] == held(node.inputs)


def held(slots):
    """Return the names of formats."""
    return [slot and slot.format for slot in slots]


@pytest.mark.parametrize(("inputs", "code", "expected"), CHAINS.values(), ids=CHAINS)
def test_operators_hold_formats(network, inputs, code, expected):
    """Each operator holds its inputs and outputs in the formats of the table, as far as they travel."""
    graph = network(f"{HEAD}{', ' if inputs else ''}{inputs}) => (y) {{ {code} }}")
    fuses = len(expected) < len(graph.nodes)

    placed = placement.place(compile_graph(graph) if fuses else graph)

    assert expected == [(held(node.inputs), held(node.outputs)) for node in placed.nodes]


BLOCK = f"""{HEAD}, float[16,1,3,3] d) => (y, c) {{
    {CONV}
    r = Relu(c)
    p = Conv<group = 16, pads = [1, 1, 1, 1]>(r, d)
    s = Add(p, x)
    f = Flatten(s)
    y = Relu(f)
}}"""


def test_grouped_weights_are_laid_out_for_their_groups(network):
    """A depthwise weight carries its groups, and its shape is that of grouped FRACTAL_Z."""
    placed = placement.place(network(BLOCK))

    weight = placed.nodes[2].inputs[1]

    assert ("FRACTAL_Z", (9, 1, 16, 16), 16) == (weight.format, weight.shape, weight.groups)
    assert 9 * 16 * 16 * 4 == weight.nbytes


def test_unknown_sizes_stay_unknown(network):
    """A dynamic batch is -1 on the device too; a tensor of unknown rank keeps only its format."""
    graph = network(
        "g (float[n,20,8,8] x, float[16,20,3,3] w, float u) => (y, z) { y = Conv(x, w) z = Relu(u) }"
    )
    hidden = replace(graph, types={**graph.types, "u": replace(graph.types["u"], shape=None)})

    placed = placement.place(hidden)

    assert (-1, 2, 8, 8, 16) == placed.nodes[0].inputs[0].shape
    assert placed.nodes[0].inputs[0].nbytes is None
    assert (HOST, (-2,)) == (placed.nodes[1].inputs[0].format, placed.nodes[1].inputs[0].shape)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [("n,8", NZ), ("1,8", HOST), ("m,8", HOST)],
    ids=["same name", "broadcast", "other name"],
)
def test_unknown_sizes_meet_by_name(network, sizes, expected):
    """Two unknown sizes count as equal only under one name."""
    graph = network(
        f"g (float[n,4] a, float[4,8] b, float[{sizes}] s) => (y) {{ m = MatMul(a, b) y = Mul(m, s) }}"
    )

    placed = placement.place(graph)

    assert expected == placed.nodes[1].inputs[0].format


def test_an_unknown_rank_meets_no_vector(network):
    """A product of unknown rank, which a loop carries, cannot be joined with a vector in its own format."""
    graph = network("""g (float[3] x, w, int64 n) => (y) {
        y = Loop(n, , x) <body = b (int64 i, bool c, v) => (bool c, u) {
            p = MatMul(v, w)  u = Add(p, x) }> }""")
    types = {**graph.bodies[0].types, "u": graph.type_of("x")}

    placed = placement.place(replace(graph.bodies[0], types=types))

    assert [HOST, HOST] == [tensor.format for tensor in placed.nodes[1].inputs]


def part(primitive, parts=()):
    """Return the part of an operator that decides its formats."""
    return SimpleNamespace(operator=SimpleNamespace(op_type=primitive), parts=parts)


@pytest.mark.parametrize(
    ("primitives", "expected"),
    [
        (("ReLU", "Mul"), Elementwise()),
        (("ReLU", "Add", "Mul"), Elementwise((HD,))),
        (("BiasAdd", "ReLU"), ON_HOST),
    ],
    ids=["any format", "one part is choosy", "one part is on the host"],
)
def test_fused_operators_do_what_all_their_parts_can(primitives, expected):
    """A fused operator computes in the formats that each of its parts takes."""
    fused = part("".join(primitives), [part(name) for name in primitives])

    assert expected == operator_formats(fused)
