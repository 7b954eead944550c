"""Trials of ``msdump diff``: two models, or two variants of one, in lockstep and without files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from msdump.analysis.diff import make_side, models
from msdump.execute import WeightCopies
from msdump.graph import loader
from tests.faults import kernels, trials
from tests.faults.dumps import CPU, O0, O1, Dumped, Mode
from tests.faults.networks import GRAPHS, SOUND, Net, network
from tests.faults.trials import Accused, Sides, Trial

O2 = {"device_target": "Ascend", "jit_level": "O2"}

MODES = (CPU, Mode("O0", O0), CPU, Mode("O1", O1), CPU, Mode("O2", O2))
"""How the examined model runs; golden is float32."""

FLOAT32 = "float32"

PAIRS = (
    *((f"Ascend{words}", FLOAT32) for words in ("", ":force_fp16", ":allow_fp32_to_bf16", ":O1", ":O2")),
    ("onnxruntime:all", FLOAT32),
    (FLOAT32, "float64"),
    ("Ascend:O2", "Ascend"),
)
"""Variants of one model: what is examined, and what it is compared with."""

NORM = "torch_norm"
"""A model of graphs/ that overflows in float16, with an epsilon that is no normal number there."""


def draw(seed: int) -> Trial:
    """Return the trial of a seed."""
    return trials.draw(seed, MODES, beside=CPU)


def variant(mode: Mode) -> str:
    """Return the text of a mode, as ``--mine`` takes it."""
    if mode.context["device_target"] == "CPU":
        return FLOAT32
    precision = mode.changes.get("precision_mode", "")
    precision = precision or mode.context.get("ascend_config", {}).get("precision_mode", "")
    words = (mode.context["jit_level"], precision)
    return ":".join(filter(None, ("Ascend", *words)))


def violations(trial: Trial, folder: Path) -> list[str]:
    """Return what is wrong with the answer to a trial: every fault is named, and nobody else."""
    mine, golden = (folder / f"{side}.onnx" for side in ("mine", "golden"))
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(trial.model(), mine)
    onnx.save(trial.net.model, golden)
    text = variant(trial.mine)
    sides = Sides(_compiled(mine, text, trial.net), _compiled(golden, FLOAT32, trial.net))
    with kernels.injected(trial.wrong, str(mine)):
        document = diff(trial.net, folder, str(mine), str(golden), "--mine", text)
    if text != FLOAT32 and not any("nonfinite" in fault.verdicts for fault in trial.faults):
        # where another fault makes large numbers, the device's float16 overflows in truth
        document["operators"] = [row for row in document["operators"] if not _overflows(row)]
    return trials.violations(trial, trials.accused(document, sides), sides, all_faults=True)


def _compiled(path: Path, text: str, net: Net) -> Dumped:
    side = make_side(loader.load(path), models.parse(text), WeightCopies(), trains=net.trains)
    return Dumped(path.parent, path, side.graph)


def diff(net: Net, folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the document of ``msdump diff --json``."""
    np.savez(folder / "inputs.npz", **net.feeds)
    train = ["--train"] if net.trains else []
    return trials.document(["diff", *arguments, "--inputs", str(folder / "inputs.npz"), *train, "--json"])


@dataclass(frozen=True)
class VariantTrial:
    """A sound network as two variants.

    Attributes:
        net: The network.
        mine: What is examined.
        golden: What it is compared with.
    """

    net: Net
    mine: str
    golden: str

    def __str__(self) -> str:
        return f"{self.net.name}, {self.mine} beside {self.golden}"


def variant_trials() -> Iterator[VariantTrial]:
    """Yield every network in every pair of variants that it runs in."""
    for net in (*map(network, SOUND), _norm()):
        for mine, golden in PAIRS:
            if not (net.trains and mine.startswith("onnxruntime")):
                yield VariantTrial(net, mine, golden)


def _norm() -> Net:
    model = onnx.load(GRAPHS / f"{NORM}.onnx")
    shapes = {
        each.name: [dim.dim_value or 4 for dim in each.type.tensor_type.shape.dim]
        for each in model.graph.input
    }
    chance = np.random.default_rng((0, 0))
    return Net(
        NORM, model, {name: chance.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    )


def innocents(trial: VariantTrial, folder: Path) -> list[str]:
    """Return who is accused in a sound network, unless NaN or infinities begin there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "net.onnx"
    onnx.save(trial.net.model, path)
    document = diff(trial.net, folder, str(path), "--mine", trial.mine, "--golden", trial.golden)
    rows = [row for row in document["operators"] if row["verdict"] in trials.ACCUSING]
    found = [
        Accused(row["operator"], f"{row['verdict']} ({row['note']})", frozenset())
        for row in rows
        if not _overflows(row)
    ]
    told = [f"failed: {failure}" for failure in document["failures"]]
    if trial.net.name == NORM and "force_fp16" in trial.mine and not any(map(_overflows, rows)):
        told.append("not named: what overflows")
    if all(row["verdict"] in {"unchecked", "unreadable"} for row in document["operators"]):
        told.append("nothing was compared")
    return [*told, *([f"innocent accused: {trials.listed(found)}"] if found else [])]


def _overflows(row: dict[str, Any]) -> bool:
    """Tell whether an operator makes NaN or infinities of finite inputs that golden does not make."""
    if row["verdict"] != "nonfinite":
        return False
    misplaced = {io: [_misplaced(each) for each in row[io]] for io in ("inputs", "outputs")}
    return not any(misplaced["inputs"]) and any(misplaced["outputs"])


def _misplaced(tensor: dict[str, Any]) -> int:
    error = tensor["error"]
    return 0 if error is None else error["misplaced"]
