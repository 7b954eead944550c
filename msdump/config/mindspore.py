"""MINDSPORE_DUMP_CONFIG: its file, with the environment and the context of the run, becomes a DumpPlan.

MindSpore stops at the first violation; here every fault of a file is collected and raised at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as File
from typing import TYPE_CHECKING, Any, Final

from msdump import env
from msdump.config import launchers, rules
from msdump.config.acl.plan import exception_path
from msdump.config.dtypes import KEYS, operator_dtypes
from msdump.config.grammar import foreign_characters, parse_iterations, parse_kernel, parse_root
from msdump.config.models import BLOCKS
from msdump.config.rules import ASCEND_MODES, Mode
from msdump.config.settings import ABSENT, Settings
from msdump.config.source import FaultReport, GrammarError, show
from msdump.config.source import parse as parse_json
from msdump.plan import (
    Context,
    DeviceTarget,
    DumpPlan,
    ExceptionDump,
    Existing,
    FileFormat,
    FilePlan,
    JitLevel,
    ModelDump,
    Naming,
    OnHit,
    OnWriteError,
    Optimization,
    PrecisionMode,
    Scene,
    StatisticSpec,
    Tree,
    Trigger,
    WatchPlan,
    What,
    When,
)
from msdump.selector import DumpMode, KernelPattern, PatternKind, Selector
from msdump.statistics import CATEGORIES

if TYPE_CHECKING:
    from msdump.watch import WatchRule

_log = logging.getLogger("msdump.config")

_E2E: Final = "e2e_dump_settings"
_TOP_KEYS: Final = (*BLOCKS, "$schema")
_BLOCK_OF: Final = {key: name for name, model in BLOCKS.items() for key in model.model_fields}
_INPUTS_ALONE: Final = 1  # input_output
_DIAGNOSTIC_SUBDIRECTORY: Final = "/debug_dump"


def parse(data: bytes, source: str, context: Context, *, has_lines: bool = True, root: str = "") -> DumpPlan:
    """Return the plan of the bytes of a MINDSPORE_DUMP_CONFIG file.

    Whatever is doubtful is logged as a warning of ``msdump.config``, one line each.

    Args:
        data: The bytes.
        source: Where they come from, for messages: the path of a .json file.
        context: Device and level of the run; on Ascend without a level the presence of
            ``e2e_dump_settings`` decides between O0 and O2.
        has_lines: Whether messages name lines, because the bytes come from a file.
        root: Absolute root of the dump in place of ``path``; "": none.

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
    mode, level = _mode(context, top)
    context = replace(context, jit_level=level)
    report.warn_of_duplicates()
    report.warn_of_keys((), top, _TOP_KEYS, _BLOCK_OF)
    for name, model in BLOCKS.items():
        if isinstance(top.get(name), dict):
            report.warn_of_keys((name,), top[name], model.model_fields, _BLOCK_OF)
    if mode is not Mode.O2:  # its directories are named after the device
        # vendor: MindSpore's rank directory follows the initialised communication, RANK_ID changes nothing
        for name, text in launchers.ranks_without_size():
            _log.warning("%s = %r has no effect: there is one rank, and files go to rank_0", name, text)
    settings = _settings(top, context, mode, report)
    # rules first: which wrong values matter depends on the settings that are in force after them
    rules.apply(mode, settings, report)
    for fault in settings.faults:
        if rules.is_inert(fault.key, mode, settings):
            report.warn(fault.path, f"{fault.message}; ignored under the present settings")
        else:
            report.error(fault.path, fault.message)
    root = _root(settings, report) if not root or not settings.is_usable("path") else root
    patterns = _patterns(settings, mode, report)
    watch_rules = _watch_rules(settings, report)
    report.close()
    is_ascend = context.jit_level is not None
    has_precision = is_ascend and settings.has("precision_mode")
    return DumpPlan(
        source=document.source,
        source_bytes=document.data,
        context=replace(
            context,
            fuses=context.fuses and settings["fusion_switch"] == "on",
            has_loaded_scopes=settings["scopes"] == "loaded",
        ),
        files=_files(root, mode, settings),
        what=_what(mode, settings, patterns),
        when=When(
            iterations=settings["iteration"],
            initial_iteration=settings["initial_iteration"],
            trigger=Trigger(settings["op_debug_mode"]),
            overflow_limit=settings["overflow_number"],
        ),
        statistics=_statistics(settings),
        compiled=_compiled(mode, context, settings),
        watch=WatchPlan(
            watch_rules, OnHit(settings["on_hit"]), settings["history"], settings["history_bytes"]
        ),
        is_enabled=settings["is_enabled"],
        precision_mode=PrecisionMode(settings["precision_mode"]) if has_precision else None,
        operator_dtypes=operator_dtypes({key: settings[key] for key in KEYS if is_ascend}),
        optimization=Optimization(settings["optimize"]),
    )


def _mode(context: Context, top: Mapping[str, Any]) -> tuple[Mode, JitLevel | None]:
    """Return the mode, and Ascend's jit level: the explicit one, or the one that the file implies."""
    if context.device_target is DeviceTarget.ASCEND:
        level = context.jit_level or (JitLevel.O0 if _E2E in top else JitLevel.O2)
        return (Mode.O2 if level is JitLevel.O2 else Mode.O0_O1), level
    return (Mode.CPU if context.device_target is DeviceTarget.CPU else Mode.GPU), None


def _settings(top: Mapping[str, Any], context: Context, mode: Mode, report: FaultReport) -> Settings:
    """Return the values of all keys, and the set that the text of ``iteration`` describes."""
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
    if mode is Mode.O2:  # the block is read for its faults, and has no effect
        settings.use_defaults(BLOCKS[_E2E])
    if settings.is_usable("iteration"):
        try:
            settings["iteration"] = parse_iterations(settings["iteration"], for_ge=uses_ge_options)
        except GrammarError as error:
            report.error_in_text(settings.path("iteration"), error)
            settings.give_up("iteration")
    return settings


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
        report.error_in_text(path, error, "" if text else env.DIAGNOSTIC_DATA_PATH)
        return ""
    if foreign := foreign_characters(root):
        warning = f"= {show(configured)}: MindSpore refuses a path with {foreign!r}"
        if text:
            report.warn(path, warning)
        else:
            report.warn_of_variable(env.DIAGNOSTIC_DATA_PATH, warning)
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
        try:
            pattern = parse_kernel(item, searches=mode is Mode.O2)
        except GrammarError as error:
            report.error_in_text(path, error)
            continue
        if pattern is None:
            continue
        if mode is Mode.O2 and pattern.kind is PatternKind.TYPE:
            hint = "MindSpore documents full names and name-regex(...) for Ascend O2, not types"
            report.warn(path, f"= {show(item)}: {hint}")
        if (pattern.kind, pattern.text) in patterns:
            report.warn(path, f"= {show(item)}: is listed more than once")
        if pattern.kind is PatternKind.REGEX:  # the only kind that may fail later
            pattern = replace(pattern, place=report.place(path))
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
            report.error(
                (*path, index),
                "reads outputs, but input_output = 1 leaves them out; set input_output to 0 or 2",
            )
        if rule.compares_ranks and settings["on_hit"] == OnHit.DUMP and not settings["history"]:
            message = (
                "compares ranks at the end of a step and needs the tensors of the step: set "
                "history to 1 or more, "
                "or on_hit to 'log' or 'stop'"
            )
            report.error((*path, index), message)
    return watch_rules


_WITH_INPUTS: Final = (0, 1)  # values of input_output
_WITH_OUTPUTS: Final = (0, 2)


def _files(root: str, mode: Mode, settings: Settings) -> FilePlan:
    compiled = Tree.MODELS if settings["uses_ge_options"] else Tree.STEPS
    return FilePlan(
        path=root,
        net_name=settings["net_name"],
        tree=compiled if mode is Mode.O2 else Tree.RANKS,
        file_format=FileFormat(settings["file_format"]) if mode is Mode.O2 else FileFormat.NPY,
        keeps_tensors=settings["saved_data"] != "statistic",
        naming=Naming(settings["naming"]),
        existing=Existing(settings["existing"]),
        on_write_error=OnWriteError(settings["on_write_error"]),
        is_async=mode in ASCEND_MODES and not settings["enable"],
        queue_bytes=settings["queue_bytes"],
        writer_threads=settings["writer_threads"],
        max_bytes=settings["max_bytes"],
    )


def _what(mode: Mode, settings: Settings, patterns: tuple[KernelPattern, ...]) -> What:
    dump_mode = DumpMode(settings["dump_mode"])
    value = env.read(env.IGNORE_USELESS_OUTPUT)
    text = value or "1"
    if text not in {"0", "1"}:
        _log.warning("%s = %r: must be 0 or 1; 1 is used", env.IGNORE_USELESS_OUTPUT, text)
    elif value and mode in {Mode.CPU, Mode.O2}:  # vendor: MindSpore's CPU writes Print's empty output
        _log.warning(
            "%s = %r has no effect under %s: every output is dumped",
            env.IGNORE_USELESS_OUTPUT,
            value,
            mode.value,
        )
    return What(
        selector=Selector(dump_mode, patterns if dump_mode is DumpMode.KERNELS else ()),
        keeps_inputs=settings["input_output"] in _WITH_INPUTS,
        keeps_outputs=settings["input_output"] in _WITH_OUTPUTS,
        drops_useless=(text != "0"),
        sample_count=settings["sample_num"] if settings["sample_mode"] else None,
        # on CPU and GPU the device's format is the host's
        keeps_device_format=settings["file_format"] == "bin"
        if mode is Mode.O2
        else mode is Mode.O0_O1 and not settings["trans_flag"],
        saves_kernel_args=settings["save_kernel_args"],
        has_unused_kernels=dump_mode is not DumpMode.KERNELS and bool(settings.items("kernels")),
    )


def _compiled(mode: Mode, context: Context, settings: Settings) -> ModelDump:
    is_failure = settings["op_debug_mode"] == Trigger.EXCEPTION
    if mode is Mode.O2 and not is_failure and context.exception_dump is ExceptionDump.LITE:
        _log.warning(
            "ascend_config['exception_dump'] = '2' is not supported where Ascend O2 dumps; "
            "use '1', or op_debug_mode 4"
        )
    # '1': a failing operator is dumped beside everything else
    is_exception_dump = mode is Mode.O2 and (is_failure or context.exception_dump is ExceptionDump.FULL)
    return ModelDump(
        scene=Scene.LITE_EXCEPTION if mode is Mode.O2 and is_failure else None,
        exception_path=exception_path() or str(File.cwd()) if is_exception_dump else "",
        shows_graph=bool(settings["uses_ge_options"]),
    )


def _statistics(settings: Settings) -> StatisticSpec | None:
    if settings["saved_data"] == "tensor":
        return None
    return StatisticSpec(
        categories=_categories(settings["statistic_category"]),
        on_device=settings["stat_calc_mode"] == "device",
        high_precision=settings["device_stat_precision_mode"] == "high",
    )


def _categories(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the user's list, in its order; hashes have their names since MindSpore 2.7.

    >>> _categories(["max", "max", "hash", "hash:sha1"])
    ('max', 'max', 'sha1')
    """
    # vendor: MindSpore keeps a statistic that is listed twice, but not a hash under two of its names
    columns: list[str] = []
    for name in names:
        column = CATEGORIES[name]
        if column == name or column not in columns:
            columns.append(column)
    return tuple(columns)
