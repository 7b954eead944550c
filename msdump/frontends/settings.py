"""MindSpore's settings (``set_context``, GE options, variables), checked, and the configured dumps."""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from msdump import env
from msdump.communication import current, own
from msdump.config import (
    CUSTOMIZE_DTYPES,
    KEYS,
    MAPPING_SOURCE,
    MODIFY_MIXLIST,
    mapping_bytes,
    operator_dtypes,
    read,
)
from msdump.config import mindspore as config
from msdump.errors import InputError
from msdump.plan import (
    NO_OPERATOR_DTYPES,
    Context,
    DeviceTarget,
    DumpPlan,
    ExceptionDump,
    JitLevel,
    OverflowMode,
    PrecisionMode,
)
from msdump.threads import new_lock

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
    """Return the fields of Context that settings of ``set_context`` set; InputError for wrong ones."""
    fields: Fields = {}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise InputError(f"set_context has no setting {name!r}; it has {', '.join(SETTINGS)}")
        fields |= SETTINGS[name](name, value)
    return fields


def checked_options(options: Mapping[str, Any]) -> Fields:
    """Return the fields that options of a command line set; None is an option that was not given."""
    return checked({name: value for name, value in options.items() if value is not None})


def from_environment() -> Fields:
    """Return the fields of Context that environment variables set; InputError for wrong ones."""
    fields: Fields = {}
    for variable, parse in VARIABLES.items():
        text = env.read(variable)
        if text is not None:
            fields |= parse(variable, text)
    # each rank of a machine has a device of its own; DEVICE_ID says which, unless ranks share the environment
    own_device = {"device_id": current().identity.local_rank}
    return own_device | fields if own() is None else fields | own_device


def context_of(options: Mapping[str, Any]) -> Context:
    """Return the context of a process with options of a command line; they beat the environment."""
    return replace(Context(), **(from_environment() | checked_options(options)))


def _choice(field: str, choices: type[StrEnum]) -> Parse:
    def parse(name: str, value: Any) -> Fields:
        for choice in choices:  # in upper or lower case
            if isinstance(value, str) and value.lower() == choice.lower():
                return {field: choice}
        # quotes show the difference between the number 2 and the text '2'
        allowed = choices if isinstance(value, str) else (repr(str(choice)) for choice in choices)
        raise InputError(f"{name} = {_shown(value)}: must be one of {', '.join(allowed)}")

    return parse


def _number(field: str) -> Parse:
    def parse(name: str, value: Any) -> Fields:
        number = None if isinstance(value, bool) else value  # True is an int to Python
        if not isinstance(number, int):
            number = env.number(str(number), MOST_DEVICES)
        if number is None or not 0 <= number <= MOST_DEVICES:
            raise InputError(f"{name} = {_shown(value)}: must be a device number (0, 1, ... {MOST_DEVICES})")
        return {field: number}

    return parse


def _shown(value: Any) -> str:
    """Return a value for a message, a long one cut."""
    # repr() raises ValueError for more than 4,300 digits
    if isinstance(value, int) and value.bit_length() > _LONGEST_VALUE:
        return "a number of more digits"
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _flag(name: str, value: Any) -> Fields:
    if not isinstance(value, bool):
        raise InputError(f"{name} = {value!r}: must be True or False")
    return {"reserves_class_names": value}


def _memory(name: str, value: Any) -> Fields:
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    size = float(match["number"]) * _UNITS[match["unit"].upper()] if match else 0
    if not 0 < size <= _MOST_MEMORY:
        raise InputError(f"{name} = {_shown(value)}: must be a size such as '32GB' or '512MB'")
    return {"memory_limit": int(size)}


def _ascend_config(name: str, value: Any) -> Fields:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} = {value!r}: must be a dictionary such as {{'precision_mode': ...}}")
    return _parsed(((f"{name}[{key!r}]", key, item) for key, item in value.items()), _ASCEND_CONFIG)


def _fusion_switch(name: str, value: Any) -> Fields:
    if value not in ("on", "off"):  # a tuple, not a set: the value may be unhashable
        raise InputError(f"{name} = {value!r}: must be 'on' or 'off'")
    return {"fuses": value == "on"}


def _dtypes(key: str) -> Parse:
    def parse(name: str, value: Any) -> Fields:
        if not isinstance(value, str) or not value:
            raise InputError(f"{name} = {_shown(value)}: must be the path of a file")
        return {"operator_dtypes": operator_dtypes({key: value})}

    return parse


def _ge_options(name: str, value: Any) -> Fields:
    if not isinstance(value, Mapping) or not all(isinstance(section, Mapping) for section in value.values()):
        raise InputError(f"{name} = {_shown(value)}: must be a dictionary such as {{'global': {{...}}}}")
    options = (
        (f"{name}[{level!r}][{key!r}]", key, item)
        for level, section in value.items()
        for key, item in section.items()
    )
    return _parsed(options, _GE_OPTIONS)


def _parsed(items: Iterable[tuple[str, str, Any]], table: Mapping[str, Parse]) -> Fields:
    """Return Context's fields of (place, key, value) items; operators' types of several keys are merged."""
    fields: Fields = {}
    for place, key, item in items:
        if key not in table:
            remedy = (
                "it is an argument of set_context itself: set_context(**config)"
                if key in SETTINGS
                else f"only {', '.join(table)} are supported"
            )
            _log.warning("%s has no effect: %s", place, remedy)
            continue
        earlier = fields.get("operator_dtypes", NO_OPERATOR_DTYPES)
        fields |= (more := table[key](place, item))
        if "operator_dtypes" in more:
            fields["operator_dtypes"] = more["operator_dtypes"].over(earlier)
    return fields


_GE_OPTIONS: Final[Mapping[str, Parse]] = {
    "ge.exec.precision_mode": _choice("precision_mode", PrecisionMode),
    "ge.exec.modify_mixlist": _dtypes(MODIFY_MIXLIST),
    "ge.customizeDtypes": _dtypes(CUSTOMIZE_DTYPES),
}
"""Keys of ``ge_options`` of ``ascend_config``, by the graph engine's names."""

_ASCEND_CONFIG: Final[Mapping[str, Parse]] = {
    "precision_mode": _choice("precision_mode", PrecisionMode),
    "fusion_switch": _fusion_switch,
    "exception_dump": _choice("exception_dump", ExceptionDump),
    **{key: _dtypes(key) for key in KEYS},
    "ge_options": _ge_options,
}
"""Keys of ``ascend_config``."""


SETTINGS: Final[Mapping[str, Parse]] = {
    "device_target": _choice("device_target", DeviceTarget),
    "jit_level": _choice("jit_level", JitLevel),
    "device_id": _number("device_id"),
    "reserve_class_name_in_scope": _flag,
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


Config = str | os.PathLike[str] | Mapping[str, Any]
"""A configuration: the path of its file, or its contents."""


class Configurations:
    """The plans of all networks of the process, each parsed once; any thread may call it."""

    def __init__(self) -> None:
        # a configuration that stands in for MINDSPORE_DUMP_CONFIG, and the option that gave it, for
        # messages
        self.substitute: tuple[Config, str] | None = None
        self.root = ""  # absolute root of the dump in place of the configuration's ``path``; "": none
        # reentrant: a warning of the parser may reach a log handler of the user that loads a network
        self._lock = new_lock()
        self._is_read = False
        self._default: tuple[str, bytes] | None = None
        self._sources: dict[str, bytes] = {}
        self._plans: dict[tuple[str, Context], DumpPlan] = {}

    def default(self, context: Context) -> DumpPlan | None:
        """Return the plan of networks without a configuration of their own; None if no variable names a file.

        The file is read once; one with faults is read again at the next call, as MindSpore does.
        """
        with self._lock:
            if not self._is_read:
                given, giver = self.substitute or (env.read(env.DUMP_CONFIG), env.DUMP_CONFIG)
                if given is not None:
                    plan = self._given(given, giver, context)
                    self._default = plan.source, plan.source_bytes
                self._is_read = True
            return None if self._default is None else self._plan(*self._default, context)

    def own(self, config: Config, context: Context) -> DumpPlan:
        """Return the plan of a network's own configuration."""
        if not isinstance(config, (str, os.PathLike, Mapping)):
            raise InputError(f"config = {config!r}: must be the path of a .json file or a dictionary")
        with self._lock:
            return self._given(config, MAPPING_SOURCE, context)

    def _given(self, config: Config, giver: str, context: Context) -> DumpPlan:
        if isinstance(config, Mapping):
            return self._plan(giver, mapping_bytes(config), context, is_mapping=True)
        path = os.fspath(config)
        return self._plan(str(Path(path).absolute()), read(path, giver), context, shown=path)

    def _plan(
        self, source: str, data: bytes, context: Context, *, shown: str = "", is_mapping: bool = False
    ) -> DumpPlan:
        """Return the plan of a configuration in a context; faults name it ``shown``, else its source."""
        # by contents, not by path alone: a file that was edited between two loads is another configuration,
        # and its warnings are logged once, however many networks share it
        names = (source if number == 1 else f"{source} ({number})" for number in itertools.count(1))
        name = next(name for name in names if self._sources.get(name, data) == data)
        if (name, context) not in self._plans:
            plan = config.parse(data, shown or source, context, has_lines=not is_mapping, root=self.root)
            self._sources[name] = data
            self._plans[name, context] = replace(plan, source=name)
        return self._plans[name, context]
