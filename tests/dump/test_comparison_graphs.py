"""Comparisons of networks that share no names, or whose names mislead: graphs tell what belongs together."""

from __future__ import annotations

import csv

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from msdump.cli import main
from tests.dump import o2

pytestmark = pytest.mark.usefixtures("quiet")

EXPORTS = "tests/tools/matching/exports"
ATTENTION = "Default_layers-CellList_0-BertEncoderCell_attention-BertSelfAttention"
OUTPUT = "Default_layers-CellList_0-BertEncoderCell_attention_output-BertOutput"
FEEDS = {
    "transformer": {"given": np.arange(12).reshape(2, 6) % 20},
    "cnn": {"given": np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)},
}
BERT = {
    "input_ids": np.arange(16).reshape(2, 8),
    "attention_mask": np.ones((2, 8), np.int64),
    "token_type_ids": np.zeros((2, 8), np.int64),
}


@pytest.fixture
def dump(door):
    """Return a function that dumps a run of a model into a directory of its own and returns that."""

    def run(name, model, feeds):
        path = door.folder / name
        onnx.save(model, door.folder / f"{name}.onnx")
        door.dump(door.folder / f"{name}.onnx", feeds, path=str(path))
        door.again()
        return path

    return run


def compare(mine, golden):
    """Run ``msdump compare``; return its exit code, its lines by their first word, its table."""
    out = mine.parent / "out"
    done = CliRunner().invoke(main, ["compare", str(mine), str(golden), "-out", str(out)])
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line[:1].isalpha())
    text = max(out.glob("compare_*.csv")).read_text(encoding="utf-8")
    return done.exit_code, lines, list(csv.DictReader(text.splitlines()))


def without(model, name):
    """Return a model without a node: its readers read what it read first."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    node = next(each for each in changed.graph.node if each.name == name)
    for reader in changed.graph.node:
        reader.input[:] = [node.input[0] if value == node.output[0] else value for value in reader.input]
    changed.graph.node.remove(node)
    return changed


@pytest.mark.parametrize("network", FEEDS)
def test_two_exporters(dump, network):
    """Dumps of a network that two exporters exported agree, operator by operator."""
    mine, golden = (
        dump(exporter, onnx.load(f"{EXPORTS}/{network}_{exporter}.onnx"), FEEDS[network])
        for exporter in ("torchscript", "dynamo")
    )

    code, lines, rows = compare(mine, golden)

    outputs = [row for row in rows if row["Tensor"].startswith("output")]
    compared = [row for row in outputs if row["Verdict"] != "unchecked"]
    assert [0, "nothing differs"] == [code, lines["first"]]
    assert {"equal", "agrees"} >= {row["Verdict"] for row in compared}
    assert len(compared) >= len(outputs) * 3 // 4


@pytest.mark.parametrize(
    ("node", "missing"),
    [
        ("embeddings/Add_node_6", "Default_embeddings-BertEmbeddings_Add-op0"),
        ("layers/0/attention/Mul_node_22", f"{ATTENTION}_Mul-op0"),
        ("layers/0/attention_output/Add_node_30", f"{OUTPUT}_Add-op0"),
    ],
)
def test_a_dropped_operator_shifts_no_others(dump, node, missing):
    """An operator that a network lacks is missing; its siblings, whose numbers moved, keep their partners."""
    model = onnx.load("graphs/transformer.onnx")
    mine, golden = dump("mine", without(model, node), BERT), dump("golden", model, BERT)

    code, lines, rows = compare(mine, golden)

    assert [1, True] == [code, missing in lines["missing"]]
    assert lines["missing"].startswith("1 operator ")
    assert "unchecked" not in {row["Verdict"] for row in rows}


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_levels_without_a_model(door, level):
    """Dumps of a fused network and of one that is not fused agree, though no model tells what was fused."""
    paths = {}
    for each in ("O0", "O1"):
        paths[each] = door.folder / each
        context = {"device_target": "Ascend", "jit_level": each}
        door.dump("graphs/transformer.onnx", BERT, path=str(paths[each]), context=context)
        door.again()

    code, lines, rows = compare(paths[level], paths["O1" if level == "O0" else "O0"])

    assert [0, "nothing differs"] == [code, lines["first"]]
    assert "missing" not in lines
    assert 100 < sum(row["Verdict"] == "equal" for row in rows)


@pytest.mark.parametrize("golden_level", ["O2", "O0"])
def test_compiled_networks_are_paired_by_what_they_wrote(door, golden_level):
    """Dumps of Ascend O2 have no graph: tensors tell it, and a dropped operator shifts no others."""
    model = onnx.load("graphs/transformer.onnx")
    onnx.save(without(model, "layers/0/attention_output/Add_node_30"), door.folder / "mine.onnx")
    for name, path, level in (
        ("mine", door.folder / "mine.onnx", "O2"),
        ("golden", "graphs/transformer.onnx", golden_level),
    ):
        root = door.folder / name
        if level == "O2":
            door.configure(o2.configuration(root, fuses=True))
        else:
            door.configure(path=str(root), trans_flag=True)
        door.load(str(path), device_target="Ascend", jit_level=level).run(BERT)
        door.again()

    code, lines, _ = compare(door.folder / "mine", door.folder / "golden")

    assert [1, True] == [code, lines["first"].startswith(f"{OUTPUT.partition('_attention_output')[0]}")]
    assert lines["missing"].startswith("1 operator ")
