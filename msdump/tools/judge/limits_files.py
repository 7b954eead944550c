"""Reads the limits of a comparison from a .json file."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from msdump.errors import DumpReadError, ToolError
from msdump.statistics.table import BY_CATEGORY
from msdump.store.read import texts
from msdump.tools.judge.limits import TYPES, Limits, TypeLimits
from msdump.tools.return_codes import ReturnCode

_NUMBERS: Final = ("cosine", "distance", "peak", "growth", "gain")
_PRECISION: Final = "precision"
_TYPES: Final = "types"
_STATISTICS: Final = "statistics"
_OF_TYPE: Final = tuple(each.name for each in fields(TypeLimits) if each.name != "source")


def read(path: str) -> Limits:
    """Return the limits of a file; what it leaves out stays as it is.

        {"cosine": 0.99, "growth": 8, "types": {"float16": {"distance": 0.01}}, "statistics": {"max": 0.001}}

    Raises:
        ToolError: The file cannot be read, or a key or value is not allowed.
    """
    try:
        settings = json.loads(texts.read_bytes(path))
    except DumpReadError as error:
        raise ToolError(ReturnCode.PATH, str(error)) from error
    except ValueError as error:
        raise ToolError(ReturnCode.PARAMETER, f"{path}: no JSON: {error}") from error
    file = _LimitsFile(path)
    file.check_keys("$", settings, (*_NUMBERS, _PRECISION, _TYPES, _STATISTICS))
    precision = settings.get(_PRECISION, "")
    if precision:
        file.check_choice(f"$.{_PRECISION}", precision, TYPES)
    by_category = settings.get(_STATISTICS, {})
    file.check_keys(f"$.{_STATISTICS}", by_category, BY_CATEGORY)
    limits = Limits(
        precision=precision,
        types=file.types(settings.get(_TYPES, {})),
        statistics={key: file.number(f"$.{_STATISTICS}.{key}", by_category[key]) for key in by_category},
    )
    numbers = {key: file.number(f"$.{key}", settings[key]) for key in _NUMBERS if key in settings}
    return replace(limits, **numbers)  # type: ignore[arg-type]  # mypy takes the keys for any of its fields


class _LimitsFile:
    """Checks the values of a file; every fault names the file and the place in it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def check_keys(self, place: str, settings: Any, allowed: Iterable[str]) -> None:
        """Raise ToolError where something is no object, or has a key that is not allowed."""
        if not isinstance(settings, dict):
            raise self._fault(place, f"is {settings!r}, an object is expected")
        for key in settings:
            self.check_choice(place, key, allowed)

    def check_choice(self, place: str, name: Any, allowed: Iterable[str]) -> None:
        """Raise ToolError where a name is not allowed."""
        names = [*allowed]
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise self._fault(place, f"{name!r} is none of {', '.join(names)}{hint}")

    def number(self, place: str, value: Any) -> float:
        """Return a number that is not negative."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise self._fault(place, f"is {value!r}, a number that is not negative is expected")
        return float(value)

    def types(self, settings: Any) -> Mapping[str, TypeLimits]:
        """Return the limits by element type."""
        self.check_keys(f"$.{_TYPES}", settings, TYPES)
        return {**TYPES, **{name: self._of_type(name, settings[name]) for name in settings}}

    def _of_type(self, name: str, settings: Any) -> TypeLimits:
        place = f"$.{_TYPES}.{name}"
        self.check_keys(place, settings, _OF_TYPE)
        numbers = {key: self.number(f"{place}.{key}", settings[key]) for key in settings}
        return replace(TYPES[name], source=self._path, **numbers)

    def _fault(self, place: str, fault: str) -> ToolError:
        return ToolError(ReturnCode.PARAMETER, f"{self._path}: {place}: {fault}")
