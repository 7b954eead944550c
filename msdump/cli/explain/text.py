"""The output of ``msdump explain``: an explanation of an operator's files as lines of text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msdump.iterations import IterationSet
from msdump.reasons import Reason
from msdump.store.read.reader import Dump
from msdump.tools.explain.account import Explanation, Situation, SlotAccount
from msdump.tools.explain.dumped import DumpedTensor

_WIDTH: Final = 12
_SHOWN: Final = 3  # files of one input or output; -v lists all
_MOST_NEAR: Final = 5


def lines(explanation: Explanation, situation: Situation, dump: Dump, *, is_full: bool) -> Iterator[str]:
    """Yield the lines of an explanation.

    Args:
        explanation: The files of the operator, and the reasons why there are no more.
        situation: The model and the configuration that were given.
        dump: The dump.
        is_full: Whether every file is named.
    """
    subject = explanation.subject
    node = f", ONNX node {subject.node_name!r}" if subject.node_name else ""
    yield _line("operator:", f"{subject.operator.op_type} {subject.operator.full_name}".strip() + node)
    if subject.reason is Reason.FUSED and subject.node is not None:
        yield _line("fused:", f"into {subject.node.operator.full_name}, of which the rest is told")
    yield _line("told by:", _sources(situation))
    yield _line("iterations:", _iterations(situation, dump))
    limit = None if is_full else _SHOWN
    for slot in explanation.slots:
        yield from _titled(
            f"{slot.io} {slot.slot}:" if slot.slot is not None else f"{slot.io}s:", _slot(slot, dump, limit)
        )
    yield from _titled("constants:", _files(explanation.constants, dump, limit))
    if any(_is_open(slot) for slot in explanation.slots):
        yield from _hints(situation)


def question(near: Sequence[str], model: str | None) -> str:
    """Return the end of a message about an unknown name: near names, or the option that would help."""
    if not near:
        return "" if model else "; --model MODEL.onnx tells of operators that no file names"
    more = f" or {len(near) - _MOST_NEAR} more" if len(near) > _MOST_NEAR else ""
    return f" (did you mean {', '.join(map(repr, near[:_MOST_NEAR]))}{more}?)"


def _titled(title: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield texts as lines, the first one behind the title."""
    for text in texts:
        yield _line(title, text)
        title = ""


def _line(title: str, text: str) -> str:
    return f"{title:<{_WIDTH}}{text}".rstrip()


def _sources(situation: Situation) -> str:
    configuration = [situation.plan.source] if situation.is_configured else []
    model = [] if situation.model is None else [situation.model.source]
    return " and ".join([*configuration, *model]) or "the dump alone"


def _iterations(situation: Situation, dump: Dump) -> str:
    steps = (each.key.iteration if each.key.step is None else each.key.step for each in dump.iterations)
    numbers = sorted({number for number in steps if number is not None})
    held = str(IterationSet.of([(number, number) for number in numbers])) if numbers else "none"
    asked = f", asked for are {situation.plan.when.iterations}" if situation.is_configured else ""
    return f"the dump holds {held}{asked}"


def _slot(slot: SlotAccount, dump: Dump, limit: int | None) -> Iterator[str]:
    """Yield the lines of an input or output."""
    if slot.value:
        yield slot.value
    yield from _files(slot.tensors, dump, limit)
    if slot.reason is not None:
        yield f"no file: {slot.reason.sentence}"
    for reason, numbers in slot.missing.items():
        iterations = [number for number in numbers if number is not None]
        ranges = IterationSet.of([(number, number) for number in iterations]) if iterations else "some"
        yield f"no file in iteration {ranges}: {reason.sentence}"
    if _is_open(slot):
        yield "no file, and nothing tells why"


def _files(tensors: Sequence[DumpedTensor], dump: Dump, limit: int | None) -> Iterator[str]:
    for tensor in tensors[:limit]:
        path = os.path.relpath(tensor.path, dump.path)
        yield f"a row of {path}" if tensor.is_measured else path
    if limit is not None and len(tensors) > limit:
        yield f"... and {len(tensors) - limit} more; -v lists all"


def _is_open(slot: SlotAccount) -> bool:
    return not (slot.tensors or slot.reason or slot.missing)


def _hints(situation: Situation) -> Iterator[str]:
    is_given = {
        "--config FILE.json": situation.is_configured,
        "--model MODEL.onnx": situation.model is not None,
    }
    unsaid = [option for option in is_given if not is_given[option]]
    if unsaid:
        yield f"{' and '.join(unsaid)} would tell more"
