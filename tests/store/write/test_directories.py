"""Locks of the directories that programs dump into."""

import threading

from msdump.store.write import directories


def test_threads_hold_a_directory_one_after_the_other(tmp_path):
    """Ranks that are threads of one process see no other process, though all of them begin at once."""
    for number in range(30):
        place, seen, start = str(tmp_path / f"{number}"), [], threading.Barrier(4)

        def hold(place=place, seen=seen, start=start):
            start.wait(60)
            with directories.holding(place, str(tmp_path)) as is_alone:
                seen.append(is_alone)

        ranks = [threading.Thread(target=hold) for _ in range(4)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(60)
        directories.release(place)

        assert [True] * 4 == seen
