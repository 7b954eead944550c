"""Valid files beside tensors and models, with their readers: overflow records, options, lists."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import numpy as np

from msdump.capture.compiled.dump import OpDebugWriter
from msdump.config import GrammarError
from msdump.config.grammar import parse_iterations
from msdump.config.torchair import plan
from msdump.device import Task
from msdump.encode import dump_data, op_debug
from msdump.look import overflow
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.read import open_dump, read_folder

TIME = 1700000000000000
STAND_IN = "12345678901234567890.npy"
TENSOR = "Add.Default_Add-op0.0.0.1700000000000000.output.0.DefaultFormat.npy"
OPTIONS = {
    "ge.exec.enableDump": "1",
    "ge.exec.dumpPath": "/tmp",  # noqa: S108 - nothing is written there
    "ge.exec.dumpMode": "all",
    "ge.exec.dumpStep": "0|3-5|7",
    "ge.exec.dumpLayer": "a b",
    "ge.exec.dumpData": "stats",
    "ge.quant_dumpable": "1",
}


def files():
    """Yield names, places, contents and readers."""
    for is_json, kind in ((False, "overflow record"), (True, "overflow record of MindSpore")):
        name, data = _record(is_json=is_json)
        yield kind, f"overflow/{name}", data, _overflows
    name, _ = _record(is_json=False)
    old = bytearray(op_debug.SIZE)  # a record of an older device: model 1, task 2, status 2048
    struct.pack_into("<3Q", old, 256, 1, 0, 2)
    struct.pack_into("<Q", old, 1040, 2048)
    header = dump_data.header(op_debug.header_data(TIME))
    yield "overflow record of older devices", f"overflow/{name}", header + old, _overflows
    text = "".join(f"{key}={value}\n" for key, value in OPTIONS.items())
    yield "options of torchair", "options.txt", text.encode(), _options
    yield "iterations", "iterations.txt", b"0|5-8|100-120|9-9", _iterations
    mapping = f"{STAND_IN},{TENSOR}\n"
    yield "mapping", "dump/rank_0/Net/0/0/mapping.csv", mapping.encode(), _mapping


def _record(*, is_json):
    """Return the name and the bytes of a record, as a run writes them."""
    written = []
    sink = SimpleNamespace(write=written.append)
    OpDebugWriter(sink, [Task(2, 0)], 1, is_json=is_json).write("/d", Task(2, 0), TIME)
    (artifact,) = written
    return artifact.name, b"".join(map(bytes, artifact.buffers))


def _overflows(path):
    for other in path.parent.iterdir():
        if other != path:
            other.unlink()
    records = overflow.find(str(path.parent))
    assert len(records) == 1
    overflow.analyse(records, str(path.parents[1] / "out"))


def _options(path):
    lines = path.read_bytes().decode(errors="replace").split("\n")
    options = {key: value for key, _, value in (line.partition("=") for line in lines)}
    plan(options, Context(DeviceTarget.ASCEND, JitLevel.O2))


def _iterations(path):
    text = path.read_bytes().decode(errors="replace")
    for for_ge in (False, True):
        try:
            found = parse_iterations(text, for_ge=for_ge)
        except GrammarError as error:
            assert error.faults  # noqa: PT017 - an error without a place would not help
        else:
            assert 1 << 64 not in found


def _mapping(path):
    np.save(path.with_name(STAND_IN), np.zeros(2, np.float32))
    for record in open_dump(path.parents[3]).records:
        assert record.array is not None
    read_folder(str(path.parent))
