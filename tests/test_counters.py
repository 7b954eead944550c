"""The numbers of a process: runs, iterations, ids, and the files that show graphs."""

import threading

import pytest

from msdump.counters import Counters, Run, RunCounter


def run(counter):
    """Let one run of a model begin and end; return its numbers."""
    number = counter.next
    counter.ended(number)
    return number


def test_a_model_counts_its_runs():
    """Of a model that counts for itself, the iteration is the execution."""
    counter = RunCounter()

    assert [Run(0, 0), Run(1, 1), Run(2, 2)] == [run(counter) for _ in range(3)]
    assert 3 == counter.count


def test_threads_take_different_runs():
    """Runs that go on at the same time have numbers of their own."""
    counter, taken = RunCounter(), []
    threads = [
        threading.Thread(target=lambda: taken.extend(counter.take() for _ in range(200))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(range(800)) == sorted(number.execution for number in taken)


ORDERS = {
    "in turn": ("ABABAB", [0, 1, 2], [1, 2, 3]),
    "one after the other": ("AAABBBB", [0, 1, 2], [3, 1, 2, 4]),
    "no number twice": ("ABB", [0], [1, 2]),
}


@pytest.mark.parametrize(("order", "first", "second"), ORDERS.values(), ids=ORDERS)
def test_networks_of_a_configuration_share_iterations(order, first, second):
    """A run's iteration is the one that the last run of any of the networks left, unless it was used."""
    counters = Counters()
    networks = {name: counters.runs("data_dump.json", 0) for name in "AB"}
    numbers = {name: [] for name in networks}
    for name in order:
        numbers[name].append(run(networks[name]))

    assert first == [number.iteration for number in numbers["A"]]
    assert second == [number.iteration for number in numbers["B"]]
    assert list(range(len(second))) == [number.execution for number in numbers["B"]]


def test_configurations_count_for_themselves():
    """Networks of another configuration, or of none, have their own iterations, from their own first one."""
    counters = Counters()
    for source, first in (("a.json", 0), ("b.json", 5), ("", 0)):
        counter = counters.runs(source, first)

        assert [Run(first, 0), Run(first + 1, 1)] == [run(counter), run(counter)]


def test_the_user_steps(caplog):
    """The user's number holds for every configuration until it is changed; executions go on counting."""
    counters = Counters()
    counter = counters.runs("a.json", 0)
    counters.step_by(3)
    counters.step_to(7)
    numbers = [run(counter), run(counter)]
    counters.step_by(-2)

    assert [Run(7, 0), Run(7, 1), Run(5, 2)] == [*numbers, run(counter)]
    assert ["dump_step has no effect before set_init_iter"] == caplog.messages


def test_only_files_that_show_graphs_are_numbered_across_configurations():
    """Beside a process's counters, numbers of graph files go on and all others start anew."""
    counters = Counters()
    names = ("captured_graphs", "ge_graphs", "stage_files", "saved_graphs", "graph_ids", "model_ids")
    firsts = [next(getattr(counters, name)) for name in names]
    other = counters.beside()

    assert [1, 0, 0, 0, 0, 1] == firsts
    assert [2, 1, 1, 1, 0, 1] == [next(getattr(other, name)) for name in names]
