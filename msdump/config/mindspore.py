"""MINDSPORE_DUMP_CONFIG: its file, with the environment and the context of the run, becomes a DumpPlan.

MindSpore stops at the first violation; here every fault of a file is collected and raised at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from msdump import env
from msdump.config import launchers, rules
from msdump.config.faults import FaultReport, GrammarError, did_you_mean, show
from msdump.config.grammar import parse_iterations, parse_kernel
from msdump.config.models import BLOCKS
from msdump.config.plan import plan
from msdump.config.root import foreign_characters, parse_root
from msdump.config.rules import Mode
from msdump.config.settings import ABSENT, Settings
from msdump.config.source import Document, Path
from msdump.config.source import parse as parse_json
from msdump.plan import (
    Context,
    DeviceTarget,
    DumpPlan,
    JitLevel,
    OnHit,
)
from msdump.selector import DumpMode, KernelPattern, PatternKind

if TYPE_CHECKING:
    from msdump.watch.rules import WatchRule

_log = logging.getLogger("msdump.config")

_E2E: Final = "e2e_dump_settings"
_TOP_KEYS: Final = (*BLOCKS, "$schema")
_BLOCK_OF: Final = {key: name for name, model in BLOCKS.items() for key in model.model_fields}
_INPUTS_ALONE: Final = 1  # input_output
_DIAGNOSTIC_SUBDIRECTORY: Final = "/debug_dump"


def parse(data: bytes, source: str, context: Context, *, has_lines: bool = True) -> DumpPlan:
    """Return the plan of the bytes of a MINDSPORE_DUMP_CONFIG file.

    Whatever is doubtful is logged as a warning of ``msdump.config``, one line each.

    Args:
        data: The bytes.
        source: Where they come from, for messages: the path of a .json file.
        context: Device and level of the run; on Ascend without a level the presence of
            ``e2e_dump_settings`` decides between O0 and O2.
        has_lines: Whether messages tell lines, because the bytes are those of a file.

    Raises:
        ConfigSyntaxError: The bytes are not JSON.
        ConfigValueError: Values are wrong, missing or contradicting; it names them all.
    """
    document = parse_json(data, source, has_lines=has_lines)
    report = FaultReport(document)
    if not isinstance(document.value, dict):
        report.error((), f"= {show(document.value)}: the file must hold one JSON object")
        report.close()
    top = document.value
    # the level decides the mode, the mode the rules: both before any value is looked at
    context = replace(context, jit_level=_level(context, top))
    mode = _mode(context)
    _warn_of_keys(document, top, report)
    if mode is not Mode.O2:  # its directories are those of the device
        _warn_of_ranks()
    settings = _settings(top, context, mode, report)
    _read_iteration(settings, report)
    # rules first: which wrong values matter depends on the settings that are in force after them
    rules.apply(mode, settings, report)
    _report_faults(settings, mode, report)
    root = _root(settings, report)
    patterns = _patterns(settings, mode, report)
    watch_rules = _watch_rules(settings, report)
    report.close()
    return plan(document, context, mode, settings, root=root, patterns=patterns, watch_rules=watch_rules)


def _level(context: Context, top: Mapping[str, Any]) -> JitLevel | None:
    """Return Ascend's jit level: the explicit one, or the one that the file implies; else None."""
    if context.device_target is not DeviceTarget.ASCEND:
        return None
    return context.jit_level or (JitLevel.O0 if _E2E in top else JitLevel.O2)


def _mode(context: Context) -> Mode:
    if context.device_target is DeviceTarget.CPU:
        return Mode.CPU
    if context.device_target is DeviceTarget.GPU:
        return Mode.GPU
    return Mode.O2 if context.jit_level is JitLevel.O2 else Mode.O0_O1


def _warn_of_keys(document: Document, top: Mapping[str, Any], report: FaultReport) -> None:
    """Warn of keys that stand twice and of unknown keys, which MindSpore ignores without a word."""
    for path in document.duplicates:
        report.warn_of_key(path, "stands more than once in its object; the last one counts")
    _warn_of_unknown((), top, _TOP_KEYS, report)
    for name, model in BLOCKS.items():
        _warn_of_unknown((name,), top.get(name), tuple(model.model_fields), report)


def _warn_of_unknown(path: Path, block: Any, known_keys: tuple[str, ...], report: FaultReport) -> None:
    if not isinstance(block, dict):
        return
    for key in block.keys() - set(known_keys):
        hint = f" (it belongs into $.{_BLOCK_OF[key]})" if key in _BLOCK_OF else did_you_mean(key, known_keys)
        report.warn_of_key((*path, key), f"is unknown and ignored{hint}")


def _settings(top: Mapping[str, Any], context: Context, mode: Mode, report: FaultReport) -> Settings:
    uses_ge_options = mode is Mode.O2 and env.read(env.ENABLE_GE_DUMP) == "1"
    if uses_ge_options:
        _log.warning(
            "%s = 1: the GE dump is deprecated; unset it for the dump of Ascend O2", env.ENABLE_GE_DUMP
        )
    settings = Settings(
        {"device_id": context.device_id, "is_enabled": True, "uses_ge_options": uses_ge_options}
    )
    for name, model in BLOCKS.items():
        settings.load(name, model, top.get(name, ABSENT), report)
    if mode is Mode.O2:  # the block is read, so that its faults are told, and has no effect
        settings.use_defaults(BLOCKS[_E2E])
    return settings


def _read_iteration(settings: Settings, report: FaultReport) -> None:
    """Replace the text of ``iteration`` by the set that it describes."""
    if not settings.is_usable("iteration"):
        return
    try:
        settings["iteration"] = parse_iterations(settings["iteration"], for_ge=settings["uses_ge_options"])
    except GrammarError as error:
        report.error_in_text(settings.path("iteration"), error)
        settings.give_up("iteration")


def _report_faults(settings: Settings, mode: Mode, report: FaultReport) -> None:
    """Report wrong values: as faults where the mode reads them, else as warnings."""
    for fault in settings.faults:
        if rules.is_inert(fault.key, mode, settings):
            report.warn(fault.path, f"{fault.message}; not read with these settings")
        else:
            report.error(fault.path, fault.message)


def _root(settings: Settings, report: FaultReport) -> str:
    """Return the root of the dump, "" where it is faulty."""
    if not settings.is_usable("path"):
        return ""
    path, text, base = settings.path("path"), settings["path"], env.read(env.DIAGNOSTIC_DATA_PATH)
    if not text and not base:
        report.error(path, f"is missing or empty: give an absolute path, or set {env.DIAGNOSTIC_DATA_PATH}")
        return ""
    configured = text or f"{base}{_DIAGNOSTIC_SUBDIRECTORY}"
    try:
        root = parse_root(configured)
    except GrammarError as error:
        if text:
            report.error_in_text(path, error)
        else:
            report.error_outside(error, env.DIAGNOSTIC_DATA_PATH)
        return ""
    if foreign := foreign_characters(root):
        warning = f"= {show(configured)}: MindSpore itself refuses a path with {foreign!r}"
        if text:
            report.warn(path, warning)
        else:
            report.warn_outside(env.DIAGNOSTIC_DATA_PATH, warning)
    return root


def _patterns(settings: Settings, mode: Mode, report: FaultReport) -> tuple[KernelPattern, ...]:
    """Return the patterns of ``kernels``, none where the file's dump_mode is not 1; report faulty ones.

    An item that is no text is skipped here: it is among the faults of the settings.
    """
    if not settings.is_usable("dump_mode") or settings.as_configured("dump_mode") != DumpMode.KERNELS:
        return ()
    patterns: dict[tuple[PatternKind, str], KernelPattern] = {}
    for index, item in enumerate(settings.items("kernels")):
        if not isinstance(item, str):
            continue
        path = (*settings.path("kernels"), index)
        pattern = _pattern(item, path, mode, report)
        if pattern is None:
            continue
        if (pattern.kind, pattern.text) in patterns:
            report.warn(path, f"= {show(item)}: stands more than once")
        patterns.setdefault((pattern.kind, pattern.text), pattern)
    return tuple(patterns.values())


def _watch_rules(settings: Settings, report: FaultReport) -> tuple[WatchRule, ...]:
    """Return the rules of ``watch``; faulty ones are reported."""
    if not settings.is_usable("watch") or not settings.items("watch"):
        return ()
    from msdump.config import watch

    path = settings.path("watch")
    watch_rules = watch.parse(settings.items("watch"), path, report)
    for index, rule in enumerate(watch_rules):
        if rule.reads_overflows and settings["input_output"] == _INPUTS_ALONE:
            report.error((*path, index), "tells by outputs, which input_output = 1 leaves out")
        if rule.compares_ranks and settings["on_hit"] == OnHit.DUMP and not settings["history"]:
            message = (
                "compares ranks at the end of a step, when only a history still has its tensors: give "
                "history, or 'on_hit': 'log' or 'stop'"
            )
            report.error((*path, index), message)
    return watch_rules


def _pattern(item: str, path: Path, mode: Mode, report: FaultReport) -> KernelPattern | None:
    try:
        pattern = parse_kernel(item, searches=mode is Mode.O2)
    except GrammarError as error:
        report.error_in_text(path, error)
        return None
    if pattern and mode is Mode.O2 and pattern.kind is PatternKind.TYPE:
        hint = "Ascend O2 documents full names and name-regex(...), not types"
        report.warn(path, f"= {show(item)}: {hint}")
    return pattern and replace(pattern, place=report.place(path))


def _warn_of_ranks() -> None:
    """Warn of ranks without a number of ranks, by which no launcher distributes a process."""
    # vendor: MindSpore's rank directory follows the initialised communication, RANK_ID alone changes nothing
    for name, text in launchers.ranks_without_size():
        _log.warning("%s = %r has no effect: there is one rank, its files go to rank_0", name, text)
