"""Single roundings: who causes them, and that their errors, added as squares, are the device's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from msdump.graph import loader
from msdump.judge.advise import Variants
from msdump.judge.advise.search import BROKEN, RoundingMeter, list_roundings
from msdump.judge.advise.variants import DeviceRuns, golden
from msdump.plan import OverflowMode, PrecisionMode
from sample_nets.build import build
from tests.judge.advise import nets

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def variants_of(graph, mode="force_fp16"):
    """Return the operators of a graph in two precisions."""
    return Variants(graph, PrecisionMode(mode), OverflowMode.INFNAN)


def test_guards():
    """Each use of a tensor is a rounding of all that it passes; weights belong to their reader."""
    text = f"""{HEAD} net (float[2, 3] x) => (float[3, 2] y, float[2, 2] z)
    <float[3, 2] w = {{1, 2, 3, 4, 5, 6}}> {{ a = Exp(x) m = MatMul(a, w) y = Transpose(a) z = Relu(m) }}"""

    found = list_roundings(variants_of(loader.load(parser.parse_model(text))))

    assert [
        ("", [1]),
        ("a", [0, 1]),  # the Exp writes it, the MatMul reads it
        ("m", [1, 3]),
        ("x", [0]),  # the Exp reads it
        ("y", [0, 2]),  # the Transpose moves it
        ("z", [3]),
    ] == sorted((single.name, sorted(single.guards)) for single in found)


def test_guards_of_matrices_alone():
    """Where only matrix operators are narrow, each is to blame for its inputs."""
    text = f"""{HEAD} net (float[2, 2] x) => (float[2, 2] y) <float[2, 2] w = {{1, 2, 3, 4}}>
    {{ a = Exp(x) m = MatMul(a, w) y = Relu(m) }}"""

    found = list_roundings(variants_of(loader.load(parser.parse_model(text)), "allow_fp32_to_fp16"))

    assert [({1}, "a"), ({1}, "")] == [(set(single.guards), single.name) for single in found]


@pytest.mark.parametrize("stretches", [1, 4])
@pytest.mark.parametrize("name", ["lenet", "graphs/transformer.onnx"])
def test_errors_add_up(name, stretches, tmp_path):
    """The predicted error of several sets is the device's own within a half."""
    graph = loader.load(name if name.endswith(".onnx") else build(name, tmp_path))
    variants = variants_of(graph)
    example = golden("0", nets.examples(graph, 0)[0][1], nets.truth_of(graph))
    singles = list_roundings(variants)
    energies = RoundingMeter(variants, example, stretches).energies(singles)
    runs, positions = DeviceRuns(variants, [example]), sorted(variants.candidates)

    def predicted(kept):
        return energies[[not single.guards <= kept for single in singles]].sum(axis=0).max(initial=0) ** 0.5

    for kept in ((), positions[::2], positions[: len(positions) // 2], positions[len(positions) // 2 :]):
        assert predicted(frozenset(kept)) == pytest.approx(runs.worst(frozenset(kept)), rel=0.5)
    assert predicted(frozenset(positions)) == runs.worst(frozenset(positions)) == 0


@pytest.mark.parametrize("stretches", [1, 2])
def test_an_overflow_breaks_the_outputs(stretches):
    """A tensor that leaves the range is distinguished from one that is merely rounded."""
    text = f"""{HEAD} net (float[4] x) => (float[4] y) <float k = {{2000.0}}>
    {{ a = Mul(x, k) b = Mul(a, a) c = Sqrt(b) y = Div(c, k) }}"""
    graph = loader.load(parser.parse_model(text))
    variants = variants_of(graph)
    feeds = {"x": np.array([1, 2, 3, 4], np.float32)}
    singles = list_roundings(variants)

    energies = RoundingMeter(variants, golden("0", feeds, nets.truth_of(graph)), stretches).energies(singles)

    broken = {each.name for each, energy in zip(singles, energies, strict=True) if not energy.max() < BROKEN}
    assert {"b"} == broken


def test_runs_side_by_side():
    """Sets that run side by side have the errors that each has alone."""
    graph = loader.load(nets.random_net(5, 12))
    variants, rng = variants_of(graph), np.random.default_rng(0)
    inputs = [golden(name, feeds, nets.truth_of(graph)) for name, feeds in nets.examples(graph, 0, 1)]
    sets = [frozenset(rng.choice([*variants.candidates], size).tolist()) for size in rng.integers(0, 12, 30)]

    together = DeviceRuns(variants, inputs).errors(sets, inputs)

    assert [
        [DeviceRuns(variants, [each]).errors([kept], [each])[0][0] for each in inputs] for kept in sets
    ] == together
