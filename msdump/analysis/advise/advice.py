"""Advice for a network: the operators to keep, found on some inputs and confirmed on another one."""

from __future__ import annotations

import enum
import gc
import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump.analysis import reports
from msdump.analysis.advise import variants
from msdump.analysis.advise.atoms import Atom, RoundingMeter, atoms_of
from msdump.analysis.advise.variants import DeviceRuns, Example, Truth, Values, Variants, golden
from msdump.errors import InputError
from msdump.graph import GE_TYPES, Node
from msdump.graph.kernel import FLOAT32, Rounding
from msdump.plan import PrecisionMode

MOST_EXACT: Final = 16
"""Networks of up to so many operators that can be kept are searched exhaustively."""

_ONE_STRETCH: Final = 40  # runs of the network that measuring without stretches may cost
_PATIENCE: Final = 24
"""Operators that cannot be dropped, one after the other, until no further one is tried."""

_TRIES: Final = 48  # runs of the network, of all inputs, that are spent on dropping single operators

Progress = Callable[[str], None]
"""Takes a line that says what goes on."""


@dataclass(slots=True)
class SetSearch:
    """Finds the sets of one network, for more and more inputs.

    Attributes:
        runs: The network and its inputs.
        limit: The largest error of any output of any input.
        progress: Told what goes on.
        best: The smallest set so far that held for the inputs of its time.
    """

    runs: DeviceRuns
    limit: float
    progress: Progress
    best: frozenset[int] | None = None
    _energies: list[np.ndarray] = field(default_factory=list)
    _sizes: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        """Count the operators."""
        candidates = self.runs.variants.candidates
        self._sizes = {position: len(nodes) for position, nodes in candidates.items()}

    @property
    def share(self) -> float:
        """How often the whole network has run, partial runs added up."""
        return self.runs.spent / len(self.runs.variants.graph.nodes)

    @property
    def is_exact(self) -> bool:
        """Whether the network is small enough to try every set."""
        return sum(self._sizes.values()) <= MOST_EXACT

    def add(self, example: Example) -> None:
        """Look at one more input from now on; what held before is forgotten."""
        self.best = None
        self.runs.examples.append(example)

    def smallest(self) -> frozenset[int] | None:
        """Return a small set whose measured errors stay within the bound, None where none was found."""
        if self.runs.worst(frozenset(), self.limit) <= self.limit:
            return frozenset()
        if self.is_exact:
            return variants.smallest(self.runs, self.limit, self._costs(), self.progress)
        return self._by_roundings()

    def _costs(self) -> dict[int, int]:
        values = dict(self.runs.examples[0].feeds)
        variants = self.runs.variants
        costs = {}
        for position in range(len(variants.graph.nodes)):
            values |= variants.run(position, values, is_kept=True)
            costs[position] = variants.cost(position, values)
        return costs

    def _by_roundings(self) -> frozenset[int] | None:
        roundings = self._measured()
        kept = self._of_series(*roundings.series())
        if kept is None:
            return None
        limit = roundings.square(kept)
        improved = roundings.improved(kept, limit)
        if self._size(improved) < self._size(kept) and self._holds(improved):
            kept = improved
        return self._dropped(kept, roundings)

    def _measured(self) -> Roundings:
        """Return the roundings with their energies: the largest of all inputs."""
        variants = self.runs.variants
        atoms = atoms_of(variants)
        wide = np.zeros((len(atoms), len(variants.graph.outputs)))
        is_short = len(atoms) / 2 * len(self.runs.examples) <= _ONE_STRETCH
        stretches = 1 if is_short else round(math.sqrt(len(atoms)))
        for example in self.runs.examples[len(self._energies) :]:
            self.progress(f"measuring {len(atoms)} roundings on {example.name}")
            meter = RoundingMeter(variants, example, stretches)
            # of a large network the first input tells how errors grow, the others what overflows
            clipped_only = bool(self._energies) and not is_short
            self._energies.append(meter.energies(atoms, clipped_only=clipped_only))
            self.runs.spent += meter.spent
        if variants.to is not FLOAT32:
            meter = RoundingMeter(variants, self.runs.examples[0], stretches)
            wide = meter.energies([replace(atom, dtype=variants.to) for atom in atoms])
        return Roundings(atoms, np.maximum.reduce(self._energies), wide, self._sizes)

    def _of_series(self, gone: Sequence[int], squares: Sequence[float]) -> frozenset[int] | None:
        """Return the smallest set of a series that holds, found by halving."""
        low, high = 0, len(gone)
        guess = max((i for i, square in enumerate(squares) if square <= self.limit**2), default=0)
        best: frozenset[int] | None = None
        while low <= high:
            kept = frozenset(gone[guess:])
            if self._holds(kept):
                best, low = kept, guess + 1
            else:
                high = guess - 1
            # near the prediction first, then by halves
            guess = (low + high) // 2
        return best

    def _dropped(self, kept: frozenset[int], roundings: Roundings) -> frozenset[int]:
        """Return a set without the operators that the device can do without, one by one."""
        count = len(self.runs.variants.graph.nodes)
        most = self.runs.spent + _TRIES * count * len(self.runs.examples)
        tried: set[int] = set()
        while self.runs.spent < most and len(tried) < _PATIENCE:
            gone = set(self._sizes) - kept
            left = {position: roundings.added(position, gone) for position in kept - tried}
            if not left:
                break
            position = min(left, key=lambda each: (left[each] / self._sizes[each], each))
            tried.add(position)
            if self._holds(kept - {position}):
                kept -= {position}
                tried.clear()  # errors may cancel out: what failed in a larger set may hold in a smaller one
        return kept

    def _holds(self, kept: frozenset[int]) -> bool:
        worst = self.runs.worst(kept, self.limit)
        self.progress(f"{self._size(kept)} operators kept: error {worst:.3g}")
        if worst <= self.limit and (self.best is None or self._size(kept) < self._size(self.best)):
            self.best = kept
        return worst <= self.limit

    def _size(self, kept: frozenset[int]) -> int:
        return sum(self._sizes[position] for position in kept)


BROKEN: Final = 1e30
"""Stands for the square of an error without bound: NaN or infinities in the outputs."""

_ROUNDS: Final = 3  # of exchanging operators of a set


class Roundings:
    """The roundings of a network with their energies: what a set of kept operators leaves of them.

    Errors of many roundings are as good as independent: the square of the output's error is the sum of the
    squares of those that happen. A set loses the operator that adds least. Since a rounding with several
    guards happens once, the neighbours of operators that left cost less, and what is kept stays connected.
    """

    def __init__(
        self, atoms: Sequence[Atom], narrow: np.ndarray, wide: np.ndarray, sizes: Mapping[int, int]
    ) -> None:
        """Take what was measured.

        Args:
            atoms: The roundings.
            narrow: Squares of the error of each output (columns) for each rounding that happens.
            wide: The same where all guards are kept, in the wider type; 0 for float32.
            sizes: Number of operators of each candidate.
        """
        self._guards = [atom.guards for atom in atoms]
        narrow, wide = (
            np.nan_to_num(side, nan=BROKEN, posinf=BROKEN).clip(0, BROKEN) for side in (narrow, wide)
        )
        self._wide = wide.sum(axis=0)
        self._more = narrow - wide
        # an output counts as much as it lacks; the search for the next operator goes by one number
        total = narrow.sum(axis=0)
        self._weighed: list[float] = (self._more @ (total / max(total.sum(), 1e-300))).tolist()
        self._sizes = sizes
        self._of: dict[int, list[int]] = defaultdict(list)
        for index, guards in enumerate(self._guards):
            for guard in guards:
                self._of[guard].append(index)

    def square(self, kept: frozenset[int]) -> float:
        """Return the predicted square of the largest error of an output."""
        happening = [not guards <= kept for guards in self._guards]
        squares: np.ndarray = self._wide + self._more[happening].sum(axis=0)
        return float(squares.max(initial=0.0))

    def added(self, position: int, gone: Collection[int]) -> float:
        """Return what it adds, all outputs weighed, that an operator leaves when some have left."""
        return sum(
            self._weighed[index] for index in self._of[position] if self._guards[index].isdisjoint(gone)
        )

    def series(self) -> tuple[list[int], list[float]]:
        """Return the order in which operators leave a set, and the predicted squares of the error.

        The set begins with all of them, and the least harmful one leaves first; the squares are those after
        none, one, two, ... have left.
        """
        gone: set[int] = set()
        kept = frozenset(self._sizes)
        order, squares = [], [self.square(kept)]
        gains = {position: self.added(position, gone) / self._sizes[position] for position in self._sizes}
        while gains:
            position = min(gains, key=lambda each: (gains[each], each))
            del gains[position]
            gone.add(position)
            kept -= {position}
            squares.append(self.square(kept))
            order.append(position)
            for each in self._neighbours(position) & gains.keys():
                gains[each] = self.added(each, gone) / self._sizes[each]
        return order, squares

    def _neighbours(self, position: int) -> set[int]:
        return {guard for index in self._of[position] for guard in self._guards[index]}

    def improved(self, kept: frozenset[int], most: float) -> frozenset[int]:
        """Return a smaller set with a predicted square up to a limit, or the set itself.

        Operators are dropped while the limit allows, and exchanged for one that helps more.
        """
        for _ in range(_ROUNDS):
            smaller = self._dropped(kept, most)
            exchanged = self._exchanged(smaller)
            if exchanged is None:
                return smaller
            kept = exchanged
        return self._dropped(kept, most)

    def _dropped(self, kept: frozenset[int], most: float) -> frozenset[int]:
        while kept:
            gone = set(self._sizes) - kept
            costs = {position: self.added(position, gone) for position in kept}
            position = min(costs, key=lambda each: (costs[each], each))
            if self.square(kept - {position}) > most:
                break
            kept -= {position}
        return kept

    def _exchanged(self, kept: frozenset[int]) -> frozenset[int] | None:
        """Return the set with one operator in place of another so that the error becomes smallest."""
        gone = set(self._sizes) - kept
        best, chosen = 0.0, None
        for out in kept:
            cost = self.added(out, gone)
            for entering in self._near(kept - {out}) - {out}:
                gain = self.added(entering, (gone | {out}) - {entering}) - cost
                if self._sizes[entering] <= self._sizes[out] and gain > best * (1 + 1e-9) + 1e-300:
                    best, chosen = gain, (out, entering)
        if chosen is None:
            return None
        return (kept - {chosen[0]}) | {chosen[1]}

    def _near(self, kept: Iterable[int]) -> set[int]:
        kept = set(kept)
        near = {guard for position in kept for guard in self._neighbours(position)}
        alone = {guard for guards in self._guards if len(guards) == 1 for guard in guards}
        return (near | alone & self._sizes.keys()) - kept


KEEP_DTYPE: Final = "keep_dtype.cfg"
CUSTOMIZE_DTYPES: Final = "customize_dtypes.cfg"
MODIFY_MIXLIST: Final = "modify_mixlist.json"
MINDSPORE: Final = "ascend_config.json"
CONVERTER: Final = "onnxconverter_common.json"
FRAGMENT: Final = "data_dump_fragment.json"


@dataclass(frozen=True, slots=True)
class TypeSet:
    """Whole operator types to keep.

    Attributes:
        types: The types, as a compiled graph calls them.
        narrow: Types of the network that stay narrow.
        size: Number of the operators of these types.
        error: Largest error of an output with all of them kept, for the inputs that the search has seen.
    """

    types: tuple[str, ...]
    narrow: tuple[str, ...]
    size: int
    error: float


def by_types(advice: KeepAdvice) -> TypeSet:
    """Return what it means to keep all operators that share a type with an advised one."""
    types = sorted({ge_type(node) for node in advice.nodes})
    candidates = advice.variants.candidates
    kept = frozenset(
        position for position, nodes in candidates.items() if any(ge_type(node) in types for node in nodes)
    )
    narrow = sorted({ge_type(node) for nodes in candidates.values() for node in nodes} - set(types))
    size = len(advice.nodes_at(kept))
    return TypeSet(tuple(types), tuple(narrow), size, advice.measured.worst(kept))


def ge_type(node: Node) -> str:
    """Return the type of an operator as CANN's lists have it."""
    primitive = node.operator.op_type
    return GE_TYPES.get(primitive, primitive)


def write(advice: KeepAdvice, mode: PrecisionMode, types: TypeSet, folder: str) -> list[str]:
    """Write the files of some advice and return their paths.

    Args:
        advice: The advice; a set was found.
        mode: The precision mode of the other operators.
        types: What keeping whole types means.
        folder: The folder; made if missing.

    Raises:
        ToolError: A file cannot be written.
    """
    texts = _texts(advice, mode, types, str(Path(folder).resolve()))
    return [reports.write(folder, name, (text,)) for name, text in texts.items()]


def _texts(advice: KeepAdvice, mode: PrecisionMode, types: TypeSet, folder: str) -> dict[str, str]:
    if advice.variants.to is FLOAT32:
        names, key = KEEP_DTYPE, "keep_dtype"
        lines = [node.name for node in advice.nodes]
    else:
        names, key = CUSTOMIZE_DTYPES, "customize_dtypes"
        lines = [_customized(node, advice.variants.kept(node)) for node in advice.nodes]
    path = f"{folder}/{names}"
    texts = {names: "".join(f"{line}\n" for line in lines)}
    ascend_config: dict[str, Any] = {"precision_mode": str(mode), key: path}
    if advice.variants.to is FLOAT32:
        lists = {"black-list": {"to-add": list(types.types)}, "white-list": {"to-add": list(types.narrow)}}
        texts[MODIFY_MIXLIST] = _json(lists)
        # MindSpore itself has no keep_dtype: types are the finest that it takes
        options = {"ge.exec.modify_mixlist": f"{folder}/{MODIFY_MIXLIST}"}
        ascend_config = {"precision_mode": _mixed(mode), "ge_options": {"global": options}}
    texts[MINDSPORE] = _json({"ascend_config": ascend_config})
    blocked = [node.name for node in advice.nodes]
    texts[CONVERTER] = _json({"node_block_list": blocked, "keep_io_types": True})
    texts[FRAGMENT] = _json({"msdump": {"precision_mode": str(mode), key: path}})
    return texts


def _customized(node: Node, roundings: Sequence[Rounding]) -> str:
    (rounding,) = roundings
    reads = ",".join([rounding.reads.name] * max(1, sum(map(bool, node.inputs))))
    writes = ",".join([rounding.writes.name] * max(1, sum(map(bool, node.outputs))))
    return f"{node.name}::InputDtype:{reads},OutputDtype:{writes}"


def _mixed(mode: PrecisionMode) -> str:
    if mode in {PrecisionMode.ALLOW_FP32_TO_BF16, PrecisionMode.ALLOW_MIX_PRECISION_BF16}:
        return str(PrecisionMode.ALLOW_MIX_PRECISION_BF16)
    return str(PrecisionMode.ALLOW_MIX_PRECISION_FP16)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


_CONFIRMATIONS: Final = 6
"""How often a set that fails on an input that was not looked at is searched for anew, with that input."""

_WITHOUT_MARGIN: Final = 1
"""How often it is searched for anew with no margin for further inputs."""

_EXACT_CONFIRMATIONS: Final = 12
"""The same for small networks, whose sets take no time to find..."""

_EXACT_WITHOUT_MARGIN: Final = 8
"""...and are the smallest ones as long as there is no margin."""

Unseen = Callable[[int], tuple[str, Values]]
"""Makes up the input of a number from 0: its name, and its values as they are fed."""


class SearchEnd(enum.StrEnum):
    """How a search ended."""

    CONFIRMED = "confirmed"
    """The set keeps the bound on an input that the search has not seen."""
    UNCONFIRMED = "unconfirmed"
    """It keeps the bound on the inputs that were looked at, and on no other, or there was none."""
    NONE = "none"
    """No set keeps the bound."""
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class ErrorPair:
    """The error of one output of one input.

    Attributes:
        example: The input: its file, or the seed and step of one that was made up.
        output: Name of the output.
        before: Its error with nothing kept.
        after: Its error with the operators kept; where no set was found, with all of them kept.
        is_unseen: Whether the input had no part in the search.
    """

    example: str
    output: str
    before: float
    after: float
    is_unseen: bool


@dataclass(frozen=True, slots=True)
class KeepAdvice:
    """What to keep.

    Attributes:
        measured: The runs of the inputs that the search has looked at.
        bound: The largest error that is allowed.
        kept: Positions of the operators to keep; None where no set keeps the bound.
        errors: The errors of every output and input; without a set, ``after`` is that with everything kept.
        outcome: How the search ended.
        runs: How often the whole network ran, partial runs added up.
    """

    measured: DeviceRuns
    bound: float
    kept: frozenset[int] | None
    errors: tuple[ErrorPair, ...]
    outcome: SearchEnd
    runs: float

    @property
    def is_confirmed(self) -> bool:
        """Whether the bound holds on an input that had no part in the search."""
        return self.outcome is SearchEnd.CONFIRMED

    @property
    def variants(self) -> Variants:
        """The network."""
        return self.measured.variants

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operators to keep, in execution order."""
        return self.nodes_at(self.kept or frozenset())

    def nodes_at(self, positions: frozenset[int]) -> tuple[Node, ...]:
        """Return the operators of candidates."""
        return tuple(node for each in sorted(positions) for node in self.variants.candidates[each])


def advise(
    variants: Variants,
    side: Callable[[], Truth],
    seen: Sequence[tuple[str, Values]],
    unseen: Unseen,
    *,
    bound: float,
    progress: Progress = lambda _text: None,
) -> KeepAdvice:
    """Return the smallest set of operators to keep so that every output stays within a bound.

    Args:
        variants: The network.
        side: Compiles what gives the outputs that are right; dropped while it is not needed, for its memory.
        seen: Inputs that the search looks at: their names, and their values as they are fed.
        unseen: Gives inputs to confirm the set on. One that refutes it is looked at from then on.
        bound: The largest relative error of any output of any input.
        progress: Told what goes on.

    Raises:
        InputError: True outputs are not finite, or the device rounds nothing.
    """
    if not variants.candidates:
        raise InputError(f"{variants.graph.source}: the device rounds no operator: there is nothing to keep")
    truth = side()
    examples = [golden(name, feeds, truth) for name, feeds in seen]
    trial = _trial(truth, unseen, 0, progress)
    del truth
    gc.collect()  # sessions stand in cycles
    search = SetSearch(DeviceRuns(variants, examples), bound, progress)
    try:
        return _confirmed(search, bound, unseen, side, trial)
    except KeyboardInterrupt:
        return KeepAdvice(search.runs, bound, search.best, (), SearchEnd.INTERRUPTED, search.share)


def _confirmed(
    search: SetSearch, bound: float, unseen: Unseen, side: Callable[[], Truth], trial: Example | None
) -> KeepAdvice:
    variants, progress = search.runs.variants, search.progress
    most, without_margin = (
        (_EXACT_CONFIRMATIONS, _EXACT_WITHOUT_MARGIN)
        if search.is_exact
        else (_CONFIRMATIONS, _WITHOUT_MARGIN)
    )
    for number in range(1, 1 + most):
        kept = search.smallest()
        if kept is None or trial is None:
            break
        error = DeviceRuns(variants, [trial]).worst(kept)
        progress(f"on {trial.name}, which the search has not seen: error {error:.3g}")
        if error <= bound:
            return _advice(search, bound, kept, trial, SearchEnd.CONFIRMED)
        search.add(trial)
        if number > without_margin:  # what holds on some inputs alone lacks a margin for others
            search.limit *= bound / error
        trial = _trial(side(), unseen, number, progress)
    return _advice(search, bound, kept, trial, SearchEnd.UNCONFIRMED if kept is not None else SearchEnd.NONE)


def _trial(truth: Truth, unseen: Unseen, number: int, progress: Progress) -> Example | None:
    """Return an input to confirm a set on, None where none can be had."""
    try:
        name, feeds = unseen(number)
        return golden(name, feeds, truth)
    except InputError as error:
        progress(f"no input to confirm the set on: {error}")
        return None


def _advice(
    search: SetSearch, bound: float, kept: frozenset[int] | None, trial: Example | None, outcome: SearchEnd
) -> KeepAdvice:
    runs, variants = search.runs, search.runs.variants
    everything = frozenset(variants.candidates)
    shown = [(example, False) for example in runs.examples]
    shown += [(trial, True)] if trial is not None else []
    errors: list[ErrorPair] = []
    for example, is_unseen in shown:
        alone = DeviceRuns(variants, [example])
        before = alone.errors(0, frozenset())
        after = alone.errors(0, everything if kept is None else kept)
        errors += [
            ErrorPair(example.name, output, before[output], after[output], is_unseen) for output in before
        ]
    return KeepAdvice(runs, bound, kept, tuple(errors), outcome, search.share)
