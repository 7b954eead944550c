"""GE options: the dump that torchair's CompilerConfig asks for becomes a DumpPlan.

torchair hands its options to the graph engine as texts. Their rules and defaults are those of the engine's
own options (``ge.exec.*``), not of torchair's.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msdump.config.acl import plan as acl
from msdump.config.faults import GrammarError, did_you_mean
from msdump.config.grammar import parse_iterations
from msdump.config.torchair.ge_options import (
    ACL_CONFIG,
    CAPTURE_ENABLE,
    DATA,
    DEBUG_MODE,
    ENABLE,
    ENABLE_DEBUG,
    LAYER,
    MODE,
    PATH,
    QUANT,
    STEP,
)
from msdump.errors import AclError, ConfigValueError, NotAvailableError, Problem
from msdump.iterations import IterationSet
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

_log = logging.getLogger("msdump.config")

SOURCE: Final = "dump_config"
"""What messages call the configuration: the group of CompilerConfig that holds it."""

_SWITCH: Final = ("0", "1")
_CHOICES: Final = {
    ENABLE: _SWITCH,
    ENABLE_DEBUG: _SWITCH,
    QUANT: _SWITCH,
    MODE: ("input", "output", "all"),
    DATA: ("tensor", "stats"),
    DEBUG_MODE: ("aicore_overflow", "atomic_overflow", "all"),
}
"""What the options with a few values may be."""

_DEFAULTS: Final = {ENABLE: "0", ENABLE_DEBUG: "0", MODE: "output", DATA: "tensor", DEBUG_MODE: "all"}
"""What the graph engine takes where an option is not given (torchair always gives mode and data)."""

_KNOWN: Final = frozenset({*_CHOICES, PATH, STEP, LAYER})


def plan(options: Mapping[str, str], context: Context) -> DumpPlan | None:
    """Return the plan of the dump that GE options ask for, None where they ask for none.

    Where both the options and an acl.json ask for one, the options win, with a warning.

    Args:
        options: Values by key: ``ge.exec.enableDump``, ``ge.exec.enableDumpDebug``, those beside
            them, and ``ge_dump_with_acl_config``, the path of an acl.json. Other keys are not read.
        context: The device of the graphs.

    Raises:
        ConfigValueError: Values are wrong, missing or contradicting; it names them all.
        AclError: The acl.json cannot be used.
        NotAvailableError: A dump of graphs that are captured and replayed is asked for.
    """
    if options.get(CAPTURE_ENABLE) == "1":
        raise NotAvailableError(
            f"{SOURCE}: enable_dump works in mode 'max-autotune' only, mode is 'reduce-overhead':"
            " set config.mode = 'max-autotune'"
        )
    _check(options)  # before the defaults: a message must not speak of what nobody wrote
    values = _DEFAULTS | dict(options)
    if "1" in {values[ENABLE], values[ENABLE_DEBUG]}:
        _warn_of_acl(options)
        return _plan(values, context)
    return _from_acl(options[ACL_CONFIG], context) if ACL_CONFIG in options else None


def _check(options: Mapping[str, str]) -> None:
    problems = [Problem("", text) for text in _faults(options)]
    if problems:
        raise ConfigValueError(SOURCE, tuple(problems))


def _faults(options: Mapping[str, str]) -> list[str]:
    """Return a message for each fault of the options."""
    faults = [
        _choice_fault(key, options[key], allowed) for key, allowed in _CHOICES.items() if key in options
    ]
    faults += [_unknown_fault(key) for key in options if key.startswith("ge.exec.dump") and key not in _KNOWN]
    if "1" in {options.get(ENABLE), options.get(ENABLE_DEBUG)}:
        faults += [_both_fault(options), _path_fault(options)]
    if options.get(ENABLE) == "1":
        faults.append(_step_fault(options))
    return [fault for fault in faults if fault]


def _choice_fault(key: str, value: str, allowed: tuple[str, ...]) -> str:
    if value in allowed:
        return ""
    return f"{key} = {value!r}: must be one of {', '.join(allowed)}{did_you_mean(value, allowed)}"


def _unknown_fault(key: str) -> str:
    return f"{key}: is no option of a dump{did_you_mean(key, _KNOWN)}; leave it out"


def _both_fault(options: Mapping[str, str]) -> str:
    if options.get(ENABLE) == options.get(ENABLE_DEBUG) == "1":
        return f"{ENABLE} and {ENABLE_DEBUG} cannot be set to 1 at the same time; set one of them to 0"
    return ""


def _path_fault(options: Mapping[str, str]) -> str:
    path = options.get(PATH, "")
    if not path:
        return f"{PATH}: is missing or empty (E10058); give the directory of the dump"
    if not os.path.isdir(path):
        return f"{PATH} = {path!r}: is no directory; make it or give another one"
    if not os.access(path, os.R_OK | os.W_OK):
        return f"{PATH} = {path!r}: cannot be read and written; change its permissions or give another one"
    return ""


def _step_fault(options: Mapping[str, str]) -> str:
    try:
        _iterations(options.get(STEP, ""))
    except GrammarError as error:
        return f"{STEP} = {options[STEP]!r}: {error}"
    return ""


def _iterations(text: str) -> IterationSet:
    # an empty text means every iteration to the engine, where MINDSPORE_DUMP_CONFIG refuses it
    return parse_iterations(text, for_ge=True) if text else IterationSet()


def _warn_of_acl(options: Mapping[str, str]) -> None:
    if ACL_CONFIG in options:
        _log.warning(
            "%s: dump_config_path = %r: is not read, enable_dump is set too; set one of the two",
            SOURCE,
            options[ACL_CONFIG],
        )


def _plan(values: Mapping[str, str], context: Context) -> DumpPlan:
    is_overflow = values[ENABLE_DEBUG] == "1"
    # the engine's overflow detection knows nothing of modes, layers, steps and statistics
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


def _from_acl(path: str, context: Context) -> DumpPlan | None:
    try:
        return acl.read(path, context)
    except AclError as error:  # torchair's own words, with which it ends the process
        raise AclError(error.code, f"Fail in acl set dump, return {error.code}: {error}") from None
