"""A compiled plan in plain words, one line per subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msdump.capture.pipeline import EXCEPTIONS, completes_operators
from msdump.plan import (
    DumpPlan,
    Existing,
    FileFormat,
    Naming,
    OnHit,
    OnWriteError,
    Tree,
    Trigger,
    WatchPlan,
)
from msdump.precision.operator_dtypes import NO_OPERATOR_DTYPES, OperatorDtypes
from msdump.precision.optimization import Optimization
from msdump.selector import DumpMode, KernelPattern, PatternKind
from msdump.store.run_paths import exceptions, outline

_NAMES: Final = {
    Naming.CLASSIC: "classic names (Conv2D-op12, no dtype)",
    Naming.V2_5: "names of MindSpore 2.5",
    Naming.V2_7: "names of MindSpore 2.7",
}
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def describe(plan: DumpPlan) -> str:
    """Return the description of a plan, lines ``subject: words``; settings at their default have none."""
    width = max(len(subject) for subject, _ in _SUBJECTS) + 2
    return "\n".join(f"{subject + ':':<{width}}{words}" for subject, words in subjects(plan).items())


def subjects(plan: DumpPlan) -> dict[str, str]:
    """Return the words of the description of a plan by their subject, such as "iterations"."""
    words_by_subject = {subject: words(plan) for subject, words in _SUBJECTS}
    return {subject: words for subject, words in words_by_subject.items() if words}


def _state(plan: DumpPlan) -> str:
    if plan.is_enabled:
        return ""
    return f"off, because device {plan.context.device_id} is not in support_device"


def _device(plan: DumpPlan) -> str:
    context = plan.context
    level = f" {context.jit_level}" if context.jit_level else ""
    return f"{context.device_target}{level}, device {context.device_id}"


def _files(plan: DumpPlan) -> str:
    root = plan.files.path.rstrip("/")
    if plan.compiled.scene in EXCEPTIONS:  # dumps of failing operators have a place of their own
        return exceptions(plan.compiled.exception_path or root, plan.context.device_id)
    if plan.files.tree is not Tree.RANKS:
        return f"{root}/{outline(plan.files.tree)}/"
    return f"{root}/{outline(plan.files.tree, net=plan.files.net_name)}/, {_NAMES[plan.files.naming]}"


def _iterations(plan: DumpPlan) -> str:
    first = f", the first one is number {plan.when.initial_iteration}" if plan.when.initial_iteration else ""
    return f"{plan.when.iterations}{first}"


def _operators(plan: DumpPlan) -> str:
    selector = plan.what.selector
    if selector.mode is DumpMode.MARKED:
        return "those that set_dump marks"
    if selector.mode is DumpMode.ALL or not selector.patterns:
        return "all"
    return "; ".join(_pattern(pattern) for pattern in selector.patterns)


def _pattern(pattern: KernelPattern) -> str:
    if pattern.kind is PatternKind.NAME:
        return pattern.text
    if pattern.kind is PatternKind.TYPE:
        return f"types that contain {pattern.text!r} in any case"
    return f"names that {'contain' if pattern.searches else 'match'} /{pattern.text}/"


def _trigger(plan: DumpPlan) -> str:
    if plan.when.trigger is Trigger.EXCEPTION:
        return "only the operator that fails"
    if plan.when.trigger is Trigger.OVERFLOW:
        limit = f", the first {plan.when.overflow_limit} of the process" if plan.when.overflow_limit else ""
        return f"only operators that overflow{limit}"
    return ""


def _tensors(plan: DumpPlan) -> str:
    sides = [
        name
        for name, kept in (("inputs", plan.what.keeps_inputs), ("outputs", plan.what.keeps_outputs))
        if kept
    ]
    sides_words = " and ".join(sides)
    if not plan.files.keeps_tensors:
        return f"none; {sides_words} are only measured"
    layout = "device" if plan.what.keeps_device_format else "host"
    sample = f", first {plan.what.sample_count} elements" if plan.what.sample_count else ""
    if plan.compiled.operator_statistics is not None:
        return f"none; {sides_words} are only measured: {', '.join(plan.compiled.operator_statistics)}"
    form = "one file for each operator" if plan.files.file_format is FileFormat.BIN else "as .npy"
    return f"{sides_words}{sample}, in {layout} format, {form}"


def _statistics(plan: DumpPlan) -> str:
    if plan.statistics is None:
        return ""
    names = ", ".join(plan.statistics.categories) or "sizes, types and shapes only"
    if not plan.statistics.on_device:
        return f"{names}, on the host"
    precision = "in float32" if plan.statistics.high_precision else "in the tensor's type"
    return f"{names}, on the device {precision}"


def _writing(plan: DumpPlan) -> str:
    if not plan.files.is_async and completes_operators(plan):
        return "synchronous, an operator's files are complete before the next operator starts"
    if not plan.files.is_async:
        return "synchronous, complete when the step returns"
    return f"asynchronous, at most {_size(plan.files.queue_bytes)} wait"


def _watch(plan: DumpPlan) -> str:
    watch = plan.watch
    names = ", ".join(rule.name for rule in watch.rules)
    parts = (
        (f"rules {names}", watch.rules),
        ("a hit only warns", watch.rules and watch.on_hit is OnHit.LOG),
        ("only operators that hit are written", watch.writes_hits_alone),
        ("a hit ends the run", watch.rules and watch.on_hit is OnHit.STOP),
        (_history(watch), watch.history),
    )
    return "; ".join(words for words, is_said in parts if is_said)


def _history(watch: WatchPlan) -> str:
    steps = "step" if watch.history == 1 else f"{watch.history} steps"
    causes = "a failure" if not watch.rules or watch.on_hit is OnHit.LOG else "a hit or a failure"
    return f"the last {steps} are kept in at most {_size(watch.history_bytes)}, and written upon {causes}"


def _limits(plan: DumpPlan) -> str:
    limits = (
        (f"at most {_size(plan.files.max_bytes)} of tensor files", plan.files.max_bytes),
        (f"{plan.files.writer_threads} writer threads", plan.files.writer_threads > 1),
        ("a failed write only warns", plan.files.on_write_error is OnWriteError.WARN),
        ("what lies there already is removed", plan.files.existing is Existing.REPLACE),
        ("refused where files lie there already", plan.files.existing is Existing.REFUSE),
        (f"precision_mode {plan.precision_mode}", plan.precision_mode),
        (
            f"operators that are not dumped are fused (optimize {plan.optimization}): last bits change",
            plan.optimization is not Optimization.NONE,
        ),
        (_exceptions(plan.operator_dtypes), plan.operator_dtypes != NO_OPERATOR_DTYPES),
        ("no operators are fused", not plan.context.fuses),
        ("kernel arguments are saved", plan.what.saves_kernel_args),
    )
    return ", ".join(words for words, is_said in limits if is_said)


def _exceptions(dtypes: OperatorDtypes) -> str:
    count = len(dtypes.kept) + len(dtypes.customized) + (len(dtypes.lists.types) if dtypes.lists else 0)
    return f"a precision of their own for {count} names or types of operators"


def _size(count: int) -> str:
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"


# The order of the lines: what is dumped first, then how.
_SUBJECTS: Final[tuple[tuple[str, Callable[[DumpPlan], str]], ...]] = (
    ("dump", _state),
    ("device", _device),
    ("files", _files),
    ("iterations", _iterations),
    ("operators", _operators),
    ("trigger", _trigger),
    ("tensors", _tensors),
    ("statistics", _statistics),
    ("writing", _writing),
    ("watch", _watch),
    ("also", _limits),
)
