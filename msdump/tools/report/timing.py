"""The time of operators, from a trace in Chrome's format that was written while the network ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msdump.errors import DumpReadError
from msdump.store.read import texts
from msdump.tools.report.operators import ReportedOperator, places_by_name

_NAMES: Final = ("full_name", "operator", "name")  # arguments of an event that name the operator


def microseconds(path: str, operators: Sequence[ReportedOperator]) -> Mapping[int, float]:
    """Return the mean time of a run of each operator that a trace names, by its place in the list.

    Args:
        path: The trace: JSON, a list of events or an object with ``traceEvents``.
        operators: The operators.

    Raises:
        DumpReadError: The file cannot be read, is no trace, or names no operator of the dump.
    """
    trace = texts.read_json(path)
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise DumpReadError(path, "no trace: neither a list of events nor an object with traceEvents")
    places = places_by_name(operators)
    sums: dict[int, list[float]] = {}
    for names, duration in _durations(events):
        known = (places.get((None, name)) for name in names)
        place = next((each for each in known if each is not None), None)
        if place is not None:
            sums.setdefault(place, []).append(duration)
    if not sums:
        raise DumpReadError(path, "the trace names no operator of the dump")
    return {place: sum(each) / len(each) for place, each in sums.items()}


def _durations(events: list[Any]) -> Iterator[tuple[list[str], float]]:
    """Yield the names and the duration of each event that has one; pairs of begin and end, too."""
    begun: dict[tuple[object, object], list[dict[str, Any]]] = {}
    for event in events:
        if not isinstance(event, dict):
            continue
        thread, phase, time = (event.get("pid"), event.get("tid")), event.get("ph"), event.get("ts")
        if phase == "X" and isinstance(event.get("dur"), int | float):
            yield _names(event), float(event["dur"])
        elif phase == "B":
            begun.setdefault(thread, []).append(event)
        elif phase == "E" and begun.get(thread) and isinstance(time, int | float):
            first = begun[thread].pop()
            if isinstance(first.get("ts"), int | float):
                yield _names(first), float(time - first["ts"])


def _names(event: dict[str, Any]) -> list[str]:
    arguments = event.get("args")
    told = [arguments.get(name) for name in _NAMES] if isinstance(arguments, dict) else []
    return [each for each in (*told, event.get("name")) if isinstance(each, str)]
