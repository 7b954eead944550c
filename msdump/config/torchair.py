"""GE options of torchair's CompilerConfig become a DumpPlan.

torchair hands its options to the graph engine as texts. Rules and defaults stand in the engine's own
options (``ge.exec.*``), not in torchair's.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msdump.config.grammar import parse_iterations
from msdump.config.source import GrammarError, did_you_mean
from msdump.errors import AclError, ConfigValueError, NotAvailableError, Problem
from msdump.plan import (
    DEFAULT_STATISTICS,
    Context,
    DumpPlan,
    FileFormat,
    FilePlan,
    ModelDump,
    ModelItem,
    Tree,
    Trigger,
    What,
    When,
)
from msdump.selector import IterationSet

ACL_CONFIG: Final = "ge_dump_with_acl_config"
CAPTURE_ENABLE: Final = "aclgraph.enableDump"
ENABLE: Final = "ge.exec.enableDump"
ENABLE_DEBUG: Final = "ge.exec.enableDumpDebug"
PATH: Final = "ge.exec.dumpPath"
MODE: Final = "ge.exec.dumpMode"
STEP: Final = "ge.exec.dumpStep"
LAYER: Final = "ge.exec.dumpLayer"
DATA: Final = "ge.exec.dumpData"
DEBUG_MODE: Final = "ge.exec.dumpDebugMode"
QUANT: Final = "ge.quant_dumpable"


_log = logging.getLogger("msdump.config")

SOURCE: Final = "dump_config"
"""Name of the configuration in messages: the group of CompilerConfig that holds it."""

_SWITCH: Final = ("0", "1")
_CHOICES: Final = {
    ENABLE: _SWITCH,
    ENABLE_DEBUG: _SWITCH,
    QUANT: _SWITCH,
    MODE: ("input", "output", "all"),
    DATA: ("tensor", "stats"),
    DEBUG_MODE: ("aicore_overflow", "atomic_overflow", "all"),
}
"""Values of the options that have a few."""

_DEFAULTS: Final = {ENABLE: "0", ENABLE_DEBUG: "0", MODE: "output", DATA: "tensor", DEBUG_MODE: "all"}
"""The graph engine's values where an option is not given (torchair always gives mode and data)."""

_KNOWN: Final = frozenset({*_CHOICES, PATH, STEP, LAYER})


def plan(options: Mapping[str, str], context: Context) -> DumpPlan | None:
    """Return the plan of the dump that GE options, by key, turn on; None if they turn none on.

    If the options and an acl.json (``ge_dump_with_acl_config``) both turn a dump on, the options win, with
    a warning.

    Raises:
        ConfigValueError: Values are wrong, missing or contradicting; it names them all.
        AclError: The acl.json cannot be used.
        NotAvailableError: The mode reduce-overhead, which has no dump.
    """
    if options.get(CAPTURE_ENABLE) == "1":
        raise NotAvailableError(
            f"{SOURCE}: enable_dump works in mode 'max-autotune' only, mode is 'reduce-overhead':"
            " set config.mode = 'max-autotune'"
        )
    # before the defaults: messages quote only values that the user has set
    faults = tuple(Problem("", text) for text in _faults(options) if text)
    if faults:
        raise ConfigValueError(SOURCE, faults)
    values = _DEFAULTS | dict(options)
    if "1" in {values[ENABLE], values[ENABLE_DEBUG]}:
        if ACL_CONFIG in options:
            _log.warning(
                "%s: dump_config_path = %r: is ignored, since enable_dump is set too; set only "
                "one of the two",
                SOURCE,
                options[ACL_CONFIG],
            )
        is_overflow = values[ENABLE_DEBUG] == "1"
        # the engine's overflow detection has no modes, layers, steps and statistics
        mode = "all" if is_overflow else values[MODE]
        layers = () if is_overflow else tuple(values.get(LAYER, "").split())
        has_statistics = values[DATA] == "stats" and not is_overflow
        return DumpPlan(
            source=SOURCE,
            source_bytes=json.dumps({key: values[key] for key in sorted(_KNOWN & values.keys())}).encode(),
            context=context,
            files=FilePlan(
                path=str(Path(values[PATH]).resolve()),
                file_format=FileFormat.BIN,
                is_async=True,
                tree=Tree.MODELS,
            ),
            what=What(
                keeps_inputs=mode in {"input", "all"},
                keeps_outputs=mode in {"output", "all"},
                keeps_device_format=True,
            ),
            when=When(
                iterations=IterationSet() if is_overflow else _iterations(values.get(STEP, "")),
                trigger=Trigger.OVERFLOW if is_overflow else Trigger.ALWAYS,
            ),
            compiled=ModelDump(
                models=(ModelItem(layers=layers),),
                operator_statistics=DEFAULT_STATISTICS if has_statistics else None,
                shows_graph=True,
            ),
        )
    return _from_acl(options[ACL_CONFIG], context) if ACL_CONFIG in options else None


def _faults(options: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each fault of the options, "" where a check finds none."""
    for key, allowed in _CHOICES.items():
        value = options.get(key, allowed[0])
        if value not in allowed:
            yield f"{key} = {value!r}: must be one of {', '.join(allowed)}{did_you_mean(value, allowed)}"
    for key in options:
        if key.startswith("ge.exec.dump") and key not in _KNOWN:
            yield f"{key}: is not an option of a dump{did_you_mean(key, _KNOWN)}; leave it out"
    if options.get(ENABLE) == options.get(ENABLE_DEBUG) == "1":
        yield f"{ENABLE} and {ENABLE_DEBUG} cannot be set to 1 at the same time; set one of them to 0"
    if "1" in {options.get(ENABLE), options.get(ENABLE_DEBUG)}:
        yield _path_fault(options)
    if options.get(ENABLE) == "1":
        try:
            _iterations(options.get(STEP, ""))
        except GrammarError as error:
            yield f"{STEP} = {options[STEP]!r}: {error}"


def _path_fault(options: Mapping[str, str]) -> str:
    path = options.get(PATH, "")
    if not path:
        return f"{PATH}: is missing or empty (E10058); give the directory of the dump"
    if not os.path.isdir(path):
        return f"{PATH} = {path!r}: is not a directory; make it or give another one"
    if not os.access(path, os.R_OK | os.W_OK):
        return (
            f"{PATH} = {path!r}: cannot be read and written; change its permissions or give another directory"
        )
    return ""


def _iterations(text: str) -> IterationSet:
    # an empty text means every iteration to the engine, where MINDSPORE_DUMP_CONFIG refuses it
    return parse_iterations(text, for_ge=True) if text else IterationSet()


def _from_acl(path: str, context: Context) -> DumpPlan | None:
    try:
        from msdump.config.acl import plan as acl  # not above: options are set up without pydantic

        return acl.read(path, context)
    except AclError as error:  # torchair's own words, with which it ends the process
        raise AclError(error.code, f"Fail in acl set dump, return {error.code}: {error}") from None
