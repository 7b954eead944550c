"""The dump of very many ranks, with few of them."""

import pytest

from scripts.bench import thousand_ranks

COMMANDS = ["compare, 2 jobs", "baseline, 2 jobs"]


@pytest.mark.slow
def test_every_rank_goes_through(tmp_path):
    """Commands end as expected, and their files have every rank."""
    thousand_ranks.fill(tmp_path, 3)

    costs = list(thousand_ranks.costs(tmp_path, COMMANDS))

    assert COMMANDS == [name for name, _ in costs]
    assert all(cost.seconds > 0 and cost.mib > 10 for _, cost in costs)
    assert 3 == len(list((tmp_path / "baseline").glob("rank_*")))
    (table,) = (tmp_path / "out").iterdir()
    assert all(f"rank_{rank}/" in table.read_text() for rank in range(3))
