"""The device's overflow status: which operators between lowering and reading raise it."""

import logging

import numpy as np
import pytest
from onnx import helper

import msdump
from msdump import communication, env
from msdump.errors import GraphError
from msdump.execute import as_the_model_says
from msdump.execute.segment_compiler import Joining
from msdump.graph import loader
from msdump.look import unrunnable
from tests.texts import parsed
from tests.world import O0

CLEAR, GET = "NPUClearFloatStatusV2", "NPUGetFloatStatusV2"
FITS, TOO_LARGE = np.array([1, 2], np.float32), np.array([1, 1e6], np.float32)


def _model(*, inputs=("zeros",), dtype=np.int32, shape=(8,)):
    """Return: x to float16, the status lowered, relu(x), y to float16, the status read."""
    model = parsed(
        f"""status (float[2] x, float[2] y) => (int32[8] status, float16[2] positive_x, float16[2] half_y) {{
            [cast_x] half_x = Cast<to = 10>(x)
            [clear] cleared = mindspore.ops.{CLEAR}({", ".join(inputs)})
            [relu] positive_x = Relu(half_x)
            [cast_y] half_y = Cast<to = 10>(y)
            [get] status = mindspore.ops.{GET}(zeros) }}""",
        zeros=np.zeros(shape, dtype),
    )
    model.opset_import.add(domain="mindspore.ops", version=1)
    return model


def _statuses(model, **context):
    """Return the status where nothing saturates, x alone, y alone, and both do, in runs of one network."""
    network = msdump.load(model, context=context)
    pairs = [(x, y) for y in (FITS, TOO_LARGE) for x in (FITS, TOO_LARGE)]
    return [network(x=x, y=y)[0].tolist() for x, y in pairs]


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
def test_status_tells_of_operators_since_it_was_lowered(monkeypatch, caplog, level):
    """An operator before the lowering does not count, even where a chain could reach across it."""
    monkeypatch.setenv(env.CHECK_OVERFLOW_MODE, "SATURATION_MODE")

    statuses = _statuses(_model(), device_target="Ascend", jit_level=level)

    assert [[0] * 8, [0] * 8, [1] * 8, [1] * 8] == statuses
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


def _of_rank(model):
    network = msdump.load(model, context=O0)
    return [network(x=FITS, y=y)[0].tolist() for y in (FITS, np.array([1, 60000], np.float32))]


@pytest.mark.timeout(60)
def test_collective_raises_the_status(monkeypatch):
    """A sum over ranks that leaves float16's range saturates on every rank, though no rank's part does."""
    monkeypatch.setenv(env.CHECK_OVERFLOW_MODE, "SATURATION_MODE")
    model = _model()
    reduce = helper.make_node(
        "AllReduce", ["half_y"], ["total"], name="reduce", domain="mindspore.ops", op="sum"
    )
    model.graph.node.insert(len(model.graph.node) - 1, reduce)

    assert [[[0] * 8, [1] * 8]] * 2 == communication.spawn(2, _of_rank, model)


@pytest.mark.parametrize(
    ("target", "mode"), [("Ascend", "INFNAN_MODE"), ("CPU", "INFNAN_MODE"), ("CPU", "SATURATION_MODE")]
)
def test_devices_without_status_tell_zeros_and_warn_once(monkeypatch, caplog, target, mode):
    """Where results become infinite nothing raises the status; one warning says so."""
    monkeypatch.setenv(env.CHECK_OVERFLOW_MODE, mode)

    statuses = _statuses(_model(), device_target=target)

    assert [[0] * 8] * 4 == statuses
    warnings = [record.getMessage() for record in caplog.records if GET in record.getMessage()]
    assert 1 == len(warnings)
    assert "only Ascend in SATURATION_MODE has an overflow status" in warnings[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": ("zeros", "x")}, r"node 'clear' \(NPUClearFloatStatusV2\): 2 inputs and 1 outputs"),
        ({"inputs": ()}, r"node 'clear' \(NPUClearFloatStatusV2\): 0 inputs and 1 outputs"),
        ({"dtype": np.float32}, r"the input must be int32 of shape \(8,\)"),
        ({"shape": (4,)}, r"the input must be int32 of shape \(8,\)"),
    ],
)
def test_other_slots_are_refused(changes, words):
    """An operator of the status has one input and one output, int32 of shape (8,)."""
    with pytest.raises(GraphError, match=words):
        msdump.load(_model(**changes))


def test_status_needs_no_kernel_but_its_place():
    """A preview misses no kernel; operators of the status never run in a session with others."""
    graph = loader.load(_model())

    assert [] == list(unrunnable(graph))
    joining = Joining(graph, as_the_model_says)
    assert {CLEAR, GET, "Relu"} == {node.op_type for node in graph.nodes if not joining.joins(node)}
