"""The asynchronous dump: the same files as the synchronous one, of the arrays that ran."""

import re

import numpy as np
import pytest

from sample_nets import data
from tests.dump import trees
from tests.texts import parsed
from tests.world import O0, O1

STATISTIC_TIME = re.compile(r"(?<=,0,0,)[0-9]{16}(?=,)")


def written(folder):
    """Return (name, bytes) of the tensor files in order of time, and the rows, all without times."""
    files = [(trees.TIMESTAMP.sub("{ts}", m[0]), p.read_bytes()) for m, p in trees.tensors(folder)]
    rows = [STATISTIC_TIME.sub("{ts}", p.read_text()) for p in sorted(folder.rglob("statistic.csv"))]
    return files, rows


SETTINGS = {
    "one thread": {},
    "three threads": {"writer_threads": 3},
    "small queue": {"queue_bytes": 1 << 20, "writer_threads": 2},
    "statistics": {"saved_data": "full", "statistic_category": ["max", "md5", "avg", "l2norm"]},
    "device bytes": {"trans_flag": False},
    "O1": {"context": O1},
    "samples": {"sample_mode": 1, "sample_num": 60000},
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
def test_same_as_sync(door, sample_net, changes):
    """Both ways of dumping leave the same names and bytes in the same order, large and small tensors."""
    path, feeds, found = sample_net("lenet"), {"x": data.digits(0, 16, 32)}, {}
    for enable in (True, False):
        door.again()
        given = {"context": O0, "net_name": f"Net{enable:d}", "enable": enable, **changes}
        network = door.dump(path, feeds, steps=2, **given)
        found[enable] = written(door.rank / f"Net{enable:d}")
        expected = len(found[enable][0])
        assert network.summary.lost == {}
        assert expected <= network.summary.files

    assert len(found[True][0]) > 40
    assert found[True] == found[False]


def test_files_are_what_ran(door):
    """Large inputs that the caller changes after the step do not change the files."""
    x = np.arange(1 << 18, dtype=np.float32)
    door.configure(enable=False, writer_threads=2)
    network = door.load(parsed("graph (float[n] x) => (y) { a = Neg(x) y = Abs(a) }"), **O0)
    outputs = network.run({"x": x})
    x += 1
    outputs["y"][:] = 0

    arrays = [np.load(path) for _, path in trees.tensors(door.rank)]
    first = np.arange(1 << 18, dtype=np.float32)
    for expected, array in zip((first, -first, -first, first), arrays, strict=True):
        np.testing.assert_array_equal(expected, array)
