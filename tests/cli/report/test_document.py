"""The content of a report: operators, series, what was left out, csv."""

from __future__ import annotations

import csv
import io
import json

import pytest

NAMES = ("Default_a_Add-op0", "Default_b_Mul-op0")


def rows(*highs):
    """Return rows of two operators."""
    return [(name, "output", 0, high) for name, high in zip(NAMES, highs, strict=True)]


def test_series(put, document):
    """Statistics stand by iteration; what was not dumped or computed is null."""
    put(3, rows(1, "null"))
    root = put(5, rows(2.5, 4)[1:])

    report = document(root)

    (first,), (second,) = (each["tensors"] for each in report["operators"])
    assert [3, 5] == report["iterations"]
    assert ([1.0, None], ["", None]) == (first["statistics"]["max"], first["holds"])
    assert ([None, 4.0], ["", ""]) == (second["statistics"]["max"], second["holds"])
    assert ("float32", "2x3", "output:0") == (first["dtype"], first["shape"], first["tensor"])


def test_last_execution(put, document):
    """Where two programs dumped into one directory, the numbers are those of the last one."""
    root = put(0, [*rows(1, 5), *rows(7, 2)])

    tensors = [each["tensors"][0]["statistics"]["max"] for each in document(root)["operators"]]

    assert [[7.0], [2.0]] == tensors


def test_csv_holds_the_same(put, run, document):
    """The csv has a row for each tensor and iteration, with the numbers of the document."""
    for number in range(2):
        root = put(number, rows(number + 1, "inf"))

    table = [*csv.DictReader(io.StringIO(run(root, "--csv").stdout))]
    report = document(root)

    assert [("0", "1"), ("1", "2")] == [(row["Iteration"], row["max"]) for row in table[:2]]
    assert ["", "", "inf", "inf"] == [row["Holds"] for row in table]
    assert report["problems"][0]["text"] == table[2]["Problem"]
    assert [each["operator"] for each in report["operators"]] == [
        *dict.fromkeys(row["Operator"] for row in table)
    ]


DAMAGES = {
    "a torn last row": (lambda text: text[:-2], "the last row has no line feed yet", 1),
    "a row with too many cells": (
        lambda text: text.replace("\nMul", "\nx,y,z\nMul"),
        "1 row with another number",
        2,
    ),
    "an open quote": (lambda text: text.replace("\nMul", '\n"x,y\nMul'), "1 row with another number", 2),
    "no titles": (lambda _: "nonsense\n", "no titles of statistics", 0),
    "nothing": (lambda _: "", None, 0),
    "a second line of titles": (lambda text: text + text.partition("\n")[0] + "\n", None, 2),
}


@pytest.mark.parametrize(("damage", "fault", "count"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_statistics(put, document, damage, fault, count):
    """What can be read of a file is there, the rest is told."""
    root = put(0, rows(1, 2))
    path = next(root.rglob("statistic.csv"))
    path.write_text(damage(path.read_text()))

    report = document(root)

    assert count == len(report["operators"])
    assert ([] if fault is None else [True]) == [fault in each for each in report["faults"]]


def test_no_dump(run, tmp_path):
    """A directory without a dump is refused in one line, without a page."""
    (tmp_path / "empty").mkdir()

    done = run(tmp_path / "empty")

    assert (2, True, False) == (
        done.exit_code,
        "no dump" in done.stderr,
        (tmp_path / "report.html").exists(),
    )


def test_nothing_to_compare(put, run):
    """Dumps of other networks cannot be compared, which is told."""
    golden = put(0, [("Default_z_Sub-op0", "output", 0, 1)], root="golden")

    done = run(put(0, rows(1, 2)), golden)

    assert (2, True) == (done.exit_code, "nothing was compared" in done.stderr)


def test_trace(put, document, tmp_path):
    """A trace in Chrome's format tells the mean time of operators, by events with a duration and by pairs."""
    events = [
        {"ph": "X", "name": NAMES[0], "ts": 5, "dur": 10},
        {"ph": "X", "name": NAMES[0], "ts": 25, "dur": 20},
        {"ph": "B", "name": "run", "args": {"full_name": NAMES[1]}, "ts": 50, "tid": 1},
        {"ph": "E", "ts": 54, "tid": 1},
        {"ph": "M", "name": "process_name"},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))

    report = document(put(0, rows(1, 2)), "--trace", tmp_path / "trace.json")

    assert [15.0, 4.0] == [each["microseconds"] for each in report["operators"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("3", "no trace"), ("[]", "names no operator")],
    ids=["no JSON", "no events", "other operators"],
)
def test_faulty_trace(put, run, tmp_path, text, message):
    """A trace that tells nothing is refused."""
    (tmp_path / "trace.json").write_text(text)

    done = run(put(0, rows(1, 2)), "--trace", tmp_path / "trace.json")

    assert (2, True) == (done.exit_code, message in done.stderr)


def test_left_out_and_configured(put, document, tmp_path):
    """A configuration is told as it was compiled, and why operators of the graph have no files."""
    root = put(0, rows(1, 2))
    (root / "rank_0/.dump_metadata").mkdir()
    settings = {
        "op_debug_mode": 0,
        "dump_mode": 1,
        "path": "/dump",
        "net_name": "Net",
        "iteration": "0|5-8",
        "saved_data": "statistic",
        "input_output": 2,
        "kernels": ["Add"],
        "support_device": [0],
    }
    config = {"common_dump_settings": settings, "e2e_dump_settings": {"enable": True, "trans_flag": True}}
    (root / "rank_0/.dump_metadata/data_dump.json").write_text(json.dumps(config))
    (root / "rank_0/.dump_metadata/config.json").write_text('{"device_target": "GPU", "ms_version": "2.7.0"}')

    facts = {each["subject"]: each["words"] for each in document(root)["facts"]}

    assert "0, 5-8" in facts["configured iterations"] or "0|5-8" in facts["configured iterations"]
    assert '"ms_version": "2.7.0"' in facts["device"]
    assert "1: 0" == facts["ranks"]
