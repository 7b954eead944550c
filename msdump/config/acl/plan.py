"""acl.json: the configuration of pyACL's dumps becomes a DumpPlan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path as File
from typing import Any, Final

from pydantic import ValidationError

from msdump.config.acl import environment, file
from msdump.config.acl.codes import AclCode
from msdump.config.acl.faults import AclFaults
from msdump.config.acl.models import BlackListEntry, DumpListItem, DumpSection, typed
from msdump.config.acl.rules import check_constraints, check_values, iterations, remote_path
from msdump.config.dtypes.files import KEYS, operator_dtypes
from msdump.config.faults import FaultReport, did_you_mean, show
from msdump.config.models import Allowed, MsdumpSettings
from msdump.config.source import Document, Path
from msdump.config.source import parse as parse_json
from msdump.errors import AclError, ConfigSyntaxError
from msdump.iterations import IterationSet
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
    PrecisionMode,
    Scene,
    Tree,
    Trigger,
    What,
    When,
)
from msdump.precision.optimization import Optimization

_MSDUMP_BLOCK: Final = "msdump"
_MINDSPORE_ONLY: Final = "naming"  # the one of msdump's own settings that has no meaning here
_EVERYTHING: Final = (ModelItem(),)


def read(path: str, context: Context, *, malformed: AclCode = AclCode.INVALID_DUMP_CONFIG) -> DumpPlan | None:
    """Return the plan of the dump that an acl.json asks for, None where it configures none.

    Whatever is doubtful is logged as a warning of ``msdump.config``.

    Args:
        path: The file.
        context: The device of the process.
        malformed: The code of a file that is not JSON; aclInit has one of its own.

    Raises:
        AclError: The file or one of its values cannot be used; the error names the first fault, as CANN does.
    """
    data = file.read(path)
    return parse(data, path, context, malformed=malformed) if data else None


def parse(
    data: bytes, path: str, context: Context, *, malformed: AclCode = AclCode.INVALID_DUMP_CONFIG
) -> DumpPlan | None:
    """Return the plan of the dump that the bytes of an acl.json ask for; see ``read``."""
    faults = AclFaults(path)
    document = _document(data, path, faults, malformed)
    top = document.value if isinstance(document.value, dict) else {}
    if top.get("dump", {}) == {}:  # vendor: a file of other things than dumps is none of the dump's business
        return None
    section = _section(top["dump"], faults)
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


def _section(value: Any, faults: AclFaults) -> DumpSection:
    if not isinstance(value, dict):
        raise faults.item("dump", "This configuration item must be of the object type")
    section = typed(value, faults)
    check_values(section, faults)
    check_constraints(section, faults)
    return section


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
        notes = MsdumpSettings.model_fields[key].metadata
        allowed = next(note.text for note in notes if isinstance(note, Allowed))
        raise faults.value(show(first["input"]), f"{_MSDUMP_BLOCK}.{key}", f"It must be {allowed}") from None


def _warn(document: Document, top: dict[str, Any], section: DumpSection) -> None:
    """Log a warning for each unknown key, key that stands twice and setting without effect."""
    report = FaultReport(document)
    for path in document.duplicates:
        report.warn_of_key(path, "stands more than once in its object; the last one counts")
    _warn_of_unknown(("dump",), top["dump"], DumpSection.model_fields, report)
    for index, item in enumerate(top["dump"].get("dump_list", ())):
        _warn_of_unknown(("dump", "dump_list", index), item, DumpListItem.model_fields, report)
    _warn_of_unknown((_MSDUMP_BLOCK,), top.get(_MSDUMP_BLOCK, {}), MsdumpSettings.model_fields, report)
    if _MINDSPORE_ONLY in top.get(_MSDUMP_BLOCK, {}):
        report.warn_of_key(
            (_MSDUMP_BLOCK, _MINDSPORE_ONLY), "has no effect here: files are named as CANN names them"
        )
    # an exception dump is of whichever operator fails
    if section.dump_scene not in {"", Scene.WATCHER} and section.dump_list:
        report.warn_of_key(("dump", "dump_list"), "is not read: dump_scene turns an exception dump on")
    if not _dumps(section):
        report.warn(("dump",), "asks for no dump: give dump_list an item, or set one of the switches")
    if iterations(section.dump_step) is None:
        report.warn(("dump", "dump_step"), f"= {show(section.dump_step)}: is malformed and not read")
    remote = remote_path(section.dump_path)
    if remote is not None:
        message = f"= {show(section.dump_path)}: no other host is reached; files go to {remote} on this one"
        report.warn(("dump", "dump_path"), message)
    report.close()


def _warn_of_unknown(
    path: Path, block: dict[str, Any], known_keys: Iterable[str], report: FaultReport
) -> None:
    for key in block.keys() - set(known_keys):
        report.warn_of_key((*path, key), f"is unknown and ignored{did_you_mean(key, known_keys)}")


def _plan(document: Document, context: Context, section: DumpSection, settings: MsdumpSettings) -> DumpPlan:
    scene = Scene(section.dump_scene) if section.dump_scene else None
    is_exception = scene not in {None, Scene.WATCHER}
    is_overflow = section.dump_debug == "on"
    keeps_all = is_exception or is_overflow or section.dump_mode == "all"
    return DumpPlan(
        source=str(File(document.source).absolute()),
        source_bytes=document.data,
        context=replace(context, fuses=context.fuses and settings.fusion_switch == "on"),
        files=_files(_exception_path(section) if is_exception else _path(section), settings),
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
            operator_statistics=None if is_exception or is_overflow else _statistics(section),
        ),
        precision_mode=_precision_mode(settings),
        operator_dtypes=operator_dtypes({key: getattr(settings, key) for key in KEYS}),
        optimization=Optimization(settings.optimize),
    )


def _files(root: str, settings: MsdumpSettings) -> FilePlan:
    return FilePlan(
        path=root,
        tree=Tree.MODELS,
        file_format=FileFormat.BIN,
        existing=Existing(settings.existing),
        on_write_error=OnWriteError(settings.on_write_error),
        is_async=True,
        queue_bytes=settings.queue_bytes,
        writer_threads=settings.writer_threads,
        max_bytes=settings.max_bytes,
    )


def _path(section: DumpSection) -> str:
    """Return the absolute root of the dump.

    An exception dump may go without ``dump_path``: the empty text resolves to the working directory.
    """
    return str(File(remote_path(section.dump_path) or section.dump_path).resolve())


def _exception_path(section: DumpSection) -> str:
    return environment.path() or _path(section)


def _precision_mode(settings: MsdumpSettings) -> PrecisionMode | None:
    if "precision_mode" not in settings.model_fields_set:
        return None
    return PrecisionMode(settings.precision_mode)


def _statistics(section: DumpSection) -> tuple[OperatorStatistic, ...] | None:
    if section.dump_data != "stats":
        return None
    selected = section.dump_stats or DEFAULT_STATISTICS
    return tuple(name for name in OperatorStatistic if name in selected)


def _models(section: DumpSection) -> tuple[ModelItem, ...]:
    """Return which operators of which models are dumped; of kernels only there are none."""
    if section.dump_level == DumpLevel.KERNEL:
        return ()
    # vendor: dump_op_switch without a list dumps every model too
    return tuple(_item(item) for item in section.dump_list) or _EVERYTHING


def _item(item: DumpListItem) -> ModelItem:
    return ModelItem(
        model_name=item.model_name or None,
        layers=tuple(item.layer),
        watched=tuple(item.watcher_nodes),
        blocked_types=_blocked(item.optype_blacklist),
        blocked_names=_blocked(item.opname_blacklist),
        ranges=tuple((entry.begin, entry.end) for entry in item.opname_range),
    )


def _blocked(entries: list[BlackListEntry]) -> tuple[Blocked, ...]:
    return tuple(Blocked(entry.name, tuple(entry.pos)) for entry in entries)
