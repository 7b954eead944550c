"""Memory and threads that run out: errors say so, and no operator runs in another way for it."""

import json
import os
import sys
from unittest.mock import Mock

import numpy as np
import onnx
import pytest

from msdump.errors import ExecutionError
from msdump.execute import KernelFactory, Runtime, runtime
from msdump.graph import loader
from msdump.session import Network
from tests.dump.nets import model, node, value
from tests.world import ROOT, cli, completed, config

MEMORY = "out of memory; free memory, raise its limit (ulimit -v) or feed less at once"
THREADS = "out of threads; raise their limit (ulimit -u) or set MSDUMP_THREADS=1"
X = {"x": np.ones((2, 3), np.float32)}

REASONS = {
    "threads": (
        RuntimeError("pthread_create failed, error code: 11 error msg: Resource temporarily"),
        THREADS,
    ),
    "memory for a thread": (
        RuntimeError("pthread_create failed, error code: 12 error msg: Cannot allocate memory"),
        MEMORY,
    ),
    "python's threads": (RuntimeError("can't start new thread"), THREADS),
    "C++": (RuntimeError("std::bad_alloc"), MEMORY),
    "the runtime": (RuntimeError("Failed to allocate memory for requested buffer of size 9"), MEMORY),
    "CUDA": (RuntimeError("CUDA failure 2: out of memory"), MEMORY),
    "numpy": (MemoryError("Unable to allocate 8.00 GiB for an array"), MEMORY),
    "python": (MemoryError(), MEMORY),
    "library": (ImportError("x.so: failed to map segment from shared object"), MEMORY),
}
each_reason = pytest.mark.parametrize(("error", "told"), REASONS.values(), ids=REASONS)


def network(op_type="Neg"):
    """Return a network of one operator that nothing has compiled yet."""
    return Network(loader.load(model([node(op_type, "x", "y")], [value("x", [2, 3])], ["y"])))


@each_reason
def test_operator_that_cannot_be_compiled(monkeypatch, caplog, error, told):
    """A shortage while an operator is compiled is named; the next run tries again."""
    net = network("Softsign")
    with monkeypatch.context() as patch:
        patch.setattr(Runtime, "session", Mock(side_effect=error))
        with pytest.raises(ExecutionError) as caught:
            net.run(X)

    assert f"operator Default/Softsign-op0 failed: {told}: " in str(caught.value)
    np.testing.assert_array_equal(np.full((2, 3), 0.5, np.float32), net.run(X)["y"])
    assert [] == caplog.records


@each_reason
def test_operator_that_runs_out(monkeypatch, error, told):
    """A shortage while an operator runs is named; no other kernel is tried."""
    net, asked = network(), []
    net.run(X)

    for way in ("_pinned_kernel", "_reference_kernel"):
        monkeypatch.setattr(KernelFactory, way, lambda *_: asked.append(1))
    monkeypatch.setattr(net._program._operators[0], "run", Mock(side_effect=error))
    with pytest.raises(ExecutionError) as caught:
        net.run(X)

    assert f"operator Default/Neg-op0 failed: {told}: " in str(caught.value)
    assert [] == asked


def test_rescue_that_runs_out(monkeypatch):
    """A shortage while an operator is rescued is named, not the reason of the rescue."""
    net = network()
    net.run(X)

    monkeypatch.setattr(net._program._operators[0], "run", Mock(side_effect=RuntimeError("no such case")))
    monkeypatch.setattr(KernelFactory, "_pinned_kernel", Mock(side_effect=MemoryError))
    with pytest.raises(ExecutionError, match="Neg-op0 failed: out of memory; free"):
        net.run(X)


def test_limits_of_the_runtime(monkeypatch):
    """The runtime's limits are probed again after a shortage of memory, and not guessed."""
    found = Runtime(1)
    with monkeypatch.context() as patch:
        patch.setattr(Runtime, "_create", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            _ = found.limits

    assert runtime.cpu_runtime().limits == found.limits


def test_a_probe_that_runs_out(monkeypatch, tmp_path):
    """A shortage while the runtime is probed is named in the same words."""
    onnx.save(model([node("Neg", "x", "y")], [value("x", [2, 3])], ["y"]), tmp_path / "net.onnx")
    blocks = config(tmp_path / "dump", net_name="Net")
    (tmp_path / "dump.json").write_text(json.dumps(blocks))
    reason = RuntimeError("pthread_create failed, error code: 11 error msg: Resource temporarily unavailable")
    monkeypatch.setattr(Runtime, "_create", Mock(side_effect=reason))
    monkeypatch.setattr(runtime, "_cpu_runtime", lambda: Runtime(1))

    done = cli("run", f"{tmp_path}/net.onnx", "--config", f"{tmp_path}/dump.json")

    assert 1 == done.exit_code
    assert THREADS in done.output


LIMITED = r"""
import logging, re, resource, sys
from pathlib import Path
import numpy as np
import msdump

logging.basicConfig(level=logging.WARNING)
network = msdump.load("net.onnx")
network(np.ones(4, np.float32), np.array([2, 4]))
used = int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
try:
    network(np.ones(4, np.float32), np.array([1 << 28, 4]))
except msdump.errors.ExecutionError as error:
    print(error)
print(network(np.ones(4, np.float32), np.array([3, 4])).shape)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are Linux's")
def test_process_with_little_memory(tmp_path):
    """Under a limit of memory an operator that needs more fails with the reason, and others run on."""
    nodes = [node("Expand", "x s", "y")]
    proto = model(nodes, [value("x", [4]), value("s", [2], 7)], ["y"])
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())

    done = completed(
        sys.executable,
        "-c",
        LIMITED,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "MSDUMP_THREADS": "1"},
        timeout=100,
    )

    assert (0, "") == (done.returncode, done.stderr)
    told, shape = done.stdout.splitlines()
    assert told.startswith(f"operator Default/BroadcastTo-op0 failed: {MEMORY}: ")
    assert "(3, 4)" == shape
