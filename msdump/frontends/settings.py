"""The settings of ``set_context`` and of its environment variables, one table: names, checks, fields."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from msdump import env
from msdump.communication.world import current, own
from msdump.config.dtypes.files import CUSTOMIZE_DTYPES, KEYS, MODIFY_MIXLIST, operator_dtypes
from msdump.errors import InputError
from msdump.plan import Context, DeviceTarget, ExceptionDump, JitLevel, OverflowMode, PrecisionMode
from msdump.precision.operator_dtypes import NO_OPERATOR_DTYPES

_log = logging.getLogger("msdump.frontends")

Fields = dict[str, Any]
"""Values by field of Context."""

Parse = Callable[[str, Any], Fields]
"""Checks a setting, by its name for messages and its value, and returns the fields that it sets."""

MOST_DEVICES: Final = (1 << 31) - 1
"""The largest number of a device; the products keep it in 32 bit."""

_LONGEST_VALUE: Final = 80  # characters of a value in a message
_MOST_MEMORY: Final = 1 << 60
_MEMORY: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMG]?)B", re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def checked(settings: Mapping[str, Any]) -> Fields:
    """Return the fields of Context that settings of ``set_context`` set.

    Raises:
        InputError: An unknown setting, or a value that it cannot have.
    """
    fields: Fields = {}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise InputError(f"set_context has no setting {name!r}; it has {', '.join(SETTINGS)}")
        fields |= SETTINGS[name](name, value)
    return fields


def checked_options(options: Mapping[str, Any]) -> Fields:
    """Return the fields that options of a command line set; those that are None are not given.

    Raises:
        InputError: As for ``checked``.
    """
    return checked({name: value for name, value in options.items() if value is not None})


def from_environment() -> Fields:
    """Return the fields of Context that environment variables set.

    Raises:
        InputError: A variable has a value that it cannot have.
    """
    fields: Fields = {}
    for variable, parse in VARIABLES.items():
        text = env.read(variable)
        if text is not None:
            fields |= parse(variable, text)
    # each rank of a machine has a device of its own; DEVICE_ID says which, unless ranks share the environment
    own_device = {"device_id": current().identity.local_rank}
    return own_device | fields if own() is None else fields | own_device


def context_of(options: Mapping[str, Any]) -> Context:
    """Return the context of a process with options of a command line; they beat the environment.

    Args:
        options: Settings of ``set_context``; those that are None are not given.

    Raises:
        InputError: One of them, or a variable, has a value that it cannot have.
    """
    return replace(Context(), **(from_environment() | checked_options(options)))


def _choice(field: str, choices: type[StrEnum]) -> Parse:
    def parse(name: str, value: Any) -> Fields:
        for choice in choices:  # in upper or lower case
            if isinstance(value, str) and value.lower() == choice.lower():
                return {field: choice}
        # quotes tell whoever gave the number 2 for the text '2' what is missing
        allowed = choices if isinstance(value, str) else (repr(str(choice)) for choice in choices)
        raise InputError(f"{name} = {_shown(value)}: {', '.join(allowed)} are allowed")

    return parse


def _number(field: str) -> Parse:
    def parse(name: str, value: Any) -> Fields:
        number = None if isinstance(value, bool) else _digits(value)  # True is an int to Python
        if number is None:
            raise InputError(
                f"{name} = {_shown(value)}: a device number (0, 1, ... {MOST_DEVICES}) is expected"
            )
        return {field: number}

    return parse


def _digits(value: Any) -> int | None:
    """Return a device number from an integer or a text of digits, None where it is none."""
    if isinstance(value, int):
        return value if 0 <= value <= MOST_DEVICES else None
    return env.number(str(value), MOST_DEVICES)


def _shown(value: Any) -> str:
    """Return a value for a message, a long one cut."""
    # repr() raises ValueError for more than 4,300 digits
    if isinstance(value, int) and value.bit_length() > _LONGEST_VALUE:
        return "a number of more digits"
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _flag(field: str) -> Parse:
    def parse(name: str, value: Any) -> Fields:
        if not isinstance(value, bool):
            raise InputError(f"{name} = {value!r}: True or False is expected")
        return {field: value}

    return parse


def _memory(name: str, value: Any) -> Fields:
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    size = float(match["number"]) * _UNITS[match["unit"].upper()] if match else 0
    if not 0 < size <= _MOST_MEMORY:
        raise InputError(f"{name} = {_shown(value)}: a size such as '32GB' or '512MB' is expected")
    return {"memory_limit": int(size)}


def _ascend_config(name: str, value: Any) -> Fields:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} = {value!r}: a dictionary such as {{'precision_mode': ...}} is expected")
    fields: Fields = {}
    for key, item in value.items():
        if key in _ASCEND_CONFIG:
            _merge(fields, _ASCEND_CONFIG[key](f"{name}[{key!r}]", item))
        else:
            _log.warning("%s[%r] has no effect: %s have one", name, key, ", ".join(_ASCEND_CONFIG))
    return fields


def _switch(field: str) -> Parse:
    def parse(name: str, value: Any) -> Fields:
        if value not in ("on", "off"):  # a tuple, not a set: the value may be unhashable
            raise InputError(f"{name} = {value!r}: 'on' or 'off' is expected")
        return {field: value == "on"}

    return parse


def _dtypes(key: str) -> Parse:
    def parse(name: str, value: Any) -> Fields:
        if not isinstance(value, str) or not value:
            raise InputError(f"{name} = {_shown(value)}: the path of a file is expected")
        return {"operator_dtypes": operator_dtypes({key: value})}

    return parse


def _ge_options(name: str, value: Any) -> Fields:
    if not isinstance(value, Mapping) or not all(isinstance(section, Mapping) for section in value.values()):
        raise InputError(f"{name} = {_shown(value)}: a dictionary such as {{'global': {{...}}}} is expected")
    options = [(level, key) for level, section in value.items() for key in section]
    fields: Fields = {}
    for level, key in options:
        place = f"{name}[{level!r}][{key!r}]"
        if key in _GE_OPTIONS:
            _merge(fields, _GE_OPTIONS[key](place, value[level][key]))
        else:
            _log.warning("%s has no effect: %s have one", place, ", ".join(_GE_OPTIONS))
    return fields


def _merge(fields: Fields, more: Fields) -> None:
    """Add fields; files of operators' types that come by several keys count together."""
    earlier = fields.get("operator_dtypes", NO_OPERATOR_DTYPES)
    fields |= more
    if "operator_dtypes" in more:
        fields["operator_dtypes"] = more["operator_dtypes"].over(earlier)


_GE_OPTIONS: Final[Mapping[str, Parse]] = {
    "ge.exec.precision_mode": _choice("precision_mode", PrecisionMode),
    "ge.exec.modify_mixlist": _dtypes(MODIFY_MIXLIST),
    "ge.customizeDtypes": _dtypes(CUSTOMIZE_DTYPES),
}
"""What ``ge_options`` of ``ascend_config`` can hold, by the graph engine's names."""

_ASCEND_CONFIG: Final[Mapping[str, Parse]] = {
    "precision_mode": _choice("precision_mode", PrecisionMode),
    "fusion_switch": _switch("fuses"),
    "exception_dump": _choice("exception_dump", ExceptionDump),
    **{key: _dtypes(key) for key in KEYS},
    "ge_options": _ge_options,
}
"""What ``ascend_config`` can hold."""


SETTINGS: Final[Mapping[str, Parse]] = {
    "device_target": _choice("device_target", DeviceTarget),
    "jit_level": _choice("jit_level", JitLevel),
    "device_id": _number("device_id"),
    "reserve_class_name_in_scope": _flag("reserves_class_names"),
    "ascend_config": _ascend_config,
    "max_device_memory": _memory,
}
"""Every setting of ``set_context``."""

VARIABLES: Final[Mapping[str, Parse]] = {
    env.DEVICE_TARGET: SETTINGS["device_target"],
    env.JIT_LEVEL: SETTINGS["jit_level"],
    env.DEVICE_ID: SETTINGS["device_id"],
    env.CHECK_OVERFLOW_MODE: _choice("overflow_mode", OverflowMode),
}
"""Every environment variable that says where networks run."""
