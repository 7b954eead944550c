"""Advice for a network: the operators to keep, found on some inputs, confirmed on others, and written."""

from __future__ import annotations

import enum
import json
import logging
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msdump.errors import InputError, MsdumpError, is_final
from msdump.execute import cpu_runtime
from msdump.graph import GE_TYPES, IN_MEMORY, Node, loader
from msdump.graph.cutting import mixed_model
from msdump.graph.kernel import FLOAT16, FLOAT32
from msdump.judge import reports
from msdump.judge.advise.search import SetSearch
from msdump.judge.advise.variants import (
    DeviceRuns,
    Example,
    Progress,
    Truth,
    Values,
    Variants,
    distance,
    golden,
)
from msdump.plan import PrecisionMode

_log = logging.getLogger("msdump.judge")

KEEP_DTYPE: Final = "keep_dtype.cfg"
CUSTOMIZE_DTYPES: Final = "customize_dtypes.cfg"
MODIFY_MIXLIST: Final = "modify_mixlist.json"
MINDSPORE: Final = "ascend_config.json"
MIXED: Final = "float16.onnx"
FRAGMENT: Final = "data_dump_fragment.json"

FILES: Final = {
    KEEP_DTYPE: "for ATC --keep_dtype",
    CUSTOMIZE_DTYPES: "for ATC --customize_dtypes",
    MODIFY_MIXLIST: "for ATC --modify_mixlist",
    MINDSPORE: "for MindSpore set_context",
    MIXED: "for onnxruntime and other runtimes",
    FRAGMENT: "for msdump configurations",
}
"""Reader of each written file, in a few words."""


@dataclass(frozen=True, slots=True)
class TypeSet:
    """Whole operator types to keep.

    Attributes:
        types: The types, as a compiled graph calls them.
        narrow: The network's other operator types, which the device may still narrow.
        size: Number of the operators of these types.
        error: Largest error of an output with all of them kept, for the inputs that the search has seen.
    """

    types: tuple[str, ...]
    narrow: tuple[str, ...]
    size: int
    error: float


def ge_type(node: Node) -> str:
    """Return the operator type under which CANN's lists know a node."""
    primitive = node.operator.op_type
    return GE_TYPES.get(primitive, primitive)


def write(advice: KeepAdvice, mode: PrecisionMode, folder: str) -> list[str]:
    """Write the files of some advice and return their paths.

    Args:
        advice: The advice, with types.
        mode: The precision mode of the other operators.
        folder: The folder; made if missing.

    Raises:
        ToolError: A file cannot be written.
    """
    texts = _texts(advice, mode, str(Path(folder).resolve()))
    paths = [reports.write(folder, name, (text,)) for name, text in texts.items()]
    if (model := _mixed_model(advice)) is not None:
        paths.append(reports.write_bytes(folder, MIXED, [model]))
    if advice.nameless:
        source = Path(advice.variants.graph.source)
        for name, parts in loader.named_files(str(source)).items():
            path = Path(folder, name).resolve()
            if path != source.resolve().parent / name or not path.exists():
                paths.append(reports.write_bytes(str(path.parent), path.name, parts))
    return paths


def _mixed_model(advice: KeepAdvice) -> bytes | None:
    """Return the model in which all operators but the advised ones are in float16, None if it is no use.

    It is tried on the inputs of the search: it must load, and its errors stay within the bound.
    """
    variants, kept = advice.variants, {node.name for node in advice.nodes}
    narrow = {
        node.name
        for node in variants.graph.nodes
        if node.name not in kept
        and FLOAT16 in {variants.narrow(node)[0].reads, variants.narrow(node)[0].writes}
    }
    if not narrow:
        return None
    try:
        model = mixed_model(variants.graph, narrow)
        session = cpu_runtime().session(model)
        names = [value.name for value in variants.graph.outputs]
        error = max(
            distance(output, example.golden[name])
            for example in advice.measured.examples
            for name, output in zip(names, session.run(names, example.feeds, None), strict=True)
        )
        reason = f"its error {error:.3g} exceeds {advice.bound:g}" if error > advice.bound else ""
    except Exception as failure:  # the runtime's classes vary
        if is_final(failure):
            raise
        reason = str(failure)
    if reason:
        _log.warning("%s is not written: %s", MIXED, reason)
    return None if reason else model


def _texts(advice: KeepAdvice, mode: PrecisionMode, folder: str) -> dict[str, str]:
    is_wide = advice.variants.to is FLOAT32
    names, key = (KEEP_DTYPE, "keep_dtype") if is_wide else (CUSTOMIZE_DTYPES, "customize_dtypes")
    path, lines = f"{folder}/{names}", []
    for node in advice.nodes:
        types = ""
        if not is_wide:
            (rounding,) = advice.variants.kept(node)
            reads = ",".join([rounding.reads.name] * max(1, sum(map(bool, node.inputs))))
            writes = ",".join([rounding.writes.name] * max(1, sum(map(bool, node.outputs))))
            types = f"::InputDtype:{reads},OutputDtype:{writes}"
        lines.append(f"{node.name}{types}\n")
    texts = {names: "".join(lines)}
    ascend_config: dict[str, Any] = {"precision_mode": str(mode), key: path}
    if is_wide:
        assert advice.types is not None
        lists = {
            "black-list": {"to-add": list(advice.types.types)},
            "white-list": {"to-add": list(advice.types.narrow)},
        }
        texts[MODIFY_MIXLIST] = _json(lists)
        # MindSpore has no keep_dtype list of single operators: it takes operator types only
        options = {"ge.exec.modify_mixlist": f"{folder}/{MODIFY_MIXLIST}"}
        is_bfloat = mode in {PrecisionMode.ALLOW_FP32_TO_BF16, PrecisionMode.ALLOW_MIX_PRECISION_BF16}
        mixed = (
            PrecisionMode.ALLOW_MIX_PRECISION_BF16 if is_bfloat else PrecisionMode.ALLOW_MIX_PRECISION_FP16
        )
        ascend_config = {"precision_mode": str(mixed), "ge_options": {"global": options}}
    texts[MINDSPORE] = _json({"ascend_config": ascend_config})
    texts[FRAGMENT] = _json({"msdump": {"precision_mode": str(mode), key: path}})
    return texts


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


class SearchEnd(enum.StrEnum):
    """How a search ended."""

    CONFIRMED = "confirmed"
    """The outputs stay within the bound on every input that the search has not seen."""
    UNCONFIRMED = "unconfirmed"
    """The bound holds on the inputs of the search, but not on all others, or there were no others."""
    NONE = "none"
    """No set keeps the bound."""
    INTERRUPTED = "interrupted"


class InputUse(enum.StrEnum):
    """Use of an input by a search."""

    SEARCHED = "searched"
    """Used by all rounds of the search."""
    JOINED = "joined"
    """Held out at first; an output exceeded the bound, so the later rounds of the search used the input."""
    HELD_OUT = "held out"
    """Used to confirm the set only."""


@dataclass(frozen=True, slots=True)
class ErrorPair:
    """The error of one output of one input.

    Attributes:
        example: The input: its file, or the seed and step of one that was made up.
        output: Name of the output.
        before: Its error without any operator kept in float32.
        after: Its error with the advised operators in float32, or all candidates if no set was found.
        use: Use of the input by the search.
    """

    example: str
    output: str
    before: float
    after: float
    use: InputUse

    @property
    def is_unseen(self) -> bool:
        """Whether the search did not use the input."""
        return self.use is InputUse.HELD_OUT


@dataclass(frozen=True, slots=True)
class KeepAdvice:
    """The result of a search: operators to keep in float32, so that errors of outputs stay within a bound.

    Attributes:
        measured: The runs of the inputs of the search.
        bound: The largest error that is allowed.
        limit: The largest error that the search allowed: the bound less a margin for inputs not seen.
        kept: Positions of the operators to keep; None where even all operators kept miss the bound.
        errors: The errors of every output and input; without a set, ``after`` is that with everything kept.
        outcome: End of the search.
        is_smallest: Whether removing any operator breaks the limit on an input of the search.
        types: The types of the operators to keep; None where there are none, or the search was interrupted.
    """

    measured: DeviceRuns
    bound: float
    limit: float
    kept: frozenset[int] | None
    errors: tuple[ErrorPair, ...]
    outcome: SearchEnd
    is_smallest: bool
    types: TypeSet | None = None

    @property
    def is_confirmed(self) -> bool:
        """Whether the bound holds on inputs that had no part in the search."""
        return self.outcome is SearchEnd.CONFIRMED

    @property
    def largest(self) -> ErrorPair:
        """The largest error with the advised operators kept."""
        return max(self.errors, key=lambda each: each.after)

    @property
    def likely(self) -> float:
        """Error that another input seldom exceeds; that of an input is the largest of its outputs."""
        by_input: dict[str, float] = {}
        for error in self.errors:
            by_input[error.example] = max(error.after, by_input.get(error.example, 0.0))
        return _likely([*by_input.values()])

    @property
    def runs(self) -> float:
        """How often the whole network ran, partial runs added up."""
        return self.variants.spent / len(self.variants.graph.nodes)

    @property
    def variants(self) -> Variants:
        """The network."""
        return self.measured.variants

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operators to keep, in execution order."""
        return self.nodes_at(self.kept or frozenset())

    @property
    def nameless(self) -> tuple[Node, ...]:
        """The operators to keep that have no name in the model's file, so other tools cannot name them."""
        source = self.variants.graph.source
        known = None if source == IN_MEMORY else loader.node_names(source)
        return tuple(node for node in self.nodes if known is not None and node.name not in known)

    def nodes_at(self, positions: frozenset[int]) -> tuple[Node, ...]:
        """Return the operators of candidates."""
        return tuple(node for each in sorted(positions) for node in self.variants.candidates[each])


_ROUNDS: Final = 12
"""Largest number of searches: each one that is refuted is repeated with a smaller limit."""

_HELD_OUT: Final = 8  # made-up inputs that confirm a set, in addition to the user's
_JOINING: Final = 2  # largest number of refuting inputs that join the search at once

_DEVIATIONS: Final = 5.0  # errors have a longer tail than a normal distribution, and few inputs show little


def _likely(errors: Sequence[float]) -> float:
    """Return an error that another input seldom exceeds: five standard deviations above the mean."""
    if len(errors) < 2 or not math.isfinite(max(errors)):  # noqa: PLR2004 - one has no spread
        return max(errors, default=0.0)
    return max(*errors, statistics.fmean(errors) + _DEVIATIONS * statistics.stdev(errors))


Unseen = Callable[[int], tuple[str, Values]]
"""Returns a made-up input by number: its name, and the arrays to feed."""

Named = Sequence[tuple[str, Values]]
"""Inputs as pairs of a name for messages and the arrays to feed."""


def advise(
    variants: Variants,
    truth: Truth,
    seen: Named,
    held: Named,
    made_up: Unseen,
    *,
    bound: float,
    progress: Progress = Progress(),  # noqa: B008 - frozen
) -> KeepAdvice:
    """Return the smallest set of operators to keep so that every output stays within a bound.

    Args:
        variants: The network.
        truth: Gives the outputs that are right.
        seen: Inputs that the search looks at.
        held: Inputs that the set is confirmed on. One that refutes it is looked at from then on.
        made_up: Gives further inputs to confirm it on, likewise.
        bound: The largest relative error of any output of any input.
        progress: Informed of the search.

    Raises:
        InputError: True outputs of given inputs are not finite, or the device rounds nothing.
    """
    if not variants.candidates:
        raise InputError(
            f"{variants.graph.source}: the device rounds no operator, so no operator needs to be kept"
        )
    variants.progress = progress
    examples, trials = ([golden(name, feeds, truth) for name, feeds in each] for each in (seen, held))
    search = SetSearch(DeviceRuns(variants, examples), bound)

    def finite() -> Iterator[Example]:
        """Yield made-up inputs with a finite truth."""
        for number in range(_HELD_OUT + _ROUNDS * _JOINING):
            try:
                yield golden(*made_up(number), truth)
            except MsdumpError as error:
                variants.progress.say(f"unusable for the confirmation: {error}")

    try:
        return _confirmed(search, bound, trials, finite())
    except KeyboardInterrupt:
        end = SearchEnd.INTERRUPTED
        return KeepAdvice(search.runs, bound, search.limit, search.best, (), end, is_smallest=False)


def _confirmed(
    search: SetSearch, bound: float, held: Sequence[Example], source: Iterator[Example]
) -> KeepAdvice:
    """Search with a limit that falls until further inputs, too, are likely to stay within the bound."""
    runs, progress = search.runs, search.runs.variants.progress
    trials, kept, limit = [*held, *islice(source, _HELD_OUT)], None, bound
    outcome, joined, is_minimal = SearchEnd.UNCONFIRMED, list[Example](), False

    def with_margin(kept: frozenset[int]) -> float:
        """Return the limit for the inputs of the search with which other inputs likely hold the bound."""
        errors = runs.largest(kept, [*runs.examples, *trials])
        likely = _likely(errors)
        return bound * max(errors[: len(runs.examples)]) / likely if 0 < likely < math.inf else bound

    search.limit = with_margin(frozenset())
    if rough := search.rough():  # the spread over inputs differs from set to set
        search.limit = min(search.limit, with_margin(rough))
    for _ in range(_ROUNDS):
        found = search.smallest()
        if found is None:
            break
        kept, limit, is_minimal = found, search.limit, search.is_minimal
        errors = runs.largest(kept, trials)
        for trial, error in zip(trials, errors, strict=True):
            progress.say(f"on {trial.name}, held out: error {error:.3g}")
        worst = runs.worst(kept)
        likely = _likely([*runs.largest(kept, runs.examples), *errors])
        if likely <= bound:
            outcome = SearchEnd.CONFIRMED if trials else SearchEnd.UNCONFIRMED
            break
        # only the refuting inputs with the largest errors join: a set that holds on them mostly holds on all
        by_error = sorted(zip(errors, trials, strict=True), key=lambda each: -each[0])
        joining = [trial for error, trial in by_error[:_JOINING] if error > bound]
        runs.examples += joining
        joined += joining
        trials = [trial for trial in trials if trial not in joining]
        trials += islice(source, _HELD_OUT - sum(trial not in held for trial in trials))
        if worst and math.isfinite(likely):  # below the errors of this set, which so is refuted
            search.limit = worst * bound / likely
    outcome = SearchEnd.NONE if kept is None else outcome
    search.is_minimal = is_minimal  # of the set that was found, where a smaller limit had none
    nothing = frozenset[int]()
    after = frozenset(runs.variants.candidates) if kept is None else kept
    examples = [*runs.examples, *trials]
    uses = dict.fromkeys(joined, InputUse.JOINED) | dict.fromkeys(trials, InputUse.HELD_OUT)
    pairs = zip(examples, *runs.errors([nothing, after], examples), strict=True)
    found_errors = [
        ErrorPair(example.name, output, before[output], kept_error, uses.get(example, InputUse.SEARCHED))
        for example, before, with_kept in pairs
        for output, kept_error in with_kept.items()
    ]
    advice = KeepAdvice(runs, bound, limit, kept, tuple(found_errors), outcome, search.is_minimal)
    if not kept:
        return advice
    # the set of all operators that share a type with an advised one, and its error
    types, candidates = sorted({ge_type(node) for node in advice.nodes}), runs.variants.candidates
    of_types = frozenset(
        position for position, nodes in candidates.items() if any(ge_type(node) in types for node in nodes)
    )
    narrow = sorted({ge_type(node) for nodes in candidates.values() for node in nodes} - set(types))
    of_advice = TypeSet(tuple(types), tuple(narrow), len(advice.nodes_at(of_types)), runs.worst(of_types))
    return replace(advice, types=of_advice)
