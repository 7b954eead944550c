"""The page of the views is the one that the table of columns gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from msdump.tools.query.reference import main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "views.md"


def test_page_is_current(tmp_path):
    """The checked-in page is the generated one; make schema writes it."""
    main([str(tmp_path / "views.md")])

    assert (tmp_path / "views.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_generator_wants_one_file():
    """Without a file the generator says how it is used."""
    with pytest.raises(SystemExit, match="usage: python -m"):
        main([])
