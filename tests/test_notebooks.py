"""Notebooks of the documentation run from their first cell to their last."""

import re
import shutil
import sys

import pytest

from msdump import env
from tests.world import ROOT, completed

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook, tmp_path, forks):
    """Every cell runs, and runs again over the first run's files, with nothing imported before."""
    shutil.copytree(ROOT / "graphs", tmp_path / "graphs", ignore=shutil.ignore_patterns("torch_export"))

    for python in (forks / "python", sys.executable):
        done = completed(python, notebook, cwd=tmp_path, env={**env.unset(), "PYTHONPATH": str(ROOT)})
        assert 0 == done.returncode, done.stderr
    assert "Conv2D Default/conv1-Conv2d/Conv2D-op0 output 0" in done.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_begin_as_notebooks_have_them(notebook):
    """The script is in cells of the percent format; the first one is a text with a title."""
    text = notebook.read_text(encoding="utf-8")

    assert text.startswith("# %% [markdown]\n# # ")
    assert len(re.findall(r"^# %%( \[markdown\])?$", text, re.MULTILINE)) > 10
