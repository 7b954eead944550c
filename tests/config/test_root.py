"""Roots of dumps: what is taken, what is refused, what only MindSpore refuses."""

from __future__ import annotations

import pytest

from msdump.config import GrammarError
from msdump.config.grammar import foreign_characters, parse_root
from msdump.config.source import caret


@pytest.mark.parametrize(
    ("text", "root", "foreign"),
    [
        ("/", "/", ""),
        ("//a//b/", "/a/b", ""),
        ("/A-z_0/9", "/A-z_0/9", ""),
        ("/a/", "/a", ""),
        ("/data/my.models/x.y", "/data/my.models/x.y", "."),
        ("/a b/c+d/ä", "/a b/c+d/ä", " +ä"),
        ("/a/../b", "/a/../b", "."),
        ("/" + 255 * "n", "/" + 255 * "n", ""),
        ("/" + 127 * "ä", "/" + 127 * "ä", "ä"),
        (1700 * "/n", 1700 * "/n", ""),
    ],
)
def test_root_is_normalised(text, root, foreign):
    """Repeated and trailing slashes do not matter; what MindSpore refuses is told and kept."""
    assert root == parse_root(text)
    assert foreign == foreign_characters(root)


@pytest.mark.parametrize(
    ("text", "excerpts", "message"),
    [
        ("a", ["    a\n    ^"], "the path must be absolute, starting with '/'"),
        ("../x", ["    ../x\n    ^"], "the path must be absolute, starting with '/'"),
        ("~/a", ["    ~/a\n    ^"], "the path must be absolute, starting with '/'"),
        ("/a\0b", ["    /a b\n      ^"], "a path cannot hold '\\x00'; remove it"),
        ("/\ud800", ["    / \n     ^"], "a path cannot hold '\\ud800'; remove it"),
        (
            "/a/" + 256 * "n",
            ["    /a/" + 60 * "n" + "...\n       " + 60 * "^"],
            "a part of the path has 256 bytes; a file system takes 255",
        ),
        (
            "/" + 128 * "ä",
            ["    /" + 60 * "ä" + "...\n     " + 60 * "^"],
            "a part of the path has 256 bytes; a file system takes 255",
        ),
        (
            1701 * "/n",
            ["    " + 30 * "/n" + "...\n    " + 60 * "^"],
            "the path has 3402 bytes; at most 3400 leave room for the files below it",
        ),
    ],
)
def test_bad_root_is_refused_with_a_caret(text, excerpts, message):
    """A relative path, one that no file can have, and one that is too long are faults with a caret."""
    with pytest.raises(GrammarError) as caught:
        parse_root(text)

    assert excerpts == [caret(text, fault.start, fault.end) for fault in caught.value.faults]
    assert message == str(caught.value)
