"""Dumps of a network compared with onnxruntime's tensors and with each other: the first fault is named."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

from msdump.cli import main
from msdump.cli.accucmp import program

pytestmark = pytest.mark.usefixtures("quiet")

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"
LENET = GRAPHS / "lenet.onnx"
FEEDS = {"x": np.random.default_rng(7).standard_normal((1, 1, 32, 32)).astype("f4")}
O2 = {"device_target": "Ascend", "jit_level": "O2"}
O0 = {"device_target": "Ascend", "jit_level": "O0"}
EXACT = {"precision_mode": "must_keep_origin_dtype"}


@pytest.fixture
def golden(tmp_path):
    """Return a directory of every tensor of a whole-graph run of LeNet."""
    return whole_run(LENET, FEEDS, tmp_path / "golden")


def whole_run(path, feeds, folder):
    """Write every tensor of a whole-graph run, named as an offline dump names them; return the directory."""
    model = onnx.load(path)
    taken = {value.name for value in model.graph.output}
    values = [(node.name, slot, name) for node in model.graph.node for slot, name in enumerate(node.output)]
    model.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name) for *_, name in values if name not in taken
    )
    found = onnxruntime.InferenceSession(model.SerializeToString()).run([name for *_, name in values], feeds)
    folder.mkdir()
    for time, ((node, slot, _), array) in enumerate(zip(values, found, strict=True)):
        np.save(folder / f"{node.replace('/', '_')}.{slot}.{1700000000000000 + time}.npy", array)
    return folder


@pytest.fixture
def faulty(tmp_path):
    """Return the model with one kernel of the second convolution turned over."""
    model = onnx.load(LENET)
    weight = next(each for each in model.graph.initializer if each.name == "conv2.weight")
    array = numpy_helper.to_array(weight).copy()
    array[3] *= -1
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    onnx.save(model, tmp_path / "faulty.onnx")
    return tmp_path / "faulty.onnx"


def compare(mine, other, *options):
    """Run ``msdump compare``; return what it printed and the rows of its table."""
    out = Path(mine).parent / "out"
    done = CliRunner().invoke(main, ["compare", str(mine), str(other), "-out", str(out), *map(str, options)])
    text = max(out.glob("compare_*.csv")).read_text(encoding="utf-8")
    return done, list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("file_format", ["npy", "bin"])
@pytest.mark.parametrize("precision", [EXACT, {}], ids=["exact", "float16"])
def test_o2_dump_agrees_with_onnxruntime(door, golden, file_format, precision):
    """Each output of an O2 dump that the original network has is similar to onnxruntime's."""
    door.dump(LENET, FEEDS, context=O2, file_format=file_format, **precision)

    done, rows = compare(door.path, golden, "--graph", LENET, "--cosine", 0.999)

    found = [row for row in rows if row["Tensor"].startswith("output") and row["Verdict"] != "unchecked"]
    assert 0 == done.exit_code
    assert {"Conv2D", "MaxPool", "MatMul"} <= {row["Type"] for row in found}
    assert {True} == {float(row["CosineSimilarity"]) >= 0.999 for row in found}


def test_masked_attention_agrees_with_onnxruntime_by_the_graph_file(door, tmp_path):
    """Casts that kernels begin with harm no comparison by GE's graph: not ours, and not msaccucmp's."""
    tokens = np.arange(16).reshape(2, 8)
    feeds = {"input_ids": tokens, "attention_mask": tokens % 8 // 5, "token_type_ids": tokens % 2}
    model, rules = GRAPHS / "transformer.onnx", tmp_path / "graph.json"
    golden = whole_run(model, feeds, tmp_path / "golden")
    door.dump(model, feeds, context=O2, file_format="bin", **EXACT)
    mine = next(door.path.rglob("Softmax.*")).parent
    CliRunner().invoke(main, ["compile", str(model), "-o", str(rules), "--precision-mode", *EXACT.values()])

    done, rows = compare(door.path, golden, "--graph", rules)
    arguments = ["compare", "-m", mine, "-g", golden, "-f", rules, "-out", tmp_path / "theirs"]
    program.run([str(argument) for argument in arguments])

    text = next((tmp_path / "theirs").glob("result_*.csv")).read_text(encoding="utf-8")
    for table in (rows, list(csv.DictReader(text.splitlines()))):
        cosines = [float(row["CosineSimilarity"] or "nan") for row in table]
        assert 50 < len([cosine for cosine in cosines if cosine >= 0.99])
        assert [] == [row for row, cosine in zip(table, cosines, strict=True) if cosine < 0.99]
    assert 0 == done.exit_code


@pytest.mark.parametrize("file_format", ["npy", "bin"])
def test_injected_fault_is_named_first(door, golden, faulty, file_format):
    """A network with a wrong weight parts from onnxruntime's tensors at the operator that reads it."""
    door.dump(faulty, FEEDS, context=O2, file_format=file_format, **EXACT)

    done, rows = compare(door.path, golden, "--graph", LENET)

    first = next(line for line in done.stdout.splitlines() if line.startswith("first"))
    assert 1 == done.exit_code
    assert "conv2" in first
    assert "(Conv2D)" in first
    wrong = [row["Operator"] for row in rows if row["Verdict"] == "differs"]
    assert {True} == {"conv1" not in name for name in wrong}


def test_fault_between_two_dumps_of_the_same_level(door, faulty):
    """Two O0 dumps need no model: the operator and its wrong input are named."""
    door.dump(LENET, FEEDS, context=O0, path=f"{door.folder}/good")
    door.again()
    door.dump(faulty, FEEDS, context=O0, path=f"{door.folder}/bad")

    done, _ = compare(door.folder / "bad", door.folder / "good")

    assert "first     Default_conv2-Conv2d_Conv2D-op0 (Conv2D)" in done.stdout
    assert "output 0 differs, input 1 differs already" in done.stdout


def test_compiled_and_plain_dump_meet_by_the_model(door):
    """An O2 dump is compared with an O0 dump: fused operators meet the last of their originals."""
    door.dump(LENET, FEEDS, context=O0, path=f"{door.folder}/plain", **EXACT)
    door.again()
    door.dump(LENET, FEEDS, context=O2, file_format="bin", path=f"{door.folder}/compiled", **EXACT)

    done, rows = compare(door.folder / "compiled", door.folder / "plain", "--graph", LENET)

    assert 0 == done.exit_code
    found = {row["Type"] for row in rows if row["Verdict"] == "equal" and row["Tensor"] == "output:0"}
    assert {"Conv2D", "MaxPool", "MatMul"} <= found


def test_msaccucmp_compares_two_dumps(door, faulty):
    """msaccucmp.py compare finds the same operator in two directories of dump files."""
    for name, model in (("good", LENET), ("bad", faulty)):
        door.dump(model, FEEDS, context=O2, file_format="bin", path=f"{door.folder}/{name}")
        door.again()
    good, bad = (next((door.folder / name).rglob("Conv2D.*")).parent for name in ("good", "bad"))

    code = program.run(["compare", "-m", str(bad), "-g", str(good), "-out", str(door.folder / "out")])

    text = next((door.folder / "out").glob("result_*.csv")).read_text(encoding="utf-8")
    different = [row for row in csv.DictReader(text.splitlines()) if float(row["MaxAbsoluteError"]) > 0]
    assert 0 == code
    assert "conv2" in different[0]["NPUDump"]
