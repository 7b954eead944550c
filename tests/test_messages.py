"""The page of messages quotes messages that the source has."""

import re

import pytest

from scripts import messages
from tests.world import ROOT

PAGE = ROOT / "docs" / "reference" / "messages.md"
QUOTED = re.findall(r"^\| `(.+?)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def rest_of(quoted, templates):
    """Return the part of a quoted message that is neither of a template nor a file, a key or a value."""
    text = messages.normal(quoted)
    behind = [each for each in templates if text.endswith(each)]
    rest = min((text.removesuffix(each) for each in behind), key=len, default=text)
    return re.sub(r"[{}:=, ]", "", rest)


def test_quoted():
    """A quoted message is a template of the source, behind a file, a key or a value."""
    templates = {messages.normal(each.text) for each in messages.templates()}

    assert len(QUOTED) > 20
    assert [] == [quoted for quoted in QUOTED if rest_of(quoted, templates)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("raise ValueError(f'no {a.b} in {c()}; add {d!r} here')", {"no {b} in {c} ; add {d} here"}),
        ("log.warning('%s: %d left out', a, b)", {"{...}: {...} left out"}),
        ("def f(m):\n    raise E(m)\n\ndef g():\n    f('a file is missing')", {"a file is missing"}),
        ("t = 'the file is empty'\nraise E(t)", {"the file is empty"}),
        ("def f():\n    return 'too many bytes given'\n\nraise E(f())", {"too many bytes given"}),
        ("print('no message at all')", set()),
        ("raise E(re.match(r'^\\d of \\w words$', t))", set()),
    ],
)
def test_templates(monkeypatch, tmp_path, source, expected):
    """Templates are the strings of raised errors and log lines, through variables and functions."""
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "module.py").write_text(source)
    monkeypatch.setattr(messages, "PACKAGE", tmp_path)
    assert {each.replace(" ;", ";") for each in expected} == {each.text for each in messages.templates()}
