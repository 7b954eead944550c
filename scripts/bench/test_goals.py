"""The table of goals: every job is there, and words choose lines."""

import pytest

from scripts.bench import goals, work
from scripts.bench.goals import Row

FEW = (
    Row("run", "run / whole graph", "running.of_whole", (("lenet", 1), ("mobilenetv2", 1)), (1, 2), 1.1),
    Row("files", "files a second", "dumping.files_a_second", goals.NONE, (2,), 100, is_floor=True),
)


@pytest.mark.parametrize("job", sorted({row.job for row in goals.ROWS}))
def test_every_job_is_there(job):
    """Each row names a function."""
    assert callable(work.find(job))


def test_no_goal_stands_twice():
    """A quantity on a network with so many threads has one limit."""
    everything = [str(goal) for goal in goals.goals()]

    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        ("", ["lenet 1", "lenet 2", "mobilenetv2 1", "mobilenetv2 2", " 2"]),
        ("run", ["lenet 1", "lenet 2", "mobilenetv2 1", "mobilenetv2 2"]),
        ("lenet", ["lenet 1", "lenet 2"]),  # which mobilenetv2 only contains
        ("run mobile", ["mobilenetv2 1", "mobilenetv2 2"]),
        ("files,lenet", ["lenet 1", "lenet 2", " 2"]),
        ("2 threads lenet", ["lenet 2"]),
    ],
)
def test_words_choose_goals(only, chosen):
    """All words of an alternative hold, names of rows or beginnings of words; the order is the table's."""
    assert chosen == [f"{goal.network} {goal.threads}" for goal in goals.chosen(only, FEW)]


@pytest.mark.parametrize("only", ["nothing", "run,nothing", "run,", "files lenet"])
def test_an_alternative_that_chooses_nothing_is_told(only):
    """A word that is misspelt must not measure less than was meant."""
    with pytest.raises(ValueError, match="chooses no goal: names are run, files"):
        goals.chosen(only, FEW)
