"""Limits from a file, and the page that lists them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from msdump.errors import ToolError
from msdump.judge.verdict import (
    ACCUSING,
    CONDITIONS,
    COSINE,
    TYPES,
    Limits,
    TensorVerdict,
    Verdict,
    read_limits,
)
from msdump.judge.verdict.limits import GAIN, GROWTH, PEAK

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "verdicts.md").read_text("utf-8")


def written(tmp_path, text):
    """Write a file of limits."""
    path = tmp_path / "limits.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Limits()),
        ({"growth": 4, "gain": 2, "peak": 1, "cosine": 0.5}, Limits(cosine=0.5, peak=1, growth=4, gain=2)),
        ({"distance": 0.1, "precision": "float16"}, Limits(distance=0.1, precision="float16")),
    ],
)
def test_limits_of_a_file(tmp_path, settings, expected):
    """Keys of a file are taken, others keep their defaults."""
    assert expected == read_limits(written(tmp_path, settings))


def test_limits_of_a_type(tmp_path):
    """A type's limits are changed one by one."""
    limits = read_limits(written(tmp_path, {"types": {"float16": {"distance": 0.5}}}))

    assert (
        replace(TYPES["float16"], distance=0.5, source=limits.types["float16"].source)
        == limits.types["float16"]
    )
    assert TYPES["float32"] == limits.types["float32"]
    assert 0.5 == limits.allowed(("float16", "float32"), "")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("{", "not JSON: "),
        ("[" * 100_000, "the JSON is nested too deeply"),
        ([], "$: is []"),
        ({"grwth": 1}, "did you mean 'growth'?"),
        ({"gain": -1}, "$.gain: is -1"),
        ({"gain": True}, "$.gain: is True"),
        ({"precision": "float17"}, "did you mean 'float16'?"),
        ({"types": 3}, "$.types: is 3"),
        ({"types": {"int8": {}}}, "'int8' is not one of"),
        ({"types": {"float16": {"distanc": 1}}}, "did you mean 'distance'?"),
        ({"types": {"float16": {"ulps": "x"}}}, "$.types.float16.ulps: is 'x'"),
    ],
)  # fmt: skip
def test_faults_of_a_file(tmp_path, settings, words):
    """A file with a fault is refused with the place of the fault."""
    path = written(tmp_path, settings)

    with pytest.raises(ToolError, match=re.escape(words)) as raised:
        read_limits(path)

    assert path in str(raised.value)


def rows(first):
    """Return the cells of the page's rows by the first one, of the table with a first row that begins so."""
    lines = PAGE.splitlines()
    start = lines.index(next(line for line in lines if line.startswith(f"| {first} |")))
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start + 2 : end]]
    return {row[0]: row[1:] for row in cells}


def value(text):
    """Return the number of a cell, ``2^-8`` or ``1e-7``."""
    base, _, power = text.partition("^")
    return float(base) ** int(power) if power else float(text)


def test_page_lists_the_limits():
    """The page has the numbers and sources of the table in the code."""
    listed = {name: cells for names, cells in rows("element type").items() for name in names.split(", ")}
    shown = {name: (value(cells[0]), value(cells[1]), cells[2]) for name, cells in listed.items()}

    assert {name: (each.distance, each.ulps, each.source) for name, each in TYPES.items()} == shown
    single = {name.strip("`"): cells[0] for name, cells in rows("limit").items()}
    numbers = {"cosine": COSINE, "peak": PEAK, "growth": GROWTH, "gain": GAIN}
    assert numbers == {name: float(single[name]) for name in numbers}


def test_page_lists_the_conditions():
    """The page has the table of conditions, with the words of the code."""
    listed = re.findall(r"^\| (.+) \| `(\w+)` \|$", PAGE.split("## The table of conditions")[1], re.MULTILINE)
    known = ((reason.__doc__.splitlines()[0].removesuffix("."), verdict) for verdict, reason in CONDITIONS)

    assert [*known] == listed[: len(CONDITIONS)]


def test_page_lists_the_verdicts():
    """The page has every verdict, and marks the accusing ones."""
    operators, tensors = (
        list(rows("verdict")),
        re.findall(r"^\| `(\w+)` \|", PAGE.split("## Verdicts on tensors")[1], re.MULTILINE),
    )

    assert {str(each) + ("` *" if each in ACCUSING else "`") for each in Verdict} == {
        name.removeprefix("`") for name in operators
    }
    assert {*TensorVerdict} <= {*tensors}
