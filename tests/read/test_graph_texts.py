"""The operators that .ir files list."""

from __future__ import annotations

import pytest

from msdump.read import ValueForm, read_listed_operators

SPLIT = (
    (ValueForm("Float32", (0, 3)), ValueForm("Int64", ())),
    (ValueForm("BFloat16", (-1, 2)), ValueForm("String", (4,))),
)
TYPES = (
    "(<Float32xDefaultFormat[const vector]{0, 3}>, <Int64xDefaultFormat[const vector]{}>) -> "
    "(<BFloat16xFRACTAL_NZ[const vector]{-1, 2}>, <StringxDefaultFormat[const vector]{4}>)"
)
OWN = TYPES.replace("{", "[").replace("}", "]")
TEXTS = {
    "MindSpore's": f"  %0(a) = S(%1)\n      : {TYPES}\n      # Fullname with scope: (Default/Split-op0)\n",
    "own": f"  %0(a) = Split(%1)\n      : {OWN}\n      : full_name_with_scope: (Default/Split-op0)\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_operators(tmp_path, text):
    """Types and shapes are read as either of the two ways to write them has them."""
    path = tmp_path / "graph.ir"
    path.write_text(f"# IR entry\n\n{text}", encoding="utf-8")

    assert {"Default/Split-op0": SPLIT} == read_listed_operators(str(path))


def test_lines_without_types(tmp_path):
    """An operator without types is left out."""
    path = tmp_path / "graph.ir"
    path.write_text("  Return(%2)\n      # Fullname with scope: (Default/Return-op0)\n", encoding="utf-8")

    assert {} == read_listed_operators(str(path))
