"""Values that a session of the runtime measures, beside the pass over elements that have left it."""

import itertools
import math
import shutil
import subprocess

import numpy as np
import pytest
from onnx import helper

from msdump import dtypes
from msdump.errors import shortage
from msdump.execute import Runtime, cpu_runtime, values
from msdump.execute.runtime import SessionUse
from msdump.graph.kernel import ADDRESSES
from msdump.graph.kernel.linked import add_measures, made_name
from msdump.statistics import SessionMeasures, StatisticNeed, compiled, insession, passes, stand_ins

ALL = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
BOUNDS = ("high", "low")
NEEDS = {
    "all": (
        ALL,
        (*BOUNDS, "negative", "positive", "nan", "negative_inf", "positive_inf", "total", "squares"),
    ),
    "extremes": (StatisticNeed(extremes=True), BOUNDS),
    "squares": (StatisticNeed(extremes=True, squares=True), (*BOUNDS, "squares")),
}
"""What a pass finds out, and the fields that it fills."""

TYPES = (
    *("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16"),
    *("int32", "uint32", "int64", "uint64", "bool"),
)
SHAPES = ((), (1,), (2047,), (2049, 1), (3, 33_000), (2, 140_001))
PART = 1 << 17  # elements of a part: the last shape has two

pytestmark = pytest.mark.skipif(compiled.KERNEL is None, reason="no compiled pass is installed")


def _session(kind, need, outputs, sessions=None):
    """Return a session that measures ``y``, a copy of ``x``, and of it ``z``."""
    nodes = [
        helper.make_node("Identity", [given], [name], name=f"{number}")
        for number, (given, name) in enumerate(zip("xy", outputs, strict=False))
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, None)],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    add_measures(model, {"y": 0}, need)
    return (sessions or cpu_runtime()).session(model.SerializeToString(), use=SessionUse(looks=True))


def _run(session, array, outputs):
    """Return the output of a session, its stand-in, and its statistics."""
    found = SessionMeasures(1)
    feeds = {"x": values.owned(array), ADDRESSES: values.owned(found.addresses)}
    names = [made_name(name) if name == "y" else name for name in outputs]
    results = [values.to_array(each) for each in session.run_with_ort_values(feeds, names, None)]
    standing = stand_ins(found.kinds)
    return results, standing, None if standing is None else list(found.totals(standing))


def _measured(array, outputs="y"):
    return _run(_session(dtypes.from_numpy(array.dtype).onnx, ALL, outputs), array, outputs)


def _array(name, shape, fill):
    dtype = dtypes.from_name(name).numpy
    rng = np.random.default_rng(5)
    array = (rng.standard_normal(shape) * 40).astype(np.float32)
    flat = array.reshape(-1)
    if fill == "special" and dtype.kind in "fV" and flat.size > 2:
        flat[1:3] = math.inf, math.nan
    if fill == "infinite" and dtype.kind in "fV":
        flat[-1] = -math.inf
    if fill == "zeros":
        flat[:] = -0.0
        flat[flat.size // 2 :] = 0.0
    if fill == "equal":
        flat[:] = 0.1
    if dtype.kind in "iub":
        array = np.abs(array).astype(np.int64)
    return array.astype(dtype)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("name", TYPES)
def test_values_are_measured_as_their_elements_are(name, need, threads, monkeypatch):
    """Statistics of a session have the bits of the pass over the elements, for any number of threads."""
    monkeypatch.setattr(passes, "PART", PART)
    monkeypatch.setattr(passes, "thread_count", lambda: threads)
    monkeypatch.setattr(insession, "thread_count", lambda: threads)
    dtype, (wanted, fields) = dtypes.from_name(name), NEEDS[need]
    session = _session(dtype.onnx, wanted, "y")
    for shape, fill in itertools.product(SHAPES, ("plain", "special", "infinite", "zeros", "equal")):
        array = _array(name, shape, fill)
        expected = passes.measure(array, dtype, wanted)

        (result,), (standing,), (totals,) = _run(session, array, "y")

        assert [repr(getattr(expected, field)) for field in fields] == [
            repr(getattr(totals, field)) for field in fields
        ], (shape, fill)
        assert array.tobytes() == result.tobytes()
        assert (array.dtype, array.shape) == (standing.dtype, standing.shape)


def test_a_value_that_others_read_is_handed_on():
    """A measured value that is an output and is read on has its elements in both places."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)

    (first, second), _, (totals,) = _measured(array, "yz")

    assert array.tobytes() == first.tobytes() == second.tobytes()
    assert 66.0 == totals.total


def test_a_value_without_elements():
    """A value without elements is handed on, and its shape is found."""
    (result,), (standing,), _ = _measured(np.zeros((2, 0, 3), np.float16))

    assert (2, 0, 3) == result.shape == standing.shape


def test_too_many_dimensions_are_told():
    """A value with more dimensions than there is room for is handed on, and nothing stands for it."""
    array = np.ones((1,) * 9, np.float32)

    (result,), standing, _ = _measured(array)

    assert array.tobytes() == result.tobytes()
    assert standing is None


@pytest.mark.parametrize("name", ["string", "int4", "float8_e4m3fn", "complex64"])
def test_other_types_are_not_taken(name):
    """Types that the compiled pass does not know leave the session."""
    assert not insession.takes(dtypes.from_name(name))


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("LIBRARY", "/nowhere/_kernel.so"), ("KERNEL", None)],
    ids=["a library that is not there", "no compiled pass"],
)
def test_a_runtime_without_the_operator(attribute, value, monkeypatch):
    """A runtime that cannot load the operator says so, and runs on."""
    monkeypatch.setattr(compiled, attribute, value)
    assert not Runtime(1).can_measure


def test_the_operator_is_there():
    """The runtime that the tests run with measures values in its sessions."""
    assert Runtime(1).can_measure


@pytest.fixture
def starved(tmp_path, monkeypatch):
    """Return a function that gives a runtime with an operator that finds no memory, by a macro."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")

    def build(macro):
        source, library = tmp_path / "starved.c", tmp_path / "starved.so"
        kernel = compiled.LIBRARY.with_name("kernel.c")
        source.write_text(f'#define _GNU_SOURCE\n#include <stdlib.h>\n#define {macro}\n#include "{kernel}"\n')
        subprocess.run(
            ["cc", "-std=gnu11", "-w", "-fPIC", "-shared", "-o", library, source, "-lm"], check=True
        )
        monkeypatch.setattr(compiled, "LIBRARY", library)
        return Runtime(2)

    return build


def test_a_node_without_memory_makes_no_session(starved):
    """A session is refused if a node finds no memory, with a message that says so."""
    with pytest.raises(Exception, match="out of memory") as caught:
        _session(1, ALL, "y", starved("malloc(size) NULL"))
    assert shortage(caught.value).startswith("out of memory")


def test_findings_without_memory_are_found_by_one_thread(starved, monkeypatch):
    """One thread reads the whole value if there is no memory for the results of each."""
    monkeypatch.setenv("MSDUMP_THREADS", "2")
    array = np.arange(280_002, dtype=np.float32).reshape(2, -1)
    session = _session(1, ALL, "y", starved("malloc(size) ((size) > 64 ? NULL : malloc(size))"))

    _, _, [totals] = _run(session, array, "y")

    assert (280_001, 0, 280_001) == (totals.high, totals.low, totals.positive)
    assert math.isclose(totals.total, array.sum(dtype=np.float64), rel_tol=1e-12)


def test_nothing_stays_of_the_run_before():
    """Of a value without elements nothing is found, whatever the run before has found there."""
    session, found = _session(1, ALL, "y"), SessionMeasures(1)
    addresses = values.owned(found.addresses)
    for shape in ((3,), (0,)):
        feeds = {"x": values.owned(np.ones(shape, np.float32)), ADDRESSES: addresses}
        session.run_with_ort_values(feeds, [made_name("y")], None)

    assert [0.0] == found.together(np.array([0]), np.array([0])).squares.tolist()
