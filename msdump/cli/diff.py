"""``msdump diff``: two variants of a model, or two models, run in lockstep; no tensor goes to a file."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from msdump.cli import advise as advise_options
from msdump.cli import messages, options, sections, verdicts
from msdump.cli import output as documents
from msdump.cli.advise import answer as advise
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, INTERRUPTED, REFUSED, leave, mark_started
from msdump.cli.verdicts import COMPARED, SHAPES, ComparedDumps, ComparisonView
from msdump.errors import InputError, plural
from msdump.execute import WeightCopies, bind_inputs
from msdump.frontends import mindspore
from msdump.graph import Graph
from msdump.judge import (
    Bisection,
    ExchangedPart,
    answer,
    inputs,
    note_of_sizes,
    of_side,
    recipes_of,
    write_exchange,
)
from msdump.judge.diff import (
    LockstepComparison,
    OutputDifference,
    Side,
    Variant,
    apart,
    fewest_bits,
    make_side,
    models,
    pair_models,
    pair_sides,
    rounded_to,
    sharing_weights,
)
from msdump.judge.torch import PREFIX, golden_of, load_source, torch_comparison
from msdump.judge.verdict import Limits, coarser
from msdump.plan import DeviceTarget


def _badness(output: OutputDifference) -> float:
    return -1.0 if output.evidence.error is None else output.evidence.error.distance


def _apart(output: OutputDifference) -> str:
    error = output.evidence.error
    if error is None:
        return output.evidence.note or "not compared"
    if error.is_same:
        return "equal"
    if error.misplaced:
        return f"NaN or infinities differ at {plural(error.misplaced, 'element')}"
    return f"distance {error.distance:.2g}, largest difference {error.largest:.2g}"


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The smallest part of a model that explains the difference when it is exchanged (--bisect).

    Attributes:
        part: The part.
        files: Files that were written of it.
    """

    part: ExchangedPart
    files: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedModels(ComparedDumps):
    """The verdicts of two networks in lockstep.

    Attributes:
        comparison: The networks.
        part: The part that explains the difference; None where none was looked for, or found.
    """

    comparison: LockstepComparison
    part: WrittenPart | None


DOCUMENT: Final = Document(
    Shape(
        ComparedModels,
        f"{COMPARED} mine=comparison.mine golden=comparison.golden runs=comparison.runs"
        " outputs=comparison.outputs failures=comparison.failures part",
        name="DiffDocument",
    ),
    *SHAPES,
    Shape(Side, "model=model.source variant=variant.text"),
    Shape(OutputDifference, "iteration name=evidence.name error=evidence.error"),
    Shape(
        WrittenPart,
        "mine=part.names golden=part.golden_names difference=part.difference whole=part.whole files",
    ),
)


def _bisect(
    comparison: LockstepComparison, fed: Sequence[Mapping[str, Any]], output: str | None
) -> WrittenPart | None:
    """Print the part that explains the difference, if there is one, and write it into a folder, if given."""
    worst = max(comparison.outputs, key=_badness, default=None)
    (mine, arithmetic), (golden, golden_arithmetic) = of_side(comparison.mine), of_side(comparison.golden)
    with messages.bar("networks", 0) as advance:
        search = Bisection(
            mine,
            golden,
            pair_models(comparison.mine.model, comparison.golden.model),
            fed[0 if worst is None else worst.iteration],  # of the run with the outputs farthest apart
            advance,
            computed_in=(arithmetic, golden_arithmetic),
        )
        try:
            part = search.find()
        except InputError as error:  # the outputs agree, or no part of one network fits into the other
            messages.say(f"bisect: {error}")
            return None
    print(f"part      {', '.join(part.names)} of {mine.source}")
    print(f"          in place of {', '.join(part.golden_names) or 'nothing'} of {golden.source}")
    print(
        f"explains  {part.difference:.2g} of the relative distance {part.whole:.2g} of the outputs"
        f" ({plural(search.probes, 'network')} run)"
    )
    paths = write_exchange(part, mine, golden, output) if output else []
    for path in paths:
        print(f"written   {path}")
    return WrittenPart(part, paths)


_ADVISED: Final = "--advise takes one model and excludes OTHER, --train and --steps"
_ALONE: Final = "--golden torch: excludes OTHER, --train, --bisect and --advise"
_MISPLACED: Final = "--to needs --advise, --output needs --advise or --bisect"
_BISECTED: Final = (
    "--bisect exchanges operators of inference on the host: no --train, which changes variables,"
    " and no variant GPU"
)


_variants: Final = sections.Section("Variants")


@click.command(name="diff", cls=sections.Command)
@click.argument("model", type=click.Path(), help="ONNX model to examine.")
@click.argument(
    "other", type=click.Path(), required=False, help="Reference model, such as the unquantised one."
)
@_variants("--mine", metavar="VARIANT", show_default="Ascend, with OTHER float32", help="Variant of MODEL.")
@_variants(
    "--golden",
    default="float32",
    metavar="VARIANT",
    help="Variant of the reference side, or the PyTorch module of an export: torch:file.py:NAME.",
)
@sections.inputs(
    "--inputs",
    "files",
    type=click.Path(),
    multiple=True,
    metavar="FILE.npz",
    help="Inputs by name or position, for one run. (repeatable)",
)
@sections.inputs(
    "--seed",
    type=click.IntRange(min=0),
    show_default="0",
    help="Seed of made-up inputs and of random operators without a seed.",
)
@options.dimensions
@sections.inputs("--steps", type=click.IntRange(min=1), default=1, help="Number of runs of each side.")
@sections.inputs("--train", is_flag=True, help="Run training steps, all on the inputs of step 0.")
@sections.search(
    "--replace",
    "replaced",
    multiple=True,
    metavar="OPERATOR",
    help="Take the module's value as an output of OPERATOR, or of OPERATOR:NUMBER. (repeatable)",
)
@verdicts.limits
@sections.search(
    "--bisect", "bisects", is_flag=True, help="Find the smallest part of MODEL that explains the difference."
)
@advise_options.advice
@verdicts.view
@documents.option
@messages.verbose
def command(
    *,
    model: str,
    other: str | None,
    mine: str | None,
    golden: str,
    files: tuple[str, ...],
    seed: int | None,
    dimensions: dict[str, int],
    steps: int,
    train: bool,
    replaced: tuple[str, ...],
    limits: Limits,
    view: ComparisonView,
    bisects: bool,
    bound: float | None,
    to: str | None,
    output: str | None,
) -> None:
    """Run two variants of a model and name the operators at fault.

    Both sides run operator by operator in lockstep. No tensor is written. With OTHER the graphs of
    the two models are matched, and operators without a counterpart are listed.

    VARIANT is CPU, GPU, float32, float64, Ascend[:PRECISION_MODE][:OVERFLOW_MODE][:LEVEL] or
    onnxruntime[:none|basic|extended|all]. The parts after Ascend, such as force_fp16,
    SATURATION_MODE and O2, may stand in any order.

    The golden side may also be the PyTorch module that MODEL was exported from:
    torch:package.module:NAME or torch:file.py:NAME. NAME is the module, or a function that returns
    it, or it and a tuple of its arguments. Each function of the module is judged alone.

    Without --inputs the inputs are made up: equal for equal seeds and steps. Random operators
    draw equal numbers on both sides. An interrupted comparison prints the findings up to that point.

    Examples:
        msdump diff model.onnx
        msdump diff model.onnx --mine Ascend:force_fp16 --golden float64
        msdump diff model.onnx --mine Ascend:force_fp16 --advise 0.01

    Exit codes:
        0  Both sides agree.
        1  The sides differ, or a side failed.
        2  A model, an input or an option is wrong. Nothing was compared.
    """
    if files and (seed is not None or dimensions):
        raise click.UsageError("--inputs excludes --seed and --dim (for made-up inputs)")
    is_torch = golden.startswith(PREFIX)
    _refuse(bool(replaced) and not is_torch, "--replace needs --golden torch:")
    _refuse(is_torch and bool(other or train or bisects or bound is not None), _ALONE)
    default = "Ascend" if other is None and not is_torch else "float32"
    sides = models.parse(mine or default), models.parse("float32" if is_torch else golden)
    if bound is not None:
        _refuse(train or steps > 1 or other is not None, _ADVISED)
        graph, kept = mindspore.load_graph(model, device=_device(sides)), to or "float32"
        advise(
            graph,
            *sides,
            bound=bound,
            to=kept,
            output=output,
            paths=files,
            sizes=dimensions,
            seed=seed or 0,
        )
        return
    _refuse(to is not None or (output is not None and not bisects), _MISPLACED)
    runs_on_gpu = any(side.context.device_target is DeviceTarget.GPU for side in sides)
    _refuse(bisects and (train or runs_on_gpu), _BISECTED)
    is_limited = limits.distance is not None or bool(limits.precision)
    limits = replace(limits, precision=limits.precision or models.precision(*sides))
    # a GPU draws other numbers for the same seed
    draws = None if runs_on_gpu else seed or 0
    comparison: LockstepComparison
    if is_torch:
        graph = mindspore.load_graph(model, draws, _device(sides))
        source = load_source(golden.removeprefix(PREFIX))
        graph = mindspore.load_graph(model, draws, _device(sides))
        given = None if files else source.named_inputs(graph)
        fed = _feeds(graph, files, dimensions, seed or 0, steps, trains=False, given=given)
        comparison = torch_comparison(graph, sides[0], golden_of(source, graph, fed[0]), limits, replaced)
    else:
        comparison = _comparison(model, other, sides, limits, draws, trains=train)
        if other is not None and not is_limited:
            comparison.limits = _widened(comparison)
        fed = _feeds(comparison.mine.model, files, dimensions, seed or 0, steps, trains=train)
    mark_started(lambda: bool(comparison.report.findings))
    seconds, is_whole = _run(comparison, fed)
    if comparison.report.findings and not documents.wanted():
        chosen = [("--dim", f"{name}={size}") for name, size in dimensions.items()]
        chosen += [("--inputs", path) for path in files]
        chosen += [("--seed", str(seed))] * bool(seed) + [("--golden", golden)] * (golden != "float32")
        words = tuple(word for option in chosen for word in option)
        are_models = other is not None
        compared = answer.Compared(model, sides[0].text, words, has_rerun=True, are_models=are_models)
        _print(comparison, seconds, view, compared)
    for failure in comparison.failures:
        messages.say(f"error: {failure}")
    searches = bisects and is_whole and not comparison.failures
    part = _bisect(comparison, fed, output) if searches else None
    if documents.wanted():
        documents.put(DOCUMENT, ComparedModels(comparison.report, comparison=comparison, part=part))
    note = note_of_sizes(comparison.mine.model, dimensions) if comparison.failures and not files else ""
    if note:
        messages.say(note)
    _leave(comparison, is_whole=is_whole)


def _widened(comparison: LockstepComparison) -> Limits:
    """Return the limits, wider if only one model is quantised, or has the other's weights rounded."""
    limits, models = comparison.limits, (comparison.mine.model, comparison.golden.model)
    reason, bits = apart(*models), fewest_bits(*models)
    if reason:
        limits, comparison.report.widened = limits.of_bits(bits, reason)
        return limits
    held = rounded_to(comparison.pairing.models)
    if held:
        messages.say(
            f"note: the weights of one model are the other's in {held}: {held} sets the limits (--precision)"
        )
    return replace(limits, precision=coarser(limits.precision, held))


def _refuse(is_refused: bool, reason: str) -> None:  # noqa: FBT001 - reads as a sentence
    if is_refused:
        raise click.UsageError(reason)


def _comparison(
    model: str,
    other: str | None,
    sides: tuple[Variant, Variant],
    limits: Limits,
    seed: int | None,
    *,
    trains: bool,
) -> LockstepComparison:
    """Load both sides, and pair their operators."""
    graph, copies = mindspore.load_graph(model, seed, _device(sides)), WeightCopies()
    second = graph
    if other is not None:
        second = sharing_weights(mindspore.load_graph(other, seed, _device(sides)), graph)
    mine, golden = (
        make_side(each, variant, copies, trains=trains, seed=seed)
        for each, variant in zip((graph, second), sides, strict=True)
    )
    pairing = pair_sides(mine, golden, is_one_model=other is None)
    return LockstepComparison(mine, golden, pairing, limits, trains=trains)


def _device(sides: tuple[Variant, Variant]) -> DeviceTarget:
    """Return the device that says which operators both sides of a .mindir have: Ascend has composites."""
    return max((side.context.device_target for side in sides), key=DeviceTarget.ASCEND.__eq__)


def _feeds(
    graph: Graph,
    files: tuple[str, ...],
    sizes: dict[str, int],
    seed: int,
    steps: int,
    *,
    trains: bool,
    given: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return the inputs of all runs: given, of each file, or made up, once a step; training has one batch."""
    read = [given] if given else [inputs.from_file(graph, path) for path in files]
    made_up = () if read else recipes_of(graph, sizes)
    return [
        bind_inputs(graph, (), arrays)
        for step in range(steps)
        for arrays in read or [inputs.drawn(made_up, seed, 0 if trains else step)]
    ]


def _run(comparison: LockstepComparison, fed: list[dict[str, Any]]) -> tuple[float, bool]:
    """Run both sides on all inputs, with warnings; return the seconds, and whether they ran to the end."""
    started, is_whole, known = time.perf_counter(), True, len(comparison.report.networks)
    messages.say_each("warning", comparison.report.networks)
    operators = sum(not node.is_added for node in comparison.mine.graph.operators)
    try:
        with messages.bar("operators", operators * len(fed)) as advance:
            for number, feeds in enumerate(fed, 1):
                came_to_end = comparison.run(feeds, advance, is_last=number == len(fed))
                # a step of training begins with the state that the one before it left
                if not came_to_end and comparison.trains:
                    break
    except KeyboardInterrupt:
        is_whole = False
    messages.say_each("warning", comparison.report.networks[known:])
    return time.perf_counter() - started, is_whole


def _leave(comparison: LockstepComparison, *, is_whole: bool) -> None:
    report = comparison.report
    if not is_whole:
        messages.say(f"interrupted in run {comparison.runs - 1}; the results so far follow")
        leave(INTERRUPTED)
    if not report.compared:
        messages.say("error: nothing was compared")
        leave(FAILED if comparison.failures else REFUSED)
    if comparison.failures or not report.agrees:
        leave(FAILED)


def _print(
    comparison: LockstepComparison, seconds: float, view: ComparisonView, compared: answer.Compared
) -> None:
    """Print the verdicts, the runs, and for each output of the network its worst run."""
    report, mine, golden = comparison.report, comparison.mine, comparison.golden
    for line in answer.summary_lines(report, compared):
        print(line)
    shown = verdicts.print_listing(report, view)
    source = mine.model.source
    other = "" if golden.model.source == source else f"{golden.model.source} on "
    print(
        f"ran       {plural(comparison.runs, 'step' if comparison.trains else 'run')} of {source}"
        f" on {mine.variant.text} against {other}{golden.variant.text} in {seconds:.2f} s"
    )
    for name in dict.fromkeys(output.evidence.name for output in comparison.outputs):
        worst = max((each for each in comparison.outputs if each.evidence.name == name), key=_badness)
        where = f" in run {worst.iteration}" if comparison.runs > 1 else ""
        print(f"output    {name}: {_apart(worst)}{where}")
    for line in answer.lines_below(report, shown):
        print(line)
