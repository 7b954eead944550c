"""``msdump diff --advise``: searches for the operators to keep, prints them, and writes files for tools."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from msdump import dtypes
from msdump.cli import messages, sections
from msdump.cli import output as documents
from msdump.cli.options import applied
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, INTERRUPTED, leave, mark_started
from msdump.errors import InputError, plural
from msdump.execute import WeightCopies, bind_inputs
from msdump.graph import Graph, Node
from msdump.judge import inputs
from msdump.judge.advise import (
    FILES,
    ErrorPair,
    InputUse,
    KeepAdvice,
    Named,
    Progress,
    SearchEnd,
    TypeSet,
    Values,
    Variants,
    advise,
    write,
)
from msdump.judge.diff import Variant, make_side
from msdump.observer import Interest, Observer
from msdump.plan import DeviceTarget, PrecisionMode

advice: Final = applied(
    sections.search(
        "--advise",
        "bound",
        type=click.FloatRange(0, min_open=True),
        metavar="BOUND",
        help="Find a few operators to keep in --to so that every output's relative error is below BOUND.",
    ),
    sections.search(
        "--to",
        type=click.Choice(("float32", "bfloat16")),
        show_default="float32",
        help="Element type of the operators to keep. Needs --advise.",
    ),
    sections.search(
        "-o",
        "--output",
        type=click.Path(),
        metavar="DIR",
        help="Write the files of --advise for ATC, MindSpore and others, or the part of --bisect.",
    ),
)
"""The options of advice."""


_SHOWN = 30  # operators; -v shows all

_NAMED: Final = "model with node names"

_CONFIRMATIONS: Final = {
    SearchEnd.CONFIRMED: "confirmed: errors stay below {} on {} held out",
    SearchEnd.UNCONFIRMED: "not confirmed: another input may exceed {}",
}
_SIZES: Final = {
    True: "minimal: without any one of them an output exceeds {}",
    False: "perhaps not minimal: the search ended early",
}


def _lines(answer: Answer, seconds: float) -> Iterator[str]:
    """Yield the operators, the errors, whether the bound holds, and the files."""
    advice = answer.advice
    total = advice.variants.rounded
    yield f"{answer.model}: {answer.variant} rounds {plural(total, 'operator')}"
    if advice.kept is None:
        to = advice.variants.to.name
        if advice.outcome is SearchEnd.INTERRUPTED:
            yield "no set was found before the interruption"
        else:
            yield f"no set of operators kept in {to} brings every output below {advice.bound:g}"
            if max(error.after for error in advice.errors) > advice.bound:
                yield f"the bound is smaller than the error of {to} itself"
    elif not advice.kept:
        yield f"no operator needs to be kept: the error of every output is below {advice.bound:g}"
        yield "no file is written"
    else:
        yield f"keep {len(advice.nodes)} of them in {advice.variants.to.name}:"
        nodes = advice.nodes
        shown = len(nodes) if messages.verbosity() else _SHOWN
        for node in nodes[:shown]:
            yield f"  {node.name}  ({node.operator.full_name})"
        if len(nodes) > shown:
            more = f"  ... and {len(nodes) - shown} more (-v)"
            has_all = f"; {Path(answer.files[0]).name} has all {len(nodes)}" if answer.files else ""
            yield more + (has_all or ", or --output DIR")
        if count := len(advice.nameless):
            noun = plural(count, "name")
            yield f"{noun} not in the model file; give other tools the file that --output writes"
        yield _SIZES[advice.is_smallest].format(f"{advice.limit:.3g}")
    examples = [error.example for error in advice.errors]
    width = max(map(len, examples), default=0)
    after = "with them kept" if advice.kept is not None else "with all kept"
    yield from (
        legend for start, legend in _MADE_UP.items() if any(example.startswith(start) for example in examples)
    )
    for error in advice.errors:
        yield (
            f"{error.example:<{width}}  {error.output}: error {error.before:.3g},"
            f" {after} {error.after:.3g}{_USES[error.use].format(f'{advice.bound:g}')}"
        )
    if advice.outcome in _CONFIRMATIONS:
        unseen = {error.example for error in advice.errors if error.is_unseen}
        yield _CONFIRMATIONS[advice.outcome].format(f"{advice.bound:g}", plural(len(unseen), "input"))
        largest = advice.largest
        yield (
            f"largest error: {largest.after / advice.bound:.0%} of {advice.bound:g} ({largest.example});"
            f" mean error plus 5 standard deviations: {advice.likely / advice.bound:.0%}"
        )
    yield f"{advice.runs:.0f} runs of the network, {seconds:.2f} s"
    if types := advice.types:
        beyond = f", which exceeds {advice.bound:g}" if types.error > advice.bound else ""
        yield (
            f"by name {plural(len(advice.nodes), 'operator')} kept; by type ({', '.join(types.types)})"
            f" {types.size}, with an error of {types.error:.3g}{beyond}"
        )
    yield from (f"written: {path} ({FILES.get(Path(path).name, _NAMED)})" for path in answer.files)


_USES: Final = {
    InputUse.SEARCHED: "",
    InputUse.JOINED: "  (held out, exceeded {}, joined the search)",
    InputUse.HELD_OUT: "  (held out)",
}


_SEED: Final = "seed "
_LIKE: Final = "like "
_MADE_UP: Final = {
    _SEED: f"{_SEED}S.N: made-up input of step N of msdump run --seed S",
    _LIKE: f"{_LIKE}FILE S.N: made-up input N of seed S, similar to FILE",
}
_SEEN: Final = 4  # inputs that the search looks at


@dataclass(frozen=True, slots=True)
class Answer:
    """The smallest set of operators to keep that was found.

    Attributes:
        advice: The advice.
        variant: Variant that the network runs on, "Ascend:force_fp16".
        files: Files that were written.
    """

    advice: KeepAdvice
    variant: str
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
        " is_smallest=advice.is_smallest types=advice.types errors=advice.errors runs=advice.runs files",
        name="AdviseDocument",
    ),
    Shape(Node, "name operator=operator.full_name op_type=operator.op_type", name="KeptOperator"),
    Shape(ErrorPair, "input=example output before after is_unseen use"),
    Shape(TypeSet, "types operators=size error"),
)


def answer(
    graph: Graph,
    mine: Variant,
    golden: Variant,
    *,
    bound: float,
    to: str,
    output: str | None,
    paths: Sequence[str],
    sizes: Mapping[str, int],
    seed: int,
) -> None:
    """Search, print and write the result, and exit: 0 with a confirmed set, 1 without.

    The last of several files of inputs confirms the result, as do all beyond four. Made-up inputs draw from
    the values of the files' arrays.
    """
    started = time.perf_counter()
    if mine.context.device_target is not DeviceTarget.ASCEND:
        raise InputError(f"--advise needs a variant of the emulated device, not --mine {mine.text}")
    mode = mine.context.precision_mode or PrecisionMode.ALLOW_FP32_TO_FP16
    if to == "bfloat16" and mode in {
        PrecisionMode.ALLOW_FP32_TO_BF16,
        PrecisionMode.ALLOW_MIX_PRECISION_BF16,
    }:
        raise InputError(f"--to bfloat16: operators compute in bfloat16 already under {mode}")
    read = [(path, bind_inputs(graph, (), inputs.from_file(graph, path))) for path in paths]
    count = min(_SEEN, max(1, len(read) - 1))

    def made_up(number: int, seed: int = seed + 1, like: Named = read) -> tuple[str, Values]:
        if not like:
            arrays = inputs.made_up(graph, sizes, seed, number)
            return f"{_SEED}{seed}.{number}", bind_inputs(graph, (), arrays)
        path, feeds = like[number % len(like)]
        return f"{_LIKE}{path} {seed}.{number}", inputs.like(feeds, (seed, number))

    seen = [
        *read[:count],
        *(made_up(number, seed, read[:count]) for number in range(_SEEN - len(read[:count]))),
    ]
    variants = Variants(graph, mode, mine.context.overflow_mode, dtypes.from_name(to))
    side = make_side(graph, golden, WeightCopies(), trains=False)
    # golden runs seldom: each operator has a session of its own, which frees its packed weights after the run
    side.runs.forget_sessions()
    alone = Observer()
    alone.interest = Interest((True,) * len(side.graph.nodes), one_by_one=True)
    names = [value.name for value in graph.outputs]

    def truth(feeds: Values) -> Values:
        return dict(zip(names, side.runs.infer(feeds, alone), strict=True))

    def say(text: str) -> None:
        if messages.verbosity():
            messages.show(text)

    mark_started()
    with messages.bar("operators", 0) as bar:
        progress = Progress(say, bar, lambda operators: bar.expect(round(operators)))
        advice = advise(variants, truth, seen, read[count:], made_up, bound=bound, progress=progress)
    seconds = time.perf_counter() - started
    written = write(advice, mode, output) if advice.types and output else []
    found = Answer(advice, mine.text, written)
    documents.show(DOCUMENT, found, _lines(found, seconds))
    if advice.outcome is SearchEnd.INTERRUPTED:
        messages.say("interrupted; the smallest set so far follows")
        leave(INTERRUPTED)
    if not advice.is_confirmed:
        leave(FAILED)
