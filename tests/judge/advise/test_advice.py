"""Operators to keep: the smallest sets, their errors on the device itself, and cases without a set."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

from msdump import dtypes
from msdump.errors import InputError, UnsupportedOpError
from msdump.graph import loader
from msdump.judge import inputs
from msdump.judge.advise import Variants, advise, search
from msdump.judge.advise.variants import golden
from msdump.plan import OverflowMode, PrecisionMode
from sample_nets.build import build
from tests.judge.advise import nets

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
LATE_OVERFLOW = f"""{HEAD} net (float[4] x) => (float[4] y) <float k = {{2000.0}}>
{{ a = Relu(x) big = Mul(a, k) square = Mul(big, big) root = Sqrt(square) y = Div(root, k) }}"""


def smallest(graph, advice):
    """Return the size of the smallest set for the inputs that a search has looked at."""
    seen = [(example.name, example.feeds) for example in advice.measured.examples]
    return nets.smallest_size(graph, "force_fp16", seen, advice.limit)


@pytest.mark.parametrize(
    ("seed", "bound"), list(itertools.product(range(8), (1e-2, 2e-4))), ids=lambda value: f"{value}"
)
def test_small_networks_get_the_optimum(seed, bound):
    """No smaller set keeps the bound on the device, and the reported errors are the device's own."""
    graph = loader.load(nets.random_net(seed, 7))
    if not all(
        np.isfinite(array).all() for array in nets.truth_of(graph)(nets.examples(graph, 0)[0][1]).values()
    ):
        pytest.skip("the network itself overflows")
    advice = nets.advice_for(graph, "force_fp16", bound)

    assert advice.is_confirmed
    names = [node.name for node in advice.nodes]
    assert smallest(graph, advice) == len(names)
    for error in advice.errors:
        feeds = nets.examples(graph, int(error.example.removeprefix("seed ")))[0][1]
        told = nets.device_errors(graph, "force_fp16", feeds, names)
        assert told[error.output] == error.after <= bound


@pytest.mark.parametrize("seed", [204, 205, 207, 209])
def test_unseen_inputs_stay_within_the_bound(seed, monkeypatch):
    """The limit of the search has a margin from the spread of its inputs; a confirmed set holds on others."""
    monkeypatch.setattr(search, "MOST_EXACT", 0)
    advice = nets.advice_for(nets.random_net(seed, 25), "force_fp16", 6e-4, seeds=(0, 1, 2, 3))

    graph = advice.variants.graph
    others = [golden(*each, nets.truth_of(graph)) for each in nets.examples(graph, *range(5000, 5060))]
    errors = [max(each.values()) for each in advice.measured.errors([advice.kept], others)[0]]
    assert advice.is_confirmed
    assert advice.limit < advice.bound
    assert advice.likely <= advice.bound
    assert max(errors) <= advice.bound


@pytest.mark.parametrize("seed", range(6))
def test_larger_networks_come_near(seed, monkeypatch):
    """The set that roundings predict, and runs of the device mend, is at most a quarter above the optimum."""
    model = nets.random_net(seed + 50, 11)
    optimum = nets.advice_for(model, "force_fp16", 5e-4)
    monkeypatch.setattr(search, "MOST_EXACT", 0)
    found = nets.advice_for(model, "force_fp16", 5e-4)

    assert optimum.is_confirmed
    assert found.is_confirmed
    if len(optimum.measured.examples) == len(found.measured.examples) == 2:
        assert len(found.nodes) <= max(len(optimum.nodes) + 1, 1.25 * len(optimum.nodes))


def test_an_overflow_needs_both_ends():
    """A tensor beyond the range is whole only where its writer and its reader are kept."""
    advice = nets.advice_for(parser.parse_model(LATE_OVERFLOW), "force_fp16", 0.01)

    assert ["Mul_2", "Sqrt_3"] == [node.name for node in advice.nodes]
    assert all(error.before > 0.1 for error in advice.errors)


def test_an_overflow_that_only_the_unseen_input_has(monkeypatch):
    """A refuting input is measured before the search goes on: the set does not grow beyond need."""
    monkeypatch.setattr(search, "MOST_EXACT", 0)
    monkeypatch.setattr(search, "_ONE_STRETCH", 0)
    graph = loader.load(parser.parse_model(LATE_OVERFLOW))
    small, large = ({"x": np.full(4, scale, np.float32)} for scale in (0.01, 3.0))
    advice = advise(
        Variants(graph, PrecisionMode.FORCE_FP16, OverflowMode.INFNAN),
        nets.truth_of(graph),
        [("small", small)],
        [("large", large)],
        lambda number: (f"small {number}", small),
        bound=0.01,
    )

    assert ["small", "large"] == [example.name for example in advice.measured.examples]
    assert ["Mul_2", "Sqrt_3"] == [node.name for node in advice.nodes]


def test_a_held_back_input_that_fails_joins_the_search():
    """A given input is never replaced by a made-up one: it is measured, and the set grows for it."""
    graph = loader.load(parser.parse_model(LATE_OVERFLOW))
    scales = {"held": 3.0, "tiny": 1e-3}
    advice = advise(
        Variants(graph, PrecisionMode.FORCE_FP16, OverflowMode.INFNAN),
        nets.truth_of(graph),
        [("seen", {"x": np.full(4, 0.01, np.float32)})],
        [(name, {"x": np.full(4, scale, np.float32)}) for name, scale in scales.items()],
        lambda number: (f"made up {number}", {"x": np.full(4, 0.02, np.float32)}),
        bound=0.01,
    )

    assert advice.is_confirmed
    assert ["Mul_2", "Sqrt_3"] == [node.name for node in advice.nodes]
    made_up = {f"made up {number}": "held out" for number in range(8)}
    assert {"seen": "searched", "held": "joined", "tiny": "held out"} | made_up == {
        error.example: error.use for error in advice.errors
    }
    assert [False, False, *[True] * 9] == [error.is_unseen for error in advice.errors]


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 9, 15])
def test_no_operator_can_go(seed, monkeypatch):
    """Of a set that is called the smallest, every operator is needed by an input of the search."""
    monkeypatch.setattr(search, "MOST_EXACT", 0)
    advice = nets.advice_for(nets.random_net(seed + 60, 30), "force_fp16", 3e-4, seeds=(0, 1, 2, 3))

    assert advice.is_smallest
    assert advice.measured.worst(advice.kept) <= advice.limit <= 3e-4
    for position in advice.kept:
        assert advice.measured.worst(advice.kept - {position}) > advice.limit


def test_a_search_that_may_spend_no_more(monkeypatch):
    """A set that was not shrunk to the end is not called the smallest."""
    monkeypatch.setattr(search, "MOST_EXACT", 0)
    monkeypatch.setattr(search, "_SHRINKING", 0)

    advice = nets.advice_for(nets.random_net(60, 30), "force_fp16", 3e-4)

    assert advice.is_confirmed
    assert not advice.is_smallest


def test_saturation():
    """Saturated results are finite and as wrong: the same operators are kept."""
    model = parser.parse_model(LATE_OVERFLOW)
    advice = nets.advice_for(model, "force_fp16", 0.01, overflow=OverflowMode.SATURATION)

    assert {"Mul_2", "Sqrt_3"} <= {node.name for node in advice.nodes}
    assert all(np.isfinite(error.before) for error in advice.errors)


def test_bfloat16_cures_a_range():
    """Operators that leave float16's range may move to bfloat16, which has the range and fewer digits."""
    model = parser.parse_model(LATE_OVERFLOW)
    advice = nets.advice_for(model, "force_fp16", 0.01, to=dtypes.BFLOAT16)
    narrower = nets.advice_for(model, "force_fp16", 1e-4, to=dtypes.BFLOAT16)

    assert advice.is_confirmed
    assert {"Mul_2", "Sqrt_3"} <= {node.name for node in advice.nodes}
    assert narrower.kept is None


def test_only_matrices_are_narrow(tmp_path):
    """Under the default mode, which narrows matrix operators alone, others are no candidates."""
    graph = loader.load(build("lenet", tmp_path))
    advice = nets.advice_for(graph, "allow_fp32_to_fp16", 1e-4)

    assert {"MatMul", "Conv"} >= {node.op_type for node in advice.nodes}
    assert 5 == len(advice.variants.candidates)
    assert advice.is_confirmed


def test_the_sample_that_overflows(tmp_path):
    """Of the sample network with a norm that overflows, exactly the norm is kept."""
    advice = nets.advice_for(loader.load(build("overflow", tmp_path)), "force_fp16", 0.01)

    assert ["norm/Mul_node_4", "norm/ReduceMean_node_5", "norm/Add_node_6", "norm/Sqrt_node_7"] == [
        node.name for node in advice.nodes
    ]


def test_branches_and_loops():
    """The operators of a branch are kept together, and both sides of an If count."""
    graph = loader.load("graphs/if.onnx")
    advice = nets.advice_for(graph, "force_fp16", 1e-5)

    assert advice.is_confirmed
    assert len(advice.nodes) == sum(len(body.nodes) for body in graph.nodes[-1].bodies.values())


@pytest.mark.parametrize("name", ["optional", "loop", "scan", "dynamic_shapes", "functions", "int4"])
def test_odd_networks_by_roundings(name, monkeypatch):
    """Absent values, branches, loops and odd types stand in no way of measuring roundings."""
    monkeypatch.setattr(search, "MOST_EXACT", 0)
    monkeypatch.setattr(search, "_ONE_STRETCH", 0)

    advice = nets.advice_for(loader.load(f"graphs/{name}.onnx"), "force_fp16", 1e-4)

    assert advice.is_confirmed
    assert 0 < len(advice.nodes) <= 4
    assert all(error.after <= 1e-4 for error in advice.errors)


def test_nothing_to_do():
    """A wide bound needs nothing."""
    advice = nets.advice_for(nets.random_net(3, 4), "force_fp16", 0.5)

    assert frozenset() == advice.kept
    assert advice.is_confirmed


LIKE = {
    "token ids lie between the smallest and the largest, padding stays": np.array([[7, 900, 31, 0, 0]]),
    "a mask stays": np.array([[1, 1, 1, 0, 0]], np.int32),
    "an additive mask stays": np.array([[0, -1e9], [0, 0]], np.float32),
    "truth values stay": np.array([True, False]),
    "floats are those of the file, zeros stay": np.array([0, 0.25, 0.5, 0.75, 1], np.float32),
    "types that numpy lacks": np.array([0, 3, 5, 7], ml_dtypes.bfloat16),
    "a size stays": np.array(640),
    "nothing": np.zeros((0, 3), np.float32),
    "an absent optional": None,
    "texts": np.array(["iron", "moss"], dtype=object),
}


@pytest.mark.parametrize("given", LIKE.values(), ids=LIKE)
def test_inputs_that_are_like_given_ones(given):
    """Made-up inputs have the type, shape, range and zeros of given ones, and are the same for a seed."""
    made, again, other = (inputs.like({"x": given}, seed)["x"] for seed in (0, 0, 1))

    assert np.array_equal(made, again)
    if given is None or given.dtype == object:
        assert given is made
        return
    assert (given.dtype, given.shape) == (made.dtype, made.shape)
    assert np.array_equal(given == 0, made == 0)
    kinds = np.unique(given[given != 0])
    if len(kinds) > 2:
        assert not np.array_equal(made, other)
    if given.dtype.kind == "i" and len(kinds) > 2:
        assert kinds.min() <= made[made != 0].min() <= made.max() <= kinds.max()
    else:
        assert set(made[made != 0].tolist()) <= set(kinds.tolist())


REFUSED = {
    "nothing is rounded": ("int64[4] x", "int64[4] y", "y = Add(x, x)", InputError, "rounds no operator"),
    "chance": (
        "float[4] x",
        "float[4] y",
        "n = RandomNormalLike(x) y = Add(x, n)",
        UnsupportedOpError,
        "in every run",
    ),
    "no truth": ("float[4] x", "float[4] y", "z = Sub(x, x) y = Div(x, z)", InputError, "NaN or infinities"),
}


@pytest.mark.parametrize(("given", "result", "body", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_no_advice(given, result, body, kind, message):
    """Networks without any advice are refused with the reason."""
    with pytest.raises(kind, match=message):
        nets.advice_for(
            parser.parse_model(f"{HEAD} net ({given}) => ({result}) {{ {body} }}"), "force_fp16", 0.1
        )
