"""The twenty questions of the page, each asked of two runs of which one overflows, as it stands there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from msdump.cli import main

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "ask-questions.md"
QUESTIONS = {
    int(number): (title, question)
    for number, title, question in re.findall(
        r"^(\d+)\. (.*?)\n\n```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
}
OVERFLOWED = "Default_norm-RMSNorm_Mul-op0"
MUL = "Default/norm-RMSNorm/Mul-op0"
NORM = [f"Default_norm-RMSNorm_{name}-op0" for name in ("Add", "Mul", "ReduceMean", "Sqrt")]
ONES = ("Add", "Div", "Flatten", "ReLU", "ReduceMean", "Sqrt")
DEVICE = {"device_target": "Ascend", "ms_version": "2.7.0"}

ANSWERS = {
    1: [("bad", 0, "Mul", OVERFLOWED, "output", 0, "Infinity")],
    2: [(MUL, "Default/norm-RMSNorm", "net.py:24: squares = op.Mul(x, x)")],
    3: [(name, 3) for name in NORM],
    4: [(OVERFLOWED,), *((f"Default_norm-RMSNorm_{name}-op0",) for name in ("Add", "ReduceMean"))],
    5: [(OVERFLOWED,)],
    6: [(0,), (1,), (2,), (3,)],
    7: [
        ("Default_fc2-Dense_MatMul-op0",),
        ("Default_norm-RMSNorm_Div-op0",),
        ("Default_norm-RMSNorm_Mul-op1",),
    ],
    8: [("Default_fc2-Dense_MatMul-op0", 1)],
    9: [(OVERFLOWED,)],
    10: [(1, "Default_relu-ReLU_ReLU-op0", "output", 0)],
    11: [(name, 2) for name in ("BiasAdd", "MatMul", "Mul")] + [(name, 1) for name in ONES],
    12: [("Default/relu-ReLU/ReLU-op0", "layers.py:129: return op.Relu(x)")],
    13: [("inherited",), ("agrees",), ("nonfinite", 1)],
    14: [(MUL, "Infinity")],
    15: [("bad", 0, 0, 12, 2596), ("bad", 0, 1, 12, 2596), ("bad", 0, 2, 12, 2596), ("good", 0, 0, 11, 2584)],
    16: [("ir", 3), ("statistics", 11), ("pb", 3)],
    17: [(3,)],
    18: [("bad", 0), ("bad", 1), ("bad", 2), ("good", 0)],
    19: [("bad", "Ascend", "2.7.0", "force_fp16"), ("good", "Ascend", "2.7.0", "force_fp32")],
    20: [("Default/fc2-Dense/BiasAdd-op0",)],
}
"""The first cells of the first rows."""


def run_in(folder, *arguments, **variables):
    """Run a program and return what it prints."""
    command = [*map(str, arguments)]
    environment = os.environ | {"DEVICE_TARGET": "Ascend"} | variables
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory, forks):
    """Return the arguments for the dumps and their comparison.

    The good dump has a fourth iteration, a second rank that disagrees about one tensor, and no output of the
    last operator; both have the metadata that MindSpore adds.
    """
    folder = tmp_path_factory.mktemp("questions")
    run_in(ROOT, forks / "python", "sample_nets/build.py", "overflow", "--out", folder)
    for name, config, steps in (("good", "statistic_float32", 4), ("bad", "statistic", 3)):
        path = ROOT / f"sample_nets/overflow/data_dump_{config}.json"
        run = (forks / "msdump", "run", "overflow_b1_s0.onnx", "--config", path, "--steps", steps)
        run_in(folder, *run, MS_DIAGNOSTIC_DATA_PATH=str(folder / name))
        metadata = folder / name / "debug_dump/rank_0/.dump_metadata"
        metadata.mkdir()
        shutil.copy(path, metadata / "data_dump.json")
        (metadata / "config.json").write_text(json.dumps(DEVICE))
    compare = (
        forks / "msdump",
        "compare",
        "bad/debug_dump",
        "good/debug_dump",
        "--precision",
        "float16",
        "--json",
        "-out",
        "tables",
    )
    (folder / "result.json").write_text(run_in(folder, *compare))
    good = folder / "good/debug_dump"
    for path in good.rglob("statistic.csv"):
        rewrite(path, r"BiasAdd,Default_fc2.*\n", "")
    shutil.copytree(good / "rank_0", good / "rank_1")
    rewrite(good / "rank_1/Overflow/0/1/statistic.csv", r"(ReLU-op0.*,)[^,]+(,\d+,\d+\n)", r"\g<1>123\2")
    return f"good={good}", f"bad={folder / 'bad/debug_dump'}", str(folder / "result.json")


def rewrite(path, pattern, text):
    """Replace what fits a pattern in a file that nobody may write."""
    path.chmod(0o600)
    path.write_text(re.sub(pattern, text, path.read_text()))


def test_page_has_twenty():
    """The page has twenty questions, each with an answer here."""
    assert [*range(1, 21)] == [*QUESTIONS] == [*ANSWERS]


@pytest.mark.parametrize("number", QUESTIONS)
def test_question(sources, number):
    """The question is answered as it stands on the page, without a warning."""
    title, question = QUESTIONS[number]

    done = CliRunner().invoke(main, ["query", *sources, question, "--json"])

    assert (0, "") == (done.exit_code, done.stderr), title
    rows = [tuple(row.values()) for row in json.loads(done.stdout)["rows"]]
    wanted = ANSWERS[number]
    starts = [row[: len(first)] for row, first in zip(rows, wanted, strict=False)]
    assert wanted == starts, rows


@pytest.fixture(scope="module")
def pack(sources, tmp_path_factory):
    """Return the path of a pack of the dumps and their comparison."""
    folder = tmp_path_factory.mktemp("pack") / "pack"
    done = CliRunner().invoke(main, ["pack", *sources, "-out", str(folder)])
    assert (0, "") == (done.exit_code, done.stderr)
    return folder


@pytest.mark.parametrize("number", QUESTIONS)
def test_pack_answers_alike(sources, pack, number):
    """A pack answers every question as the dumps do."""
    question = QUESTIONS[number][1]

    of_dumps, of_pack = (
        CliRunner().invoke(main, ["query", *given, question, "--csv"]) for given in (sources, [str(pack)])
    )

    assert (0, sorted(of_dumps.stdout.splitlines())) == (
        of_pack.exit_code,
        sorted(of_pack.stdout.splitlines()),
    )
