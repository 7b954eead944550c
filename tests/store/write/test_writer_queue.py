"""The queue of the asynchronous sink by itself: how much it holds, and the threads that empty it."""

from __future__ import annotations

import threading

import pytest

from msdump.store.write.writer_queue import Job, WriterQueue
from tests.store.memory import MemoryFiles


def job(number, size):
    """Return a file of some bytes."""
    return Job("/d", f"{number}.npy", (bytes(size),), size, f"/d/{number}.npy")


@pytest.mark.parametrize(
    ("sizes", "written"),
    [([5, 5], 0), ([5, 6], 1), ([10], 0), ([11], 0), ([11, 1], 1), ([5, 5, 5], 1), ([1, 10, 10], 2)],
    ids=str,
)
def test_there_is_room_for_so_many_bytes_or_one_file(sizes, written):
    """A queue of ten bytes is full beyond them; a single file may be larger. No thread helps the caller."""
    queue, mine = WriterQueue(MemoryFiles, 10, 0), MemoryFiles()

    for number, size in enumerate(sizes):
        queue.take(job(number, size))
    queue.wait_for_room(mine)

    assert [f"/d/{number}.npy" for number in range(written)] == list(mine.contents)
    assert (written, sum(sizes[:written])) == (queue.files, queue.bytes)


def test_each_crew_ends_with_its_stop():
    """The threads end whenever the queue is stopped, and others take up the next job."""
    disk = MemoryFiles()
    queue = WriterQueue(lambda: disk, 10, 2)
    crews = []

    for number in range(3):
        queue.take(job(number, 1))
        crew = list(queue._threads)
        stop = threading.Thread(target=queue.stop, args=(MemoryFiles(),), daemon=True)
        stop.start()
        stop.join(20)
        assert [False, *(False for _ in crew)] == [thread.is_alive() for thread in (stop, *crew)]
        crews.append(crew)

    assert [1, 1, 1] == [len(crew) for crew in crews]
    assert 3 == len({thread for crew in crews for thread in crew})
    assert 3 == queue.files
