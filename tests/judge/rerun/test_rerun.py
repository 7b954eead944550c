"""Operators that run again: the form of their model, overflows inside of kernels, threads."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
from onnx import numpy_helper, parser

from msdump import env
from msdump.execute import Float64Runner, emulated
from msdump.graph import fuse_elementwise, loader
from msdump.judge.rerun import file_names, fitting, own, reexecution
from msdump.judge.rerun.sites import written_type
from msdump.plan import Context, DeviceTarget, JitLevel, PrecisionMode
from tests.texts import parsed

X = np.random.default_rng(3).standard_normal((4, 16)) * 2.0**16
DOUBLED = 2 * X
SCALE = 2.0**-16


def kernel():
    """Return the graph of ``tanh((x + x) / 2**16) * 3``, one kernel."""
    model = parsed(
        f"""net (float[4,16] x) => (float[4,16] y) <float three = {{3}}, float scale = {{{SCALE}}}> {{
            [sum] sum = Add(x, x) [small] small = Mul(sum, scale)
            [curve] curve = Tanh(small) [scaled] y = Mul(curve, three)
        }}"""
    )
    return fuse_elementwise(loader.load(model))


def beyond(edge):
    """Return the result where sums beyond an edge have become infinite."""
    return 3 * np.tanh(SCALE * np.where(np.abs(DOUBLED) > edge, np.copysign(np.inf, DOUBLED), DOUBLED))


def one_off():
    """Return the result with the wrong number at the place of the smallest sum."""
    result = 3 * np.tanh(SCALE * DOUBLED)
    result.flat[np.abs(DOUBLED).argmin()] = 3.0
    return result


@pytest.mark.parametrize(
    ("expected", "dumped"),
    [
        ("Add-op0", beyond(65504.0)),
        ("Add-op0", beyond(65504.0).astype(np.float16)),
        ("", 3 * np.tanh(SCALE * DOUBLED)),
        ("", 3.3 * np.tanh(SCALE * DOUBLED)),
        ("", one_off()),
        ("Add-op0", beyond(4e4)),
    ],
    ids=["overflow", "in float16", "right", "wrong", "one element", "from a smaller number"],
)
def test_a_hidden_overflow_is_told_from_other_errors(expected, dumped):
    """Elements that are off have to come from an infinity, of the largest numbers alone."""
    graph = kernel()
    (node,) = graph.operators

    def run(change):
        return Float64Runner(graph).run(node, {"x": X}, change=change)

    assert expected == own.overflowed_part(node, run, 0, dumped)


def rows():
    """Return the graph of ``x / (m + m)`` with a number ``m`` for each row, one kernel."""
    text = "net (float[4,16] x, float[4,1] m) => (y) { [sum] sum = Add(m, m) [share] y = Div(x, sum) }"
    return fuse_elementwise(loader.load(parsed(text)))


@pytest.mark.parametrize(
    ("expected", "lost"), [("Add-op0", [3]), ("Add-op0", [0, 1, 2, 3]), ("", [0]), ("", [])], ids=str
)
def test_a_hidden_overflow_of_one_number_for_a_row(expected, lost):
    """A part that writes one number for many elements is named if the largest are lost."""
    graph = rows()
    (node,) = graph.operators
    parameters = {"x": X, "m": np.array([[1.0], [2.0], [4.0], [9.0]])}
    dumped = X / (2 * parameters["m"])
    dumped[lost] = 0.0

    def run(change):
        return Float64Runner(graph).run(node, parameters, change=change)

    assert expected == own.overflowed_part(node, run, 0, dumped)


_COUNT = 50
_LARGE = 1 << 20  # elements of a tensor


@pytest.mark.parametrize(("expected", "given"), [(1, "1"), (2, "2"), (4, "64")])
def test_works_in_as_many_threads_as_one_operator_has(expected, given, monkeypatch):
    """Results come in the order of the numbers, of no more threads than there are, four at most."""
    monkeypatch.setenv(env.THREADS, given)
    begun = threading.Barrier(expected)
    workers = set()

    def work(number):
        if number < expected:
            begun.wait(timeout=60)
        workers.add(threading.get_ident())
        return number * number

    results = list(reexecution.each(work, _COUNT, _LARGE))
    assert [number * number for number in range(_COUNT)] == results
    assert expected == len(workers)
    assert [] == list(reexecution.each(work, 0, 0))
    # where calls are over at once, the calling thread alone works
    assert {threading.get_ident()} == {*reexecution.each(lambda _: threading.get_ident(), _COUNT, 1000.0)}


@pytest.mark.parametrize("given", ["1", "2"])
def test_an_error_ends_the_work(given, monkeypatch):
    """An error of the work comes in its turn, and no operator begins afterwards."""
    monkeypatch.setenv(env.THREADS, given)
    done, count = [], 1000

    def work(number):
        if number == 1:
            raise KeyError(number)
        if number:
            threading.Event().wait(0.1)  # as a large operator
        done.append(number)
        return number

    results = reexecution.each(work, count, _LARGE)
    assert 0 == next(results)
    with pytest.raises(KeyError):
        next(results)
    assert len(done) < count / 2


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
