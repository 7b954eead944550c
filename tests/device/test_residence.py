"""What lies in device memory, and in which form."""

from __future__ import annotations

import itertools

import pytest

from msdump.device.ascend import Ascend
from msdump.device.residence import residence
from msdump.plan import OverflowMode, PrecisionMode

MODE = PrecisionMode.ALLOW_FP32_TO_FP16


@pytest.fixture
def device(network):
    """Return a device with a compiled convolution whose weight another operator reads too."""
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


def test_weights_are_converted_where_nothing_is_compiled(device):
    """Otherwise they come as on the host, and a copy lives from its first to its last reader."""
    lives = residence(device.graph, device.placement)

    assert [("w", "DefaultFormat", "float32"), ("x", "DefaultFormat", "float32")] == forms(lives.first)
    copies = [form for step in lives.steps for form in step.copies]
    assert [("w", "FRACTAL_Z", "float16")] == forms(copies)
    assert set(copies) <= {form for step in lives.steps for form in step.dead}


def test_values_of_a_compiled_graph_are_never_copied(device):
    """TransData and Cast make every form that an operator reads."""
    lives = residence(device.graph, device.placement, prepares=True)

    known = set(lives.first)
    for step in lives.steps:
        assert known >= set(filter(None, step.reads))
        known |= set(step.makes)


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
    """Return what lies in memory while changes of shape run."""
    graph = network(SHAPES)
    device = Ascend(graph, MODE, OverflowMode.INFNAN, numbers=itertools.count() if prepares else None)
    return residence(device.graph, device.placement, prepares=prepares)


def test_a_change_of_shape_moves_nothing(network):
    """Where a graph is compiled it shares the memory of what it reads, until nobody reads either of them."""
    lives = lives_of(network, prepares=True)

    shared = {view.value: owner.value for step in lives.steps for view, owner in step.views}
    assert {"b": "a", "c": "a"} == shared
    assert [["x"], [], [], [], ["a"], ["d", "e"], [], ["f"]] == [
        sorted(form.value for form in step.dead if form.value != "s") for step in lives.steps
    ]


def test_a_change_of_shape_copies_where_nothing_is_compiled(network):
    """Otherwise it is an operator like others."""
    lives = lives_of(network, prepares=False)

    assert [()] * len(lives.steps) == [step.views for step in lives.steps]
    assert {"a", "b", "c"} <= {form.value for step in lives.steps for form in step.dead}
