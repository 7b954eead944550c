"""MindSpore's settings, once they are checked and corrected, as a DumpPlan."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as File
from typing import TYPE_CHECKING, Final

from msdump import env
from msdump.config.acl import environment
from msdump.config.dtypes.files import KEYS, operator_dtypes
from msdump.config.rules import ASCEND_MODES, Mode
from msdump.config.settings import Settings
from msdump.config.source import Document
from msdump.plan import (
    Context,
    DumpPlan,
    ExceptionDump,
    Existing,
    FileFormat,
    FilePlan,
    ModelDump,
    Naming,
    OnHit,
    OnWriteError,
    PrecisionMode,
    Scene,
    StatisticSpec,
    Tree,
    Trigger,
    WatchPlan,
    What,
    When,
)
from msdump.precision.operator_dtypes import NO_OPERATOR_DTYPES, OperatorDtypes
from msdump.precision.optimization import Optimization
from msdump.selector import DumpMode, KernelPattern, Selector
from msdump.statistics.table import CATEGORIES

if TYPE_CHECKING:
    from msdump.watch.rules import WatchRule

_log = logging.getLogger("msdump.config")

_WITH_INPUTS: Final = (0, 1)  # values of input_output
_WITH_OUTPUTS: Final = (0, 2)


def plan(
    document: Document,
    context: Context,
    mode: Mode,
    settings: Settings,
    *,
    root: str,
    patterns: tuple[KernelPattern, ...],
    watch_rules: tuple[WatchRule, ...] = (),
) -> DumpPlan:
    """Return the plan of a document.

    Args:
        document: The configuration file.
        context: Where the network runs.
        mode: The same, as the rules between keys know it.
        settings: The values of its keys.
        root: Absolute root of the dump.
        patterns: Items of ``kernels``.
        watch_rules: Items of ``watch``.

    Raises:
        ConfigError: A file that it names is missing or faulty.
    """
    return DumpPlan(
        source=document.source,
        source_bytes=document.data,
        context=replace(context, fuses=context.fuses and settings["fusion_switch"] == "on"),
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
        precision_mode=_precision_mode(context, settings),
        operator_dtypes=_operator_dtypes(context, settings),
        optimization=Optimization(settings["optimize"]),
    )


def _files(root: str, mode: Mode, settings: Settings) -> FilePlan:
    return FilePlan(
        path=root,
        net_name=settings["net_name"],
        tree=_tree(mode, settings),
        file_format=_file_format(mode, settings),
        keeps_tensors=settings["saved_data"] != "statistic",
        naming=Naming(settings["naming"]),
        existing=Existing(settings["existing"]),
        on_write_error=OnWriteError(settings["on_write_error"]),
        is_async=mode in ASCEND_MODES and not settings["enable"],
        queue_bytes=settings["queue_bytes"],
        writer_threads=settings["writer_threads"],
        max_bytes=settings["max_bytes"],
    )


def _file_format(mode: Mode, settings: Settings) -> FileFormat:
    return FileFormat(settings["file_format"]) if mode is Mode.O2 else FileFormat.NPY


def _what(mode: Mode, settings: Settings, patterns: tuple[KernelPattern, ...]) -> What:
    dump_mode = DumpMode(settings["dump_mode"])
    return What(
        selector=Selector(dump_mode, patterns if dump_mode is DumpMode.KERNELS else ()),
        keeps_inputs=settings["input_output"] in _WITH_INPUTS,
        keeps_outputs=settings["input_output"] in _WITH_OUTPUTS,
        drops_useless=_drops_useless(mode),
        sample_count=settings["sample_num"] if settings["sample_mode"] else None,
        keeps_device_format=_keeps_device_format(mode, _file_format(mode, settings), settings),
        saves_kernel_args=settings["save_kernel_args"],
    )


def _compiled(mode: Mode, context: Context, settings: Settings) -> ModelDump:
    is_failure = settings["op_debug_mode"] == Trigger.EXCEPTION
    is_exception_dump = mode is Mode.O2 and (is_failure or _dumps_exceptions(context))
    return ModelDump(
        scene=Scene.LITE_EXCEPTION if mode is Mode.O2 and is_failure else None,
        exception_path=environment.path() or str(File.cwd()) if is_exception_dump else "",
        shows_graph=bool(settings["uses_ge_options"]),
    )


def _dumps_exceptions(context: Context) -> bool:
    """Tell whether a failing operator is dumped beside everything else, under Ascend O2."""
    if context.exception_dump is ExceptionDump.LITE:
        _log.warning(
            "ascend_config['exception_dump'] = '2' is not supported where Ascend O2 dumps; "
            "use '1', or op_debug_mode 4"
        )
    return context.exception_dump is ExceptionDump.FULL


def _tree(mode: Mode, settings: Settings) -> Tree:
    if mode is not Mode.O2:
        return Tree.RANKS
    return Tree.MODELS if settings["uses_ge_options"] else Tree.STEPS


def _statistics(settings: Settings) -> StatisticSpec | None:
    if settings["saved_data"] == "tensor":
        return None
    return StatisticSpec(
        categories=_categories(settings["statistic_category"]),
        on_device=settings["stat_calc_mode"] == "device",
        high_precision=settings["device_stat_precision_mode"] == "high",
    )


def _categories(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the user's list, in its order; the names of hashes are those after MindSpore 2.7.

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


def _precision_mode(context: Context, settings: Settings) -> PrecisionMode | None:
    if context.jit_level is None or not settings.has("precision_mode"):
        return None
    return PrecisionMode(settings["precision_mode"])


def _operator_dtypes(context: Context, settings: Settings) -> OperatorDtypes:
    if context.jit_level is None:
        return NO_OPERATOR_DTYPES
    return operator_dtypes({key: settings[key] for key in KEYS})


def _keeps_device_format(mode: Mode, file_format: FileFormat, settings: Settings) -> bool:
    """Tell whether tensors keep the device's format; on CPU and GPU it is the host's."""
    if mode is Mode.O2:
        return file_format is FileFormat.BIN
    return mode is Mode.O0_O1 and not settings["trans_flag"]


def _drops_useless(mode: Mode) -> bool:
    """Tell whether useless outputs are left out: MINDSPORE_DUMP_IGNORE_USELESS_OUTPUT is not "0"."""
    value = env.read(env.IGNORE_USELESS_OUTPUT)
    text = value or "1"
    if text not in {"0", "1"}:
        _log.warning("%s = %r: 0 and 1 are allowed; 1 is taken", env.IGNORE_USELESS_OUTPUT, text)
    elif value and mode in {Mode.CPU, Mode.O2}:  # vendor: MindSpore's CPU writes Print's empty output
        _log.warning(
            "%s = %r has no effect under %s, which dumps every output",
            env.IGNORE_USELESS_OUTPUT,
            value,
            mode.value,
        )
    return text != "0"
