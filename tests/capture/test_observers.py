"""Whatever sees operators run does so through one protocol."""

from __future__ import annotations

import inspect

import pytest

from msdump.capture.capture import Capture
from msdump.capture.compiled.capture import CompiledCapture
from msdump.capture.compiled.single_dump import SingleDump
from msdump.capture.compiled.watcher import WatcherCapture
from msdump.capture.memory.faulty_run import FaultyRun
from msdump.capture.memory.metered import Metered
from msdump.capture.memory.recognition import Recognition
from msdump.observer import Observer

OBSERVERS = [Capture, CompiledCapture, SingleDump, WatcherCapture, FaultyRun, Metered, Recognition]


def parameters(method):
    """Return name, kind, type and default of each parameter of a method."""
    return [
        (parameter.name, parameter.kind, parameter.annotation, parameter.default)
        for parameter in inspect.signature(method).parameters.values()
    ]


@pytest.mark.parametrize("method", ["ran", "failed", "enter"])
@pytest.mark.parametrize("observer", OBSERVERS, ids=lambda observer: observer.__name__)
def test_methods_are_those_of_the_protocol(observer, method):
    """Every observer takes what the protocol says, by the same names, with the same defaults."""
    assert parameters(getattr(Observer, method)) == parameters(getattr(observer, method))
