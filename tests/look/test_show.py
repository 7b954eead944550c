"""The tree of a dump as text."""

import os

import pytest

from msdump.look import tree_lines

SIZES = {
    "nothing": (0, "0 B"),
    "most bytes": (1023, "1023 B"),
    "kibibytes": (1024, "1 KiB"),
    "mebibytes": (3 << 20, "3 MiB"),
    "gibibytes": (5 << 29, "2.5 GiB"),
}


@pytest.mark.parametrize(("size", "expected"), SIZES.values(), ids=SIZES)
def test_sizes(tmp_path, size, expected):
    """The size of a file stands behind its name in the largest unit that gives a whole."""
    (tmp_path / "x.npy").touch()
    os.truncate(tmp_path / "x.npy", size)

    assert [f"x.npy  {expected}"] == list(tree_lines(tmp_path))
