"""The smallest part of a model that explains a difference, and the bug report that runs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from msdump.errors import InputError
from msdump.graph import loader
from msdump.judge import Bisection, inputs, write_exchange
from msdump.judge.bisection import minimise
from msdump.judge.diff import pair_models
from tests.world import completed

GRAPHS = Path(__file__).resolve().parents[3] / "graphs"
EXPORTS = Path(__file__).resolve().parents[1] / "pair" / "exports"
HEAD = '<ir_version: 10, opset_import: ["" : 20]>'


@given(st.integers(1, 40), st.data())
def test_minimise_finds_what_the_test_needs(count, data):
    """For a test that needs some items, exactly these are left."""
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1))

    assert sorted(needed) == minimise(range(count), lambda part: needed <= set(part))


def with_weight(path, name, change):
    """Return a model of which one weight has been changed."""
    model = onnx.load(path)
    tensor = next(each for each in model.graph.initializer if each.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor).copy()), name))
    return model


def noisy(array):
    """Return a weight with noise."""
    noise = np.random.default_rng(0).standard_normal(array.shape).astype(array.dtype)
    return np.asarray(array * (1 + np.float32(0.1) * noise))


def bisection(mine, golden):
    """Return the search for the part that makes two models differ."""
    first, second = loader.load(mine), loader.load(golden)
    return (
        first,
        second,
        Bisection(first, second, pair_models(first, second), inputs.made_up(first, {}, 0, 0)),
    )


def weights_of(path, rank):
    """Return the names of a model's weights of some number of dimensions."""
    tensors = onnx.load(path).graph.initializer
    return [each.name for each in tensors if len(each.dims) == rank and each.data_type == 1]


@pytest.mark.parametrize("number", [0, 2, -1])
@pytest.mark.parametrize("network", ["lenet", "transformer"])
def test_the_reader_of_a_changed_weight_is_found(network, number):
    """One operator explains the difference that its weight makes."""
    path = GRAPHS / f"{network}.onnx"
    name = [each for each in weights_of(path, 2) if "embedding" not in each][number]
    _, _, search = bisection(with_weight(path, name, noisy), path)

    part = search.find()

    assert [True] == [f"other:{name}" in node.inputs for node in part.spliced.taken]
    assert [name in node.inputs for node in part.spliced.given] == [True]
    assert part.difference == pytest.approx(part.whole, rel=1e-3)


def test_two_exports_share_no_name_and_yet_exchange_operators():
    """The faulty operator of one export takes the place of its counterpart in the other one."""
    path = EXPORTS / "transformer_dynamo.onnx"
    name = weights_of(path, 2)[2]
    _, _, search = bisection(with_weight(path, name, noisy), EXPORTS / "transformer_torchscript.onnx")

    part = search.find()

    assert (
        ["MatMul"]
        == [node.op_type for node in part.spliced.taken]
        == [node.op_type for node in part.spliced.given]
    )


def test_the_folder_runs(tmp_path):
    """Its script runs both parts and prints how far they are apart."""
    path = GRAPHS / "lenet.onnx"
    name = weights_of(path, 2)[0]
    mine, golden, search = bisection(with_weight(path, name, noisy), path)
    paths = write_exchange(search.find(), mine, golden, str(tmp_path / "report"))

    done = completed(sys.executable, paths[-1], check=True)

    assert ["mine.onnx", "golden.onnx", "inputs.npz", "run.py"] == [Path(each).name for each in paths]
    assert "relative distance 0.1" in done.stdout or "relative distance 0.0" in done.stdout
    assert "relative distance 0\n" not in done.stdout


NET = """
net (float[2,4] x) => (float[2,4] y) <float[4] b = {0.5, -1.0, 2.0, 0.25}>
{ first = Mul(x, b) second = Add(first, b) third = Relu(second) fourth = Exp(third) y = Sub(fourth, x) }
"""


def test_two_faults_are_found_together():
    """Neither of two errors that count half each explains the whole difference alone."""
    faulty = NET.replace("Add(first, b)", "Sub(first, b)").replace("Exp(third)", "Neg(third)")
    _, _, search = bisection(*(parser.parse_model(f"{HEAD} {text}") for text in (faulty, NET)))

    part = search.find()

    assert {"Sub", "Neg"} >= {node.op_type for node in part.spliced.taken}
    assert part.difference >= part.whole / 2


def test_element_types_are_cast_where_parts_meet():
    """A model in float16 gives its operators to one in float32."""
    small = NET.replace("float[2,4]", "float16[2,4]").replace("Relu(second)", "Abs(second)")
    small = small.replace("] b =", "] c =").replace("{ first", "{ b = Cast <to = 10> (c) first")
    _, _, search = bisection(*(parser.parse_model(f"{HEAD} {text}") for text in (small, NET)))

    part = search.find()

    assert "Abs" in {node.op_type for node in part.spliced.taken}
    assert {"Abs", "Cast"} >= {node.op_type for node in part.spliced.taken}


def test_equal_models_have_nothing_to_look_for():
    """Equal outputs need no explanation."""
    _, _, search = bisection(*(parser.parse_model(f"{HEAD} {NET}") for _ in range(2)))

    with pytest.raises(InputError, match="give the same outputs"):
        search.find()
