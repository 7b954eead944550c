"""``ranks_disagree`` while ranks run: warnings, files, and ranks that do not come."""

import json
import logging

import numpy as np
import pytest
from onnx import TensorProto, helper

import msdump
from msdump import communication
from msdump.errors import RankError, WatchHitError
from tests import steps
from tests.communication import launching
from tests.communication.models import collective, model, saved
from tests.communication.test_dumps import CONTEXTS
from tests.world import common_settings

RULE = {"condition": "ranks_disagree"}
X = np.ones((4, 6), np.float32)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setenv("MSDUMP_COMMUNICATION_TIMEOUT", "20")


@pytest.fixture
def configured(tmp_path):
    """Return a function that gives a configuration with rules."""

    def configure(*rules, saved_data="tensor", file_format="npy", **own):
        common = common_settings(
            tmp_path / "dump", saved_data=saved_data, support_device=[0, 1, 2], file_format=file_format
        )
        return {
            "common_dump_settings": common,
            "e2e_dump_settings": {"enable": True, "trans_flag": True},
            "msdump": {"watch": list(rules or (RULE,)), **own},
        }

    return configure


def scaled(last=2.0, *, with_collective=False):
    """Return a model with one weight, of which an element is given."""
    weight = np.float32([2, 2, 2, 2, 2, last])
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"], name="mul"), helper.make_node("Neg", ["a"], ["b"])]
    nodes.append(
        collective("AllReduce", ("b",), ("y",)) if with_collective else helper.make_node("Abs", ["b"], ["y"])
    )
    made = model(nodes)
    made.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [6], weight))
    return made


def run(config, context, *, ranks=3, steps=3, odd=1, **settings):
    """Run a model as ranks, of which one has a weight that is off by a bit; return the errors."""
    raised = {}

    def work():
        rank = communication.get_rank()
        network = msdump.load(
            scaled(np.nextafter(np.float32(2), 3) if rank == odd else 2.0, **settings),
            config=config,
            context=context,
        )
        try:
            for _ in range(steps):
                network(X)
        except (WatchHitError, RankError) as error:
            raised[rank] = error

    communication.spawn(ranks, work)
    return raised


def told(caplog):
    """Return the warnings about rules."""
    return [each.getMessage() for each in caplog.records if "watch rule" in each.getMessage()]


@pytest.mark.parametrize("with_collective", [False, True])
@pytest.mark.parametrize("level", CONTEXTS)
def test_the_rank_that_differs_is_told(level, with_collective, configured, caplog):
    """A weight that is off by a bit on one rank of three is one warning, with the ranks that agree."""
    with caplog.at_level(logging.WARNING, "msdump"):
        run(configured(on_hit="log"), CONTEXTS[level], with_collective=with_collective)

    hits = [each for each in told(caplog) if "in iteration" in each]
    assert 1 == len(hits)
    assert all(each.endswith(": rank 1 differs from rank 0, 2") for each in hits)
    assert all("'ranks_disagree' hit in iteration 0: " in each for each in hits)


@pytest.mark.parametrize("level", CONTEXTS)
def test_ranks_that_agree_are_quiet(level, configured, caplog):
    """Ranks with the same weights write nothing into a history and are not warned of."""
    with caplog.at_level(logging.WARNING, "msdump"):
        assert {} == run(configured(history=1), CONTEXTS[level], odd=None)

    assert [] == told(caplog)


def test_history_of_all_ranks_is_written(configured, tmp_path):
    """Where one rank differs, all of them write their kept steps, so that they can be compared."""
    run(configured(RULE | {"iterations": "2"}, history=2), CONTEXTS["O0"], steps=4)

    notes = [json.loads((tmp_path / "dump" / f"msdump_history_{rank}.json").read_text()) for rank in range(3)]
    assert [[[0, 1, 2]]] * 3 == [[each["written"] for each in note["released"]] for note in notes]
    assert all("rank 1 differs from rank 0, 2" in note["released"][0]["reason"] for note in notes)


@pytest.mark.parametrize("with_collective", [False, True])
def test_stop_ends_all_ranks(with_collective, configured):
    """The rank that differs raises the hit; the others hear of it where they wait."""
    raised = run(configured(on_hit="stop"), CONTEXTS["O0"], with_collective=with_collective)

    assert {0: RankError, 1: WatchHitError, 2: RankError} == {k: type(v) for k, v in raised.items()}
    assert "hit at Default/Mul-op0 in iteration 0: input.1: rank 1 differs from rank" in str(raised[1])
    assert "rank 1 failed: WatchHitError" in str(raised[0])


def test_weights_that_part_in_training(configured, caplog):
    """A rank that is fed something else without an exchange of gradients parts in the step after."""

    def work():
        network = msdump.load(
            steps.message(steps.PLAIN),
            config=configured(on_hit="log"),
            context=CONTEXTS["O0"],
            update_binding=steps.BINDING,
        )
        for step in range(4):
            odd = step == 2 and communication.get_rank() == 2
            network.train_step(-steps.X if odd else steps.X, steps.T)

    with caplog.at_level(logging.WARNING, "msdump"):
        communication.spawn(3, work)

    hits = [each for each in told(caplog) if " in iteration " in each]
    assert ["Default/ApplyMomentum-op0 input.0: rank 2 differs from rank 0, 1"] == [
        each.partition("iteration 2: ")[2] for each in hits
    ]


def test_chosen_tensors_and_statistics(configured, caplog):
    """Any tensor can be compared, also where only its statistics are dumped."""
    rule = {"condition": "ranks_disagree", "role": "any", "types": ["AllReduce"], "io": "output"}
    with caplog.at_level(logging.WARNING, "msdump"):
        run(
            configured(
                rule,
                RULE | {"name": "outputs", "role": "any", "types": ["Neg"]},
                on_hit="log",
                saved_data="statistic",
            ),
            CONTEXTS["O0"],
            with_collective=True,
        )

    assert ["outputs"] == sorted({each.split("'")[1] for each in told(caplog) if "in iteration" in each})


def test_rank_that_stays_away_is_not_waited_for_again(configured, caplog):
    """A rank that ends its program earlier ends the comparison, not the run of the others."""

    def work():
        rank = communication.get_rank()
        network = msdump.load(scaled(), config=configured(on_hit="log"), context=CONTEXTS["CPU"])
        for _ in range(2 if rank else 5):
            network(X)

    with caplog.at_level(logging.WARNING, "msdump"):
        communication.spawn(2, work)

    (line,) = told(caplog)
    assert "watch rules no longer compare ranks" in line
    assert "rank 1 has ended its program" in line


def test_one_rank_has_nobody_to_agree_with(configured, caplog):
    """A single rank gets one warning that the rule cannot be checked."""
    with caplog.at_level(logging.WARNING, "msdump"):
        run(configured(on_hit="log"), CONTEXTS["O0"], ranks=1, odd=None)

    (line,) = told(caplog)
    assert "only one rank has the tensor" in line


PROGRAM = """
import sys
import numpy as np
import msdump
from msdump import communication
from msdump.errors import WatchHitError

rank = communication.get_rank()
network = msdump.load(f"rank{rank}.onnx", config="dump.json")
try:
    for _ in range(3):
        network(np.ones((4, 6), np.float32))
except WatchHitError as error:
    print(error, flush=True)
"""


@launching.needs_mpi
def test_processes_of_mpi_are_compared(configured, tmp_path):
    """Ranks that are processes compare as threads do."""
    for rank in range(2):
        saved(tmp_path / f"rank{rank}.onnx", scaled(2.0 + rank))
    (tmp_path / "dump.json").write_text(json.dumps(configured(on_hit="stop")))

    _, out, err = launching.python(2, PROGRAM, tmp_path, MSDUMP_COMMUNICATION_TIMEOUT="20").end()

    assert "in iteration 0: input.1: rank 1 differs from rank 0\n" in out, err
    assert "rank 1 failed: WatchHitError" in err
