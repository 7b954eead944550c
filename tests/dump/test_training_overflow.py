"""Operators that overflow in training steps (op_debug_mode 3), as a loss scale makes them."""

import numpy as np
import pytest

import msdump
from msdump import env
from msdump.training import step_graph
from tests.dump import trees
from tests.training.mlp import batch, mlp
from tests.world import O0

STEPS = 4
CONTEXT = O0
MOMENTUM = "momentum:0.1,0.9"
CHANGES = {"precision_mode": "must_keep_origin_dtype"}


def _overflows(array):
    """Return whether an array has infinities, NaNs, or the numbers of a saturating device in their place."""
    is_half = array.dtype == np.float16
    return bool(array.dtype.kind == "f" and not np.isfinite(array).all()) or bool(
        is_half and (abs(array) == np.finfo(np.float16).max).any()
    )


def step_of(precision="float16", **changes):
    """Return the step of a network in float16 with a scale that overflows in the steps 0 and 3."""
    return step_graph(mlp(), precision=precision, loss_scale="dynamic:1048576,factor=64,window=2", **changes)


def train(door, **changes):
    """Train in float16 with a scale that overflows in the steps 0 and 3; return the operators of each dump.

    That is, by graph and name of every operator, whether an output of it overflows.
    """
    door.configure(**CHANGES, **changes)
    network = msdump.load(step_of(optimizer=MOMENTUM, device_target="Ascend"), context=CONTEXT)
    overflowed = [bool(network.train_step(*batch(number))[1]) for number in range(STEPS)]
    assert [True, False, False, True] == overflowed
    door.again()  # every file is there
    steps = [{} for _ in range(STEPS)]
    for graph in sorted((door.rank / "Net").iterdir()):
        for number in range(STEPS):
            for match, path in trees.tensors(graph / str(number)):
                array = np.load(path)
                key = (graph.name, match["name"])
                is_bad = match["io"] == "output" and _overflows(array)
                steps[number][key] = steps[number].get(key, False) or is_bad
    return steps


@pytest.mark.parametrize("mode", ["INFNAN_MODE", "SATURATION_MODE"])
@pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])
def test_dumped_operators_are_those_that_overflow(door, tmp_path, enable, mode):
    """In the steps that overflow, exactly the operators with an infinity, NaN or saturation are dumped."""
    door.monkeypatch.setenv(env.CHECK_OVERFLOW_MODE, mode)
    everything = train(door, enable=enable)
    door.folder = tmp_path / "overflow"
    door.folder.mkdir()
    dumped = train(door, enable=enable, op_debug_mode=3)

    expected = [{name for name, is_bad in step.items() if is_bad} for step in everything]
    assert expected == [set(step) for step in dumped]
    assert [True, False, False, True] == [bool(step) for step in dumped]
    assert ("0", "Gradients_Default_network-WithLossCell_Grad_Cast_Cast-op0") in dumped[0]


@pytest.mark.parametrize("device_target", ["CPU", "Ascend"])
def test_skipped_step_has_no_kernel_of_the_branch(door, device_target):
    """The optimizer is graph 2: only steps without overflow have its directory; graph 1 has no kernel."""
    door.configure()
    precision = {"fc1": "float16", "fc2": "float16"}
    step = step_of(optimizer=MOMENTUM, precision=precision, device_target=device_target)
    network = msdump.load(step, context=CONTEXT if device_target == "Ascend" else {})
    states = [network.state()]

    for number in range(STEPS):
        network.train_step(*batch(number))
        states.append(network.state())

    door.again()
    directories = {
        graph.name: {path.name for path in graph.iterdir()} - {"constants"}
        for graph in (door.rank / "Net").iterdir()
    }
    assert {"0": {"0", "1", "2", "3"}, "2": {"1", "2"}} == directories
    files = {
        (match["name"].rpartition("_")[2], match["io"], int(match["slot"])): np.load(path)
        for match, path in trees.tensors(door.rank / "Net" / "2" / "1")
    }
    # the last parameter comes first
    np.testing.assert_array_equal(states[2]["fc2.bias"], files["ApplyMomentum-op0", "input", 0])
    np.testing.assert_array_equal(states[2]["fc2.bias"], files["ApplyMomentum-op0", "output", 0])
    for name in ("fc1.weight", "moments.fc1.weight", "global_step"):
        np.testing.assert_array_equal(states[0][name], states[1][name])
        assert (states[1][name] != states[2][name]).any()


def test_compiled_step_skips_as_well():
    """Ascend O2 computes the branches of a loss scale as O0 does."""
    step = step_of()
    one = msdump.load(step, context=CONTEXT)
    two = msdump.load(step, context=CONTEXT | {"jit_level": "O2"})

    for number in range(STEPS):
        overflows = [bool(network.train_step(*batch(number))[1]) for network in (one, two)]
        assert [number in {0, 3}] * 2 == overflows
    for name, array in one.state().items():
        np.testing.assert_allclose(array, two.state()[name], atol=1e-3, err_msg=name)


@pytest.mark.parametrize(
    ("mode", "device_target", "context"),
    [
        *(("INFNAN_MODE", device_target, {}) for device_target in ("CPU", "Ascend")),
        *(("SATURATION_MODE", "Ascend", CONTEXT | {"jit_level": level}) for level in ("O0", "O1", "O2")),
    ],
)
def test_dynamic_scale_leaves_an_overflowing_step_out(monkeypatch, mode, device_target, context):
    """An infinity, or the device's status in its place, shrinks the scale; the step changes no weight."""
    monkeypatch.setenv(env.CHECK_OVERFLOW_MODE, mode)
    network = msdump.load(step_of(device_target=device_target), context=context)
    facts = []

    for number in range(STEPS):
        before = network.state()
        overflow = network.train_step(*batch(number))[1]
        after = network.state()
        moved = any((before[name] != after[name]).any() for name in ("fc1.weight", "moments.fc1.weight"))
        facts.append((bool(overflow), moved, float(after["scale_sense"]), int(after["global_step"][0])))
        assert all(np.isfinite(array).all() for array in after.values())

    assert facts == [
        (True, False, 2.0**14, 0),
        (False, True, 2.0**14, 1),
        (False, True, 2.0**20, 2),
        (True, False, 2.0**14, 2),
    ]


def test_status_operators_are_dumped_with_their_slots(door):
    """Lowering and reading have one input and one output; the status is 1 in the steps that overflow."""
    door.monkeypatch.setenv(env.CHECK_OVERFLOW_MODE, "SATURATION_MODE")
    train(door)
    slots = {}
    for number in range(STEPS):
        for match, path in trees.tensors(door.rank / "Net" / "0" / str(number)):
            if "FloatStatus" in match["name"]:
                key = (match["name"], match["io"], int(match["slot"]))
                slots.setdefault(key, []).append(np.load(path).tolist())

    zeros = [[0] * 8] * STEPS
    assert slots == {
        ("Default_NPUClearFloatStatusV2-op0", "input", 0): zeros,
        ("Default_NPUClearFloatStatusV2-op0", "output", 0): zeros,
        ("Default_NPUGetFloatStatusV2-op0", "input", 0): zeros,
        ("Default_NPUGetFloatStatusV2-op0", "output", 0): [[1] * 8, [0] * 8, [0] * 8, [1] * 8],
        ("Default_NPUClearFloatStatusV2-op1", "input", 0): zeros,
        ("Default_NPUClearFloatStatusV2-op1", "output", 0): zeros,
    }
