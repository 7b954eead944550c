"""Dumps of real processes: a script from start to end, and Ctrl-C."""

import json

import numpy as np
import onnx
import pytest

from msdump.execute import KernelFactory, Program
from tests import path_warnings
from tests.dump import nets, trees
from tests.world import config

RUN = """
import sys
import numpy as np
import msdump

network = msdump.load(sys.argv[1] if len(sys.argv) > 1 else "net.onnx")
for _ in range(2):
    print(network(np.ones((1, 1, 6, 6), np.float32)).shape)
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
    assert (
        f"{tmp_path}/dump.json: items of kernels that matched no operator that ran: Softmax\n"
        == path_warnings.without(err, tmp_path)
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


STEPS = """
import sys
import numpy as np
import msdump

network = msdump.load("net.onnx")
print("loaded", flush=True)
for _ in sys.stdin:
    print(network(np.ones((1, 1, 6, 6), np.float32)).shape, flush=True)
"""


@pytest.mark.parametrize(
    ("variables", "place"),
    [({"DEVICE_TARGET": "CPU"}, "/rank_0"), ({"DEVICE_TARGET": "Ascend", "JIT_LEVEL": "O2"}, "")],
    ids=["CPU", "O2"],
)
def test_programs_that_replace_at_once(python, tmp_path, variables, place):
    """A program leaves the files of a living one, with a warning; files of killed programs are replaced."""
    save(nets.mini(), tmp_path)
    dump = tmp_path / "dump"
    (tmp_path / "dump.json").write_text(json.dumps(config(dump, existing="replace")))
    variables = variables | {"MINDSPORE_DUMP_CONFIG": "dump.json"}

    def start():
        program = python(STEPS, **variables)
        assert "loaded\n" == program.stdout.readline()
        return program

    def step(program):
        program.stdin.write("\n")
        program.stdin.flush()
        assert "(1, 3)\n" == program.stdout.readline()

    first = start()
    step(first)
    of_first = tensors(dump)
    second = start()
    step(second)
    step(first)
    of_both = tensors(dump)
    first.kill()
    first.wait(60)
    third = start()
    after_third = tensors(dump)
    second.kill()
    third.kill()
    messages = [each.communicate(timeout=60)[1] for each in (second, third)]
    start().kill()

    assert of_first < of_both
    assert 3 * len(of_first) == len(of_both) == len(after_third)
    assert set() == tensors(dump)
    warning = (
        f"{tmp_path}/dump.json: another process dumps into {dump}{place}: its files stay, and this run"
        " adds files; give each run its own path"
    )
    for message in messages:
        assert [warning] == [line for line in message.splitlines() if "process" in line]


def tensors(dump):
    """Return the paths of the files of operators."""
    return {path for path in dump.rglob("*-op*") if path.is_file()}


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
