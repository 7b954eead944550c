# ruff: noqa: INP001 - a script, not a package
"""Write the exported network with one weight that is wrong: ``python break_it.py faulty.onnx``."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
from onnx import numpy_helper

MODEL = Path(__file__).resolve().parents[1] / "torch_export.onnx"
WEIGHT = "layers.1.conv.weight"

if __name__ == "__main__":
    model = onnx.load(MODEL)
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == WEIGHT)
    array = numpy_helper.to_array(weight).copy()
    array[0] *= 1.05
    weight.CopyFrom(numpy_helper.from_array(array, WEIGHT))
    onnx.save(model, sys.argv[1])
