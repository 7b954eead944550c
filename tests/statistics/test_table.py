"""The table of statistics, and the places of the package that have to agree with it."""

import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.world import ROOT

ROW = """    Statistic(
        "least",
        "Least Value",
        "The smallest magnitude.",
        StatisticNeed(magnitudes=True),
        lambda totals, _: totals.least,
    ),
"""
RECIPE = {
    "table.py": [("STATISTICS: Final = (\n", ROW)],
    "totals.py": [
        ("    squares: bool = False  # the sum of squares\n", "    magnitudes: bool = False\n"),
        ("    squares: float = 0.0  # sum of their squares\n", "    least: float = math.inf\n"),
        (
            "        self.stretch(other.high, other.low)\n",
            "        self.least = min(self.least, other.least)\n",
        ),
    ],
    "passes.py": [
        (
            "    totals = Totals(len(block), high, low)\n",
            "    if need.magnitudes:\n        totals.least = float(np.abs(block).min())\n",
        )
    ],
}
"""The lines that ARCHITECTURE.md asks for, by file, each behind the text that it follows."""


def test_the_recipe_for_a_statistic(tmp_path):
    """A statistic added by ARCHITECTURE's recipe is right for every tensor, and so are the others."""
    categories = ["max", "avg", "l2norm", "zero count", "least"]
    shutil.copytree(ROOT / "msdump", tmp_path / "msdump", ignore=shutil.ignore_patterns("__pycache__"))
    for name, additions in RECIPE.items():
        path = tmp_path / "msdump/statistics" / name
        text = path.read_text()
        for before, lines in additions:
            assert text.count(before) == 1, (name, before)
            text = text.replace(before, before + lines)
        path.write_text(text)
    common = {
        "path": str(tmp_path / "out"),
        "net_name": "n",
        "iteration": "all",
        "input_output": 0,
        "kernels": [],
    }
    common |= {"dump_mode": 0, "saved_data": "full", "support_device": [0], "statistic_category": categories}
    settings = {"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}
    (tmp_path / "dump.json").write_text(json.dumps(settings))

    subprocess.run(
        [sys.executable, "-m", "msdump", "run", str(ROOT / "graphs/lenet.onnx"), "--config", "dump.json"],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(tmp_path),
            "DEVICE_TARGET": "Ascend",
            "JIT_LEVEL": "O0",
        },
        cwd=tmp_path,
        check=True,
        timeout=100,
    )

    titles = {"max": "Max Value", "avg": "Avg Value", "l2norm": "L2Norm Value", "zero count": "Zero Count"}
    (table,) = (tmp_path / "out").rglob("statistic.csv")
    rows = list(csv.DictReader(table.open()))
    for row in rows:
        (file,) = table.parent.glob(f"*.{row['Timestamp']}.{row['IO']}.{row['Slot']}.*")
        array = np.load(file).astype(np.float64)
        expected = {
            "least": np.abs(array).min(),
            "max": array.max(),
            "avg": array.mean(),
            "l2norm": np.linalg.norm(array),
            "zero count": (array == 0).sum(),
        }
        found = {each: float(row[titles.get(each, "Least Value")]) for each in categories}
        assert found == {each: pytest.approx(expected[each], rel=1e-5, abs=1e-6) for each in categories}
    assert len(rows) > 20
