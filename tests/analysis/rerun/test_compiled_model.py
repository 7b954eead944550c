"""The form of a model that a dump's names tell."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import numpy_helper, parser

from msdump.analysis.rerun import file_names, fitting
from msdump.analysis.rerun.sites import written_type
from msdump.execute import emulated
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, JitLevel, PrecisionMode

BLOCKS = """<ir_version: 10, opset_import: ["" : 20]>
blocks (float[2,4,16] x) => (float[2,4,16] y)
{
    b = Transpose<perm = [1, 0]>(bias)
    p = MatMul(x, w)  q = Add(p, b)  s = Softmax(q)
    t = MatMul(s, w)  u = Add(t, s)  v = Softmax(u)
    r = MatMul(v, w)  z = Add(r, v)  y = Softmax(z)
}"""


def compiled(graph, mode):
    """Return the types that a compiled graph's operators write, by their names in files."""
    context = Context(DeviceTarget.ASCEND, JitLevel.O2, precision_mode=mode, fuses=True)
    device = emulated(graph, None, context).graph
    return {file_names(node)[0]: written_type(device, node) for node in device.operators}


def renumbered(name):
    """Return the name of an inserted operator behind one more of its kind."""
    return re.sub(r"(?<=_)\d+$", lambda number: str(int(number[0]) + 1), name)


@pytest.mark.parametrize("mode", [PrecisionMode.ALLOW_FP32_TO_FP16, PrecisionMode.FORCE_FP16])
def test_moved_numbers_do_not_change_the_arithmetic(mode):
    """Inserted operators show the arithmetic, though the operators in front of them are others."""
    model, draw = parser.parse_model(BLOCKS), np.random.default_rng(0)
    arrays = {
        "w": draw.standard_normal((16, 16), np.float32),
        "bias": draw.standard_normal((16, 1), np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    graph = loader.load(model)
    dumped = {renumbered(name): dtype for name, dtype in compiled(graph, mode).items()}
    dumped["Default_Maximum-op0"] = "float32"

    found = fitting([graph], dumped)

    assert found.is_compiled
    assert compiled(graph, mode).keys() == {file_names(each)[0] for each in found.graph.operators}
