"""The fault injection itself: what it draws, what it does, and that it sees a wrong answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.faults import dumps, kernels, lockstep, run, trials
from tests.faults.dumps import CPU, MODES
from tests.faults.faults import Fault
from tests.faults.networks import NETWORKS, network
from tests.faults.trials import Accused, Sides

SEEDS = range(24)
WEIGHTS = {"one value", "scaled", "noise"}


def test_equal_seeds_draw_equal_faults():
    """A trial is drawn again from its seed."""
    assert [str(trials.draw(seed)) for seed in SEEDS[:6]] == [str(trials.draw(seed)) for seed in SEEDS[:6]]


def test_every_fault_moves_what_its_operators_write():
    """A network with a fault computes something else, in what the faulty operator writes or behind it."""
    for seed in SEEDS:
        trial = trials.draw(seed)
        assert 1 <= len(trial.faults) <= 3
        sound = trials.sound_values(trial.net.name)
        for fault in trial.faults:
            faulty = trials.values_with(trial.net, (fault,))
            same = [name for name in sound if name in faulty and np.array_equal(sound[name], faulty[name])]
            assert len(same) < len(sound), str(trial)


def test_a_fused_kernel_shows_what_it_writes():
    """Inside of a fused kernel a fault matters by what the kernel writes; alone by what its operator does."""
    decoder = network("decoder")
    scaled = Fault("element", "", frozenset({"h/1/Mul_node_42"}), frozenset({"own"}))
    compiled = next(mode for mode in MODES if mode.is_compiled)

    assert ({"v_h.1.Mul_42"}, {"v_h.1.Add_43"}) == (
        trials.shown(decoder, scaled, CPU),
        trials.shown(decoder, scaled, compiled),
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_every_kernel_can_be_wrong(name):
    """A wrong kernel changes the result of its operator, whatever that is, and of none before it."""
    net, sound = network(name), trials.sound_values(name)
    for node in net.model.graph.node[::7]:
        value = node.output[0]
        if value not in sound or sound[value][0].dtype != np.float32:
            continue
        with kernels.injected({node.name: kernels.scaled(0.5)}):
            faulty = dumps.values(net, net.model)
        np.testing.assert_allclose(faulty[value][0], np.float32(1.5) * sound[value][0], rtol=1e-5)


def test_wrong_answers_are_seen(tmp_path):
    """A fault that nobody names, an innocent that is accused, and a wrong verdict are violations."""
    trial = trials.draw(0)
    dumped = trials.dumped(trial, tmp_path)
    sides = Sides(dumped.mine, dumped.golden)
    guilty = trials.guilty(trial.faults[0], sides)
    right = Accused("it", next(iter(trial.faults[0].verdicts)), guilty, 5)
    innocent = Accused("other", "own", frozenset({"fc3/Add_node_14"}), 2)

    def told(found, *, all_faults=True):
        return [text.split(":")[0] for text in trials.violations(trial, found, sides, all_faults=all_faults)]

    assert [] == told([right])
    assert ["not named"] == told([])
    assert ["innocent accused"] == told([right, innocent])
    assert ["accused before it"] == told([innocent, right], all_faults=False)
    assert ["misnamed"] == told([Accused("it", "shape", guilty)])


def test_a_second_fault_of_a_kernel_is_told_in_words():
    """A kernel with a wrong weight has one verdict; what else is wrong with it stands in its note."""
    notes = ["input 1 differs", "input 1 differs; in the place of Y", "input 1 differs; own error 0.1"]

    assert [{"weight"}, {"weight", "replaced"}, {"weight", "own"}] == [
        Accused("it", "weight", frozenset(), note=note).told for note in notes
    ]


def test_lockstep_names_a_changed_weight(tmp_path):
    """Two models that differ in a weight are run in lockstep, and the answer is held against the fault."""
    trial = next(
        trial for trial in map(lockstep.draw, SEEDS) if {each.kind for each in trial.faults} <= WEIGHTS
    )
    assert [] == lockstep.violations(trial, tmp_path)
    sound = replace(trial, faults=())
    assert [] == lockstep.violations(sound, tmp_path)


@pytest.mark.parametrize("seed", [58, 98, 411, 419])
def test_faults_that_put_kernels_together_otherwise(tmp_path, seed):
    """Every fault is named, and nobody else, where it moves names and what the device inserts."""
    assert [("model", [])] == [*run.answers(trials.draw(seed), tmp_path, checks=("model",))]


def test_swapped_inputs_of_a_product_without_a_graph(tmp_path):
    """A product that reads its operands in another order is named, and what wrote them is not missing."""
    assert [("files", [])] == [*run.answers(trials.draw(655), tmp_path, checks=("files",))]


@pytest.mark.parametrize(("error", "expected"), [(1e-3, True), (np.inf, False)])
def test_an_overflow_that_another_fault_hides_is_not_drawn(error, expected):
    """What is infinite on the device before a kernel runs shows no overflow inside of it."""
    net, mine = network("lenet"), next(mode for mode in MODES if mode.is_compiled)
    first, second = (node.name for node in net.model.graph.node if node.op_type == "Conv")
    faults = (
        Fault("error", "", frozenset({first}), frozenset({"own"}), wrong={first: kernels.scaled(error)}),
        Fault("overflow", "", frozenset({second}), frozenset(), wrong={second: kernels.overflowing(1e9)}),
    )

    assert expected == trials.is_written(net, faults[1], faults, mine)
