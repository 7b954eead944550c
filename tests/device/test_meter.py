"""Device memory of a run: which forms of tensors it holds, their sizes and addresses."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from msdump.device import BASE, Ascend, MemoryUse, residence, rounding
from msdump.device.placement import place
from msdump.plan import OverflowMode, PrecisionMode
from msdump.record import IO

CHAIN = """g (float[1,128] x, float[1,128] k) => (y) {
    a = Relu(x)
    b, left = Dropout(a)
    c = Add(a, b)
    y = Mul(c, k)
}"""
IMAGE = """g (float[2,3,8,8] x, float[4,3,3,3] w) => (y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    r = Relu(c)
    p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    y = Flatten(p)
}"""


def metered(graph, arrays, mode=PrecisionMode.FORCE_FP32, limit=None):
    """Return the memory use of a run with results of these shapes and types."""
    ways = {node.name: rounding(node.operator.op_type, mode, OverflowMode.INFNAN) for node in graph.nodes}

    def dtype_of(node, io, slot):
        host = graph.type_of((node.inputs if io is IO.INPUT else node.outputs)[slot]).dtype
        way = ways[node.name]
        return way.read_type(host) if io is IO.INPUT else way.write_type(host)

    use = MemoryUse.begin(residence(graph, place(graph, dtype_of)), limit, arrays)
    for position, node in enumerate(graph.nodes):
        use.ran(position, [arrays.get(name) for name in node.outputs])
    return use


def zeros(**shapes):
    """Return float32 arrays of these shapes."""
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


CHAIN_ARRAYS = zeros(**dict.fromkeys(("x", "k", "a", "b", "left", "c", "y"), (1, 128)))
IMAGE_ARRAYS = zeros(
    x=(2, 3, 8, 8), w=(4, 3, 3, 3), c=(2, 4, 8, 8), r=(2, 4, 8, 8), p=(2, 4, 4, 4), y=(2, 64)
)


def written(use):
    """Return value, format, type, offset and size of everything that came into memory."""
    return [
        (form.value, form.format, form.dtype.name, block.address - BASE, block.size)
        for form, block in use._blocks.items()
    ]


def test_tensors_take_the_place_of_dead_ones(network):
    """Each value takes the space of one that died before; the peak counts values that live together."""
    use = metered(network(CHAIN), CHAIN_ARRAYS)

    expected = {"x": 0, "k": 512, "a": 1024, "b": 0, "left": 1536, "c": 1536, "y": 0}
    assert expected == {name: block.address - BASE for name, block in use.blocks.items()}
    assert 2048 == use.peak


def test_weights_and_outputs_stay(network):
    """Nothing lies on a weight or a graph output."""
    graph = network(
        "g (float[2] x) => (y, a) <float[2] v = {1, 2}> { a = Mul(x, v) b = Add(a, x) y = Relu(b) }"
    )

    use = metered(graph, zeros(x=(2,), v=(2,), a=(2,), b=(2,), y=(2,)))

    assert {"v": 0, "x": 512, "a": 1024, "b": 1536, "y": 512} == {
        name: block.address - BASE for name, block in use.blocks.items()
    }


def test_padding_counts_and_float16_is_half(network):
    """The padding of NC1HWC0 and FRACTAL_Z counts; an element that is read as float16 has two bytes."""
    use = metered(network(IMAGE), IMAGE_ARRAYS, PrecisionMode.ALLOW_FP32_TO_FP16)

    assert written(use) == [
        ("x", "DefaultFormat", "float32", 0, 1536),  # 2 * 3 * 8 * 8 * 4
        ("w", "DefaultFormat", "float32", 1536, 512),  # 4 * 3 * 3 * 3 * 4 = 432
        ("x", "NC1HWC0", "float16", 2048, 4096),  # 2 * 1 * 8 * 8 * 16 * 2
        ("w", "FRACTAL_Z", "float16", 6144, 4608),  # 9 * 1 * 16 * 16 * 2
        ("c", "NC1HWC0", "float32", 10752, 8192),  # 2 * 1 * 8 * 8 * 16 * 4
        ("r", "NC1HWC0", "float32", 0, 8192),  # where x, w and their copies were
        ("p", "NC1HWC0", "float32", 8192, 2048),  # 2 * 1 * 4 * 4 * 16 * 4
        ("p", "DefaultFormat", "float32", 0, 512),  # 2 * 4 * 4 * 4 * 4
        ("y", "DefaultFormat", "float32", 512, 512),
    ]
    assert use.peak == 18944


def test_addresses_by_operator_and_slot(network):
    """An operator's input is where the operator reads it: its copy where it is converted."""
    use = metered(network(IMAGE), IMAGE_ARRAYS, PrecisionMode.ALLOW_FP32_TO_FP16)

    places = [
        (position, io, slot)
        for position, inputs in enumerate((2, 1, 1, 1))
        for io, count in ((IO.INPUT, inputs), (IO.OUTPUT, 1))
        for slot in range(count)
    ]
    assert [use.block(*place).address - BASE for place in places] == [
        *(2048, 6144, 10752),
        *(10752, 0),
        *(0, 8192),
        *(0, 512),
    ]
    assert use.blocks["x"].address == BASE
    assert use.blocks["p"].address - BASE == 8192


def test_a_copy_serves_all_its_readers(network):
    """A value that two operators read in one other form is converted once and kept for both."""
    graph = network(
        "g (float[2,3] x, float[3,4] v, float[3,4] w) => (a, b) { a = MatMul(x, v) b = MatMul(x, w) }"
    )

    use = metered(graph, zeros(x=(2, 3), v=(3, 4), w=(3, 4), a=(2, 4), b=(2, 4)))

    assert ["x", "v", "a", "w", "b"] == [row[0] for row in written(use) if row[1] == "FRACTAL_NZ"]
    assert use.block(0, IO.INPUT, 0) == use.block(1, IO.INPUT, 0)


def test_graph_outputs_are_converted_for_the_host(network):
    """A graph output in a device format gets a copy in the host's, which stays; the original goes."""
    graph = network("g (float[2,3] x, float[3,4] w) => (y) { y = MatMul(x, w) }")

    use = metered(graph, zeros(x=(2, 3), w=(3, 4), y=(2, 4)))

    assert [("y", "FRACTAL_NZ"), ("y", "DefaultFormat")] == [row[:2] for row in written(use)][-2:]
    assert use.block(0, IO.OUTPUT, 0) != list(use._blocks.values())[-1]


def test_packed_types(network):
    """Two int4 share a byte."""
    graph = network("g (int4[2000] x) => (y) { y = Identity(x) }")
    array = np.zeros(2000, ml_dtypes.int4)

    use = metered(graph, {"x": array, "y": array})

    assert [("int4", 1024), ("int4", 1024)] == [(row[2], row[4]) for row in written(use)]


def test_values_that_are_no_tensors_have_no_block(network):
    """A sequence gets no memory; an operator that was not reached has no addresses yet."""
    graph = network("g (float[4] x) => (y) { s = SplitToSequence(x) y = ConcatFromSequence <axis = 0> (s) }")
    use = MemoryUse.begin(residence(graph, place(graph)), None, zeros(x=(4,)))

    use.ran(0, [None])

    assert use.block(0, IO.INPUT, 0) is not None
    assert use.block(0, IO.OUTPUT, 0) is None
    assert use.block(1, IO.OUTPUT, 0) is None
    assert {"x"} == set(use.blocks)


def test_what_subgraphs_read_stays(network):
    """A value that only a branch reads lives until the branch has run."""
    graph = network("""g (bool c, float[128] x) => (y) {
        a = Relu(x)
        b = Abs(a)
        d = Neg(b)
        y = If (c) <
            then_branch = t () => (float[128] p) { p = Add(a, d) },
            else_branch = e () => (float[128] q) { q = Neg(a) }
        >
    }""")
    arrays = zeros(x=(128,), a=(128,), b=(128,), d=(128,), y=(128,)) | {"c": np.array(True)}

    blocks = metered(graph, arrays).blocks

    assert blocks["a"].address not in {blocks[name].address for name in ("b", "d", "y")}


LOOP = """g (float[128] x, int64 n) => (y) {
    a = Relu(x)
    y = Loop(n, , x) <body = b (int64 i, bool c, float[128] v) => (bool c, float[128] u) {
        k = Constant<value_floats = [1.0, 2.0]>()
        t = Add(v, a)
        u = Neg(t)
    }>
}"""


def run_loop(network, rounds):
    """Return the memory use of a loop, its inside, and the bytes in use after each inner operator."""
    graph = network(LOOP)
    (body,) = graph.bodies
    use = MemoryUse.begin(residence(graph, place(graph)), None, zeros(x=(128,)))
    array, in_use = np.zeros(128, np.float32), []
    use.ran(0, [array])
    for _ in range(rounds):
        inner = use.enter(body, residence(body, place(body)))
        for position in range(len(body.nodes)):
            inner.ran(position, [array])
            in_use.append(use._memory.in_use)
    use.ran(1, [array])
    return use, in_use


def test_loop_bodies(network):
    """An iteration reads the results of the last one; only the loop's result and weights stay."""
    use, in_use = run_loop(network, 4)

    # x and a; the constant; then t, u and, from the second iteration on, the u that is read
    base = 2 * 512 + 512
    assert [1, 1, 2, 2, 2, 2, 2, 2] == [(size - base) // 512 for size in in_use]
    assert 512 + 512 == use._memory.in_use  # the constant and y
    assert base + 3 * 512 == use.peak


def test_addresses_inside_a_loop(network):
    """Operators inside have addresses; values of outer graphs lie where these graphs have them."""
    use, _ = run_loop(network, 2)

    inside = use.inside(1)

    assert use.block(0, IO.OUTPUT, 0) == inside.block(0, IO.INPUT, 1)
    assert inside.block(0, IO.INPUT, 0) is None
    assert inside.block(0, IO.OUTPUT, 0) == inside.block(1, IO.INPUT, 0)
    assert use.inside(2) is None


MODE = PrecisionMode.ALLOW_FP32_TO_FP16


@pytest.fixture
def device(network):
    """Return a device with a compiled convolution and another reader of its weight."""
    ones = ", ".join(["1"] * 2304)
    graph = network(
        f"g (float[1,16,8,8] x) => (y, z) <float[16,16,3,3] w = {{{ones}}}> {{ y = Conv(x, w) z = Neg(w) }}"
    )
    return Ascend(graph, MODE, OverflowMode.INFNAN, numbers=itertools.count())


def forms(items):
    """Return name, format and element type of forms."""
    return [(form.value, form.format, form.dtype.name) for form in items]


def test_weights_of_a_compiled_graph_lie_ready(device):
    """They are there in every form in which they are read, never copied, and stay."""
    lives = residence(device.graph, device.placement, prepares=True)

    assert [
        ("w", "FRACTAL_Z", "float16"),
        ("w", "DefaultFormat", "float32"),
        ("x", "DefaultFormat", "float32"),
    ] == forms(lives.first)
    assert [()] * len(lives.steps) == [step.copies for step in lives.steps]
    assert "w" not in {form.value for step in lives.steps for form in step.dead}


SHAPES = """g (float[2,8] x) => (y, z) {
    a = Relu(x)
    b = Reshape(a, s)
    c = Unsqueeze(b, axis)
    d = Exp(c)
    e = Neg(a)
    f = Add(d, e)
    s = Constant<value_ints = [4, 4]>()
    axis = Constant<value_ints = [0]>()
    y = Flatten(f)
    z = Shape(f)
}"""


def lives_of(network, *, prepares):
    """Return the contents of memory while changes of shape run."""
    graph = network(SHAPES)
    device = Ascend(graph, MODE, OverflowMode.INFNAN, numbers=itertools.count() if prepares else None)
    return residence(device.graph, device.placement, prepares=prepares)


def test_a_change_of_shape_moves_nothing(network):
    """In a compiled graph it shares the memory of its input until the last reader of both."""
    lives = lives_of(network, prepares=True)

    shared = {view.value: owner.value for step in lives.steps for view, owner in step.views.items()}
    assert {"b": "a", "c": "a"} == shared
    assert [["x"], [], [], [], ["a"], ["d", "e"], [], ["f"]] == [
        sorted(form.value for form in step.dead if form.value != "s") for step in lives.steps
    ]
