"""Work by several processes: order, errors, messages, and processes that die."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump.errors import ToolError
from msdump.tools.mapping import mapper
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.mapping.sizes import ITEM_COST, LARGE, Batches
from tests.tools.mapping import work

MUCH = 1 << 40
LITTLE = 1
TWO = ExecutorChoice(2)


def each(function, items, executor=TWO, size=MUCH, **options):
    """Return all results of a map."""
    return list(mapper.each(function, items, size=lambda _: size, executor=executor, **options))


def scaled(factor, number):
    """Return a product, and the process that made it."""
    return number * factor, os.getpid()


def test_results_have_the_order_of_the_items():
    """Results of several processes come in the order of the items."""
    results = each(partial(scaled, 2), range(50))

    assert [2 * number for number in range(50)] == [product for product, _ in results]
    assert os.getpid() not in {process for _, process in results}


@pytest.mark.parametrize(("size", "jobs"), [(LITTLE, 2), (MUCH, 1)], ids=["little work", "one job"])
def test_little_work_stays_in_this_process(size, jobs):
    """No process is started where it would cost more than it saves, or where one is asked for."""
    results = each(partial(scaled, 2), [1, 2, 3], ExecutorChoice(jobs), size)

    assert [(2, os.getpid()), (4, os.getpid()), (6, os.getpid())] == results


def threaded(number):
    """Return the number, the process and whether this is its first thread."""
    return number, os.getpid(), threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize(
    ("size", "jobs", "in_threads", "expected"),
    [
        pytest.param(MUCH, 2, True, (True, False), id="threads"),
        pytest.param(LARGE, 2, True, (True, False), id="just large enough"),
        pytest.param(LARGE - 1, 2, True, (False, True), id="small items go to processes"),
        pytest.param(MUCH, 1, True, (True, True), id="one job"),
        pytest.param(MUCH, 2, False, (False, True), id="work that holds the interpreter"),
    ],
)
def test_threads_work_on_large_items(size, jobs, in_threads, expected):
    """Work that may be done by threads is, where items are large; results keep the order of the items."""
    sizes = []

    results = each(
        threaded, range(30), ExecutorChoice(jobs), size, in_threads=in_threads, progress=sizes.append
    )

    assert list(range(30)) == [number for number, _, _ in results]
    assert {expected} == {(process == os.getpid(), is_main) for _, process, is_main in results}
    assert sizes == [size] * 30


def test_error_in_a_thread_comes_in_its_place():
    """What a thread raises is raised here, behind the results before it; later items are left."""
    seen = []

    results = mapper.each(work.failing, range(10), size=lambda _: MUCH, executor=TWO, in_threads=True)
    with pytest.raises(ValueError, match="no 3"):
        seen.extend(results)

    assert seen == [0, 1, 2]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("size", [LITTLE, MUCH], ids=["one unit", "a unit for each"])
def test_error_and_messages_come_in_their_place(caplog, in_processes, jobs, size):
    """What is raised and logged elsewhere is raised and logged here, behind the results before it."""
    in_processes(0.25)
    seen, sizes = [], []

    with pytest.raises(ValueError, match="no 3"):
        seen += mapper.each(
            work.failing, range(10), size=lambda _: size, executor=ExecutorChoice(jobs), progress=sizes.append
        )

    assert ["looks at 0", "looks at 1", "looks at 2", "looks at 3"] == caplog.messages
    assert [size] * 3 == sizes


def test_results_before_an_error_are_there(in_processes):
    """A unit whose third item fails gives the results of the first two."""
    in_processes(0.25)
    results = mapper.each(work.failing, [1, 2, 3, 4], size=lambda _: LITTLE, executor=TWO)

    assert [1, 2] == [next(results), next(results)]
    with pytest.raises(ValueError, match="no 3"):
        next(results)


def test_killed_process_is_told():
    """A unit of which every process dies is an error that names it and says what may help."""
    with pytest.raises(
        ToolError, match=r"a process was killed while it worked, .* on item 0, .*; try --jobs 1"
    ):
        each(work.killed, range(4), name=lambda number: f"item {number}")


def test_process_that_dies_costs_its_unit(tmp_path, in_processes):
    """Where a process dies, what it worked on runs again in another one, and nothing else is lost."""
    in_processes()
    assert [*range(40)] == each(partial(work.killed_once, tmp_path, {11, 12}), range(40))

    calls = [int(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert {*range(40)} == {*calls}
    assert calls.count(11) >= 2  # the unit may hold 12 as well; of three in one the map would give it up
    assert calls.count(12) >= 2
    assert [1] * 10 == [calls.count(number) for number in range(30, 40)]


def test_unit_that_kills_is_found_among_others(in_processes):
    """The item of which processes die is named, and those before it have their results."""
    in_processes()
    results = mapper.each(
        work.killed_of_thirteen,
        range(40),
        size=lambda _: MUCH,
        executor=TWO,
        name=lambda number: f"item {number}",
    )

    assert [*range(13)] == [next(results) for _ in range(13)]
    with pytest.raises(ToolError, match="again and again on item 13, "):
        next(results)


def test_nothing_to_do():
    """Without items there are no results."""
    assert [] == each(work.failing, [])


def test_items_are_found_while_others_are_worked_on(in_processes):
    """No more items are asked for than the workers need."""
    in_processes()
    asked = []

    def items():
        for number in range(1000):
            asked.append(number)
            yield number

    results = mapper.each(partial(scaled, 2), items(), size=lambda _: MUCH, executor=TWO)
    next(results)
    results.close()

    assert 2 <= len(asked) <= 40


@given(st.lists(st.integers(0, 1 << 31), max_size=50), st.integers(0, 1 << 31), st.floats(0.5, 10))
def test_units_hold_each_item_once(sizes, ahead, seconds):
    """Whatever units take, they hold all items in their order, and enough but for the last one."""
    items = [*range(len(sizes))]
    batches = Batches(items, lambda number: sizes[number])
    assert (sum(sizes) + len(sizes) * ITEM_COST >= ahead) == batches.holds(ahead)

    taken = []
    while (batch := batches.next()) is not None:
        taken.append(batch)
        batches.learn(batch, seconds)

    assert items == [item for batch in taken for item in batch.items]
    assert all(batch.items for batch in taken)


def test_units_shrink_near_the_end():
    """What is left is cut so that two workers come to the end at the same time."""
    batches = Batches(range(200), lambda _: 1_000_000 - ITEM_COST, workers=2)
    taken = [batches.next() for _ in range(4)]

    assert [50, 38, 28, 21] == [len(batch.items) for batch in taken]


def test_units_take_a_quarter_of_a_second():
    """The first unit is a guess; what it took tells how much goes into the next ones."""
    batches = Batches(range(100_000), lambda _: 1_000_000 - ITEM_COST)
    first = batches.next()
    batches.learn(first, 0.75)

    assert (75, 25) == (len(first.items), len(batches.next().items))


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (ExecutorChoice(2, "tcp://there:1"), "--jobs and --scheduler"),
    ],
)
def test_executors_that_exclude_each_other(choice, names):
    """Only one can do the work."""
    with pytest.raises(ToolError, match=f"{names} exclude each other"):
        choice.check()


def test_working_directory_is_that_of_the_caller(tmp_path, monkeypatch, in_processes):
    """Paths may be relative."""
    in_processes()
    monkeypatch.chdir(tmp_path)

    assert [tmp_path] == each(_where, ["."])


def _where(path):
    return Path(path).resolve()
