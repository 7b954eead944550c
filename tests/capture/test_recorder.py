"""The emulated device's memory over many runs: addresses and limits hold for the operators that ran."""

import itertools

import numpy as np
import pytest
from onnx import helper

from msdump.capture import recorder
from msdump.encode import dump_data
from msdump.errors import DeviceMemoryError
from msdump.execute import Program
from tests.dump import nets, o2
from tests.texts import parsed
from tests.world import O0, O2

LIMITED = {"max_device_memory": "1GB"}
ROWS = 64


def nonzero_elements():
    """Return a network with tensors as large as its input has elements that are not zero."""
    nodes = [nets.node("NonZero", "x", "at"), nets.node("Cast", "at", "y", to=1), nets.node("Neg", "y", "z")]
    return nets.model(nodes, [nets.value("x", [ROWS, ROWS])], ["y", "z"])


def elements(count):
    """Return an input with a number of elements that are not zero."""
    x = np.zeros((ROWS, ROWS), np.float32)
    x.reshape(-1)[:count] = 1
    return {"x": x}


@pytest.mark.parametrize("context", [O0 | LIMITED, O2 | LIMITED], ids=["O0", "O2"])
@pytest.mark.parametrize(
    "order", [(1, 4000), (4000, 1, 4000), (1, 9, 1, 9, 4000)], ids=["more", "less", "both"]
)
def test_sizes_that_contents_tell(door, context, order):
    """A tensor with a size that depends on contents has the block of its own run: peaks follow the run."""
    expected = []
    for count in order:
        fresh = door.load(nonzero_elements(), **context)
        fresh.run(elements(count))
        expected.append((fresh.device_memory.peak, dict(fresh.device_memory.blocks)))
    network = door.load(nonzero_elements(), **context)

    actual = []
    for count in order:
        network.run(elements(count))
        actual.append((network.device_memory.peak, dict(network.device_memory.blocks)))

    assert expected == actual
    assert 1 < len({peak for peak, _ in actual})


def test_headers_do_not_overlap(door):
    """In the files of a later run with more elements, tensors that live at once do not overlap."""
    network = o2.load(door, nonzero_elements(), file_format="bin")
    for count in (1, 4000):
        network.run(elements(count))

    (path,) = door.path.glob("1/*/*/*/*/1/Cast*")
    data, _ = dump_data.read_header(memoryview(path.read_bytes()))
    tensors = sorted((info.address, info.address + info.size) for info in (*data.inputs, *data.outputs))
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(tensors))
    assert 2 * 4000 * 4 <= tensors[-1][1] - tensors[-1][0]


def test_limit_holds_for_each_run(door):
    """A limit is checked again where contents make tensors larger than they were."""
    network = door.load(nonzero_elements(), **O0, max_device_memory="64KB")
    network.run(elements(1))

    with pytest.raises(DeviceMemoryError, match="max_device_memory"):
        network.run(elements(4000))
    network.run(elements(1))
    with pytest.raises(DeviceMemoryError, match="max_device_memory"):
        network.run(elements(4000))


def test_shapes_of_sequences(door):
    """Sequences of other shapes have other addresses, though tensors beside them are the same."""
    sequence = helper.make_tensor_sequence_value_info("s", 1, None)
    nodes = [nets.node("ConcatFromSequence", "s", "y", axis=0)]
    network = door.load(nets.model(nodes, [sequence], [nets.value("y", ["n"])]), **O0, **LIMITED)

    peaks = []
    for sizes in ((8,), (4000,), (8, 4000)):
        network.run({"s": [np.ones(size, np.float32) for size in sizes]})
        peaks.append(network.device_memory.peak)

    assert [512, 16384, 16384] == peaks


def use(network):
    """Return all that a network's last run needed."""
    memory = network.device_memory
    return memory.peak, memory.blocks


def nonzero_twice():
    """Return a network in which two operators find elements, and a shape among others follows from them."""
    made = [nets.node("Neg", "x", "n"), nets.node("NonZero", "n", "at"), nets.node("Cast", "at", "a", to=1)]
    made += [nets.node("NonZero", "x2", "on"), nets.node("Shape", "on", "s")]
    made += [nets.node("Expand", "w s", "e"), nets.node("Neg", "a", "y"), nets.node("Neg", "e", "z")]
    inputs = [nets.value("x", [ROWS, ROWS]), nets.value("x2", [ROWS, ROWS])]
    return nets.model(made, inputs, ["y", "z"], {"w": np.ones(1, np.float32)})


def test_each_of_several_sizes_counts(door):
    """A run is like another one only where every size that contents tell is the same."""
    runs = [(1, 1), (1, 3000), (2000, 1), (1, 3000), (2000, 3000), (1, 1), (2000, 1)]
    network, actual, expected = door.load(nonzero_twice(), **O0, **LIMITED), [], []
    for first, second in runs:
        feeds = {"x": elements(first)["x"], "x2": elements(second)["x"]}
        fresh = door.load(nonzero_twice(), **O0, **LIMITED)
        fresh.run(feeds)
        network.run(feeds)
        expected.append(use(fresh))
        actual.append(use(network))

    assert expected == actual


def test_sizes_in_sequences(door):
    """Tensors taken from a sequence have their own sizes, though the sequence's type has no sizes."""
    network = door.load(
        parsed(
            """graph (float[4000,1] x, int64[2] i) => (y) {
            s = SplitToSequence<axis = 0>(x, i)
            y = SequenceAt(s, w)
        }""",
            w=np.array(0),
        ),
        **O0,
        **LIMITED,
    )

    sizes = []
    for rows in (1, 3999, 1):
        network.run({"x": np.ones((4000, 1), np.float32), "i": np.array([rows, 4000 - rows])})
        sizes.append(network.device_memory.blocks["y"].size)

    assert [512, 16384, 512] == sizes


def observed(door, monkeypatch, model, runs, **context):
    """Return which undumped runs of a network were observed operator by operator."""
    network, seen, execute = door.load(model, **context), [], Program.execute

    def execute_and_note(program, frame, observer, *replaced):
        seen.append(observer is not None)
        execute(program, frame, observer, *replaced)

    monkeypatch.setattr(Program, "execute", execute_and_note)
    for feeds in runs:
        network.run(feeds)
    return seen


def test_runs_with_known_sizes_are_not_observed(door, monkeypatch):
    """Where shapes tell every size, only the first run of each shape is measured against a limit."""
    runs = [{"x": np.ones((rows, 4), np.float32)} for rows in (1, 1, 2, 1, 2)]

    actual = observed(door, monkeypatch, nets.cosine(), runs, **O0, **LIMITED)

    assert [True, False, True, False, False] == actual


def test_runs_without_limit_are_not_observed(door, monkeypatch):
    """No undumped run without a limit is measured, whatever its shapes: a decoder's grow at every step."""
    runs = [{"x": np.ones((rows, 4), np.float32)} for rows in (1, 1, 2)]

    assert [False] * 3 == observed(door, monkeypatch, nets.cosine(), runs, **O0)


@pytest.mark.parametrize(("limit", "is_observed"), [({}, False), (LIMITED, True)], ids=["free", "limited"])
def test_runs_with_sizes_that_depend_on_contents(door, monkeypatch, limit, is_observed):
    """Where contents decide sizes, an undumped run is measured only against a limit."""
    runs = [elements(count) for count in (1, 1, 2)]

    assert [is_observed] * 3 == observed(door, monkeypatch, nonzero_elements(), runs, **O0, **limit)


def test_oldest_shapes_are_forgotten(door, monkeypatch):
    """No more than the last sets of shapes are remembered; the oldest is measured anew."""
    monkeypatch.setattr(recorder, "_MOST_RUNS", 2)
    runs = [{"x": np.ones((rows, 4), np.float32)} for rows in (1, 2, 3, 2, 3, 1)]

    actual = observed(door, monkeypatch, nets.cosine(), runs, **O0, **LIMITED)

    assert [True, True, True, False, False, True] == actual


def test_run_that_fails_is_not_remembered(door, monkeypatch):
    """The memory of a failed run is no layout for a later one of the same shapes."""
    network = door.load(
        parsed("graph (float[4,64] x, int64[2] i) => (y) { a = Gather(x, i) y = Neg(a) }"), **O0, **LIMITED
    )
    x = np.ones((4, 64), np.float32)
    with pytest.raises(RuntimeError, match="Gather"):
        network.run({"x": x, "i": np.array([0, 9])})

    network.run({"x": x, "i": np.array([0, 1])})

    assert {"x", "i", "a", "y"} == set(network.device_memory.blocks)
