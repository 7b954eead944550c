"""Valid files, changed at random, given to every reader: each reads them or raises its error, soon."""

from __future__ import annotations

import json
import random
import resource
import signal
import traceback
from functools import cache
from pathlib import Path

import numpy as np

from msdump.config import mindspore, source
from msdump.config.acl import plan as acl
from msdump.convert import Target, convert_files, find_sources
from msdump.encode import npy
from msdump.errors import MsdumpError
from msdump.executors import ExecutorChoice
from msdump.graph import loader
from msdump.judge import inputs
from msdump.look import subjects
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.read import (
    open_dump,
    read_bytes,
    read_execution_order,
    read_iterations_run,
    read_json,
    read_parameters,
    read_statistics,
)
from scripts.soak import deaths, networks, side_files
from scripts.soak.children import Child
from tests.world import config

BATCH = 200
SECONDS, BYTES = 10, 2 << 30  # bounds of one input
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62, (1 << 64) - 1)
WORDS = (b"NaN", b"-1", b"1e999", b"\0", b'"', b"[", b"{", b",", b"\n", b"\xff\xfe", b"9" * 5000, b"[" * 3000)


CONFIGURATIONS = {
    "configuration": {"saved_data": "full", "statistic_category": ["max", "md5"], "sample_mode": 1},
    "kernels": {
        "dump_mode": 1,
        "iteration": "0|5-8|100-120",
        "kernels": [
            r"name-regex((?:[a-c]*|Default/(?=.)[^\]\d[:alpha:]]+){1,3}(a|\x41)\2$)",
            "Default/Add-op0",
            "Conv",
        ],
    },
}
ACL = {
    "dump_path": "/tmp",  # noqa: S108 - nothing is written there
    "dump_mode": "all",
    "dump_step": "0|3-5",
    "dump_list": [{"model_name": "m", "layer": ["a", "b"], "opname_range": [{"begin": "a", "end": "b"}]}],
}
CONTEXTS = (
    Context(),
    *(Context(DeviceTarget.ASCEND, jit_level=level) for level in (JitLevel.O0, JitLevel.O2)),
)


def mutate(data, chance):
    """Return bytes with one to four changes."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at:]
            case 2:
                del data[at : at + chance.randrange(1, 64)]
            case 3:
                data[at:at] = chance.choice(WORDS)
            case 4:
                size = chance.choice((1, 2, 4, 8))
                number = chance.choice(NUMBERS) & ((1 << 8 * size) - 1)
                data[at : at + size] = number.to_bytes(size, chance.choice(("little", "big")))
            case 5:
                start = chance.randrange(len(data) + 1)
                data[at:at] = data[start : start + chance.randrange(1, 200)]
            case _ if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


def batch(seed, folder, count=BATCH):
    """Give inputs to readers in a process of its own; return the failures, each with its number."""
    told, code = Child(_read_all, seed, folder, count).end()
    lines = told.decode(errors="replace").strip("\0").split("\0")
    found = [line for line in lines if line and not line.isdigit()]
    if code != 0:
        last = [line for line in lines if line.isdigit()][-1:]
        found.append(f"input {last} of batch {seed}: the process ended with {code}")
    return found


def _read_all(report, seed, folder, count):
    corpus = valid_files(str(folder))
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115, PTH123
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, _too_long)
    for number in range(count):
        report(b"%d\0" % number)
        chance = random.Random(f"{seed}-{number}")
        name, place, data, read = chance.choice(corpus)
        path = folder / "mutated" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mutate(data, chance))
        signal.alarm(SECONDS)
        try:
            read(path)
        except MsdumpError:
            pass
        except BaseException:  # noqa: BLE001 - the violation
            report(f"input {number} of batch {seed}: {name}: {traceback.format_exc()}\0".encode())
        finally:
            signal.alarm(0)


def _too_long(number, frame):
    raise TimeoutError(f"an input took more than {SECONDS} seconds")


@cache
def valid_files(folder):
    """Return names, places, contents and readers of files that are as they should be."""
    return [(name, *item) for name, item in _made(folder)]


def _made(folder):
    root = Path(folder) / "valid"
    for setup in (networks.SETUPS[1], networks.SETUPS[2], networks.SETUPS[6]):
        place = root / setup.name.replace(" ", "_").replace(",", "")
        place.mkdir(parents=True)
        deaths.dump(lambda _: None, setup, place, networks.network(), 1)
        for path in sorted((place / "dump").rglob("*")):
            if path.is_file():
                yield path.name, (path.name, path.read_bytes(), READERS.get(path.suffix, _operator_file))
    data, feeds = networks.network()
    yield "model", ("m.onnx", data, loader.load)
    yield "branches", ("m.onnx", _branches(), loader.load)
    for name, changes in CONFIGURATIONS.items():
        text = json.dumps(config("/tmp/my.d", **changes))  # noqa: S108 - nothing is written there
        yield name, ("c.json", text.encode(), _configuration)
    yield "acl", ("acl.json", json.dumps({"dump": ACL}).encode(), lambda path: acl.read(str(path), Context()))
    path = root / "x.npz"
    np.savez(path, **feeds)
    graph = loader.load(data)
    yield "inputs", ("x.npz", path.read_bytes(), lambda path: inputs.from_file(graph, str(path)))
    yield from ((name, tuple(item)) for name, *item in side_files.files())


def _branches():
    """Return the bytes of a model with branches."""
    return (Path(__file__).resolve().parents[2] / "graphs" / "if.onnx").read_bytes()


def _configuration(path):
    data = source.read(str(path), "CONFIG")
    for context in CONTEXTS:
        plan = mindspore.parse(data, str(path), context)
        "\n".join(subjects(plan).values()).encode()
        for name in ("Default/conv1-Conv2d/Conv2D-op0", 50 * "aA"):
            plan.what.selector.selects(name)


def _array(path):
    npy.decode(path.read_bytes(), str(path))


def _csv(path):
    if path.name == "statistic.csv":
        read_statistics(str(path))
    elif "global" in path.name:
        read_iterations_run(str(path))
    else:
        read_execution_order(str(path))


def _operator_file(path):
    found = find_sources([str(path)], str(path.parent / "out"))
    convert_files(found, str(path.parent / "out"), Target(), executor=ExecutorChoice(1))
    for record in open_dump(path.parent).records:
        assert record.array is not None


READERS = {
    ".npy": _array,
    ".csv": _csv,
    ".json": lambda path: read_json(str(path)),
    ".ir": lambda path: read_parameters(str(path)),
    ".pb": lambda path: read_bytes(str(path)),
}
