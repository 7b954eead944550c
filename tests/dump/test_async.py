"""The asynchronous dump: the same files as the synchronous one, and nothing lost however it ends."""

from __future__ import annotations

import json
import re
import signal
import time

import numpy as np
import onnx
import pytest

from sample_nets import data
from tests.dump import nets, trees
from tests.dump.conftest import config

O0 = {"device_target": "Ascend", "jit_level": "O0"}
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
    "O1": {"context": {"device_target": "Ascend", "jit_level": "O1"}},
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
    network = door.load(
        nets.model([nets.node("Neg", "x", "a"), nets.node("Abs", "a", "y")], [nets.value("x", ["n"])], ["y"]),
        **O0,
    )
    outputs = network.run({"x": x})
    x += 1
    outputs["y"][:] = 0

    arrays = [np.load(path) for _, path in trees.tensors(door.rank)]
    first = np.arange(1 << 18, dtype=np.float32)
    for expected, array in zip((first, -first, -first, first), arrays, strict=True):
        np.testing.assert_array_equal(expected, array)


# Logs the name of each captured file when the sink has taken it.
TOLD = """
import os, sys, threading
import numpy as np
import msdump
from msdump.store.write.async_sink import AsyncSink

taken = os.open("taken", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
write = AsyncSink.write

def told(self, artifact):
    write(self, artifact)
    os.write(taken, f"{artifact.name}\\n".encode())

AsyncSink.write = told
msdump.set_context(device_target="Ascend", jit_level="O0")
x = np.ones(1 << 18, np.float32)
"""
RUN = f"""{TOLD}
network = msdump.load("net.onnx")
way = sys.argv[1] if len(sys.argv) > 1 else os.environ["WAY"]
for step in range(3):
    network(x)
if way == "exception":
    raise ValueError("in user code")
if way == "exit":
    sys.exit(3)
for step in range(0 if way == "end" else 200):  # a signal that is lost must not fill the disk
    network(x)
"""
WAYS = {
    "end": 0,
    "exit": 3,
    "exception": 1,
    "sigterm": -signal.SIGTERM,
    "sighup": -signal.SIGHUP,
    "sigxcpu": -signal.SIGXCPU,
    "ctrl-c": -signal.SIGINT,
}


def _start(python, tmp_path, program, **variables):
    """Start a program beside a network of six operators and a configuration of an asynchronous dump."""
    nodes = [nets.node("Neg" if n % 2 else "Abs", f"v{n}", f"v{n + 1}") for n in range(6)]
    onnx.save(nets.model(nodes, [nets.value("v0", ["n"])], ["v6"]), tmp_path / "net.onnx")
    blocks = config(tmp_path / "dump", enable=False, writer_threads=2, path=str(tmp_path / "dump"))
    (tmp_path / "dump.json").write_text(json.dumps(blocks))
    return python(program, MINDSPORE_DUMP_CONFIG="dump.json", **variables)


@pytest.mark.parametrize(("way", "code"), WAYS.items(), ids=WAYS)
def test_ends(python, tmp_path, way, code):
    """However a process ends, every file that the dump had taken is there, complete."""
    process = _start(python, tmp_path, RUN, WAY=way)
    stops = {name: -code for name, code in WAYS.items() if code < 0}
    if way in stops:
        _wait_for(tmp_path / "dump" / "rank_0" / "Net" / "0" / "3", process)
        process.send_signal(stops[way])
    process.communicate(timeout=60)

    taken = (tmp_path / "taken").read_text().splitlines()
    files = {path.name: path for path in (tmp_path / "dump").rglob("*.npy")}
    assert code == process.returncode
    assert len(taken) >= 36
    assert set(taken) <= set(files)
    assert len(files) - len(taken) in (0, 1)  # the signal may come before the file is logged
    assert {(1 << 18,)} == {np.load(path).shape for path in files.values()}
    assert [] == [
        p for p in (tmp_path / "dump" / "rank_0" / "Net").rglob("*") if p.is_file() and p.suffix != ".npy"
    ]


def _wait_for(path, process):
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.005)
