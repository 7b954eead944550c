"""``msdump diff --bisect`` where one model is quantised, or in float16 behind casts: the layer is found."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.transformers import float16

from tests.execute.test_rounded_constants import CASES
from tests.judge.diff.test_quantised import LAYERS, NAMES, changed, original, quantised
from tests.world import cli, completed

__all__ = ["quantised"]
FORMS = ("qdq", "operators", "dynamic")


def bisected(mine, golden, output, *options):
    """Return the part that the command found, its document and that of the network's output."""
    done = cli("diff", mine, golden, *options, "--json", "--seed", 3, "--bisect", "-o", output)
    document = json.loads(done.stdout)
    return document["part"], document["outputs"][0]


def distance_of(folder, forks):
    """Run the report's script; return the largest relative distance that it prints."""
    done = completed(forks / "python", f"{folder}/run.py", check=True)
    return max(float(line.rpartition(" ")[2]) for line in done.stdout.splitlines())


@pytest.mark.parametrize("place", range(len(LAYERS)), ids=LAYERS)
@pytest.mark.parametrize("form", FORMS)
def test_layer_with_a_wrong_scale(form, place, quantised, tmp_path, forks):
    """The layer with a wrong scale explains the difference, in a report that runs with its own numbers."""
    layer, is_mine = LAYERS[place], (place + FORMS.index(form)) % 2 == 0
    model = onnx.load(quantised / f"{form}.onnx")
    changed(model, f"{layer}.w_scale", 4)
    onnx.save(model, tmp_path / "wrong.onnx")
    models = tmp_path / "wrong.onnx", quantised / "float.onnx"

    part, output = bisected(*(models if is_mine else models[::-1]), tmp_path / "report")

    names, others = (part["mine"], part["golden"]) if is_mine else (part["golden"], part["mine"])
    assert NAMES[form][place] in names
    assert not {*NAMES[form]} - {NAMES[form][place]} & {*names}
    assert [("Default/first/Conv2D-op0", "Default/second/Conv2D-op0", "Default/Conv2D-op0")[place]] == [
        name for name in others if "Conv2D" in name
    ]
    assert 0.5 * part["whole"] <= part["difference"]
    assert part["whole"] == pytest.approx(output["error"]["distance"], rel=1e-3)
    assert 0.5 < distance_of(tmp_path / "report", forks)


@pytest.mark.parametrize("form", FORMS)
def test_sound_quantisation_is_explained(form, quantised, tmp_path, forks):
    """A part of the layers brings about the change by quantisation itself."""
    part, output = bisected(quantised / f"{form}.onnx", quantised / "float.onnx", tmp_path / "report")

    assert 0 < output["error"]["distance"] < 1 / 16
    assert 0.5 * part["whole"] <= part["difference"]
    assert 0 < distance_of(tmp_path / "report", forks) < 1 / 16


def test_float16_behind_casts(tmp_path, forks):
    """A model with float32 inputs and outputs gives its operators with the casts at its ends."""
    model = original()
    onnx.save(model, tmp_path / "float.onnx")
    half = float16.convert_float_to_float16(original(), keep_io_types=True)
    (weight,) = [each for each in half.graph.initializer if each.name == "third.w"]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float16(1.5), "third.w"))
    onnx.save(half, tmp_path / "half.onnx")

    part, output = bisected(tmp_path / "half.onnx", tmp_path / "float.onnx", tmp_path / "report")

    assert (["Default/Conv2D-op0"], ["Default/Conv2D-op0"]) == (part["mine"], part["golden"])
    assert part["whole"] == pytest.approx(output["error"]["distance"], rel=1e-3)
    assert 0.3 < distance_of(tmp_path / "report", forks)


def test_int4_on_a_device(tmp_path, forks):
    """Rounding is all that a device changes of int4 weights, in the network and in the report."""
    case, path = CASES["MatMulNBits, 4 bits, level 4"], tmp_path / "int4.onnx"
    onnx.save(case.model(*case.arrays(np.float32)), path)

    part, output = bisected(path, path, tmp_path / "report", "--mine", "Ascend:force_fp16")

    assert 0 < part["whole"] == pytest.approx(output["error"]["distance"], rel=1e-3)
    assert part["whole"] < 1e-2
    assert part["whole"] == pytest.approx(distance_of(tmp_path / "report", forks), rel=1e-2)


def test_output_of_another_name(quantised, tmp_path):
    """Outputs of two models are compared though their operator has no counterpart."""
    model = onnx.load(quantised / "qdq.onnx")
    for node in model.graph.node:
        node.output[:] = ["result" if name == "y" else name for name in node.output]
    model.graph.output[0].name = "result"
    onnx.save(model, tmp_path / "renamed.onnx")

    part, output = bisected(tmp_path / "renamed.onnx", quantised / "float.onnx", tmp_path / "report")

    assert "result" == output["name"]
    assert 0 < output["error"]["distance"] < 1 / 16
    assert part["whole"] == pytest.approx(output["error"]["distance"], rel=1e-3)
