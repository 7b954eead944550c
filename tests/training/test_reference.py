"""The reference page of gradients is the generated one."""

from __future__ import annotations

from pathlib import Path

import pytest

from msdump.training.reference import main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "gradients.md"


def test_page_is_current(tmp_path):
    """The checked-in page is the generated one; make schema writes it."""
    main([str(tmp_path / "gradients.md")])

    assert (tmp_path / "gradients.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_generator_wants_one_file():
    """Without a file the generator says how it is used."""
    with pytest.raises(SystemExit, match="usage: python -m"):
        main([])
