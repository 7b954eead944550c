"""Sessions of operators that ran a short while ago."""

from __future__ import annotations

import gc
import weakref

import onnx.parser
import pytest

from msdump.execute import RecentSessions, runner


def _model(constant: int) -> bytes:
    text = '<ir_version: 8, opset_import: ["": 13]> g (float[2] x) => (float[2] y) '
    return onnx.parser.parse_model(
        f"{text}{{ c = Constant <value_float = {constant}.0> () y = Add(x, c) }}"
    ).SerializeToString()


@pytest.mark.parametrize(
    ("expected", "has_memory", "others"),
    [(True, False, 1), (False, False, 2), (False, True, 0)],
    ids=["a short while ago", "long ago", "with a memory"],
)
def test_equal_operators_share_a_session_for_a_while(
    *, expected: bool, has_memory: bool, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session stays after its operator is done, until others have taken its place."""
    monkeypatch.setattr(runner, "_KEPT", 2)
    sessions = RecentSessions()
    first = weakref.ref(sessions.session(_model(0), has_memory=has_memory))
    for number in range(others):
        sessions.session(_model(number + 1))
    gc.collect()
    assert expected is (first() is not None)
    again = sessions.session(_model(0), has_memory=has_memory)
    assert expected is (again is first())
