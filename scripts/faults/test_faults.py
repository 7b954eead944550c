"""The fault injection itself sees wrong answers, and names faults in lockstep and in the table."""

from dataclasses import replace

import pytest

from scripts.faults import packages, run, table, trials
from scripts.faults.answers import Accused, dumped
from scripts.faults.dumps import CPU, LOCKSTEP
from scripts.faults.violations import guilty, violations

SEEDS = range(24)
WEIGHTS = {"one value", "scaled", "noise"}


def test_wrong_answers_are_seen(tmp_path):
    """A fault that is not named, an innocent that is accused, and a wrong verdict are violations."""
    trial = trials.draw(0)
    sides = dumped(trial, tmp_path)
    nodes = guilty(trial.faults[0], sides)
    right = Accused("it", next(iter(trial.faults[0].verdicts)), nodes, 5)
    innocent = Accused("other", "own", frozenset({"fc3/Add_node_14"}), 2)

    def told(found, *, all_faults=True):
        return [text.split(":")[0] for text in violations(trial, found, sides, all_faults=all_faults)]

    assert [] == told([right])
    assert ["not named"] == told([])
    assert ["innocent accused"] == told([right, innocent])
    assert ["accused before it"] == told([innocent, right], all_faults=False)
    assert ["misnamed"] == told([Accused("it", "shape", nodes)])


def test_lockstep_names_a_changed_weight(tmp_path):
    """Two models that differ in a weight are run in lockstep, and the answer is held against the fault."""
    drawn = (trials.draw(seed, LOCKSTEP, beside=CPU) for seed in SEEDS)
    trial = next(trial for trial in drawn if {each.kind for each in trial.faults} <= WEIGHTS)
    for case in (trial, replace(trial, faults=())):
        assert [("diff", [])] == [*run.answers(case, tmp_path, checks=("diff",))]


@pytest.mark.parametrize("seed", [58, 98, 419])
def test_faults_that_move_names_or_inputs(tmp_path, seed):
    """Every fault alone is named: kernels are fused otherwise, operands of a product swapped."""
    assert [("model", [])] == [*run.answers(trials.draw(seed), tmp_path, checks=("model",))]


@pytest.mark.parametrize("kind", ["dropped", "stomped", "O0 beside CPU"])
def test_table_counts_answers(tmp_path, kind):
    """A fault that is named counts in the table, and a sound pair that is not accused."""
    [row], skipped = table.rows("lenet", kind, 0, methods=("files",), keep=tmp_path)
    assert ("", (), 0) == (row.error, row.accused, skipped)
    line = f"{kind:52}{'0, 0 of 1' if row.is_sound else '1, 1 of 1':>20}"
    assert any(each.startswith(line) for each in table.table([row]).splitlines())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_wrong_range_of_a_quantised_tensor(tmp_path, seed):
    """A scale or zero point that does not fit is named beside a network that is not quantised."""
    found, _ = table.rows("recurrent", "quantisation", seed, methods=("files", "model"), keep=tmp_path)

    assert [("", True, ())] * 2 == [(row.error, row.is_named, row.accused) for row in found]


def test_networks_that_cannot_be_had_are_skipped(monkeypatch, capsys):
    """A table leaves out a network if its package cannot be downloaded, and says why."""

    def network(name):
        raise packages.UnavailableError("no network")

    monkeypatch.setattr(table, "network", network)
    assert 0 == table.measure(["magika"], ["dropped"], [0])
    assert "skipped: magika: no network" in capsys.readouterr().out
