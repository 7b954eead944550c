"""``msdump diff --advise``: searches for the operators to keep, prints them, and writes files for tools."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click

from msdump import dtypes
from msdump.analysis import inputs
from msdump.analysis.advise import (
    ErrorPair,
    KeepAdvice,
    SearchEnd,
    Truth,
    TypeSet,
    Values,
    Variants,
    advise,
    by_types,
    write,
)
from msdump.analysis.diff import Variant, make_side
from msdump.cli import messages
from msdump.cli import output as documents
from msdump.cli.messages import plural
from msdump.cli.options import applied
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, INTERRUPTED, leave, mark_started
from msdump.errors import InputError
from msdump.execute import WeightCopies, bind_inputs
from msdump.graph import IN_MEMORY, Graph, Node, loader
from msdump.plan import DeviceTarget, PrecisionMode

advice: Final = applied(
    click.option(
        "--advise",
        "bound",
        type=click.FloatRange(0, min_open=True),
        metavar="BOUND",
        help="Find the operators to keep so that the outputs' relative error stays below BOUND.",
    ),
    click.option(
        "--to",
        type=click.Choice(("float32", "bfloat16")),
        help="With --advise: the type in which they are kept (default: float32).",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        metavar="FOLDER",
        help="With --advise: where files for ATC, MindSpore and others go; with --bisect: the part.",
    ),
)
"""The options of advice."""


_SHOWN = 30  # operators; -v shows all

_CONFIRMATIONS: Final = {
    SearchEnd.CONFIRMED: "confirmed: within {} on an input that the search has not seen",
    SearchEnd.UNCONFIRMED: "not confirmed: no input that the search has not seen stayed within {}",
}


def lines(advice: KeepAdvice, mine: str, seconds: float) -> Iterator[str]:
    """Yield the lines of an answer: the operators, the errors, and whether the bound holds."""
    total = advice.variants.rounded
    yield f"{advice.variants.graph.source}: {mine} rounds {plural(total, 'operator')}"
    if advice.kept is None:
        yield from _without_a_set(advice)
    elif not advice.kept:
        yield f"nothing needs to be kept: every output is within {advice.bound:g}"
    else:
        yield f"keep {len(advice.nodes)} of them in {advice.variants.to.name}:"
        yield from _operators(advice)
    yield from _errors(advice)
    if advice.outcome in _CONFIRMATIONS:
        yield _CONFIRMATIONS[advice.outcome].format(f"{advice.bound:g}")
    yield f"{advice.runs:.0f} runs of the network, {seconds:.2f} s"


def _without_a_set(advice: KeepAdvice) -> Iterator[str]:
    to = advice.variants.to.name
    if advice.outcome is SearchEnd.INTERRUPTED:
        yield "no set has been found yet"
        return
    yield f"no set of operators kept in {to} was found that brings every output below {advice.bound:g}"
    if max(error.after for error in advice.errors) > advice.bound:
        yield f"the bound is smaller than the error that {to} has itself"


def _operators(advice: KeepAdvice) -> Iterator[str]:
    shown = len(advice.nodes) if messages.verbosity() else _SHOWN
    for node in advice.nodes[:shown]:
        yield f"  {node.name}  ({node.operator.full_name})"
    if len(advice.nodes) > shown:
        yield f"  ... and {len(advice.nodes) - shown} more (-v)"
    source = advice.variants.graph.source
    known = None if source == IN_MEMORY else loader.node_names(source)
    if known is not None and (count := sum(node.name not in known for node in advice.nodes)):
        yield f"{plural(count, 'name')} not in the model file: other tools will not find the operators"


def _errors(advice: KeepAdvice) -> Iterator[str]:
    width = max((len(error.example) for error in advice.errors), default=0)
    after = "with them kept" if advice.kept is not None else "with all kept"
    for error in advice.errors:
        mark = "  (not seen by the search)" if error.is_unseen else ""
        yield (
            f"{error.example:<{width}}  {error.output}: error {error.before:.3g},"
            f" {after} {error.after:.3g}{mark}"
        )


def _types_line(types: TypeSet, advice: KeepAdvice) -> str:
    """Return what lists of operator types would keep instead."""
    names = ", ".join(types.types)
    return (
        f"by name {plural(len(advice.nodes), 'operator')} kept, by type ({names}) {types.size}:"
        f" error {types.error:.3g}"
    )


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


@dataclass(frozen=True, slots=True)
class Answer:
    """The smallest set of operators to keep that was found.

    Attributes:
        advice: The advice.
        variant: Variant that the network runs on, "Ascend:force_fp16".
        types: Lists of types that would keep as much; None where there is nothing to keep.
        files: Files that were written.
    """

    advice: KeepAdvice
    variant: str
    types: TypeSet | None
    files: Sequence[str]

    @property
    def model(self) -> str:
        """Path of the model."""
        return self.advice.variants.graph.source

    @property
    def to(self) -> str:
        """The element type in which the operators are kept."""
        return self.advice.variants.to.name

    @property
    def kept(self) -> tuple[Node, ...] | None:
        """The operators to keep, in the order of their execution; null where no set was found."""
        return None if self.advice.kept is None else self.advice.nodes


DOCUMENT: Final = Document(
    Shape(
        Answer,
        "model variant bound=advice.bound outcome=advice.outcome to candidates=advice.variants.rounded kept"
        " types errors=advice.errors runs=advice.runs files",
        name="AdviseDocument",
    ),
    Shape(Node, "name operator=operator.full_name op_type=operator.op_type", name="KeptOperator"),
    Shape(ErrorPair, "input=example output before after is_unseen"),
    Shape(TypeSet, "types operators=size error"),
)


def answer(question: Question) -> None:
    """Search, print and write what was found, and exit: 0 with a confirmed set, 1 without."""
    started = time.perf_counter()
    mode = _mode(question)
    seen, unseen = _inputs(question)
    overflow = question.mine.context.overflow_mode
    variants = Variants(question.graph, mode, overflow, dtypes.from_name(question.to))
    mark_started()
    advice = advise(variants, partial(_truth, question), seen, unseen, bound=question.bound, progress=_tell)
    seconds = time.perf_counter() - started
    is_found = bool(advice.kept) and advice.outcome is not SearchEnd.INTERRUPTED
    types = by_types(advice) if is_found else None
    written = write(advice, mode, types, question.output) if types and question.output else []
    if documents.wanted():
        documents.put(DOCUMENT, Answer(advice, question.mine.text, types, written))
    else:
        _print(advice, question, types, written, seconds)
    if advice.outcome is SearchEnd.INTERRUPTED:
        messages.say("interrupted; the smallest set that was found until then is told")
        leave(INTERRUPTED)
    if not advice.is_confirmed:
        leave(FAILED)


def _print(
    advice: KeepAdvice, question: Question, types: TypeSet | None, written: Sequence[str], seconds: float
) -> None:
    for line in lines(advice, question.mine.text, seconds):
        print(line)
    if types is not None:
        print(_types_line(types, advice))
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
        return dict(zip(names, side.runs.infer(feeds, None), strict=True))

    return truth


def _inputs(question: Question) -> tuple[Sequence[tuple[str, Values]], Any]:
    """Return the inputs that the search looks at, and the function that gives others.

    Of several files the last one confirms; behind it, and of one file, inputs that are made up do.
    """
    graph = question.graph
    read = [(path, bind_inputs(graph, (), inputs.from_file(graph, path))) for path in question.paths]
    sizes = question.sizes | (_sizes(graph, read[0][1]) if read else {})
    held = read[-1:] if len(read) > 1 else []

    def made_up(seed: int, step: int) -> tuple[str, Values]:
        return f"seed {seed}.{step}", bind_inputs(graph, (), inputs.made_up(graph, sizes, seed, step))

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
