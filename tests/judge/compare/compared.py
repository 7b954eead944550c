"""Directories of dumped operators for tests of the comparison, and the graph files that explain them."""

from __future__ import annotations

import csv
import json

import numpy as np

from msdump.device import formats
from tests.judge import dumped

START = 1700000000000000

IMAGE = (np.arange(1 * 20 * 3 * 2, dtype="f4").reshape(1, 20, 3, 2) % 17 - 8).astype("f2")
WEIGHT = (np.arange(18 * 20 * 2 * 2, dtype="f4").reshape(18, 20, 2, 2) % 13 - 6).astype("f2")
RESULT = (np.arange(1 * 18 * 3 * 2, dtype="f4").reshape(1, 18, 3, 2) % 11 - 5).astype("f2")
MATRIX = (np.arange(17 * 33, dtype="f4").reshape(17, 33) % 19 - 9) / 4
SHORT = np.array([1, 2, 3, 4, 0, 6], "f4")


def near(array):
    """Return an array with some elements a little larger."""
    return (array + (np.arange(array.size).reshape(array.shape) % 3) / 64).astype(array.dtype)


def device(array, form="ND", groups=0):
    """Return a tensor as it lies on the device, for ``dumped.file``."""
    laid_out = formats.encode(form, array, max(groups, 1)) if form not in {"ND", "NCHW"} else array
    return dumped.tensor(laid_out, form, array.shape, groups=groups)


def put(folder, name, number, *outputs, inputs=(), op_name="Default/op"):
    """Write a dump file with a timestamp by its place in the execution; return its path."""
    return dumped.file(folder / f"{name}.{START + number}", *outputs, inputs=inputs, op_name=op_name)


def golden(folder, name, array, index=0):
    """Write a golden tensor, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{index}.{START}.npy"
    np.save(path, array)
    return path


def operator(name, op_type, place, inputs=(), originals=None, outputs=(), *, is_part=False):
    """Return an operator of a graph file; outputs are (original, number, format)."""
    attributes = []
    if originals is not None:
        listed = {"s": list(originals)} if originals else {}
        attributes.append({"key": "_datadump_original_op_names", "value": {"list": listed}})
    if is_part:
        attributes.append({"key": "_datadump_is_multiop", "value": {"b": True}})
    described = [
        {
            "dtype": "DT_FLOAT16",
            "attr": [
                {"key": "_datadump_origin_name", "value": {"s": original}},
                {"key": "_datadump_origin_output_index", "value": {"i": number}},
                {"key": "_datadump_origin_format", "value": {"s": layout}},
            ],
        }
        for original, number, layout in outputs
    ]
    return {
        "name": name,
        "type": op_type,
        "id": place,
        "input": list(inputs),
        "attr": attributes,
        "output_desc": described,
    }


def graph(path, *operators):
    """Write a graph file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"graph": [{"op": list(operators)}]}), encoding="utf-8")
    return path


def fused(folder):
    """Write a dump, golden tensors of its original network, and the graph file; return the three."""
    dumped_folder, golden_folder = folder / "mine", folder / "golden"
    put(
        dumped_folder,
        "Conv2D.conv1relu1.1.0",
        10,
        device(np.maximum(RESULT, 0), "NC1HWC0"),
        inputs=[device(IMAGE, "NC1HWC0"), device(WEIGHT, "FRACTAL_Z")],
    )
    put(dumped_folder, "TransData.trans.2.0", 20, device(RESULT, "NCHW"), inputs=[device(RESULT, "NC1HWC0")])
    put(dumped_folder, "MatMul.fc_op.3.0", 30, device(MATRIX, "FRACTAL_NZ"), inputs=[device(RESULT, "NCHW")])
    put(dumped_folder, "Split.part_1.4.0", 40, device(RESULT, "NC1HWC0"))
    put(dumped_folder, "Greater.greater.5.0", 50, device(MATRIX > 0))
    golden(golden_folder, "x", near(IMAGE).astype("f4"))
    golden(golden_folder, "relu1", np.maximum(near(RESULT), 0).astype("f4"))
    golden(golden_folder, "conv2", near(RESULT).astype("f4"))
    golden(golden_folder, "fc", near(MATRIX))
    golden(golden_folder, "part", np.transpose(near(RESULT), (0, 2, 3, 1)).astype("f4"))
    golden(golden_folder, "greater", MATRIX > 0)
    rules = graph(
        folder / "graph.json",
        operator("x", "Data", 1, originals=["x"], outputs=[("x", 0, "NCHW")]),
        operator("conv1relu1", "Conv2D", 2, ["x:0", "w:0"], ["conv1", "relu1"], [("relu1", 0, "NCHW")]),
        operator("conv2_op", "Conv2D", 3, ["conv1relu1:0"], ["conv2"], [("conv2", 0, "NCHW")]),
        operator("trans", "TransData", 4, ["conv2_op:0"], []),
        operator("fc_op", "MatMul", 5, ["trans:0"], ["fc"], [("fc", 0, "ND")]),
        operator("part_1", "Split", 6, [], ["part"], [("part", 0, "NHWC")]),
        operator("part_2", "Split", 7, [], ["part"], is_part=True),
        operator("greater", "Greater", 8),
    )
    return dumped_folder, golden_folder, rules


def table(tmp_path):
    """Return the rows of the newest table."""
    text = max((tmp_path / "out").glob("compare_*.csv")).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def verdicts(tmp_path):
    """Return verdicts by operator and tensor, in the order of the table."""
    return {(row["Operator"], row["Tensor"]): row["Verdict"] for row in table(tmp_path)}


def tensor(folder, name, array, number=0, io="output", slot=0, form="DefaultFormat"):
    """Write a tensor as MindSpore names it."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"Add.{name}.0.0.{START + number}.{io}.{slot}.{form}.{array.dtype}.npy", array)


def both(tmp_path, dumped_array, golden_array, **options):
    """Write a tensor on both sides; return the two directories."""
    tensor(tmp_path / "mine", "a", dumped_array, **options)
    tensor(tmp_path / "golden", "a", golden_array, **options)
    return tmp_path / "mine", tmp_path / "golden"
