"""Pages and schemas in docs that ``make schema`` writes."""

import importlib
import re
import runpy

import pytest

from tests.world import ROOT

GENERATORS = dict(re.findall(r"-m (msdump\S+) (docs/\S+)", (ROOT / "Makefile").read_text(encoding="utf-8")))


def contents(path):
    """Return the text of a file, or of each file of a directory but for the one that is generated alone."""
    files = path.iterdir() if path.is_dir() else [path]
    return {
        each.name: each.read_text("utf-8") for each in files if each == path or "mindspore" not in each.name
    }


@pytest.mark.parametrize("module", GENERATORS)
def test_checked_in_files_are_current(tmp_path, module):
    """The checked-in files are the generated ones, and no others are there; make schema writes them."""
    checked_in = ROOT / GENERATORS[module]
    made = tmp_path / checked_in.name
    if checked_in.is_dir():
        made.mkdir()

    importlib.import_module(module).main([str(made)])

    assert contents(made) == contents(checked_in)


def test_page_of_primitives_is_current():
    """docs/reference/primitives.md lists the primitives that run; make schema writes it."""
    script = ROOT / "scripts" / "primitives.py"
    made = runpy.run_path(str(script))["reference_text"]()

    assert made == (ROOT / "docs" / "reference" / "primitives.md").read_text("utf-8")


@pytest.mark.parametrize("module", GENERATORS)
def test_generator_wants_one_target(module):
    """Without a target a generator says how it is used."""
    with pytest.raises(SystemExit, match="usage: python -m"):
        importlib.import_module(module).main([])
