"""How many threads there are, work map_threads over them, and weak references."""

import gc
import os
import sys
import threading

import pytest

from msdump import env, threads
from msdump.errors import InputError
from msdump.threads import SignalSafeWeakSet, SignalSafeWeakValues
from tests.world import completed


@pytest.mark.parametrize(("text", "expected"), [("1", 1), ("12", 12), (None, 3)])
def test_threads_of_an_operator(monkeypatch, text, expected):
    """An operator has as many threads as the environment says, else as the process may use cores."""
    monkeypatch.delenv(env.THREADS, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    if text:
        monkeypatch.setenv(env.THREADS, text)

    assert expected == threads.thread_count()


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "99999999", "٣"])
def test_faulty_threads(monkeypatch, text):
    """A number of threads that is none is refused with its variable."""
    monkeypatch.setenv(env.THREADS, text)

    with pytest.raises(InputError, match=f"{env.THREADS} = '{text}': must be a number from 1 to 1024"):
        threads.thread_count()


def test_parts_keep_their_order():
    """Results come in the order of the parts, whoever worked on them."""
    parts = list(range(20))

    found = threads.map_threads(lambda part: (part, threading.get_ident()), parts)

    assert parts == [part for part, _ in found]
    assert threading.get_ident() == found[0][1] != found[1][1]


@pytest.mark.parametrize(
    ("count", "sizes", "expected"),
    [
        ("1", [5, 5, 5], [[5, 5, 5]]),
        ("2", [1, 1, 1], [[1, 1, 1]]),
        ("2", [], [[]]),
        ("2", [4, 4, 9], [[4, 4], [9]]),
        ("3", [4, 4, 9], [[4], [4], [9]]),
        ("2", [9, 1], [[9], [1]]),
        ("3", [20, 1, 1], [[], [20], [1, 1]]),
        ("8", [4, 4, 4, 4], [[4], [4], [4], [4]]),
    ],
)
def test_shares_are_about_as_large(monkeypatch, count, sizes, expected):
    """Threads get items in their order, as many threads as have the least to do, each about as much."""
    monkeypatch.setenv(env.THREADS, count)

    assert expected == threads.split_by_size(sizes, lambda size: size, 4)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_error_comes_when_all_work_has_ended(bad):
    """An error of one part is raised after the others are done."""
    done = []

    def work(part):
        if part == bad:
            raise ValueError(part)
        done.append(part)

    with pytest.raises(ValueError, match=str(bad)):
        threads.map_threads(work, range(3))
    assert {0, 1, 2} - {bad} == set(done)


def test_a_forked_process_has_helpers_of_its_own():
    """Helpers that a fork left behind are not waited for."""
    threads.map_threads(abs, [1, 2])

    child = os.fork()
    if child == 0:
        os._exit(0 if threads.map_threads(abs, [-1, -2]) == [1, 2] else 1)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_process_finds_locks_free():
    """Locks of another thread at a fork are free in the child; locks of the forking one stay held."""
    own, others = threads.new_lock(), threads.new_lock()
    held, done = threading.Event(), threading.Event()

    def hold():
        with others:
            held.set()
            done.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(60)
    with own:
        child = os.fork()
        if child == 0:
            is_free, is_own = others.acquire(timeout=0), own.acquire(timeout=0)
            own.release()
            own.release()  # raises RuntimeError unless it was held
            os._exit(0 if is_free and is_own else 1)
        done.set()
        status = os.waitpid(child, 0)[1]
    other.join()

    assert 0 == os.waitstatus_to_exitcode(status)


def test_no_helpers_at_exit(tmp_path):
    """Work that is map_threads while the interpreter shuts down is done by the caller."""
    script = tmp_path / "late.py"
    script.write_text(
        "import atexit\n"
        "from msdump.threads import map_threads\n"
        "atexit.register(lambda: print(map_threads(abs, [-1, -2])))\n"
        "map_threads(abs, [1, 2])\n"
    )

    done = completed(sys.executable, script, check=True)

    assert "[1, 2]\n" == done.stdout


class Thing:
    """Something that a weak reference can hold."""


def in_a_set():
    """Return a set with an object, the object, and a function that counts the set."""
    thing, things = Thing(), SignalSafeWeakSet()
    things.add(thing)
    things.add(thing)
    return things, thing, lambda: (len(things), len([*things]))


def in_a_table():
    """Return a table with an object, the object, and a function that counts the table."""
    thing, things = Thing(), SignalSafeWeakValues()
    things.put("key", thing)
    return things, thing, lambda: (len(things), int(things.get("key") is not None))


@pytest.fixture
def _no_callbacks():
    """Take out callbacks of other libraries from the garbage collector."""
    before, gc.callbacks[:] = [*gc.callbacks], []
    yield
    gc.callbacks[:] = before


@pytest.mark.usefixtures("_no_callbacks")
@pytest.mark.parametrize("make", [in_a_set, in_a_table])
@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_no_python_code_runs_when_something_ends(make, in_a_cycle):
    """Whoever dies, or is found as garbage, is held no more, and no function was called for it."""
    _holder, thing, held = make()
    if in_a_cycle:
        thing.itself = thing
    before, called = held(), []
    gc.collect()  # of others, which may have callbacks

    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    del thing
    gc.collect()
    sys.setprofile(None)

    assert ((1, 1), (0, 0)) == (before, held())
    assert [] == called
