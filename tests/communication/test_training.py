"""Ranks of MPI that train together."""

from __future__ import annotations

import re

import numpy as np
import pytest

import msdump
from msdump.record import IO
from tests.communication import launching
from tests.communication.launching import MPIRUN, ROOT, Launch


def _records(rank):
    """Return the records of every dumped step of a rank's training graph."""
    (network,) = rank.networks.values()
    return {step: iteration.records for step, iteration in network.graphs[0].iterations.items()}


def _reduced(records):
    """Return what AllReduce made, by operator."""
    return {
        record.op_name: record.array
        for record in records
        if record.op_type == "AllReduce" and record.io is IO.OUTPUT
    }


@launching.needs_mpi
@pytest.mark.timeout(180)
def test_demonstration_trains_on_two_ranks(tmp_path):
    """Two ranks of the demonstration dump the same averages of different gradients, and learn."""
    command = [MPIRUN, "-n", "2", "bash", str(ROOT / "scripts/dump_train.sh"), str(tmp_path)]

    code, out, err = Launch(command, tmp_path, STEPS="12", BATCH="16").end()

    assert (0, "") == (code, err)
    losses = [float(loss) for loss in re.findall(r"^epoch: 1 step: \d+, loss is (\S+)$", out, re.MULTILINE)]
    assert losses[-1] < losses[0]
    assert {"rank_0", "rank_1"} == set(re.findall(r"^(rank_\d): the backward pass", out, re.MULTILINE))
    first, second = (_records(rank) for rank in msdump.open_dump(tmp_path / "debug_dump").ranks.values())
    assert [0, 2, 3] == list(first) == list(second)
    for step, records in first.items():
        averages, others = _reduced(records), _reduced(second[step])
        assert 8 == len(averages) == len(others)
        for name, average in averages.items():
            np.testing.assert_array_equal(average, others[name])
    inputs = [
        {
            record.op_name: record.array
            for record in side[0]
            if record.op_type == "AllReduce" and record.io is IO.INPUT
        }
        for side in (first, second)
    ]
    assert not any(np.array_equal(inputs[0][name], inputs[1][name]) for name in inputs[0])
