"""Training steps of the reference's own networks next to what the reference dumped of them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from msdump.training import step_graph
from tests.dump.conftest import opened
from tests.training import golden_data, golden_nets
from tests.training.golden_differences import Expected

LOSS = 1e-5
GRADIENT = 1e-4  # and every other tensor, relative to the largest element


@dataclass(frozen=True)
class Case:
    """How a network was trained.

    Attributes:
        batch: Draws data and labels from the reference's generator.
        optimizer: Optimizer of the step graph.
        loss: Its loss.
    """

    batch: Any
    optimizer: Any = "momentum:0.1,0.9"
    loss: str = "softmax_cross_entropy"


def floats(rng, *shape):
    """Draw normal values."""
    return rng.randn(*shape).astype(np.float32)


def classes(rng, count, *shape):
    """Draw labels."""
    return rng.randint(0, count, shape).astype(np.int32)


CASES = {
    "momentum": Case(lambda rng: (floats(rng, 5, 8), classes(rng, 4, 5))),
    "convbn": Case(lambda rng: (floats(rng, 4, 1, 8, 8), classes(rng, 3, 4))),
}


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

    def pairs(self):
        """Yield each tensor file of both: place, our operator, slot, the reference's array, ours."""
        for place, operators in self.expected().items():
            for operator, slots in operators.items():
                for slot, array in slots.items():
                    yield f"{operator} {slot}", array, self.files[place][operator][slot]

    def expected(self):
        """Return the reference's files under our names, without what it alone has."""
        table = Expected(self.name)
        names = {in_files(theirs): in_files(ours) for theirs, ours in table.names.items()}
        return {
            place: {
                names.get(operator, operator): {
                    slot: array
                    for slot, array in slots.items()
                    if not any(pattern.fullmatch(bare(operator, slot)) for pattern in table.lacking)
                }
                for operator, slots in operators.items()
            }
            for place, operators in self.golden.files.items()
            if place.partition("/")[0] not in table.apart
        }


def in_files(full_name):
    """Return how files call an operator: ``ReLU.Default_relu-ReLU_ReLU-op0``."""
    op_type = full_name.rpartition("/")[2].rpartition("-op")[0]
    return f"{op_type}.{full_name.replace('/', '_')}"


def bare(operator, slot):
    """Return an operator's name without its type, and a slot."""
    return f"{operator.partition('.')[2]} {slot}"


@pytest.fixture(scope="module", params=CASES)
def trained(request, tmp_path_factory):
    """Train a network as the reference did, with its configuration."""
    name, case = request.param, CASES[request.param]
    reference = golden_data.golden(name)
    with opened(tmp_path_factory.mktemp(name)) as door:
        reference.config["common_dump_settings"]["path"] = str(door.path)
        door.configure({**reference.config, "msdump": {"naming": "2.7"}})
        batches = np.random.RandomState(0)
        first = case.batch(np.random.RandomState(0))
        model = golden_nets.model(name, first[0], reference.weights)
        network = door.load(step_graph(model, case.loss, case.optimizer))
        alone = door.load(golden_nets.fed(model)) if reference.outputs else None
        losses, outputs = [], []
        for _ in reference.losses:
            batch = case.batch(batches)
            losses.append(float(network.train_step(*batch)))
            if alone:
                weights = {
                    name: array for name, array in network.state().items() if name in alone.graph.weights
                }
                outputs.append(alone.run({"x": batch[0], **weights})["output"][0])
        yield Trained(name, reference, losses, outputs, *golden_data.dumped(door.rank))


def test_losses(trained):
    """Every step has the reference's loss, the network alone its output."""
    np.testing.assert_allclose(trained.golden.losses, trained.losses, rtol=0, atol=LOSS)
    np.testing.assert_allclose(trained.golden.outputs, trained.outputs, rtol=0, atol=LOSS)


def test_iterations(trained):
    """The same graphs have the same iterations, in folders and in the history."""
    assert sorted(trained.golden.files) == sorted(trained.files)
    assert trained.golden.history | Expected(trained.name).histories == trained.history


def test_execution_order(trained):
    """The same operators run, under the reference's names or those that the table tells."""
    table = Expected(trained.name)

    for graph in trained.golden.csv.keys() - table.apart:
        rows = trained.golden.csv[graph]
        assert sorted(table.row(row) for row in rows) == sorted(trained.csv[graph])


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
    expected = {
        place: {operator: sorted(slots) for operator, slots in operators.items()}
        for place, operators in trained.expected().items()
    }

    assert expected == {
        place: {operator: sorted(slots) for operator, slots in operators.items()}
        for place, operators in trained.files.items()
        if place in expected
    }


def test_types_and_shapes(trained):
    """Every file has the reference's element type and shape."""
    shapes = Expected(trained.name).shapes

    for name, theirs, ours in trained.pairs():
        assert theirs.dtype == ours.dtype, name
        if any(pattern.fullmatch(bare(*name.split(" "))) for pattern in shapes):
            assert theirs.shape != ours.shape, f"{name}: the table tells a difference that is gone"
            assert theirs.size == ours.size, name
        else:
            assert theirs.shape == ours.shape, name


def test_values(trained):
    """Every file holds the reference's values: gradients, inputs written in place, parameters."""
    unwritten = Expected(trained.name).values

    for name, theirs, ours in trained.pairs():
        if not any(pattern.fullmatch(bare(*name.split(" "))) for pattern in unwritten):
            wide = theirs.astype(np.float64).reshape(-1)
            limit = GRADIENT * np.abs(wide).max()
            np.testing.assert_allclose(wide, ours.reshape(-1), rtol=0, atol=limit, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_table(name):
    """Every difference that the table tells is about something that the reference has."""
    reference, table = golden_data.golden(name), Expected(name)
    rows = {row for listed in reference.csv.values() for row in listed}
    slots = {
        operator: {bare(operator, slot) for slot in slots}
        for operators in reference.files.values()
        for operator, slots in operators.items()
    }

    assert set(table.numbers) <= rows
    assert {in_files(theirs) for theirs in table.names} <= slots.keys()
    for pattern in (*table.lacking, *table.values):
        assert any(pattern.fullmatch(slot) for listed in slots.values() for slot in listed), pattern
    assert set(table.apart) <= reference.csv.keys()
