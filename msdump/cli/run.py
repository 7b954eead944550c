"""``msdump run``: a model runs as one rank, as several in this process, or as the one of a launcher."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from msdump import dtypes, env, tracing
from msdump.cli import messages, options, output, sections
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, INTERRUPTED, leave, mark_started, message_of
from msdump.communication import MOST_RANKS, Outcome, RankThreads, current
from msdump.config import templates
from msdump.device import Ascend
from msdump.errors import ExecutionError, plural
from msdump.execute import Replaceable, TrainingState, bind_inputs, losses
from msdump.frontends import mindspore
from msdump.graph import Graph
from msdump.judge import Recipe, inputs, note_of_sizes, recipes_of
from msdump.plan import DeviceTarget, Tree
from msdump.selector import DumpMode, IterationSet
from msdump.session import Network
from msdump.store import Key, PathKind
from msdump.store.write import write_file

Feed = Callable[[int], dict[str, Any]]
"""Returns the inputs of a step by name."""

_RANK: Final = "{rank}"
_UNMARKED: Final = "dump_mode 2 dumps what a program marks by msdump.set_dump, and a run marks nothing"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Arguments and options of the command line, as ``--help`` describes them; paths may hold ``{rank}``."""

    model: str
    inputs: str | None
    dimensions: dict[str, int]
    seed: int | None
    replaced: dict[str, str]
    steps: int
    train: bool
    load_state: str | None
    save_state: str | None
    save_outputs: str | None
    has_config: bool
    path: str | None

    def feed(self, graph: Graph) -> tuple[Feed, tuple[Recipe, ...]]:
        """Return a function step -> inputs, and the recipes of made-up inputs.

        Every step of training has the same inputs.
        """
        if self.inputs is not None:
            arrays = inputs.from_file(graph, _of_rank(self.inputs))
            return lambda _step: arrays, ()
        recipes, seed = recipes_of(graph, self.dimensions), self.seed or 0
        if self.train:
            made_up = inputs.drawn(recipes, seed, 0)
            return lambda _step: made_up, recipes
        return lambda step: inputs.drawn(recipes, seed, step), recipes


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """An output of a network in numbers.

    Attributes:
        name: Name of the output.
        dtype: Type of its elements; "" for an output that is no tensor.
        shape: Its shape.
        min: Smallest finite element; None: there is none.
        max: Largest finite element; None: there is none.
        mean: Mean of the finite elements; None: there are none.
        nan: Number of elements that are NaN.
        inf: Number of elements that are infinite.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    nan: int = 0
    inf: int = 0

    @classmethod
    def of(cls, name: str, value: Any) -> OutputSummary:
        """Return the summary of an output."""
        if not isinstance(value, np.ndarray):
            return cls(name)
        dtype = dtypes.from_numpy(value.dtype)
        if dtype is dtypes.STRING or dtype.name.startswith("complex"):
            return cls(name, dtype.name, value.shape)
        numbers = value.astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        low, high, mean = None, None, None
        if finite.size:
            low, high, mean = float(finite.min()), float(finite.max()), float(finite.mean())
        nan, inf = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
        return cls(name, dtype.name, value.shape, low, high, mean, nan, inf)


@dataclass(frozen=True, slots=True)
class DumpedFiles:
    """The files of a rank's dump.

    Attributes:
        path: Directory of the files.
        iterations: Numbers of the dumped iterations that ran and have files on disk.
        dropped: Numbers of the others: no watch rule hit, the history had no reason to write them, or all of
            their files were lost.
        files: Number of files.
        bytes: Bytes in all of them.
        no_tensors: Why none of the files can hold an operator's tensor; None where they can.
        skipped: Number of tensors without a file, by reason.
        lost: Number of files that could not be written, by reason.
        not_run: Selected iterations behind the last one that ran, such as 1|5-8; None: none.
        needed_steps: Value of --steps that runs them; None: none.
    """

    path: str
    iterations: list[int]
    dropped: list[int]
    files: int
    bytes: int
    no_tensors: str | None
    skipped: Mapping[str, int]
    lost: Mapping[str, int]
    not_run: str | None = None
    needed_steps: int | None = None


@dataclass(slots=True)
class ModelRun:
    """A run of a model as one rank, and its progress.

    Attributes:
        network: The network, or that of its training step.
        replaced: Tensors in the place of operators' outputs, by the operator's name.
        rank: Number of its rank, 0 where it runs alone.
        completed: Numbers of the iterations that are complete.
        losses: The loss of each step of training, the mean where it has several elements; none where the
            steps return none.
        outputs: Outputs of the last iteration, by name.
        inputs: Recipes of the made-up inputs; none with --inputs.
    """

    network: Network
    feed: Feed
    request: RunRequest
    inputs: tuple[Recipe, ...]
    replaced: Mapping[str, np.ndarray] = field(default_factory=dict)
    rank: int = 0
    completed: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)

    def step(self) -> None:
        """Run the model once."""
        iteration = self.network.iteration
        if len(self.completed) + 1 == self.request.steps:
            self.network.forget_sessions()
        try:
            tracing.timed(self._run, "iteration", f"iteration {iteration}")()
        except ExecutionError:
            note = note_of_sizes(self.network.graph, self.request.dimensions) if self.inputs else ""
            if note:
                messages.say_once(note)
            raise
        self.completed.append(iteration)

    def _run(self) -> None:
        fed = self.feed(len(self.completed))
        if self.request.train:
            outputs = self.network.train_step(**fed)
            names = [value.name for value in self.network.graph.results]
            self.outputs = dict(
                zip(names, outputs if isinstance(outputs, tuple) else (outputs,), strict=True)
            )
            found = losses(self.network.graph, self.outputs.values())
            self.losses += [float(np.mean(item)) for item in found[:1]]
        else:
            self.outputs = self.network.run(fed, replace=self.replaced)

    def save(self) -> None:
        """Save the state (--save-state) and the outputs (--save-outputs), also where a later step failed."""
        if not self.completed:
            return
        if self.request.save_state is not None:
            inputs.write_arrays(_of_rank(self.request.save_state), self.network.state())
        if self.request.save_outputs is not None:
            inputs.write_arrays(_of_rank(self.request.save_outputs), dict(_savable(self.outputs)))

    @property
    def model(self) -> str:
        """File of the model that it ran."""
        return self.network.graph.source

    @property
    def operators(self) -> int:
        """Number of its operators, in branches and loops as well."""
        return sum(len(graph.operators) for graph in self.network.graph.walk())

    @property
    def device(self) -> str:
        """The emulated device: CPU, GPU, or Ascend with its level."""
        context = self.network.context
        return f"{context.device_target} {context.jit_level or ''}".rstrip()

    @property
    def results(self) -> list[OutputSummary]:
        """The outputs of the last iteration in numbers."""
        return [OutputSummary.of(name, value) for name, value in self.outputs.items()]

    @property
    def dump(self) -> DumpedFiles | None:
        """The files that it dumped; null where nothing is dumped."""
        plan, summary = self.network.plan, self.network.summary
        if plan is None or summary is None:
            return None
        path = plan.files.path.rstrip("/")
        if plan.files.tree is Tree.RANKS:
            path = f"{path}/{Key(PathKind.NETWORK, self.rank, plan.files.net_name).path}"
        wanted = [number for number in self.completed if number in plan.when.iterations]
        written = self.network.written_iterations
        return DumpedFiles(
            path,
            [each for each in wanted if each in written],
            [each for each in wanted if each not in written],
            summary.files,
            summary.bytes,
            _UNMARKED if plan.what.selector.mode is DumpMode.MARKED else None,
            summary.skipped,
            summary.lost,
            *self._not_run(plan.when.iterations),
        )

    def _not_run(self, selected: IterationSet) -> tuple[str, int] | tuple[None, None]:
        """Return the selected iterations behind a complete run, and the value of --steps that runs them."""
        if len(self.completed) < self.request.steps:
            return None, None
        last = self.completed[-1]
        later = [(max(low, last + 1), high) for low, high in selected.spans or () if high > last]
        if not later:
            return None, None
        return str(IterationSet.of(later)), self.request.steps + later[-1][1] - last

    @property
    def no_dump(self) -> str | None:
        """Why nothing is dumped; null where something is."""
        if self.dump is not None:
            return None
        if not self.request.has_config:
            return f"neither --path nor --config nor {env.DUMP_CONFIG} is given"
        if not self.network.graph.nodes:
            return "the model has no operators"
        return "support_device does not contain this device"


@dataclass(frozen=True, slots=True)
class FinishedRuns:
    """The runs of a process; iterations before an error count.

    Attributes:
        seconds: How long they took.
        ranks: The run of each rank of this process, by number.
    """

    seconds: float
    ranks: Sequence[ModelRun]


DOCUMENT: Final = Document(
    Shape(FinishedRuns, "seconds ranks", name="RunDocument"),
    Shape(
        ModelRun,
        "rank model iterations=completed operators device inputs outputs=results losses dump no_dump",
        name="RankRun",
    ),
    Shape(Recipe, "name dtype shape how", name="MadeUpInput"),
)


def _load(request: RunRequest) -> ModelRun:
    """Load the model of the thread's rank; wrong inputs are refused before anything is written."""
    feed: Feed | None = None
    recipes: tuple[Recipe, ...] = ()
    state: Mapping[str, np.ndarray] | None = None

    replaced: dict[str, np.ndarray] = {}

    def check(graph: Graph, emulate: Callable[[], Ascend | None]) -> None:
        nonlocal feed, recipes, state
        if request.load_state is not None:
            remedy = "--load-state takes what --save-state wrote, or numpy.savez(path, **network.state())"
            fits = TrainingState(graph).checked
            state = inputs.read_arrays(_of_rank(request.load_state), graph.step.type_of, remedy, fits)
        step = graph.training_step() if request.train else graph
        feed, recipes = request.feed(step)
        bind_inputs(step, (), feed(0))
        if request.replaced:
            outputs = Replaceable(graph, emulate())
            remedy = "--replace takes a file of numpy.save(path, array), such as a dumped tensor"
            for name, path in request.replaced.items():
                file = _of_rank(path)
                replaced.update(inputs.read_arrays(file, outputs.type_of, remedy, outputs.checked, name))

    network = mindspore.load_checked(_of_rank(request.model), check, request.seed)
    assert feed is not None, "the graph was checked"
    if state is not None:
        network.load_state(state)
    network = network.training if request.train else network
    return ModelRun(network, feed, request, recipes, replaced, current().identity.rank)


def _of_rank(path: str) -> str:
    """Return a path with the rank's number for ``{rank}``, unless a file has that very name."""
    return path if Path(path).exists() else path.replace(_RANK, str(current().identity.rank))


def _savable(outputs: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the outputs that an .npz file can hold; bfloat16, int4, ... are widened as in dump files."""
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray):
            kind = "absent" if value is None else "a sequence, which an .npz file cannot hold"
            messages.say_once(f"warning: output {name!r} is not saved: it is {kind}")
        elif value.dtype.hasobject:
            yield name, value.astype(np.str_)
        else:
            yield name, dtypes.widen(value, dtypes.from_numpy(value.dtype))


_MOST_LOSSES: Final = 10
_MOST_VALUES: Final = 5  # lines of inputs, and of outputs; -v shows all
_WHY_DROPPED: Final = "no watch rule hit, and nothing failed"
_WHY_EMPTY: Final = "all of their files were lost"


def _report(runs: Sequence[ModelRun], seconds: float, *, has_speakers: bool) -> None:
    """Print the results of the ranks of this process, once their files are written."""
    texts = []
    for run in runs:
        speaker = f"rank {run.rank}: " if has_speakers else ""
        texts.append("\n".join(f"{speaker}{line}" for line in _lines(run, seconds)))
    output.show(DOCUMENT, FinishedRuns(seconds, runs), texts)  # no other output between lines


def _lines(run: ModelRun, seconds: float) -> Iterator[str]:
    yield f"ran      {_iterations(run.completed)} of {run.model} in {seconds:.2f} s"
    if not run.request.has_config:
        yield f"network  {plural(run.operators, 'operator')} on {run.device}"
    is_long = messages.verbosity() or not run.request.has_config
    made_up = [recipe for recipe in run.inputs if recipe.is_chosen or is_long]
    yield from _aligned("input", [(each.name, _type(each.dtype, each.shape), each.how) for each in made_up])
    if not run.request.has_config:
        yield from _aligned(
            "output", [(each.name, _type(each.dtype, each.shape), _numbers(each)) for each in run.results]
        )
    losses = [f"{loss:.7g}" for loss in run.losses]
    if len(losses) > _MOST_LOSSES and not messages.verbosity():
        losses = [*losses[: _MOST_LOSSES // 2], "...", *losses[-_MOST_LOSSES // 2 :]]
    if losses:
        yield f"loss     {' '.join(losses)}"
    dump, plan = run.dump, run.network.plan
    if dump is None or plan is None:
        yield f"no dump: {run.no_dump}"
        if not run.request.has_config and run.completed:
            model = shlex.quote(run.request.model)
            yield f"to dump: msdump run {model} --path dump"
        return
    yield f"dumped   {_iterations(dump.iterations)}: {dump.files} files, {dump.bytes:,} bytes"
    yield f"into     {dump.path}"
    if dump.no_tensors:
        yield f"no tensors: {dump.no_tensors}"
    if dump.dropped:
        holds_back = plan.watch.writes_hits_alone or plan.watch.history
        yield f"dropped  {_iterations(dump.dropped)}: {_WHY_DROPPED if holds_back else _WHY_EMPTY}"
    if dump.skipped:
        yield f"skipped  {_counts(dump.skipped, 'tensor')}"
    if dump.lost:
        yield f"lost     {_counts(dump.lost, 'file')}"
    if dump.not_run is not None:
        noun = "iteration" if dump.not_run.isdecimal() else "iterations"
        yield f"not run  selected {noun} {dump.not_run} (option: --steps {dump.needed_steps})"
    if run.request.path is None:
        yield from (f"variable {text}" for text in options.unused_variable(plan).values())


def _parse_replaced(_ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    replaced: dict[str, str] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name or not path:
            raise click.BadParameter(f"{text!r} is not OPERATOR=FILE.npy, such as Conv2D-op0=tensor.npy")
        if name in replaced:
            raise click.BadParameter(f"{name!r} is given twice")
        replaced[name] = path
    return replaced


def _aligned(title: str, rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yield a line for each row, its cells in columns; long lists are cut."""
    shown = rows if messages.verbosity() or len(rows) <= _MOST_VALUES + 1 else rows[:_MOST_VALUES]
    widths = [max((len(row[column]) for row in shown), default=0) for column in range(2)]
    for name, kind, words in shown:
        yield f"{title:<9}{name:<{widths[0]}}  {kind:<{widths[1]}}  {words}".rstrip()
    if len(shown) < len(rows):
        yield f"{'':<9}... and {len(rows) - len(shown)} more (-v shows all)"


def _type(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {shape}" if dtype else "no tensor"


def _numbers(summary: OutputSummary) -> str:
    numbers = ("min", summary.min), ("max", summary.max), ("mean", summary.mean)
    texts = [f"{name} {number:.6g}" for name, number in numbers if number is not None]
    counts = ("NaN", summary.nan), ("infinite", summary.inf)
    return ", ".join([*texts, *(f"{count:,} {name}" for name, count in counts if count)])


def _iterations(numbers: list[int]) -> str:
    if not numbers:
        return "0 iterations"
    return f"{len(numbers)} iteration{'s' * (len(numbers) != 1)} ({IterationSet.of_numbers(numbers)})"


def _counts(counts: Mapping[str, int], noun: str) -> str:
    """Return ``3 tensors (no elements), 1 tensor (text)``."""
    return ", ".join(f"{count} {noun}{'s' * (count != 1)} ({reason})" for reason, count in counts.items())


def _run_ranks(request: RunRequest, ranks: int) -> None:
    """Run a model, or one for each rank, as several ranks; print the results of each of them."""
    threads = RankThreads(ranks)
    runs = threads.in_turn(lambda: _load(request))
    mark_started(lambda: any(run.network.has_run for run in runs))
    started, outcomes = time.perf_counter(), [Outcome() for _ in runs]
    try:
        with messages.bar("iterations", request.steps * ranks) as advance:

            def work() -> None:
                run = runs[current().identity.rank]
                try:
                    while len(run.completed) < request.steps and not threads.is_stopped:
                        run.step()
                        advance()
                finally:
                    mindspore.finish()
                    run.save()

            outcomes = threads.at_once(work)
    except KeyboardInterrupt:
        messages.say("interrupted; files that were written are complete")
        leave(INTERRUPTED)
    finally:
        _report(runs, time.perf_counter() - started, has_speakers=True)
    first = threads.first_failure(outcomes)
    if first is None:
        return
    for rank in sorted(range(ranks), key=lambda rank: (rank != first, rank)):
        error = outcomes[rank].error
        if error is not None:
            messages.say(f"rank {rank}: {message_of(error)}")
    leave(FAILED)


_SYNC: Final = "sync"
_MODES: Final = (_SYNC, "async", "statistics", "overflow", "o2")

_dump: Final = sections.Section("Dump")
_steps: Final = sections.Section("Steps and training")


@click.command(name="run", cls=sections.Command)
@click.argument("model", type=click.Path(), help="ONNX model.")
@sections.inputs(
    "--inputs", type=click.Path(), metavar="FILE.npz", help="Inputs by name or position, for every step."
)
@sections.inputs(
    "--seed",
    type=click.IntRange(min=0),
    show_default="0",
    help="Seed of made-up inputs; if given, also of random operators without a seed.",
)
@options.dimensions
@sections.inputs(
    "--replace",
    "replaced",
    multiple=True,
    metavar="OPERATOR=FILE.npy",
    callback=_parse_replaced,
    help="Tensor in place of an operator's output, in every step; OPERATOR:1 is output 1. (repeatable)",
)
@_steps("--steps", type=click.IntRange(min=1), default=1, help="Number of steps.")
@_steps("--train", is_flag=True, help="Run training steps and print the loss.")
@_steps("--save-state", type=click.Path(), metavar="FILE.npz", help="Write the variables after training.")
@_steps(
    "--load-state", type=click.Path(), metavar="FILE.npz", help="Start with the variables of --save-state."
)
@_dump(
    "--config",
    type=click.Path(),
    metavar="FILE.json",
    show_default="$MINDSPORE_DUMP_CONFIG",
    help="Dump configuration.",
)
@_dump(
    "--path",
    type=click.Path(),
    metavar="DIR",
    show_default="path of the configuration",
    help="Directory of the dump. Without a configuration all tensors of iteration 0 are dumped.",
)
@_dump(
    "--dump",
    "mode",
    type=click.Choice(_MODES),
    show_default=_SYNC,
    help=f"Mode of a dump without a configuration, as of msdump init. All but {_SYNC} run on Ascend.",
)
@options.context
@sections.device(
    "--ranks",
    type=click.IntRange(min=1, max=MOST_RANKS),
    metavar="N",
    help="Run N ranks in this process. In paths {rank} is the number of the rank.",
)
@sections.output(
    "--save-outputs", type=click.Path(), metavar="FILE.npz", help="Write the outputs of the last step."
)
@sections.output(
    "--trace",
    type=click.Path(),
    metavar="FILE.json",
    help="Write the times of operators and files as a trace for Perfetto or chrome://tracing.",
)
@output.option
@messages.verbose
def command(
    *,
    seed: int | None,
    ranks: int | None,
    trace: str | None,
    config: str | None,
    mode: str | None,
    device_target: str | None,
    jit_level: str | None,
    device_id: int | None,
    **given: Any,
) -> None:
    """Run an ONNX model and dump it.

    The model runs operator by operator. The dump configuration selects the dumped tensors.
    Without a configuration, --path dumps all tensors; without both nothing is dumped.

    Without --inputs the inputs are made up: equal for equal seeds and steps. All training steps
    use the inputs of step 0. Options override environment variables.

    Examples:
        msdump run model.onnx
        msdump run model.onnx --config data_dump.json --steps 3
        msdump run step.onnx --train --steps 10 --save-state state.npz

    Exit codes:
        0  The run is complete.
        1  The run failed, or a file could not be written.
        2  The model, an input, the configuration or an option is wrong. Nothing ran.
    """
    is_configured = bool(config or env.read(env.DUMP_CONFIG))
    request = RunRequest(seed=seed, has_config=is_configured or bool(given["path"]), **given)
    if request.inputs is not None and (seed is not None or request.dimensions):
        raise click.UsageError("--inputs excludes --seed and --dim (for made-up inputs)")
    if request.replaced and request.train:
        raise click.UsageError("--replace excludes --train: a replaced output has no gradient")
    if request.save_state is not None and not request.train:
        raise click.UsageError("--save-state needs --train: only training changes a state")
    if request.path == "":
        raise click.UsageError("--path needs a directory")
    if mode is not None and is_configured:
        raise click.UsageError(f"--dump excludes --config and {env.DUMP_CONFIG}: a configuration has a mode")
    if mode is not None and request.path is None:
        raise click.UsageError(f"--dump {mode} needs --path DIR, the directory of the dump")
    _check_ranks(ranks, device_id)
    if mode not in {None, _SYNC} and env.read(env.DEVICE_TARGET) is None:
        device_target = device_target or DeviceTarget.ASCEND
    mindspore.set_options(device_target=device_target, jit_level=jit_level, device_id=device_id)
    if config is not None:
        mindspore.set_config(config, "--config")
    if request.path is not None:
        mindspore.set_path(request.path)
        if not is_configured:  # the configuration that ``msdump init`` writes for the mode
            answers = templates.Answers(str(Path(request.path).absolute()))
            text = templates.render(templates.MODES[mode or _SYNC], answers)
            mindspore.set_config(json.loads(text), f"--dump {mode or _SYNC}")
    with contextlib.nullcontext() if trace is None else _traced(trace):
        if ranks is not None:
            _run_ranks(request, ranks)
        else:
            _run_rank(request)


def _run_rank(request: RunRequest) -> None:
    """Run a model as the only rank of this process; print the results of a failed run, too."""
    run = _load(request)
    mark_started(lambda: run.network.has_run)  # an earlier error is a fault of the inputs
    started = time.perf_counter()
    try:
        with messages.bar("iterations", request.steps) as advance:
            for _ in range(request.steps):
                run.step()
                advance()
    except KeyboardInterrupt:
        messages.say(
            f"interrupted in iteration {run.network.iteration}; files that were written are complete"
        )
        leave(INTERRUPTED)
    finally:
        try:
            run.save()
        finally:
            seconds = time.perf_counter() - started
            mindspore.finish()  # writes queued files: only then the report's counts are final
            _report([run], seconds, has_speakers=current().identity.size > 1)


@contextmanager
def _traced(path: str) -> Iterator[None]:
    """Trace the block, and write the trace, also where the block fails or is interrupted."""
    trace = tracing.begin()
    try:
        yield
    finally:
        tracing.end()
        title = f"msdump, rank {current().identity.rank}"
        write_file(_of_rank(path), tracing.chrome_pieces(trace, title))


def _check_ranks(ranks: int | None, device_id: int | None) -> None:
    """Refuse --ranks where something else says which rank or device this is; name the rank in messages."""
    identity = current().identity
    if ranks is not None and identity.size > 1:
        raise click.UsageError(
            f"--ranks excludes a launcher: {identity.launcher} says that this is rank {identity.rank} of"
            f" {identity.size}"
        )
    if ranks is not None and device_id is not None:
        raise click.UsageError("--ranks excludes --device-id: each rank has the device of its number")
    if identity.size > 1:
        messages.speak_as(f"rank {identity.rank}")
