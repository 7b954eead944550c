"""Training steps of the reference's own networks next to the reference's dumps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.dump.conftest import opened
from tests.training import golden_data
from tests.training.golden_cases import CASES, derived, digest
from tests.training.golden_differences import renumbered
from tests.training.golden_table import expected

ROOT = Path(__file__).resolve().parents[2]
LOSS = 1e-5
GRADIENT = 1e-4  # and every other tensor, relative to the largest element


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
        """Return the reference's files under our names, but for places that it alone has."""
        table, files = expected(self.name), {}
        names = {in_files(theirs): in_files(ours) for theirs, ours in table.names.items()}
        for place in self.golden.files.keys() - table.places:
            numbers = renumbered(self.golden.files[place])
            for operator, slot, array in flat(self.golden.files[place]):
                name = numbers.get(operator, operator)
                files[place, f"{names.get(name, name)} {slot}"] = array
        return files

    def ours(self):
        """Return our files that the reference has, too."""
        table = expected(self.name)
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
        model, step = derived(name, reference)
        losses, outputs = case.train(door.load(step), model, case, reference)
        yield Trained(name, reference, losses, outputs, *golden_data.dumped(door.rank))


def test_losses(trained):
    """Every step has the reference's loss, the network alone its output."""
    steps = len(trained.golden.files) if CASES[trained.name].masks else None

    np.testing.assert_allclose(trained.golden.losses[:steps], trained.losses, rtol=0, atol=LOSS)
    np.testing.assert_allclose(trained.golden.outputs, trained.outputs, rtol=0, atol=LOSS)


def test_iterations(trained):
    """The same graphs have the same iterations, in folders and in the history."""
    table = expected(trained.name)

    assert sorted(trained.golden.files.keys() - table.places) == sorted(trained.files)
    assert trained.golden.history | table.histories == trained.history


def test_execution_order(trained):
    """The same operators run, under the reference's names or the table's."""
    table = expected(trained.name)

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
    table = expected(trained.name)

    for place, name, theirs, ours in trained.pairs():
        assert table.tells("halved", place, name) == (theirs.dtype != ours.dtype), name
        assert table.tells("shapes", place, name) == (theirs.shape != ours.shape), name
        assert theirs.size == ours.size, name


def test_values(trained):
    """Every file holds the reference's values: gradients, inputs written in place, parameters."""
    table = expected(trained.name)

    for place, name, theirs, ours in trained.pairs():
        true, values = theirs.reshape(-1), ours.reshape(-1)
        if table.tells("halved", place, name):
            half = ours.size // 2
            true, values = np.frombuffer(theirs.tobytes()[: 4 * half], np.float32), values[:half]
        if not table.tells("values", place, name):
            wide = true.astype(np.float64)
            limit = GRADIENT * np.abs(wide, where=np.isfinite(wide), out=np.zeros_like(wide)).max(initial=0)
            np.testing.assert_allclose(wide, values, rtol=0, atol=limit, err_msg=f"{place} {name}")


@pytest.mark.parametrize("name", CASES)
def test_order(name):
    """A step is a valid model with each operator behind its inputs."""
    _, step = derived(name, golden_data.golden(name))

    onnx.checker.check_model(step, full_check=True)
    known = {item.name for items in (step.graph.input, step.graph.initializer) for item in items}
    for node in step.graph.node:
        assert set(node.input) - {""} <= known, node.name
        known.update(node.output)


def test_steps_are_the_same_in_every_process():
    """No step graph depends on the order of a set, which each process has another one of."""
    program = "from tests.training import golden_cases as g; print(*[g.digest(name) for name in g.CASES])"
    elsewhere = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )

    assert elsewhere.stdout.split() == [digest(name) for name in CASES]
