"""Training steps of the reference's own networks next to what the reference dumped of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import helper

import msdump
from msdump.training import eval_graph, step_graph
from tests.dump.conftest import opened
from tests.training import golden_data, golden_nets
from tests.training.golden_differences import COLUMNS, Expected, renumbered

LOSS = 1e-5
GRADIENT = 1e-4  # and every other tensor, relative to the largest element


def first(results):
    """Return the first output of a step, which is the loss."""
    return float(results[0] if isinstance(results, tuple) else results)


def by_steps(network, model, case, reference):
    """Train step by step; return the losses, and what the network alone gives where it runs in between."""
    alone = msdump.load(eval_graph(model, None), state_of=network) if reference.outputs else None
    losses, outputs = [], []
    for inputs in case.steps(reference):
        losses.append(first(network.train_step(*inputs)))
        if alone:
            outputs.append(alone(inputs[0])[0])
    return losses, outputs


class Losses:
    """A callback that keeps the losses."""

    def __init__(self):
        """Keep none yet."""
        self.losses = []

    def step_end(self, run_context):
        """Keep one."""
        self.losses.append(first(run_context.original_args().net_outputs))


def by_model(network, model, case, reference):
    """Train two epochs in sink mode, then evaluate; return the losses and the metrics."""
    every = list(case.steps(reference))
    batches = every[: len(every) // 2]
    loop = msdump.Model(network, eval_graph(model), metrics=["loss", "accuracy"])
    callback = Losses()
    loop.train(2, batches, callbacks=callback, dataset_sink_mode=True)
    metrics = loop.eval(batches, dataset_sink_mode=True)
    return callback.losses, [[metrics["loss"], metrics["accuracy"]]]


@dataclass(frozen=True)
class Case:
    """How a network was trained.

    Attributes:
        batch: Draws data and labels from the reference's generator.
        choices: Arguments of ``step_graph``.
        masks: The operator in files whose second output is the mask of a Dropout: the reference's masks
            are fed, those of the steps that it dumped.
        train: Trains the network.
    """

    batch: Callable[[np.random.RandomState], tuple[np.ndarray, np.ndarray]]
    choices: Mapping[str, Any] = field(default_factory=dict)
    masks: str = ""
    train: Any = by_steps

    def steps(self, reference):
        """Yield what each step is fed."""
        batches = np.random.RandomState(0)
        if not self.masks:
            for _ in reference.losses:
                yield self.batch(batches)
        for operators in reference.files.values() if self.masks else ():
            yield *self.batch(batches), 1 - operators[self.masks]["output.1"]


def floats(rng, *shape):
    """Draw normal values."""
    return rng.randn(*shape).astype(np.float32)


def classes(rng, count, *shape):
    """Draw labels."""
    return rng.randint(0, count, shape).astype(np.int32)


def labelled_rows(rng):
    """Draw a batch whose rows are drawn one by one, each with its label."""
    rows = [(floats(rng, 6), classes(rng, 3)) for _ in range(4)]
    return np.stack([data for data, _ in rows]), np.stack([label for _, label in rows])


CASES = {
    "momentum": Case(lambda rng: (floats(rng, 5, 8), classes(rng, 4, 5))),
    "convbn": Case(lambda rng: (floats(rng, 4, 1, 8, 8), classes(rng, 3, 4))),
    "adam": Case(
        lambda rng: (floats(rng, 4, 6), floats(rng, 4, 2)),
        {"loss": "mse", "optimizer": "adam:0.01,weight_decay=0.02"},
        masks="Dropout.Default_network-WithLossCell__backbone-MLP_drop-Dropout_Dropout-op0",
    ),
    "attention": Case(
        lambda rng: (classes(rng, 10, 2, 5), classes(rng, 3, 2)),
        {"optimizer": "adamw:0.01,weight_decay=0.1"},
    ),
    "datasink": Case(labelled_rows, train=by_model),
    "fixedscale": Case(
        lambda rng: (floats(rng, 5, 8), classes(rng, 4, 5)), {"precision": "float16", "loss_scale": 1024}
    ),
    "lossscale": Case(
        lambda rng: (floats(rng, 5, 8), classes(rng, 4, 5)),
        {
            "precision": {"fc1": "float16", "fc2": "float16"},
            "loss_scale": "dynamic:1048576,factor=64,window=2",
        },
    ),
}


def with_masks(step):
    """Return a step whose Dropout takes its random numbers from one more input of the graph."""
    (function,) = (item for item in step.functions if item.name == "Dropout")
    (random,) = (node for node in function.node if node.op_type == "RandomUniformLike")
    (dropout,) = (node for node in step.graph.node if node.op_type == "Dropout")
    function.input.append("numbers")
    random.CopyFrom(helper.make_node("Identity", ["numbers"], random.output))
    dropout.input.append("numbers")
    (shape,) = (info.type for info in step.graph.value_info if info.name == dropout.output[0])
    step.graph.input.add(name="numbers", type=shape)
    return step


@dataclass(frozen=True)
class Trained:
    """A training of the reference, and ours.

    Attributes:
        name: The network.
        golden: The reference's.
        losses: Ours.
        outputs: Ours.
        csv: Execution order of each graph.
        history: Iterations that were dumped, by graph.
        files: All tensor files.
    """

    name: str
    golden: golden_data.Golden
    losses: list[float]
    outputs: list[np.ndarray]
    csv: dict[str, list[str]]
    history: dict[str, list[str]]
    files: golden_data.Files

    def theirs(self):
        """Return the reference's files under our names, without what it alone has."""
        table, files = Expected(self.name), {}
        names = {in_files(theirs): in_files(ours) for theirs, ours in table.names.items()}
        for place in self.golden.files.keys() - table.places:
            numbers = renumbered(self.golden.files[place])
            for operator, slot, array in flat(self.golden.files[place]):
                name = numbers.get(operator, operator)
                if not table.tells("theirs", place, f"{name} {slot}"):
                    files[place, f"{names.get(name, name)} {slot}"] = array
        return files

    def ours(self):
        """Return our files, without what the reference has not."""
        table = Expected(self.name)
        return {
            (place, f"{operator} {slot}"): array
            for place, operators in self.files.items()
            for operator, slot, array in flat(operators)
            if not table.tells("ours", place, f"{operator} {slot}")
        }

    def pairs(self):
        """Yield place and name of each file of both, the reference's array, ours."""
        ours = self.ours()
        for key, array in self.theirs().items():
            yield *key, array, ours[key]


def flat(operators):
    """Yield operator, slot and array of each file."""
    for operator, slots in operators.items():
        for slot, array in slots.items():
            yield operator, slot, array


def in_files(full_name):
    """Return how files call an operator: ``ReLU.Default_relu-ReLU_ReLU-op0``."""
    op_type = full_name.rpartition("/")[2].rpartition("-op")[0]
    return f"{op_type}.{full_name.replace('/', '_')}"


@pytest.fixture(scope="module", params=CASES)
def trained(request, tmp_path_factory):
    """Train a network as the reference did, with its configuration."""
    name, case = request.param, CASES[request.param]
    reference = golden_data.golden(name)
    with opened(tmp_path_factory.mktemp(name)) as door:
        reference.config["common_dump_settings"]["path"] = str(door.path)
        door.configure({**reference.config, "msdump": {"naming": "2.7"}})
        model = golden_nets.model(name, next(case.steps(reference))[0], reference.weights)
        step = step_graph(model, **{"optimizer": "momentum:0.1,0.9", **case.choices})
        network = door.load(with_masks(step) if case.masks else step)
        losses, outputs = case.train(network, model, case, reference)
        yield Trained(name, reference, losses, outputs, *golden_data.dumped(door.rank))


def test_losses(trained):
    """Every step has the reference's loss, the network alone its output."""
    steps = len(trained.golden.files) if CASES[trained.name].masks else None

    np.testing.assert_allclose(trained.golden.losses[:steps], trained.losses, rtol=0, atol=LOSS)
    np.testing.assert_allclose(trained.golden.outputs, trained.outputs, rtol=0, atol=LOSS)


def test_iterations(trained):
    """The same graphs have the same iterations, in folders and in the history."""
    table = Expected(trained.name)

    assert sorted(trained.golden.files.keys() - table.places) == sorted(trained.files)
    assert trained.golden.history | table.histories == trained.history


def test_execution_order(trained):
    """The same operators run, under the reference's names or those that the table tells."""
    table = Expected(trained.name)

    assert trained.golden.csv.keys() == trained.csv.keys()
    for graph, rows in trained.golden.csv.items():
        names = [table.names.get(row, row) for row in renumbered(rows).values()]
        assert sorted(names) == sorted(trained.csv[graph])


def test_numbers(trained):
    """Operators are numbered by scope and type in the order in which they run."""
    for rows in trained.csv.values():
        counts = Counter()
        for row in rows:
            scope_and_type, number = re.fullmatch(r"(.+)-op(\d+)", row).groups()
            assert counts[scope_and_type] == int(number), row
            counts[scope_and_type] += 1


def test_files(trained):
    """Every operator has the reference's slots, every parameter its file."""
    assert sorted(trained.theirs()) == sorted(trained.ours())


def test_types_and_shapes(trained):
    """Every file has the reference's element type and shape."""
    table = Expected(trained.name)

    for place, name, theirs, ours in trained.pairs():
        assert table.tells("halved", place, name) == (theirs.dtype != ours.dtype), name
        assert table.tells("shapes", place, name) == (theirs.shape != ours.shape), name
        assert theirs.size == ours.size, name


def test_values(trained):
    """Every file holds the reference's values: gradients, inputs written in place, parameters."""
    table = Expected(trained.name)

    for place, name, theirs, ours in trained.pairs():
        expected, values = theirs.reshape(-1), ours.reshape(-1)
        if table.tells("halved", place, name):
            half = ours.size // 2
            expected, values = np.frombuffer(theirs.tobytes()[: 4 * half], np.float32), values[:half]
        if not table.tells("values", place, name):
            wide = expected.astype(np.float64)
            limit = GRADIENT * np.abs(wide, where=np.isfinite(wide), out=np.zeros_like(wide)).max(initial=0)
            np.testing.assert_allclose(wide, values, rtol=0, atol=limit, err_msg=f"{place} {name}")


@pytest.mark.parametrize("name", CASES)
def test_table(name):
    """Every row of the table is about something that the reference has."""
    reference, table = golden_data.golden(name), Expected(name)
    operators = {operator for listed in reference.files.values() for operator in listed}

    assert {in_files(theirs) for theirs in table.names} <= operators
    assert set(table.places) <= reference.files.keys()


@pytest.mark.parametrize("column", COLUMNS)
def test_table_of_slots(trained, column):
    """Every slot of the table is there."""
    table = Expected(trained.name)
    files = trained.golden.files if column == "theirs" else trained.files
    slots = [
        (place, f"{operator} {slot}")
        for place, operators in files.items()
        for operator, slot, _ in flat(operators)
    ]

    for row in table.rows(column):
        assert any(table.matches(row, *slot) for slot in slots), row
