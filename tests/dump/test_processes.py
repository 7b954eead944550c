"""Dumps of real processes: from start to exit, and stopped at any moment."""

from __future__ import annotations

import json
import os
import re
import signal

import numpy as np
import onnx
import pytest

from msdump.execute import KernelFactory, Program
from msdump.store.write import DiskFiles, place, temporaries
from tests import path_warnings
from tests.dump import nets, trees
from tests.dump.conftest import config

RUN = """
import sys
import numpy as np
import msdump

network = msdump.load(sys.argv[1] if len(sys.argv) > 1 else "net.onnx")
for _ in range(2):
    print(network(np.ones((1, 1, 6, 6), np.float32)).shape)
"""

# Children are forked before the runtime starts any thread; each dumps until it is stopped, or far too long.
STOP = """
import os, random, sys, time
from pathlib import Path
import numpy as np
import msdump.frontends.mindspore

number, times = int(sys.argv[1]), int(sys.argv[2])
for case in range(times):
    child = os.fork()
    if child == 0:
        os.environ["MINDSPORE_DUMP_CONFIG"] = f"config{case}.json"
        network = msdump.load("net.onnx")
        for _ in range(100_000):
            network(np.ones((2, 4), np.float32))
        os._exit(77)
    folder = Path(f"dump{case}/rank_0/Net/0/3")
    while not folder.exists():
        time.sleep(0.001)
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child ended by itself"
    time.sleep(random.Random(case).random() / 50)
    os.kill(child, number)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def finish(process):
    """Wait for a process and return its code and output."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def save(model, folder):
    """Store a network where the scripts look for it."""
    onnx.save(model, folder / "net.onnx")


def test_script(python, tmp_path):
    """A user's script under MINDSPORE_DUMP_CONFIG leaves the documented tree and one warning at its end."""
    save(nets.mini(), tmp_path)
    (tmp_path / "dump.json").write_text(
        json.dumps(config(tmp_path / "dump", dump_mode=1, kernels=["MatMul", "Softmax"], iteration="1"))
    )

    code, out, err = finish(python(RUN, MINDSPORE_DUMP_CONFIG="dump.json"))

    assert (0, "(1, 3)\n" * 2) == (code, out)
    assert f"{tmp_path}/dump.json: kernels that matched nothing that ran: Softmax\n" == path_warnings.without(
        err, tmp_path
    )
    assert [
        ".dump_metadata/config.json",
        ".dump_metadata/data_dump.json",
        *(
            f"Net/0/1/MatMul.Default_fc-Dense_MatMul-op0.0.0.{{ts}}.{side}.DefaultFormat.npy"
            for side in ("input.0", "input.1", "output.0")
        ),
        "execution_order/ms_execution_order_graph_0.csv",
        "execution_order/ms_global_execution_order_graph_0.csv",
        "graphs/ms_output_trace_code_graph_0.ir",
        "graphs/ms_output_trace_code_graph_0.pb",
    ] == trees.timeless(trees.tree(tmp_path / "dump" / "rank_0"))


STOPS = {"killed": (signal.SIGKILL, 10), "Ctrl-C": (signal.SIGINT, 5), "terminated": (signal.SIGTERM, 3)}


@pytest.mark.parametrize(("number", "times"), STOPS.values(), ids=STOPS)
def test_stopped_at_any_moment(python, tmp_path, number, times):
    """A run that is stopped leaves complete files and whole rows; only a kill may leave a temporary name."""
    save(nets.long_names(), tmp_path)
    for case in range(times):
        blocks = config(tmp_path / f"dump{case}", save_kernel_args=True)
        (tmp_path / f"config{case}.json").write_text(json.dumps(blocks))

    code, out, err = finish(
        python(f"import sys; sys.argv[1:] = ['{int(number)}', '{times}']\n{STOP}", TMPDIR=str(tmp_path))
    )

    assert (0, [-number] * times) == (code, [int(line) for line in out.split()]), err
    if number is signal.SIGINT:
        assert times == err.count("KeyboardInterrupt\n")
    for case in range(times):
        check(tmp_path / f"dump{case}", may_leave_names=number is not signal.SIGINT)


# As a shell starts a background process.
DEAF = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-c", os.environ["PROGRAM"]])
"""

INTERRUPTED = f"""
import signal
{RUN}
    signal.raise_signal(signal.SIGINT)
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""


@pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])
def test_ignored_ctrl_c_stays_ignored(python, tmp_path, enable):
    """A program that was started with Ctrl-C ignored dumps on after one, and ignores it still."""
    save(nets.mini(), tmp_path)
    (tmp_path / "dump.json").write_text(json.dumps(config(tmp_path / "dump", enable=enable, iteration="all")))
    variables = {"DEVICE_TARGET": "Ascend", "JIT_LEVEL": "O0", "MINDSPORE_DUMP_CONFIG": "dump.json"}

    code, out, err = finish(python(DEAF, PROGRAM=INTERRUPTED, **variables))

    assert (0, "(1, 3)\n(1, 3)\nTrue\n") == (code, out), err
    assert {"0", "1"} == {path.name for path in (tmp_path / "dump/rank_0/Net/0").iterdir()}


def check(root, *, may_leave_names):
    """Look at every file that a stopped run left."""
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len([np.load(path) for path in files if path.suffix == ".npy"]) >= 27
    for path in files:
        assert trees.mode(path) == 0o400 or path.suffix == ".tmp"
        if path.suffix == ".csv":
            check_rows(path)
        if path.suffix == ".json":
            assert json.loads(path.read_text())
        assert path.suffix != ".tmp" or may_leave_names


ROWS = {
    "mapping.csv": r"\d{1,10}\.(npy|json),\w+\..+\.\1",
    "ms_global_execution_order_graph_0.csv": r"\d+",
    "ms_execution_order_graph_0.csv": r"NodeExecutionOrder-FullNameWithScope|Default/.+-op0",
}


def check_rows(path):
    """Tell that a csv file holds whole rows only, and that the files of a mapping exist."""
    text = path.read_text()
    assert not text or text.endswith("\n")
    assert all(re.fullmatch(ROWS[path.name], row) for row in text.splitlines())
    if path.name == "mapping.csv":
        # The row is written first, so the last one alone may be ahead of its file.
        assert all((path.parent / row.split(",")[0]).exists() for row in text.splitlines()[:-1])


@pytest.mark.parametrize(
    ("moment", "nameless"),
    [("open", 0), ("rename", 0), ("link", place._NAMELESS), ("rename", place._NAMELESS)],
    ids=["open", "rename", "link", "rename of a link"],
)
def test_interrupt_between_two_calls(tmp_path, monkeypatch, moment, nameless):
    """Ctrl-C right after a call of the system stays Ctrl-C and leaves no temporary name."""
    call, interrupts = getattr(os, moment), []
    (tmp_path / "graph.ir").write_bytes(b"older")

    def interrupted(*arguments, **options):
        result = call(*arguments, **options)
        if not interrupts and any(str(argument).endswith(".tmp") for argument in arguments):
            interrupts.append(moment)
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(place, "_NAMELESS", nameless)
    monkeypatch.setattr(os, moment, interrupted)
    monkeypatch.setattr(temporaries, "LINKER", temporaries.Linker(None))

    with pytest.raises(KeyboardInterrupt):
        DiskFiles().replace(str(tmp_path), "graph.ir", (b"text",))

    expected = b"text" if moment == "rename" else b"older"
    assert [("graph.ir", expected)] == [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]


def test_files_are_complete_before_the_next_operator(door, monkeypatch):
    """Sync: when an operator starts, the files of all operators before it are complete on disk."""
    seen = []
    compiled = Program._compile

    def spied(self, operator, current):
        run = compiled(self, operator, current)

        def counted(*arguments):
            files = list((door.rank / "Net").rglob("*.npy"))
            seen.append((len(files), all(np.load(path).size for path in files)))
            return run(*arguments)

        operator.run = counted
        return counted

    monkeypatch.setattr(Program, "_compile", spied)
    monkeypatch.setattr(KernelFactory, "joins", False)
    network = door.dump(nets.mini(), nets.mini_feeds(), steps=2)

    sizes = [len(node.inputs) + len(node.outputs) for node in network.graph.nodes]
    before = [sum(sizes[:position]) for position in range(len(sizes))]
    step = sum(sizes) + 4  # and three weights, one input
    assert [(count, True) for count in (*before, *(step + count for count in before))] == seen
