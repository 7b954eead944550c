"""``msdump diff --advise``: searches for the operators to keep, prints them, and writes files for tools."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from msdump import dtypes
from msdump.cli import messages
from msdump.cli.advise import text
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED, INTERRUPTED, mark_started
from msdump.errors import InputError
from msdump.execute.feeds import bind
from msdump.execute.weights import WeightCopies
from msdump.graph.graph import Graph
from msdump.plan import DeviceTarget, PrecisionMode
from msdump.tools.advise import files
from msdump.tools.advise.advice import KeepAdvice, SearchEnd, advise
from msdump.tools.advise.files import TypeSet
from msdump.tools.advise.runs import Truth
from msdump.tools.advise.variants import Values, Variants
from msdump.tools.diff.sides import make_side
from msdump.tools.diff.variants import Variant
from msdump.tools.preview import inputs

_MADE_UP = 2  # inputs that the search looks at where none are given


@dataclass(frozen=True, slots=True)
class Question:
    """What advice is asked for.

    Attributes:
        graph: The model.
        mine: The emulated device.
        golden: What is right.
        bound: The largest relative error of an output.
        to: The type of operators that are kept.
        output: The folder of the files, "" for none.
        paths: Files of inputs.
        sizes: Sizes of dynamic dimensions, for inputs that are made up.
        seed: The seed of these.
    """

    graph: Graph
    mine: Variant
    golden: Variant
    bound: float
    to: str
    output: str
    paths: tuple[str, ...]
    sizes: dict[str, int]
    seed: int


def answer(question: Question) -> None:
    """Search, print and write what was found, and exit: 0 with a confirmed set, 1 without."""
    started = time.perf_counter()
    mode, context = _mode(question), click.get_current_context()
    seen, unseen = _inputs(question)
    overflow = question.mine.context.overflow_mode
    variants = Variants(question.graph, mode, overflow, dtypes.from_name(question.to))
    mark_started()
    advice = advise(variants, partial(_truth, question), seen, unseen, bound=question.bound, progress=_tell)
    seconds = time.perf_counter() - started
    is_found = bool(advice.kept) and advice.outcome is not SearchEnd.INTERRUPTED
    types = files.by_types(advice) if is_found else None
    written = files.write(advice, mode, types, question.output) if types and question.output else []
    if documents.wanted():
        from msdump.cli.documents.advise import document

        documents.put(document(advice, question.mine.text, types, written))
    else:
        _print(advice, question, types, written, seconds)
    if advice.outcome is SearchEnd.INTERRUPTED:
        messages.say("interrupted; the smallest set that was found until then is told")
        context.exit(INTERRUPTED)
    if not advice.is_confirmed:
        context.exit(FAILED)


def _print(
    advice: KeepAdvice, question: Question, types: TypeSet | None, written: Sequence[str], seconds: float
) -> None:
    for line in text.lines(advice, question.mine.text, seconds):
        print(line)
    if types is not None:
        print(text.types(types, advice))
    for path in written:
        print(f"written: {path}")


def _mode(question: Question) -> PrecisionMode:
    if question.mine.context.device_target is not DeviceTarget.ASCEND:
        raise InputError(f"--advise is about the emulated device; --mine {question.mine.text} is none")
    mode = question.mine.context.precision_mode or PrecisionMode.ALLOW_FP32_TO_FP16
    if question.to == "bfloat16" and mode in {
        PrecisionMode.ALLOW_FP32_TO_BF16,
        PrecisionMode.ALLOW_MIX_PRECISION_BF16,
    }:
        raise InputError(f"--to bfloat16: operators compute in bfloat16 already under {mode}")
    return mode


def _tell(line: str) -> None:
    if messages.verbosity():
        messages.show(line)


def _truth(question: Question) -> Truth:
    side = make_side(question.graph, question.golden, WeightCopies(), trains=False)
    names = [value.name for value in question.graph.outputs]

    def truth(feeds: Values) -> Values:
        return dict(zip(names, side.infer(feeds), strict=True))

    return truth


def _inputs(question: Question) -> tuple[Sequence[tuple[str, Values]], Any]:
    """Return the inputs that the search looks at, and the function that gives others.

    Of several files the last one confirms; behind it, and of one file, inputs that are made up do.
    """
    graph = question.graph
    read = [(path, bind(graph, (), inputs.from_file(graph, path))) for path in question.paths]
    sizes = question.sizes | (_sizes(graph, read[0][1]) if read else {})
    held = read[-1:] if len(read) > 1 else []

    def made_up(seed: int, step: int) -> tuple[str, Values]:
        return f"seed {seed}.{step}", bind(graph, (), inputs.made_up(graph, sizes, seed, step))

    def unseen(number: int) -> tuple[str, Values]:
        return held[number] if number < len(held) else made_up(question.seed + 1, number)

    seen = read[: len(read) - len(held)] or [made_up(question.seed, step) for step in range(_MADE_UP)]
    return seen, unseen


def _sizes(graph: Graph, feeds: Values) -> dict[str, int]:
    """Return the sizes of dynamic dimensions that arrays have."""
    return {
        name: size
        for value in graph.inputs
        if feeds.get(value.name) is not None
        for name, size in zip(value.type.shape or (), getattr(feeds[value.name], "shape", ()), strict=False)
        if isinstance(name, str)
    }
