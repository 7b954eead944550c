"""Wording of faults."""

from __future__ import annotations

import pytest

from msdump.config.faults import did_you_mean, json_path, show


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), "$"),
        (("a", "b_c"), "$.a.b_c"),
        (("kernels", 3), "$.kernels[3]"),
        (("odd key", "2", ""), '$["odd key"]["2"][""]'),
        (("line\nbreak",), '$["line\\nbreak"]'),
    ],
)
def test_path_is_one_line_of_json_path(path, expected):
    """Names stand behind a dot, anything else in brackets."""
    assert expected == json_path(path)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a'b", '"a\'b"'),
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        ([1, "x"], '[1, "x"]'),
        ("\n", r"'\n'"),
    ],
)
def test_value_is_shown_as_the_user_wrote_it(value, expected):
    """Texts stand in quotes, all else as JSON."""
    assert expected == show(value)


def test_long_value_is_cut():
    """A value of a message has at most 80 characters."""
    assert len(show("x" * 1000)) == 80


@pytest.mark.parametrize(
    ("value", "candidates", "expected"),
    [
        ("tensors", ("tensor", "full"), " (did you mean 'tensor'?)"),
        ("TENSOR", ("tensor", "full"), " (did you mean 'tensor'?)"),
        ("true", (True, False), " (did you mean true?)"),
        ("2", (0, 1, 2), " (did you mean 2?)"),
        (2.5, ("2.5", "2.7"), " (did you mean '2.5'?)"),
        ("xyz", ("tensor", "full"), ""),
        (None, ("none",), ""),
        (["full"], ("full",), ""),
        ("full" * 1000, ("full",), ""),
    ],
)
def test_closest_candidate_is_suggested(value, candidates, expected):
    """The candidate closest to a value is suggested, whatever its case; nothing where none is close."""
    assert expected == did_you_mean(value, candidates)
