"""What compare answers on a few trials: the first fault by the files alone, all faults with the model."""

from __future__ import annotations

import logging

import pytest

from tests.faults import run, trials

SEEDS = (0, 7, 15, 26, 48, 58)
"""Trials of small networks, one in each way to dump."""


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_are_named(tmp_path, seed):
    """By the files the first fault is named, with the model every one, and nobody else is accused."""
    trial = trials.draw(seed)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told, str(trial)


@pytest.mark.parametrize("network", ["lenet", "mlp"])
def test_sound_networks_are_not_accused(tmp_path, network):
    """A sound network beside itself on the CPU and in another arithmetic accuses nobody."""
    pairs = [trial for trial in run.sound_pairs() if trial.net.name == network]
    for number, trial in enumerate(pairs[1::5]):
        told = dict(run.answers(trial, tmp_path / str(number), checks=("files", "model")))
        assert {"files": [], "model": []} == told, str(trial)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_trials(capsys):
    """Of a hundred trials every answer is right."""
    wrong = run.run(run.jobs(("files", "model"), range(100)), None)

    assert 0 == wrong, capsys.readouterr().out
