"""The dump through the graph engine's options: Ascend O2 under ENABLE_MS_GE_DUMP=1."""

import numpy as np
import pytest

from msdump import open_dump
from tests.dump import o2
from tests.texts import parsed

FEEDS = {"x": np.array([1, -2], np.float32)}
HUGE = {"x": np.full(2, 3e38, np.float32)}


@pytest.fixture
def ge(door):
    """Turn the graph engine's options on."""
    door.monkeypatch.setenv("ENABLE_MS_GE_DUMP", "1")
    return door


def doubled():
    """Return a sum and an activation."""
    return parsed('graph (float[2] x) => (y) { ["sum/Add"] a = Add(x, x) ["act/Relu"] y = Relu(a) }')


def test_tree(ge):
    """All steps stand below the time at which the dump was configured; there is no file for acl."""
    o2.dump(ge, doubled(), FEEDS, steps=3)

    assert [(None, 0, "graph", 1, step) for step in range(3)] == o2.places(ge.path)
    (time,) = ge.path.iterdir()
    assert time.name.isdigit()
    assert 14 == len(time.name)


def test_iterations(ge):
    """Only the steps that iteration names are dumped; the directory is the step's number."""
    o2.dump(ge, doubled(), FEEDS, steps=4, iteration="1|3")

    assert [(None, 0, "graph", 1, 1), (None, 0, "graph", 1, 3)] == o2.places(ge.path)


@pytest.mark.parametrize("file_format", ["bin", "npy"])
def test_files(ge, file_format):
    """The files equal Ascend O2's."""
    o2.dump(ge, doubled(), FEEDS, file_format=file_format)

    assert [("Data", "x"), ("Add", "Default_sum_Add-op0"), ("ReLU", "Default_act_ReLU-op0")] == (
        o2.operators(o2.folder(ge.path))
    )


def test_statistics(ge):
    """statistic.csv stands beside the operators."""
    o2.dump(ge, doubled(), FEEDS, file_format="npy", saved_data="statistic")

    (iteration,) = open_dump(ge.path).iterations
    assert ["Data", "Add", "Add", "Add", "ReLU", "ReLU"] == [row["Op Type"] for row in iteration.statistics]


def test_overflow(ge):
    """op_debug_mode 3 gives the operator and its record."""
    o2.dump(ge, doubled(), HUGE, op_debug_mode=3)

    (iteration,) = open_dump(ge.path).iterations
    assert ["Add", "ReLU"] == [file.name.op_type for file in iteration.files]
    assert [0, 1] == [told.fields["acc_list"]["data"]["task_id"] for told in iteration.overflows]


@pytest.mark.parametrize("value", ["0", "", "yes"])
def test_other_values_are_off(door, value):
    """Only 1 turns the graph engine's options on."""
    door.monkeypatch.setenv("ENABLE_MS_GE_DUMP", value)

    o2.dump(door, doubled(), FEEDS)

    assert [(0, 0, "graph", 1, 0)] == o2.places(door.path)
