"""Differences of two systems' kernels that are no fault: sums that cancel, NaN, arguments, views."""

from __future__ import annotations

import numpy as np
import pytest

from tests.judge.compare.compared import START, verdicts

RANDOM = np.random.default_rng(7)
SUMMANDS = RANDOM.standard_normal((8, 4)).astype("f4")
SUMMANDS -= SUMMANDS.mean(axis=0)  # a gradient that is zero in theory
NOISE = RANDOM.standard_normal((2, 4)).astype("f4") * np.float32(1e-7)
NAN, LOW = np.float32([np.nan] * 3), np.float32([-np.inf] * 3)

CASES = {
    "noise of a sum": ("BiasAddGrad", [SUMMANDS], (NOISE[0], NOISE[1]), "agrees"),
    "more than the noise of a sum": ("BiasAddGrad", [SUMMANDS], (NOISE[0], NOISE[1] + 0.01), "differs"),
    "noise of another operator": ("ReLU", [SUMMANDS], (NOISE[0], NOISE[1]), "differs"),
    "infinities made of NaN": ("Div", [NAN, np.float32([1] * 3)], (NAN, LOW), "equal"),
    "NaN made of numbers": ("Div", [np.float32([1] * 3), np.float32([0] * 3)], (NAN, LOW), "differs"),
    "the shape of a view's input": ("Flatten", [SUMMANDS], (SUMMANDS.reshape(2, 16), SUMMANDS), "equal"),
    "the shape of another operator": ("ReLU", [SUMMANDS], (SUMMANDS.reshape(2, 16), SUMMANDS), "shape"),
}


@pytest.mark.parametrize(("op_type", "inputs", "outputs", "verdict"), CASES.values(), ids=CASES)
def test_output(tmp_path, run, op_type, inputs, outputs, verdict):
    """An output agrees where arithmetic that is no fault explains the difference, and only there."""
    for side, output in zip(("mine", "golden"), outputs, strict=True):
        (tmp_path / side).mkdir()
        for io, arrays in (("input", inputs), ("output", [output])):
            for slot, array in enumerate(arrays):
                name = f"{op_type}.Default_{op_type}-op0.0.0.{START}.{io}.{slot}.DefaultFormat.float32.npy"
                np.save(tmp_path / side / name, array)

    run(tmp_path / "mine", tmp_path / "golden")

    assert verdict == verdicts(tmp_path)[f"Default_{op_type}-op0", "output:0"]
