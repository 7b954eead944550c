"""The files of training steps: inputs that are written in place, Parameter files, undeclared outputs."""

import json

import numpy as np
import pytest

import msdump
from msdump.encode import dump_data
from msdump.errors import ExecutionError
from msdump.graph import loader
from msdump.look import forecast
from msdump.training import step_graph
from tests import steps
from tests.dump import trees
from tests.world import O0, O2, compiled_config

INPUTS = [("input", slot) for slot in range(5)]
FIVE_AND_ONE = [*INPUTS, ("output", 0)]


def dumped(door, iteration, graph=0):
    """Return the arrays of an iteration's tensor files by (operator name, io, slot)."""
    return {
        (match["name"], match["io"], int(match["slot"])): np.load(path)
        for match, path in trees.tensors(door.rank / "Net" / str(graph) / str(iteration))
    }


def momentum(files):
    """Return the arrays of the optimizer by (io, slot)."""
    return {key[1:]: array for key, array in files.items() if "ApplyMomentum" in key[0]}


def train(network, count=2):
    """Run steps on the same batch."""
    for _ in range(count):
        network.train_step(steps.X, steps.T)


@pytest.mark.parametrize(("form", "graph"), [("plain", 0), ("algorithm", 1)])
def test_updated_inputs_show_new_values(door, form, graph):
    """An operator that writes its inputs shows them as they are afterwards, and the outputs it declares."""
    door.configure()
    network = steps.plain() if form == "plain" else msdump.load(steps.with_training_info())
    train(network)

    _, states = steps.expected(2)
    for step, state in enumerate(states):
        files = dumped(door, step, graph)
        update = momentum(files)
        assert FIVE_AND_ONE == sorted(update)
        np.testing.assert_allclose(state["w"], update["input", 0], rtol=1e-5)
        np.testing.assert_allclose(state["m"], update["input", 1], rtol=1e-5)
        np.testing.assert_array_equal(update["input", 0], update["output", 0])
        # the forward operator read the old weight; Parameter files hold the values of the step's end
        before = states[step - 1] if step else steps.START
        np.testing.assert_allclose(before["w"], files["Default_MatMul-op0", "input", 1], rtol=1e-5)
        np.testing.assert_array_equal(update["input", 0], files["w", "output", 0])
        np.testing.assert_array_equal(update["input", 1], files["m", "output", 0])
        assert [step + 1] == files["step", "output", 0].tolist()


def test_graphs_of_an_algorithm_have_ids_of_their_own(door):
    """Inference is graph 0; the training step is graph 1 from its first step on, its count its own."""
    door.configure()
    network = msdump.load(steps.with_training_info())

    network(steps.X, steps.T)
    train(network, 1)
    network(steps.X, steps.T)

    graphs = door.rank / "Net"
    assert [["0", "1"], ["1"]] == [sorted(path.name for path in (graphs / n).iterdir()) for n in "01"]
    # a call between steps shows the weights of then
    inferred = dumped(door, 1)
    np.testing.assert_array_equal(network.state()["w"], inferred["w", "output", 0])
    assert not any("ApplyMomentum" in name for name, _, _ in inferred)


def test_a_call_of_the_plain_form_keeps_its_parameters(door):
    """A run that is no training step writes nothing back: its Parameter files hold the old values."""
    door.configure()
    network = steps.plain()
    network(steps.X, steps.T)

    np.testing.assert_array_equal(steps.START["w"], dumped(door, 0)["w", "output", 0])


def test_a_failed_operator_shows_old_values(door):
    """The exception dump of an operator that writes its inputs holds them as they were before it."""
    text = steps.PLAIN.replace("float[n,2] t)", "float[n,2] t, float[a,b] other)")
    door.configure(op_debug_mode=4, input_output=1)
    network = steps.plain(text.replace("lr, g, mu)", "lr, other, mu)"), context=O0)

    with pytest.raises(ExecutionError, match="ApplyMomentum"):
        network.train_step(steps.X, steps.T, np.ones((5, 4), np.float32))

    update = momentum(dumped(door, 0))
    assert INPUTS == sorted(update)
    np.testing.assert_array_equal(steps.START["w"], update["input", 0])
    np.testing.assert_array_equal(steps.START["m"], update["input", 1])


def test_statistics_have_no_row_of_undeclared_outputs(door):
    """The table has one row for each slot that the primitive declares."""
    door.configure(saved_data="statistic")
    train(steps.plain(context=O0), 1)

    (table,) = door.rank.rglob("statistic.csv")
    header, *rows = [line.split(",") for line in table.read_text().splitlines()]
    columns = [header.index(name) for name in ("Op Name", "IO", "Slot")]
    shown = [[row[column] for column in columns] for row in rows if "ApplyMomentum" in row[columns[0]]]
    assert FIVE_AND_ONE == sorted((io, int(slot)) for _, io, slot in shown)


@pytest.mark.parametrize("file_format", ["npy", "bin"])
def test_compiled_steps_show_the_same_slots(door, file_format):
    """Ascend O2 dumps the inputs after the update, and the declared outputs, of the fused graph."""
    door.configure(compiled_config(door.path, fuses=True, file_format=file_format))
    network = steps.plain(context=O2)
    train(network, 1)

    if file_format == "npy":
        files = {tuple(path.name.split(".")[-5:-3]): path for path in door.path.rglob("ApplyMomentum*.npy")}
        slots = {(io, int(slot)): np.load(path) for (io, slot), path in files.items()}
    else:
        (file,) = [path for path in door.path.rglob("ApplyMomentum*") if path.is_file()]
        data, _ = dump_data.read_header(memoryview(file.read_bytes()))
        sides = {"input": data.inputs, "output": data.outputs}
        slots = {(io, slot): array for io, side in sides.items() for slot, array in enumerate(side)}
    assert FIVE_AND_ONE == sorted(slots)


def test_arguments_are_written_for_every_operator(door):
    """``save_kernel_args`` gives a file for MindSpore's own operators, too."""
    door.configure(save_kernel_args=True)
    train(steps.plain(context=O0), 1)

    assert {} == json.loads(next(door.rank.rglob("ApplyMomentum*.json")).read_text())


def test_an_overflow_is_the_updating_operators_own(door, caplog):
    """op_debug_mode 3: an infinity that an operator writes into its input was no bad input."""
    door.configure(op_debug_mode=3, precision_mode="force_fp32")
    network = steps.plain(context=O0)
    large = np.full((3, 2), 3.3e38, np.float32)
    network.load_state(network.state() | {"w": large, "m": -large})

    network.train_step(0 * steps.X, steps.T)

    (line,) = [text for text in caplog.messages if "Default/ApplyMomentum-op0 in step 0" in text]
    assert line.endswith("its inputs were finite")
    assert FIVE_AND_ONE == sorted(momentum(dumped(door, 0)))


@pytest.mark.parametrize("context", [{}, O0], ids=["CPU", "Ascend O0"])
def test_the_forecast_is_what_a_step_writes(door, context):
    """``check`` counts the files of a training step as they will be."""
    door.configure()
    network = steps.plain(context=context)
    settled = loader.load(steps.message(steps.PLAIN), sizes={"n": 4}, update_binding=steps.BINDING)
    told = forecast(network.graph, network.plan, settled)

    train(network, 1)
    door.process.close()

    assert told.once.files + told.per_iteration.files == len(trees.tree(door.path))


def test_marks_reach_the_training_step(door):
    """``set_dump`` by name, before or after the first step, and on a scope of ``network.training``."""
    door.configure(dump_mode=2)
    msdump.set_dump("Default/AssignAdd-op0")
    network = msdump.load(steps.with_training_info())
    train(network, 1)
    msdump.set_dump("Default/MatMul-op1")
    train(network, 1)
    msdump.set_dump(network.training.operator("Default/Sub-op0"))
    train(network, 1)

    names = [
        {name for name, _, _ in dumped(door, step, 1) if name.startswith("Default")} for step in range(3)
    ]
    later = {"Default_AssignAdd-op0", "Default_MatMul-op1"}
    assert [{"Default_AssignAdd-op0"}, later, {*later, "Default_Sub-op0"}] == names


def test_fed_learning_rate(door):
    """The files of a step show a fed learning rate; the next step has its own again."""
    door.configure()
    network = msdump.load(step_graph("graphs/mini.onnx", optimizer="adam:0.5"))
    x, label = np.ones((1, 1, 6, 6), np.float32), np.array([2], np.int32)

    network.train_step(x, label)
    before = network.state()
    network.train_step(x, label, learning_rate=np.array(0, np.float32))
    after = network.state()
    network.train_step(x, label)

    assert [0.5, 0.0, 0.5] == [float(dumped(door, step)["learning_rate", "output", 0]) for step in range(3)]
    assert 0 == dumped(door, 1)["Default_optimizer-Adam_Adam-op0", "input", 5]
    np.testing.assert_array_equal(before["conv1.weight"], after["conv1.weight"])
