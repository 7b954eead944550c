"""The reasons for which a tensor has no file."""

import pytest

from msdump.reasons import Reason
from tests.world import ROOT


def test_texts_of_summaries():
    """The texts that summaries of runs show stay as users' programs know them."""
    assert ["sequences and maps", "text", "no elements", "over max_bytes"] == [
        Reason.NO_TENSOR,
        Reason.TEXT,
        Reason.NO_ELEMENTS,
        Reason.OVER_LIMIT,
    ]


@pytest.mark.parametrize("reason", list(Reason))
def test_sentences(reason):
    """Every reason has a text that fits behind a count, and a whole sentence."""
    assert reason == str(reason) == Reason(reason.value)
    assert not reason.endswith(".")
    assert reason.sentence.endswith(".")


def test_page_lists_every_reason():
    """The page about missing files has a row for each reason, in their order."""
    page = ROOT / "docs" / "how-to" / "missing-files.md"
    table = page.read_text(encoding="utf-8").partition("| counted as | means |\n|---|---|\n")[2]

    assert [f"| {reason} | {reason.sentence} |" for reason in Reason] == table.splitlines()
