"""acl.json, and the environment variables of acl's exception dump, become DumpPlans."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from msdump import env
from msdump.config.acl.faults import AclCode, AclFaults, read_file
from msdump.config.acl.rules import (
    BlackListEntry,
    DumpListItem,
    DumpSection,
    check_constraints,
    check_values,
    iterations,
    remote_path,
    typed,
)
from msdump.config.dtypes import KEYS, operator_dtypes
from msdump.config.models import MsdumpSettings
from msdump.config.settings import allowed_of
from msdump.config.source import Document, FaultReport, show
from msdump.config.source import parse as parse_json
from msdump.errors import AclError, ConfigSyntaxError
from msdump.plan import (
    DEFAULT_STATISTICS,
    Blocked,
    Context,
    DumpLevel,
    DumpPlan,
    Existing,
    FileFormat,
    FilePlan,
    ModelDump,
    ModelItem,
    OnWriteError,
    OperatorStatistic,
    Optimization,
    PrecisionMode,
    Scene,
    Tree,
    Trigger,
    What,
    When,
)
from msdump.selector import IterationSet

_log = logging.getLogger("msdump.config")
_EVERYTHING: Final = (ModelItem(),)

_SCENES: Final = (Scene.BRIEF_EXCEPTION, Scene.NORM_EXCEPTION, Scene.DETAIL_EXCEPTION)
_PATHS: Final = (env.ASCEND_DUMP_PATH, env.ASCEND_WORK_PATH)
"""Variables of the path, in order of precedence."""


def exception_plan(context: Context) -> DumpPlan | None:
    """Return the exception dump that the environment turns on, None where it does not.

    ASCEND_DUMP_SCENE names the scene; else a usable NPU_COLLECT_PATH turns the norm scene on.
    """
    scene = env.read(env.ASCEND_DUMP_SCENE)
    if scene in _SCENES:
        path = exception_path() or str(Path.cwd())
        return _exception_plan(Scene(scene), path, env.ASCEND_DUMP_SCENE, context)
    if scene is not None:
        allowed = "/".join(sorted(_SCENES))
        _log.warning("%s = %r has no effect: it must be %s", env.ASCEND_DUMP_SCENE, scene, allowed)
    collected = _usable(env.NPU_COLLECT_PATH)
    if collected is not None:
        return _exception_plan(Scene.NORM_EXCEPTION, collected, env.NPU_COLLECT_PATH, context)
    return None


def exception_path() -> str | None:
    """Return the directory of exception dumps that ASCEND_DUMP_PATH or ASCEND_WORK_PATH names.

    It is made where it is missing; None where neither variable names one that can be used.
    """
    return next(filter(None, map(_usable, _PATHS)), None)


def _usable(name: str) -> str | None:
    """Return the directory that a variable names, None where it cannot be made or used."""
    text = env.read(name)
    if text is None:
        return None
    directory = Path(text).absolute()
    try:
        _make(directory)
    except (OSError, ValueError) as error:
        _log.warning("%s = %r is skipped: the directory cannot be made: %s", name, text, error)
        return None
    if not os.access(directory, os.R_OK | os.W_OK):
        _log.warning("%s = %r is skipped: the directory is not readable and writable", name, text)
        return None
    return str(directory)


def _make(directory: Path) -> None:
    """Make a directory and missing parents, each 0700; mkdir gives that mode to the last one alone."""
    if not directory.is_dir():
        _make(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def _exception_plan(scene: Scene, directory: str, source: str, context: Context) -> DumpPlan:
    return DumpPlan(
        source=source,
        source_bytes=b"",
        context=context,
        files=FilePlan(path=directory, file_format=FileFormat.BIN, tree=Tree.MODELS),
        what=What(keeps_device_format=True),
        when=When(trigger=Trigger.EXCEPTION),
        compiled=ModelDump(models=_EVERYTHING, scene=scene),
    )


_MSDUMP_BLOCK: Final = "msdump"
_MINDSPORE_ONLY: Final = "naming"  # a setting of msdump's block without effect in acl.json


def read(path: str, context: Context, *, malformed: AclCode = AclCode.INVALID_DUMP_CONFIG) -> DumpPlan | None:
    """Return the plan of the dump of an acl.json, None where it configures none.

    Doubts are logged as warnings of ``msdump.config``. A file that is not JSON has the code ``malformed``.

    Raises:
        AclError: The file or one of its values cannot be used; the error names the first fault, as CANN does.
    """
    data = read_file(path)
    return parse(data, path, context, malformed=malformed) if data else None


def parse(
    data: bytes, path: str, context: Context, *, malformed: AclCode = AclCode.INVALID_DUMP_CONFIG
) -> DumpPlan | None:
    """Return the plan of the dump that the bytes of an acl.json configure; see ``read``."""
    faults = AclFaults(path)
    document = _document(data, path, faults, malformed)
    top = document.value if isinstance(document.value, dict) else {}
    if top.get("dump", {}) == {}:  # vendor: acl.json may configure other features alone
        return None
    if not isinstance(top["dump"], dict):
        raise faults.item("dump", "This configuration item must be of the object type")
    section = typed(top["dump"], faults)
    check_values(section, faults)
    check_constraints(section, faults)
    settings = _own_settings(top.get(_MSDUMP_BLOCK, {}), faults)
    _warn(document, top, section)
    return None if not _dumps(section) else _plan(document, context, section, settings)


def _document(data: bytes, path: str, faults: AclFaults, malformed: AclCode) -> Document:
    try:
        return parse_json(data, path)
    except ConfigSyntaxError as error:
        problem = error.problems[0]
        place = f"line {problem.line}: " if problem.line else ""
        reason = f"{place}{problem.message}"
        refused = faults.unparsable(reason, malformed)
        shown = f"{refused}\n{problem.excerpt}" if problem.excerpt else str(refused)
        raise AclError(malformed, shown) from None


def _dumps(section: DumpSection) -> bool:
    is_on = "on" in {section.dump_op_switch, section.dump_debug}
    return bool(section.dump_list or section.dump_scene or is_on)


def _own_settings(block: Any, faults: AclFaults) -> MsdumpSettings:
    if not isinstance(block, dict):
        raise faults.item(_MSDUMP_BLOCK, "This configuration item must be of the object type")
    try:
        return MsdumpSettings.model_validate(block)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = str(first["loc"][0])
        allowed = allowed_of(MsdumpSettings, key).text
        raise faults.value(show(first["input"]), f"{_MSDUMP_BLOCK}.{key}", f"It must be {allowed}") from None


def _warn(document: Document, top: dict[str, Any], section: DumpSection) -> None:
    """Log a warning for each unknown key, key that stands twice and setting without effect."""
    report = FaultReport(document)
    report.warn_of_duplicates()
    report.warn_of_keys(("dump",), top["dump"], DumpSection.model_fields)
    for index, item in enumerate(top["dump"].get("dump_list", ())):
        report.warn_of_keys(("dump", "dump_list", index), item, DumpListItem.model_fields)
    report.warn_of_keys((_MSDUMP_BLOCK,), top.get(_MSDUMP_BLOCK, {}), MsdumpSettings.model_fields)
    if _MINDSPORE_ONLY in top.get(_MSDUMP_BLOCK, {}):
        message = "has no effect here: files have the names that CANN documents"
        report.warn((_MSDUMP_BLOCK, _MINDSPORE_ONLY), message, of_key=True)
    # an exception dump covers every operator that fails, whatever dump_list names
    if section.dump_scene not in {"", Scene.WATCHER} and section.dump_list:
        message = "is ignored: dump_scene turns an exception dump on"
        report.warn(("dump", "dump_list"), message, of_key=True)
    if not _dumps(section):
        report.warn(
            ("dump",),
            "selects no dump: add an item to dump_list, or set dump_scene, dump_debug or dump_stats",
        )
    if iterations(section.dump_step) is None:
        report.warn(("dump", "dump_step"), f"= {show(section.dump_step)}: is malformed and ignored")
    remote = remote_path(section.dump_path)
    if remote is not None:
        message = (
            f"= {show(section.dump_path)}: msdump reaches no other host; files are written "
            f"to {remote} on this host"
        )
        report.warn(("dump", "dump_path"), message)
    report.close()


def _plan(document: Document, context: Context, section: DumpSection, settings: MsdumpSettings) -> DumpPlan:
    scene = Scene(section.dump_scene) if section.dump_scene else None
    is_exception = scene not in {None, Scene.WATCHER}
    is_overflow = section.dump_debug == "on"
    keeps_all = is_exception or is_overflow or section.dump_mode == "all"
    selected = section.dump_stats or DEFAULT_STATISTICS
    return DumpPlan(
        source=str(Path(document.source).absolute()),
        source_bytes=document.data,
        context=replace(context, fuses=context.fuses and settings.fusion_switch == "on"),
        files=FilePlan(
            path=(
                (is_exception and exception_path())
                or str(Path(remote_path(section.dump_path) or section.dump_path).resolve())
            ),
            tree=Tree.MODELS,
            file_format=FileFormat.BIN,
            existing=Existing(settings.existing),
            on_write_error=OnWriteError(settings.on_write_error),
            is_async=True,
            queue_bytes=settings.queue_bytes,
            writer_threads=settings.writer_threads,
            max_bytes=settings.max_bytes,
        ),
        what=What(
            keeps_inputs=keeps_all or section.dump_mode == "input",
            keeps_outputs=keeps_all or section.dump_mode == "output",
            keeps_device_format=True,
        ),
        when=When(
            iterations=IterationSet() if is_exception else iterations(section.dump_step) or IterationSet(),
            trigger=Trigger.EXCEPTION
            if is_exception
            else Trigger.OVERFLOW
            if is_overflow
            else Trigger.ALWAYS,
        ),
        compiled=ModelDump(
            models=_EVERYTHING if is_exception or is_overflow else _models(section),
            dumps_single_operators=section.dump_op_switch == "on",
            level=DumpLevel(section.dump_level),
            scene=scene,
            operator_statistics=tuple(name for name in OperatorStatistic if name in selected)
            if section.dump_data == "stats" and not is_exception and not is_overflow
            else None,
        ),
        precision_mode=PrecisionMode(settings.precision_mode)
        if "precision_mode" in settings.model_fields_set
        else None,
        operator_dtypes=operator_dtypes({key: getattr(settings, key) for key in KEYS}),
        optimization=Optimization(settings.optimize),
    )


def _models(section: DumpSection) -> tuple[ModelItem, ...]:
    """Return the items of ``dump_list``; empty if ``dump_level`` dumps kernels alone."""
    if section.dump_level == DumpLevel.KERNEL:
        return ()
    # vendor: dump_op_switch without a list dumps every model too
    return (
        tuple(
            ModelItem(
                model_name=item.model_name or None,
                layers=tuple(item.layer),
                watched=tuple(item.watcher_nodes),
                blocked_types=_blocked(item.optype_blacklist),
                blocked_names=_blocked(item.opname_blacklist),
                ranges=tuple((entry.begin, entry.end) for entry in item.opname_range),
            )
            for item in section.dump_list
        )
        or _EVERYTHING
    )


def _blocked(entries: list[BlackListEntry]) -> tuple[Blocked, ...]:
    return tuple(Blocked(entry.name, tuple(entry.pos)) for entry in entries)
