"""Work by the workers of a Dask scheduler, one of which is killed."""

from __future__ import annotations

import socket
import sys
from functools import partial
from pathlib import Path

import pytest

from msdump.errors import NotAvailableError, ToolError
from msdump.tools.mapping import cluster, mapper, versions
from msdump.tools.mapping.executors import ExecutorChoice
from tests.tools.mapping import work

ROOT = Path(__file__).parents[3]

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'msdump[cluster]'")


@pytest.fixture(scope="module")
def scheduler():
    """Start a scheduler with two worker processes and return its address."""
    from distributed import LocalCluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as started:
            yield started.scheduler_address


def each(address, function, items, **options):
    """Return all results of a map over the workers, each item a unit of its own."""
    return list(
        mapper.each(
            function, items, size=lambda _: 1 << 40, executor=ExecutorChoice(scheduler=address), **options
        )
    )


def test_results_have_the_order_of_the_items(scheduler, in_processes):
    """Two processes work, and results come in the order of the items."""
    in_processes()
    results = each(scheduler, work.placed, range(60))

    assert [*range(60)] == [number for number, _ in results]
    assert 2 == len({process for _, process in results})


def test_error_and_messages_come_in_their_place(scheduler, caplog):
    """What is raised and logged on a worker is raised and logged here, behind the results before it."""
    sizes = []

    with pytest.raises(ValueError, match="no 3"):
        each(scheduler, work.failing, range(10), progress=sizes.append)

    assert ["looks at 0", "looks at 1", "looks at 2", "looks at 3"] == caplog.messages
    assert 3 == len(sizes)


def test_worker_of_another_version(scheduler, monkeypatch):
    """A worker that has another version is refused, and both are named."""
    mine = versions.here()
    monkeypatch.setattr(versions, "here", lambda: "msdump 9.9")

    with pytest.raises(ToolError) as caught:
        each(scheduler, work.placed, [1])

    told = str(caught.value)
    assert told.startswith(f"a worker has another version: {mine} (")
    assert told.endswith("), not msdump 9.9; install the same on both sides")


def test_path_that_workers_do_not_see(scheduler, tmp_path):
    """Workers that do not see the dump are refused."""
    with pytest.raises(ToolError, match=f"does not see {tmp_path}/none; workers need the file system"):
        each(scheduler, work.placed, [1], paths=(f"{tmp_path}/none",))


def test_paths_may_be_relative(scheduler, tmp_path, monkeypatch):
    """The working directory is that of the caller."""
    monkeypatch.chdir(tmp_path)

    assert [tmp_path] == each(scheduler, Path.absolute, [Path()])


def test_scheduler_without_workers(monkeypatch):
    """A scheduler that nobody works for is an error after a while."""
    from distributed import LocalCluster

    monkeypatch.setattr(cluster, "WAITING", 0.2)
    with LocalCluster(n_workers=0, dashboard_address=":0") as alone:
        address = alone.scheduler_address
        with pytest.raises(ToolError, match=f"{address}: it has had no worker for 0.2 s; start dask worker"):
            each(address, work.placed, [1])


def test_scheduler_that_is_not_there(monkeypatch):
    """A scheduler that does not answer is an error that names it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(cluster, "CONNECTING", 0.5)

    with pytest.raises(ToolError, match=f"--scheduler tcp://127.0.0.1:{port}: no Dask scheduler answers"):
        each(f"tcp://127.0.0.1:{port}", work.placed, [1])


@pytest.mark.parametrize("address", ["there", "tcp://there", "udp://there:1", "there:"])
def test_address_that_is_none(address):
    """A text that is no address is refused at once."""
    with pytest.raises(ToolError, match=f"--scheduler {address}: no address of a Dask scheduler"):
        each(address, work.placed, [1])


def test_without_dask(monkeypatch):
    """Without the package the extra is named."""
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(NotAvailableError, match=r"pip install 'msdump\[cluster\]'"):
        each("tcp://127.0.0.1:1", work.placed, [1])


def test_worker_that_dies_costs_its_unit(scheduler, tmp_path, in_processes):
    """Where workers die, what they worked on runs again, and nothing else is lost."""
    in_processes()

    assert [*range(30)] == each(scheduler, partial(work.killed_once, tmp_path, {3}), range(30))

    calls = [int(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert {*range(30)} == {*calls}
    assert calls.count(3) == 2


def test_unit_that_kills_is_told(scheduler):
    """Dask gives a unit up at its own limit, which is told with the unit's name."""
    with pytest.raises(ToolError, match=r"Dask gave up item 1: .* 4 different workers.*allowed-failures"):
        each(scheduler, work.killed, [1], name=lambda number: f"item {number}")
