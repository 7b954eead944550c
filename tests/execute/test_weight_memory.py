"""Memory of a process that runs a network with large weights: each weight is there once."""

import itertools
import json
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from tests.world import ROOT, completed

SEEN = {"all": [1, 1, 1], "in turns": [0, 1, 0]}
"""Whether a dump looks at all operators, in one run after the other."""

RUN = """
import json
import re
import sys
from pathlib import Path

import numpy as np

from msdump.execute import Program, cpu_runtime, values
from msdump.graph import loader
from tests.execute.watching import Watch

path, field, width, seen = sys.argv[1:]

def memory():
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(field + r":\\s+(\\d+)", status)[1]) << 10

cpu_runtime().limits  # with onnxruntime loaded
before = memory()
graph = loader.load(Path(path))
program = Program(graph)
for is_seen in json.loads(seen):
    program.run({"x0": values.owned(np.ones((1, int(width)), np.float32))}, Watch(graph, is_seen))
print(memory() - before)
"""


def _float32(width, number):
    """Return the weights of a product, and the node."""
    name = f"w{number}"
    # the runtime packs equal weights once
    array = np.random.default_rng(number).random((width, width), np.float32) / np.float32(width)
    node = helper.make_node("MatMul", [f"x{number}", name], [f"x{number + 1}"])
    return [numpy_helper.from_array(array, name)], node


def _int4(width, number):
    """Return the weights of a product in int4, in blocks of 32, and the node."""
    names, blocks = [f"{kind}{number}" for kind in ("blocks", "scales")], width // 32
    packed = np.random.default_rng(number).integers(0, 256, (width, blocks, 16), np.uint8)
    arrays = packed, np.full(width * blocks, 1e-4, np.float32)
    sizes = {"K": width, "N": width, "bits": 4, "block_size": 32, "accuracy_level": 4}
    edges = [f"x{number}", *names], [f"x{number + 1}"]
    node = helper.make_node("MatMulNBits", *edges, domain="com.microsoft", **sizes)
    return [*map(numpy_helper.from_array, arrays, names)], node


def _network(path, product, width, count):
    """Write a network of products; return the bytes of its weights."""
    weights, nodes = zip(*(product(width, number) for number in range(count)), strict=True)
    weights = [*itertools.chain(*weights)]
    first, last = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, width)) for name in ("x0", f"x{count}")
    )
    graph = helper.make_graph(nodes, "g", [first], [last], weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return sum(len(weight.raw_data) for weight in weights)


def _growth(path, field, width, seen):
    """Return by how many bytes the memory of a process grows that loads a network and runs it."""
    command = [sys.executable, "-c", RUN, str(path), field, str(width), json.dumps(seen)]
    done = completed(*command, check=True, cwd=ROOT)
    return int(done.stdout)


def test_packed_weights_leave_no_pages_of_their_file(tmp_path):
    """Memory grows by the packed int4 weights, not by the pages of the file that they are read from."""
    nbytes = _network(tmp_path / "net.onnx", _int4, 2048, 24)

    # 1.4 of the weights are packed weights, and copies of scales that are not aligned in the file; 0.6 is the
    # rest of the process; pages of the file would be another 1.0
    assert 2.2 * nbytes > _growth(tmp_path / "net.onnx", "VmRSS", 2048, [0])


def test_runs_with_and_without_a_dump_share_packed_weights(tmp_path):
    """Peak memory is that of a process that dumps each run, not that of weights packed for both."""
    nbytes = _network(tmp_path / "net.onnx", _float32, 1024, 20)
    peaks = {kind: _growth(tmp_path / "net.onnx", "VmHWM", 1024, seen) for kind, seen in SEEN.items()}

    # the sessions of one cut are some MiB more, of old runtimes 0.2; weights that are packed twice, 1.0
    assert 0.5 * nbytes > peaks["in turns"] - peaks["all"]
