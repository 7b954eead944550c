"""Manual pages have the texts of --help."""

import importlib.util
import re
import shutil

import pytest

from msdump.cli.program import COMMANDS
from tests.world import ROOT, completed


@pytest.fixture(scope="module")
def man():
    """Write all pages and return their texts by name."""
    spec = importlib.util.spec_from_file_location("man", ROOT / "scripts" / "man.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.pages(module.date(2026, 1, 2)))


def test_every_command_has_a_page(man):
    """There is a page for the program and for each command, which the program's names."""
    assert ["msdump.1", *(f"msdump-{name}.1" for name in COMMANDS)] == [*man]
    for name in COMMANDS:
        assert f"msdump\\-{name}".replace("train-graph", "train\\-graph") in man["msdump.1"]


def test_options_are_all_there(man):
    """Each option of a command is defined on its page."""
    page = man["msdump-show.1"]

    assert '.TH "MSDUMP-SHOW" "1" "2026-01-02" "msdump ' in page
    for option in ("slot", "iteration", "rank", "json"):
        assert re.search(rf"^\\fB\\-\\-{option}\b", page, re.MULTILINE)


def test_lines_that_begin_like_requests_are_texts(man):
    """Every line that begins with a point is a request of the pages' own."""
    requests = {
        line.split()[0] for page in man.values() for line in page.splitlines() if line.startswith((".", "'"))
    }

    assert {".TH", ".SH", ".SS", ".B", ".PP", ".TP", ".EX", ".EE"} >= requests


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_warns_of_nothing(man):
    """The pages are roff that groff takes without a warning."""
    for name, page in man.items():
        done = completed("groff", "-man", "-Tutf8", "-ww", "-Wbreak", input=page, check=True)
        assert (name, "") == (name, done.stderr)
        assert "SYNOPSIS" in re.sub(".\x08", "", done.stdout)  # bold letters are typed twice
