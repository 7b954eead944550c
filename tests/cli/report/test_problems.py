"""What is wrong with a dump, as ``msdump report`` finds and orders it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from msdump.encode import npy
from tests.dump import settings
from tests.tools import dumped

CONV, RELU, FC = "Default_conv_Conv2D-op0", "Default_relu_ReLU-op0", "Default_fc_MatMul-op0"


def outputs(*highs):
    """Return rows of three operators with these largest elements."""
    return [(name, "output", 0, high) for name, high in zip((CONV, RELU, FC), highs, strict=True)]


def test_sound_dump(put, document):
    """A dump without NaN and infinities has no problem."""
    report = document(put(0, outputs(1, 2, 3)))

    assert ("Nothing wrong was found", []) == (report["headline"], report["problems"])


BEGINNINGS = {
    "the first operator that is struck": ([outputs(1, "inf", "nan")], [(RELU, [0], [FC])]),
    "an operator whose inputs are sound": (
        [
            [
                (CONV, "output", 0, "inf"),
                (RELU, "input", 0, 1),
                (RELU, "output", 0, "nan"),
                (FC, "input", 0, "nan"),
                (FC, "output", 0, "nan"),
            ]
        ],
        [(CONV, [0], []), (RELU, [0], [FC])],
    ),
    "the same operator in several iterations": (
        [outputs(1, 1, 1), outputs(1, "inf", "inf"), outputs(1, "inf", 1)],
        [(RELU, [1, 2], [FC])],
    ),
    "an input that nothing of the dump wrote": (
        [[(CONV, "input", 0, "nan"), (CONV, "output", 0, "nan"), (RELU, "output", 0, 1)]],
        [(CONV, [0], [])],
    ),
    "-inf alone masks": ([[(CONV, "output", 0, 1), (RELU, "output", 0, "-inf")]], []),
}


@pytest.mark.parametrize(("iterations", "expected"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_where_they_begin(put, document, iterations, expected):
    """The operator in which NaN or infinities begin stands before those that they reach."""
    for number, rows in enumerate(iterations):
        root = put(number, rows)

    report = document(root)

    names = [each["operator"] for each in report["operators"]]
    assert expected == [
        (each["operator"], each["iterations"], [names[place] for place in each["victims"]])
        for each in report["problems"]
    ]


def test_golden_names_the_operator_at_fault(put, document):
    """The first operator that differs though its inputs agree is the headline; others stand behind it."""
    golden = put(0, outputs(1, 2, 3), root="golden")
    root = put(0, outputs(1, 2.5, 3.5))

    report = document(root, golden)

    assert report["headline"].startswith(f"{RELU} (ReLU) in iteration 0: own: output 0 differs")
    assert [RELU] == [each["operator"] for each in report["problems"] if each["is_accused"]]


def test_own_faults_are_ordered_by_error(put, document):
    """Operators that are not accused stand by their own error, the largest first."""
    golden = put(0, outputs(1, 2, 3), root="golden")
    root = put(0, outputs(1.2, 4, 9))

    errors = [each["own_error"] for each in document(root, golden)["problems"] if not each["is_accused"]]

    assert sorted(errors, reverse=True) == errors


def test_missing_operators_are_told(put, document):
    """Golden operators that the dump lacks are told behind those at fault, and nobody is accused of them."""
    for number in range(2):
        golden = put(number, outputs(1, 2, 3), root="golden")
        root = put(number, outputs(1, 2, 3)[:2])

    (problem,) = document(root, golden)["problems"]

    assert (FC, [0, 1], False, None) == tuple(
        problem[key] for key in ("operator", "iterations", "is_accused", "index")
    )
    assert "missing: golden has it, this dump does not" == problem["text"]


def test_tensors_are_measured(document, tmp_path, monkeypatch):
    """Of a dump of tensors the statistics are measured, and what begins in them is found."""
    folder = tmp_path / "dump/rank_0/Net/0/0"
    folder.mkdir(parents=True)
    for place, (name, array) in enumerate(((CONV, [1.0, 2.0]), (RELU, [np.nan, 2.0]))):
        op_type = name.rpartition("_")[2].partition("-")[0]
        file = f"{op_type}.{name}.0.0.{1795217009720246 + place}.output.0.DefaultFormat.float32.npy"
        (folder / file).write_bytes(b"".join(npy.encode(np.array(array, np.float32))))

    report = document(tmp_path / "dump")

    (problem,) = report["problems"]
    assert (RELU, "NaN begins here", 1) == (problem["operator"], problem["text"], len(problem["files"]))
    assert [2.0, "NaN"] == [each["tensors"][0]["statistics"]["max"][0] for each in report["operators"]]
    (histogram,) = report["histograms"]
    assert (1, 1, 2) == (sum(histogram["counts"]), histogram["nonfinite"], histogram["size"])


def test_ranks_disagree(put, document):
    """A weight that ranks should share, and do not, is told with the rank that stands alone."""
    for rank in range(3):
        rows = [("fc_weight", "output", 0, 7 if rank == 1 else 3)]
        root = put(0, [(name, io, slot, high) for name, io, slot, high in rows], rank=rank)
    for path in root.rglob("statistic.csv"):
        path.write_text(path.read_text().replace("weight,fc_weight", "Parameter,fc_weight"))

    (problem,) = document(root)["problems"]

    assert ("ranks", 1) == (problem["kind"], problem["rank"])
    assert "rank 1 holds something else than rank 0, 2" in problem["text"]


def test_watch_rules(put, document, tmp_path):
    """Hits of rules are told by rule and tensor, with their iterations."""
    for number in range(3):
        root = put(number, outputs(1, 100 * number, 3))
    (tmp_path / "rules.json").write_text('[{"condition": "tensor_too_large", "max_gt": 50, "name": "large"}]')

    (problem,) = document(root, "--rules", tmp_path / "rules.json")["problems"]

    assert ("watch", RELU, [1, 2]) == (problem["kind"], problem["operator"], problem["iterations"])
    assert problem["text"].startswith("large: output 0: the largest element is 100")


TIME = "20260112093000123"
FAILURES = {
    "types and shapes": (f"Gather.gather.1.{TIME}", "Gather", "int64 (4)"),
    "in brief": (f"exception_info.0.1.{TIME}", None, "32 bytes"),
}


@pytest.mark.parametrize(("name", "op_type", "told"), FAILURES.values(), ids=FAILURES)
def test_operator_that_failed(document, tmp_path, name, op_type, told):
    """The file of an exception dump is the first thing that is wrong, with what the operator was given."""
    path = tmp_path / "dump/extra-info/data-dump/0" / name
    dumped.file(path, inputs=[dumped.tensor(np.arange(4, dtype="i8"))], op_name="gather")

    report = document(tmp_path / "dump")

    (problem,) = report["problems"]
    assert ("failure", "gather", op_type) == (problem["kind"], problem["operator"], problem["op_type"])
    assert f"it failed when it ran; its inputs: {told}" == problem["text"]
    assert [str(path)] == problem["files"]
    assert report["headline"].startswith("gather")


def test_torn_file_of_a_failure(document, tmp_path):
    """An operator whose file is torn is named by the file's name, and the damage is told."""
    path = tmp_path / "dump/extra-info/data-dump/0" / f"Gather.gather.1.{TIME}"
    dumped.file(path, inputs=[dumped.tensor(np.arange(4, dtype="i8"))], op_name="gather")
    path.write_bytes(path.read_bytes()[:12])

    report = document(tmp_path / "dump")

    assert [("gather", "it failed when it ran")] == [
        (each["operator"], each["text"]) for each in report["problems"]
    ]
    assert 1 == len(report["faults"])


@pytest.mark.parametrize(("mode", "kind"), [(3, "overflow"), (4, "failure")])
def test_what_is_there_because_it_went_wrong(put, document, tmp_path, monkeypatch, mode, kind):
    """Where a configuration dumps only operators that fail or overflow, each one in the dump is told."""
    monkeypatch.setenv("DEVICE_TARGET", "Ascend")
    common = settings.common(tmp_path, op_debug_mode=mode)
    config = {"common_dump_settings": common, "e2e_dump_settings": {"enable": True, "trans_flag": True}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    put(0, [(CONV, "input", 0, 1)])
    root = put(2, [(CONV, "input", 0, 1), (RELU, "input", 0, 65504)])

    problems = document(root, "--config", tmp_path / "config.json")["problems"]

    assert [(kind, CONV, [0, 2]), (kind, RELU, [2])] == [
        (each["kind"], each["operator"], each["iterations"]) for each in problems
    ]
    assert all(f"op_debug_mode {mode}" in each["text"] for each in problems)
