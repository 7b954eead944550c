"""Demands between the keys of MINDSPORE_DUMP_CONFIG, mode by mode: one table, ``RULES``.

The demands stand in MindSpore's dump documents. Where MindSpore itself takes a contradiction in silence and
dumps something else, a rule warns or refuses.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from msdump.config.dtypes import KEYS
from msdump.config.settings import Settings, UnusableError
from msdump.config.source import FaultReport, choice, show
from msdump.plan import Trigger
from msdump.selector import DumpMode, IterationSet
from msdump.statistics import ON_DEVICE


class Mode(enum.Enum):
    """The four sets of rules."""

    CPU = "CPU"
    GPU = "GPU"
    O0_O1 = "Ascend O0/O1"
    O2 = "Ascend O2"


_ALL: Final = frozenset(Mode)
_CPU: Final = frozenset({Mode.CPU})
_HOST: Final = frozenset({Mode.CPU, Mode.GPU})
ASCEND_MODES: Final = frozenset({Mode.O0_O1, Mode.O2})
_O0_O1: Final = frozenset({Mode.O0_O1})
_O2: Final = frozenset({Mode.O2})

_PRECISION: Final = ("precision_mode", *KEYS)
"""Keys that say how the device computes."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One demand on the settings."""

    modes: frozenset[Mode]  # modes in which it holds
    key: str  # the key that the message names, with the value that a consequence replaces
    when: Callable[[Settings], bool]  # returns whether the settings violate it
    then: Consequence  # consequence of a violation: an error, a warning, another value
    why: str  # the reason, for the message; ``{key}`` stands for the value of a key


Consequence: TypeAlias = Callable[[Rule, Settings, FaultReport], None]


def apply(mode: Mode, settings: Settings, report: FaultReport) -> None:
    """Apply every rule of a mode in the order of the table; later rules see forced values."""
    for rule in RULES:
        if mode in rule.modes and _is_violated(rule, settings):
            rule.then(rule, settings, report)


def refuse(rule: Rule, settings: Settings, report: FaultReport) -> None:
    """Report a fault."""
    report.error(settings.path(rule.key), _message(rule, settings))
    settings.give_up(rule.key)


def note(rule: Rule, settings: Settings, report: FaultReport) -> None:
    """Warn and keep the value."""
    report.warn(settings.path(rule.key), _message(rule, settings))


def use(value: Any) -> Consequence:
    """Return a consequence that warns and replaces the key's value."""

    def force(rule: Rule, settings: Settings, report: FaultReport) -> None:
        report.warn(settings.path(rule.key), f"{_message(rule, settings)}; {_show(value)} is used")
        settings[rule.key] = value

    return force


def disable(rule: Rule, settings: Settings, report: FaultReport) -> None:
    """Warn and dump nothing."""
    note(rule, settings, report)
    settings["is_enabled"] = False


def keep_device_statistics(rule: Rule, settings: Settings, report: FaultReport) -> None:
    """Warn and drop the statistics that the device does not compute."""
    supported = [category for category in settings[rule.key] if category in ON_DEVICE]
    use(supported)(rule, settings, report)


# The order counts: a rule sees the values that earlier rules have put in place of the file's.
RULES: Final = (
    # How the dump runs
    # vendor: MindSpore's CPU dumps with enable false, or without it, all the same
    Rule(_HOST, "enable", lambda s: not s["enable"], use(True), "MindSpore documents true for CPU and GPU"),
    # MindSpore 2.7 warns three times here, a second apart, and then dumps nothing
    Rule(
        _O0_O1,
        "e2e_dump_settings",
        lambda s: not s.has("e2e_dump_settings"),
        note,
        'the dump is asynchronous; add {{"enable": true}} for a synchronous one',
    ),
    Rule(
        _O2,
        "e2e_dump_settings",
        lambda s: s.has("e2e_dump_settings"),
        note,
        "has no effect under jit_level O2",
    ),
    # vendor: the CPU dumps whatever list support_device holds, [] and [-1] too
    Rule(
        _ALL - _CPU,
        "support_device",
        lambda s: s["device_id"] not in s["support_device"],
        disable,
        "device {device_id} is not in the list: nothing is dumped",
    ),
    Rule(
        _ALL,
        "support_device",
        lambda s: len(set(s["support_device"])) < len(s["support_device"]),
        note,
        "a device is listed twice",
    ),
    # Triggers
    Rule(
        _O2,
        "op_debug_mode",
        lambda s: not s.has("op_debug_mode"),
        refuse,
        "Ascend O2 requires 0 (off), 3 (overflowing operators) or 4 (the failing operator)",
    ),
    # MindSpore's CPU takes 3 for 0, and writes parameters alone under 4
    Rule(
        _HOST,
        "op_debug_mode",
        lambda s: s["op_debug_mode"] != Trigger.ALWAYS,
        refuse,
        "only Ascend detects overflows and exceptions; use 0 on CPU and GPU",
    ),
    # older MindSpores: 1 is an overflow of the AI Core, 2 of an atomic addition
    Rule(
        ASCEND_MODES,
        "op_debug_mode",
        lambda s: s["op_debug_mode"] in (1, 2),
        use(3),
        "an old value for overflow detection",
    ),
    Rule(
        _O2,
        "op_debug_mode",
        lambda s: s["op_debug_mode"] == Trigger.EXCEPTION and s["uses_ge_options"],
        refuse,
        "not possible with ENABLE_MS_GE_DUMP=1; use 0 or 3, or unset the variable",
    ),
    # vendor: the key itself is refused, with the value 0 too, which would change nothing
    Rule(
        _ALL,
        "overflow_number",
        lambda s: s.has("overflow_number") and s["op_debug_mode"] != Trigger.OVERFLOW,
        refuse,
        "has an effect only with op_debug_mode 3; remove it",
    ),
    Rule(
        _O2,
        "overflow_number",
        lambda s: s["overflow_number"] != 0 and s["file_format"] != "npy",
        use(0),
        "has an effect only with file_format 'npy'",
    ),
    # Consequences of a trigger
    Rule(
        ASCEND_MODES,
        "dump_mode",
        lambda s: s["op_debug_mode"] != Trigger.ALWAYS and s["dump_mode"] != 0,
        use(0),
        "op_debug_mode {op_debug_mode} chooses the operators",
    ),
    Rule(
        ASCEND_MODES,
        "iteration",
        lambda s: s["op_debug_mode"] == Trigger.EXCEPTION and s["iteration"].spans is not None,
        use(IterationSet()),
        "op_debug_mode 4 covers every iteration",
    ),
    Rule(
        _O2,
        "iteration",
        lambda s: s["op_debug_mode"] == Trigger.OVERFLOW and s["iteration"].spans is not None,
        use(IterationSet()),
        "op_debug_mode 3 covers every iteration under Ascend O2",
    ),
    Rule(
        ASCEND_MODES,
        "input_output",
        lambda s: s["op_debug_mode"] == Trigger.OVERFLOW and s["input_output"] != 0,
        use(0),
        "op_debug_mode 3 dumps inputs and outputs",
    ),
    Rule(
        ASCEND_MODES,
        "input_output",
        lambda s: s["op_debug_mode"] == Trigger.EXCEPTION and s["input_output"] != 1,
        use(1),
        "op_debug_mode 4 dumps the inputs of the failing operator",
    ),
    # Statistics
    Rule(
        ASCEND_MODES,
        "saved_data",
        lambda s: s["op_debug_mode"] == Trigger.EXCEPTION and s["saved_data"] != "tensor",
        use("tensor"),
        "op_debug_mode 4 has no statistics",
    ),
    # MindSpore writes statistics on overflow, although its documents exclude them
    Rule(
        ASCEND_MODES,
        "saved_data",
        lambda s: s["op_debug_mode"] == Trigger.OVERFLOW and s["saved_data"] != "tensor",
        note,
        "MindSpore documents statistics only for op_debug_mode 0",
    ),
    Rule(
        _CPU,
        "saved_data",
        lambda s: s["saved_data"] != "tensor",
        refuse,
        "the CPU has no statistics; use 'tensor', or device_target GPU or Ascend",
    ),
    Rule(
        _O2,
        "saved_data",
        lambda s: s["saved_data"] != "tensor" and s["file_format"] != "npy",
        refuse,
        "statistics under Ascend O2 need file_format 'npy'",
    ),
    Rule(
        _HOST,
        "stat_calc_mode",
        lambda s: s["stat_calc_mode"] == "device",
        use("host"),
        "only Ascend computes statistics on the device",
    ),
    Rule(
        _O0_O1,
        "stat_calc_mode",
        lambda s: s["stat_calc_mode"] == "device" and s["saved_data"] != "statistic",
        use("host"),
        "the device computes statistics only with saved_data 'statistic'",
    ),
    Rule(
        _O0_O1,
        "stat_calc_mode",
        lambda s: s["stat_calc_mode"] == "device" and s["op_debug_mode"] == Trigger.OVERFLOW,
        use("host"),
        "op_debug_mode 3 computes statistics on the host",
    ),
    Rule(
        _O0_O1,
        "statistic_category",
        lambda s: s["stat_calc_mode"] == "device" and not set(s["statistic_category"]) <= set(ON_DEVICE),
        keep_device_statistics,
        f"the device computes only {choice(ON_DEVICE, 'and')}",
    ),
    # Sampling, side files, formats, precision
    Rule(
        _HOST, "sample_mode", lambda s: s["sample_mode"] != 0, use(0), "only Ascend O0 and O1 sample tensors"
    ),
    Rule(
        _O0_O1,
        "sample_mode",
        lambda s: s["sample_mode"] != 0 and s["op_debug_mode"] != Trigger.ALWAYS,
        use(0),
        "op_debug_mode {op_debug_mode} dumps whole tensors",
    ),
    Rule(
        _O0_O1,
        "save_kernel_args",
        lambda s: s["save_kernel_args"] and not s["enable"],
        use(False),
        "an asynchronous dump saves no kernel arguments",
    ),
    # MindSpore looks at the value under O2 alone and takes any text elsewhere: see INERT too
    Rule(
        _ALL - _O2,
        "file_format",
        lambda s: s.has("file_format"),
        note,
        "has an effect only under Ascend O2; npy files are written",
    ),
    *(
        Rule(_HOST, key, lambda s, key=key: s.has(key), note, "has an effect only on Ascend")  # type: ignore[misc]
        for key in _PRECISION
    ),
    Rule(
        _ALL - _O2,
        "fusion_switch",
        lambda s: s.has("fusion_switch"),
        note,
        "has an effect only under Ascend O2",
    ),
)

INERT: Final[dict[str, Callable[[Mode, Settings], bool]]] = {
    "kernels[]": lambda _, s: s.as_configured("dump_mode") != DumpMode.KERNELS,
    "statistic_category": lambda _, s: s["saved_data"] == "tensor",
    "statistic_category[]": lambda _, s: s["saved_data"] == "tensor",
    "sample_num": lambda _, s: s.as_configured("sample_mode") == 0,
    "file_format": lambda mode, _: mode is not Mode.O2,
    **dict.fromkeys(_PRECISION, lambda mode, _: mode in _HOST),
    "fusion_switch": lambda mode, _: mode is not Mode.O2,
}
"""Keys whose wrong value only warns, and when: MindSpore does not look at them then. It looks at the
value that the file gives another key, also where it goes on with another one."""


def is_inert(key: str, mode: Mode, settings: Settings) -> bool:
    """Tell whether nothing reads a key (``key[]``: the items of its list) with these settings."""
    try:
        return key in INERT and INERT[key](mode, settings)
    except UnusableError:
        return False


def _is_violated(rule: Rule, settings: Settings) -> bool:
    try:
        return settings.is_usable(rule.key) and rule.when(settings)
    except UnusableError:
        return False


def _message(rule: Rule, settings: Settings) -> str:
    return f"{_stated(rule.key, settings)}: {rule.why.format_map(settings)}"


def _stated(key: str, settings: Settings) -> str:
    """Return a key's state in the file: its value, or that it is missing."""
    if not settings.has(key):
        return "is missing"
    return "is given" if len(settings.path(key)) == 1 else f"= {_show(settings[key])}"


def _show(value: Any) -> str:
    return show(str(value) if isinstance(value, IterationSet) else value)
