"""Training steps of the reference's own networks next to the reference's dumps."""

import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest

from tests.training import golden_data
from tests.training.golden_cases import CASES, derived, digest
from tests.world import ROOT, completed, opened

LOSS = 1e-5
GRADIENT = 1e-4  # and every other tensor, relative to the largest element


@dataclass(frozen=True)
class Known:
    """Known differences of a training.

    Attributes:
        names: Number of the reference's names in execution orders that ours lack. It numbers some types of a
            scope in another order than they run in; its function-style gradients lie under the last layer
            that uses them, decomposed operators under Expand, methods of tensors under no layer, ours each
            under the forward operator and layer.
        slots: Number of slots by their difference: ``shape``, 2.10's fault: a view, and its readers, have the
            shape of the view's input; ``half``: the kernel computes in float32 where the graph says float16,
            which 2.10 names the file by, so that it holds the first half of the bytes; ``ours``: a branch's
            operators have inputs from outside and the main graph all variables here, and the test feeds the
            reference's masks; an operator and its slot: other values, where the kernel does not write the
            slot. ``renamed`` counts operators under other names, in all iterations.
        places: Graphs and iterations that the reference alone has: a branch without operators.
        histories: Our histories of graphs where the reference's lose lines.
    """

    names: int = 0
    slots: Mapping[str, int] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    histories: Mapping[str, list[str]] = field(default_factory=dict)


KNOWN = {
    "momentum": Known(2, {"renamed": 6}),
    "convbn": Known(
        1,
        {"renamed": 8, "shape": 12, "BatchNormGrad input.5": 2}
        | {f"BatchNorm output.{slot}": count for slot, count in enumerate((3, 3, 1, 1), 1)},
        histories={"0": ["0", "1"]},
    ),
    "adam": Known(7, {"renamed": 20, "ours": 4} | {f"Adam output.{slot}": 16 for slot in range(3)}),
    "attention": Known(
        26, {"renamed": 66, "shape": 32} | {f"AdamWeightDecay output.{slot}": 14 for slot in range(3)}
    ),
    "datasink": Known(),
    "fixedscale": Known(15, {"renamed": 60, "half": 36}),
    "lossscale": Known(10, {"renamed": 60, "shape": 20, "half": 48, "ours": 35}, places=("1/0", "1/1")),
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


def renumbered(names):
    """Return the reference's names with numbers from 0 for each scope and type.

    Its execution order counts nodes that a pass has put others in place of, and the files of a graph count on
    from the graphs before it.
    """
    groups = defaultdict(list)
    for name in names:
        start, _, number = name.rpartition("-op")
        groups[start].append((int(number) if number.isdecimal() else 0, name))
    return {
        name: f"{start}-op{number}" if start else name
        for start, group in groups.items()
        for number, (_, name) in enumerate(sorted(group))
    }


def difference(theirs, ours):
    """Return how two arrays differ: "size", "half", "shape" or "same"; None: in values."""
    true, values = theirs.reshape(-1), ours.reshape(-1)
    if true.size != values.size:
        return "size"
    if theirs.dtype != ours.dtype:
        half = ours.size // 2
        true, values = np.frombuffer(theirs.tobytes()[: 4 * half], np.float32), values[:half]
    wide = true.astype(np.float64)
    limit = GRADIENT * np.abs(wide, where=np.isfinite(wide), out=np.zeros_like(wide)).max(initial=0)
    if not np.allclose(values.astype(np.float64), wide, rtol=0, atol=limit, equal_nan=True):
        return None
    if theirs.dtype != ours.dtype:
        return "half"
    return "same" if theirs.shape == ours.shape else "shape"


ALIKE = ("same", "shape", "half")
"""Differences of slots with the same values."""


def differences(kind, theirs, ours):
    """Return the differences of the slots of an operator and its counterpart; values by slot."""
    found = Counter({"theirs": len(theirs.keys() - ours.keys()), "ours": len(ours.keys() - theirs.keys())})
    for slot in theirs.keys() & ours.keys():
        found[difference(theirs[slot], ours[slot]) or f"{kind} {slot}"] += 1
    return +found


def counted(theirs, ours):
    """Return the differences of all slots of a graph's run; operators of a type are paired by contents."""
    total, left, numbers = Counter(), dict(ours), renumbered(theirs)
    for name, slots in theirs.items():
        kind, own = name.partition(".")[0], numbers[name]
        found = {
            other: differences(kind, slots, left[other]) for other in left if other.partition(".")[0] == kind
        }
        best = max(found, key=lambda other: (sum(found[other][alike] for alike in ALIKE), other == own))
        total += found[best] + Counter(renamed=best != own)
        del left[best]
    return total + Counter(ours=sum(map(len, left.values())))


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
    known = KNOWN[trained.name]

    assert sorted(trained.golden.files.keys() - known.places) == sorted(trained.files)
    assert trained.golden.history | known.histories == trained.history


def test_execution_order(trained):
    """The same operators run, under the reference's names but for some, numbered in their order."""
    differing = 0
    assert trained.golden.csv.keys() == trained.csv.keys()
    for graph, rows in trained.golden.csv.items():
        theirs, ours = (
            [row.rpartition("/")[2].partition("-")[0] for row in each] for each in (rows, trained.csv[graph])
        )
        assert sorted(theirs) == sorted(ours)
        differing += len(set(renumbered(rows).values()) - set(trained.csv[graph]))
        counts = Counter()
        for row in trained.csv[graph]:
            scope_and_type, number = re.fullmatch(r"(.+)-op(\d+)", row).groups()
            assert counts[scope_and_type] == int(number), row
            counts[scope_and_type] += 1
    assert KNOWN[trained.name].names == differing


def test_files(trained):
    """Every file has the reference's type, shape and values (inputs written in place, too), but for some."""
    total = Counter()
    for place, operators in trained.files.items():
        total += counted(trained.golden.files[place], operators)

    assert total.pop("same") > 100
    assert KNOWN[trained.name].slots == total


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
    elsewhere = completed(
        sys.executable, "-c", program, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "1"}, check=True
    )

    assert elsewhere.stdout.split() == [digest(name) for name in CASES]
