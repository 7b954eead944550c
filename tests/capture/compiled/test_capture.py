"""What a compiled graph's observer hands on: which tensors of which operators, in which files."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from msdump.capture.compiled.capture import CompiledCapture
from msdump.capture.compiled.model_selection import ModelSelection
from msdump.capture.pipeline import Pipeline
from msdump.capture.steps.records import OperatorRecords
from msdump.device.memory import Block
from msdump.device.tasks import Task
from msdump.graph.updates import NO_UPDATE
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.record import IO, OperatorRef
from tests import plans

PLAN = plans.made("plan.json", Context(DeviceTarget.ASCEND, JitLevel.O2), net_name="Net")
TASK = Task(4, 7)
ARRAYS = [np.float32([1]), np.float32([2])]
RESULTS = [np.float32([3])]


class Recorder:
    """Keeps what a writer is given."""

    def __init__(self):
        """Keep nothing yet."""
        self.files = []
        self.times = []

    def write(self, directory, operator, task, tensors):
        """Keep the directory, the operator, its task, and its tensors as (side, slot, address), if any."""
        records = list(tensors)
        if records:
            slots = [(str(record.io), record.slot, record.device.address) for record in records]
            self.files.append((directory, operator, task, slots))
            self.times.append({record.timestamp for record in records})


class Memory:
    """A memory in which everything has an address made of its place."""

    blocks = {"x": Block(512, 512)}  # noqa: RUF012 - never changed

    def block(self, position, io, slot):
        """Return the block of a tensor."""
        return Block(1000 * position + 100 * (io is IO.OUTPUT) + slot, 512)


INPUT_TASKS = {"x": Task(2, 3)}


def capture(op_type="Add", task=TASK, *, plan=PLAN, data=(), blocked=()):
    """Return the observer of one operator and what it hands on."""
    operator = OperatorRef(op_type, f"Default/{op_type}-op0")
    node = SimpleNamespace(
        operator=operator,
        members=(SimpleNamespace(operator=operator),),
        inputs=("x", "y"),
        outputs=("z",),
        declared_outputs=("z",),
        update=NO_UPDATE,
        bodies=(),
    )
    device = SimpleNamespace(
        graph=SimpleNamespace(nodes=(node,), index=0, type_of=lambda _: SimpleNamespace(kind="tensor")),
        tasks=(task,),
        tensor=lambda *_: None,
        laid_out=lambda array, _: array,
    )
    selection = ModelSelection((None,), {0: tuple(data)}, {0: frozenset(blocked)})
    recorder = Recorder()
    made = CompiledCapture(
        plan,
        device,
        selection,
        OperatorRecords(device, Memory),
        Pipeline((), recorder, print),
        input_tasks=INPUT_TASKS,
    )
    made.begin("/d", 0, {"x": ARRAYS[0]})
    return made, recorder


def slots(recorder):
    """Return operator and slots of each file."""
    return [
        (operator.full_name, [(io, slot) for io, slot, _ in tensors])
        for _, operator, _, tensors in recorder.files
    ]


IN0, IN1, OUT0 = ("input", 0), ("input", 1), ("output", 0)


def test_operator_is_one_file():
    """Inputs stand before outputs in one file, named by task and stream, with the addresses of the memory."""
    observer, recorder = capture()

    observer.ran(0, ARRAYS, RESULTS)

    ((directory, operator, task, tensors),) = recorder.files
    assert "/d" == directory
    assert (4, 7, "Default/Add-op0") == (task.task_id, task.stream_id, operator.full_name)
    assert [1] == list(map(len, recorder.times))
    assert [("input", 0, 0), ("input", 1, 1), ("output", 0, 100)] == tensors


def test_collective_is_two_files():
    """Inputs and outputs of a collective are files of their own, the inputs' first."""
    observer, recorder = capture("HcomAllReduce")

    observer.ran(0, ARRAYS, RESULTS)

    full_name = "Default/HcomAllReduce-op0"
    assert [(full_name, [IN0, IN1]), (full_name, [OUT0])] == slots(recorder)
    (first,), (second,) = recorder.times
    assert first < second


def test_operator_without_task_has_no_file():
    """What the device does not run is not dumped."""
    observer, recorder = capture(task=None)

    observer.ran(0, ARRAYS, RESULTS)

    assert [] == recorder.files


BLOCKED = {
    "an input": ({(IO.INPUT, 0)}, [IN1, OUT0]),
    "an output": ({(IO.OUTPUT, 0)}, [IN0, IN1]),
    "beyond": ({(IO.INPUT, 5)}, [IN0, IN1, OUT0]),
}


@pytest.mark.parametrize(("blocked", "expected"), BLOCKED.values(), ids=BLOCKED)
def test_blocked_tensors_are_left_out(blocked, expected):
    """What a black list names does not appear; the others keep their order."""
    observer, recorder = capture(blocked=blocked)

    observer.ran(0, ARRAYS, RESULTS)

    assert [("Default/Add-op0", expected)] == slots(recorder)


def test_everything_blocked_is_no_file():
    """An operator of which nothing is left has no file."""
    observer, recorder = capture(blocked={(IO.INPUT, 0), (IO.INPUT, 1), (IO.OUTPUT, 0)})

    observer.ran(0, ARRAYS, RESULTS)

    assert [] == recorder.files


def test_absent_tensors():
    """An absent input has no place in the file."""
    observer, recorder = capture()

    observer.ran(0, [None, ARRAYS[1]], RESULTS)

    assert [("Default/Add-op0", [IN1, OUT0])] == slots(recorder)


def test_data_has_the_task_of_the_input():
    """A graph input is the operator Data, written once before its first reader with a task of its own."""
    observer, recorder = capture(data=["x"])

    observer.ran(0, ARRAYS, RESULTS)

    (_, operator, task, tensors), (_, reader, _, _) = recorder.files
    assert ("x", "Data", 2, 3, [("output", 0, 512)]) == (
        *(operator.full_name, operator.op_type),
        *(task.task_id, task.stream_id, tensors),
    )
    assert "Default/Add-op0" == reader.full_name
    observer.ran(0, ARRAYS, RESULTS)
    assert "Default/Add-op0" == recorder.files[2][1].full_name


def test_inputs_are_let_go():
    """After a run the observer holds nothing of what the network was fed."""
    observer, recorder = capture(data=["x"])
    observer.end()

    observer.ran(0, ARRAYS, RESULTS)

    assert ["Default/Add-op0"] == [name for name, _ in slots(recorder)]
