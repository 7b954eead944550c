"""The algorithms of CANN's msaccucmp: a table of their formulas, the choice among them, and the user's own.

x is the tensor that is examined, y the golden one, both as float32; sums over their elements are float64. An
element of y counts as zero from the float64 machine epsilon downwards. The user's own algorithms are files
``{folder}/algorithm/alg_{name}.py`` with a function ``compare(mine, golden, args)``, which gets two float32
vectors and the arguments of ``-a`` as attributes of ``args``; it returns a text for the report and a note.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import numpy as np

from msdump.convert import load_function
from msdump.errors import FormatError, ToolError
from msdump.judge import errors
from msdump.judge.errors import ALMOST_ZERO, PairSums, Side, TensorError
from msdump.return_codes import ReturnCode

NAN: Final = "NaN"
"""The text of a number that does not exist."""

_LEAST_SHOWN: Final = 0.001  # smaller means and deviations are shown as zero
_SINGLE: Final = np.dtype(np.float32)
_HELD: Final = frozenset({"float32", "float16", "bfloat16"})  # types that are exact in float32
_EVERY: Final = "all"
_FOLDER: Final = "algorithm"
_FILE: Final = re.compile(r"alg_([A-Za-z0-9_]+)\.py")
_FUNCTION: Final = "compare"
_log = logging.getLogger("msdump.judge")


@dataclass(frozen=True, slots=True)
class Score:
    """The result of one algorithm for two tensors.

    Attributes:
        text: The number as reports hold it, or "NaN".
        note: The reason why there is no number, or a remark on it; "" for none.
    """

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm, a row of ``ALGORITHMS``.

    Attributes:
        name: Title of its column.
        definition: The formula, with x for the tensor that is examined and y for the golden one.
        score: Computes the result from sums over the elements.
        takes_truths: Whether it is defined for two tensors of truth values.
    """

    name: str
    definition: str
    score: Callable[[PairSums], Score]
    takes_truths: bool = False


def _number(value: float) -> Score:
    # vendor: results are float32 before they are printed, which shows in the sixth decimal of large ones.
    return Score(f"{np.float32(value):.6f}")


def _cosine(sums: PairSums) -> Score:
    dumped, golden = sums.x.norm, sums.y.norm
    if dumped <= ALMOST_ZERO and golden <= ALMOST_ZERO:
        return Score("1.0")  # vendor: one decimal here, six in all other cases
    for side, norm in (("mine", dumped), ("golden", golden)):
        # vendor: not the norm as above but its root; one side alone counts as zero below epsilon squared.
        if math.sqrt(norm) <= ALMOST_ZERO:
            return Score(NAN, f"CosineSimilarity: all elements of {side} are zero")
    return _number(sums.cosine)


def _deviation(sums: PairSums) -> Score:
    def shown(side: Side) -> str:
        numbers = side.total / sums.count, math.sqrt(side.deviations / sums.count)
        # vendor: three decimals; numbers below a thousandth print as 0.000, without a sign.
        mean, deviation = (0.0 if abs(number) < _LEAST_SHOWN else number for number in numbers)
        return f"({mean:.3f};{deviation:.3f})"

    return Score(f"{shown(sums.x)},{shown(sums.y)}")


# The order is the vendor's: users choose algorithms by these numbers (-alg 0,3), and columns follow it.
ALGORITHMS: Final = (
    Algorithm(
        "CosineSimilarity",
        "sum(x * y) / (|x| * |y|), at most 1; 1.0 where both are zero",
        _cosine,
        takes_truths=True,
    ),
    Algorithm("MaxAbsoluteError", "max(abs(x - y))", lambda sums: _number(sums.largest)),
    Algorithm(
        "AccumulatedRelativeError",
        "sum of abs(x / y - 1) where y is not zero",
        lambda sums: _number(sums.ratios),
    ),
    Algorithm(
        "RelativeEuclideanDistance",
        "sqrt(sum((x - y)^2) / sum(y^2)); 0 where y is zero",
        lambda sums: _number(0 if sums.y.norm <= ALMOST_ZERO else sums.distance),
        takes_truths=True,
    ),
    Algorithm(
        "KullbackLeiblerDivergence",
        "sum(p * log(p / q)) of the densities: moved to 0..1, at least 2^-23, divided by their sum",
        lambda sums: _number(sums.divergence),
    ),
    Algorithm(
        "StandardDeviation",
        "(mean of x;deviation of x),(mean of y;deviation of y)",
        _deviation,
    ),
    Algorithm(
        "MeanAbsoluteError",
        "mean(abs(x - y))",
        lambda sums: _number(sums.distances / sums.count),
    ),
    Algorithm(
        "RootMeanSquareError",
        "sqrt(mean((x - y)^2))",
        lambda sums: _number(math.sqrt(sums.differences / sums.count)),
    ),
    Algorithm(
        "MaxRelativeError",
        "max of abs(x / y - 1) where y is not zero, else 0",
        lambda sums: _number(sums.largest_ratio),
    ),
    Algorithm(
        "MeanRelativeError",
        "mean over all elements of abs(x / y - 1), 0 where y is zero",
        lambda sums: _number(sums.ratios / sums.count),
    ),
)
"""All algorithms, in the order of their numbers for ``-alg``."""

BY_NAME: Final = {algorithm.name: algorithm for algorithm in ALGORITHMS}

ALL: Final = tuple(BY_NAME)
"""The names of all algorithms."""


def compare(
    dumped: np.ndarray, golden: np.ndarray, names: Sequence[str] = ALL, *, limit: int = 0
) -> tuple[Score, ...]:
    """Return the scores of algorithms for two tensors, in the order of the names.

    >>> x, y = np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]])
    >>> for name, score in zip(ALL, compare(x, y)):
    ...     print(f"{name:26}{score.text}")
    CosineSimilarity          0.993999
    MaxAbsoluteError          1.000000
    AccumulatedRelativeError  0.200000
    RelativeEuclideanDistance 0.160128
    KullbackLeiblerDivergence 0.010310
    StandardDeviation         (2.500;1.118),(2.750;1.479)
    MeanAbsoluteError         0.250000
    RootMeanSquareError       0.500000
    MaxRelativeError          0.200000
    MeanRelativeError         0.050000

    Args:
        dumped: The tensor that is examined; any numeric or truth type.
        golden: The tensor that it is compared with; as many elements, in the same order.
        names: Algorithms by name.
        limit: Only so many elements from the first count, 0: all.

    Raises:
        FormatError: The tensors differ in their number of elements, or hold text.
    """
    _check(dumped, golden)
    if not dumped.size:
        return tuple(Score(NAN, f"{name}: there are no elements") for name in names)
    chosen = [BY_NAME[name] for name in names]
    if dumped.dtype == golden.dtype == np.bool_:
        chosen = [each if each.takes_truths else _refusing(each) for each in chosen]
    if "c" in {dumped.dtype.kind, golden.dtype.kind}:  # of complex numbers both parts are compared
        x, y = dumped.astype(np.complex64, copy=False), golden.astype(np.complex64, copy=False)
    else:
        x, y = (side if side.dtype.name in _HELD else _in_single(side) for side in (dumped, golden))
    if limit:
        x, y = x.reshape(-1)[:limit], y.reshape(-1)[:limit]
    # vendor: a scalar is recognised by the shape before -max cuts elements off.
    return _scores(chosen, errors.sums(x, y), dumped.shape)


def compare_and_measure(
    dumped: np.ndarray, golden: np.ndarray, dtype: str = ""
) -> tuple[tuple[Score, ...], TensorError]:
    """Return all scores of two tensors, and how far they are apart; faster than one after the other.

    Scores alone are no ground for verdicts: they hide differences beyond float32 or the sixth decimal.

    >>> scores, error = compare_and_measure(np.float32([3, 4]), np.float32([3, 5]))
    >>> scores[1].text, error.largest
    ('1.000000', 1.0)

    Raises:
        FormatError: The tensors differ in their number of elements, or hold text.
    """
    _check(dumped, golden)
    if dumped.size and {dumped.dtype.name, golden.dtype.name} <= _HELD:
        sums = errors.sums(dumped, golden, dtype)
        if sums.is_same or sums.are_plain:
            return _scores(ALGORITHMS, sums, dumped.shape), sums.error
    return compare(dumped, golden), errors.measure(dumped, golden, dtype)


def _in_single(side: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # float64 beyond float32 becomes infinite
        return side.astype(_SINGLE)


def _scores(algorithms: Sequence[Algorithm], sums: PairSums, shape: tuple[int, ...]) -> tuple[Score, ...]:
    is_scalar = all(size == 1 for size in shape)
    scalar = Score("1.000000", "This tensor is scalar.")
    with np.errstate(all="ignore"):
        return tuple(
            scalar if is_scalar and each.score is _cosine else each.score(sums) for each in algorithms
        )


def _refusing(algorithm: Algorithm) -> Algorithm:
    refusal = Score(NAN, f"Algorithm {algorithm.name} does not support Boolean types.")
    return replace(algorithm, score=lambda _: refusal)


def _check(dumped: np.ndarray, golden: np.ndarray) -> None:
    for side, array in (("mine", dumped), ("golden", golden)):
        if array.dtype.kind in "OSUM":
            raise FormatError(f"{side} holds {array.dtype}; only numbers and truth values can be compared")
    if dumped.size != golden.size:
        raise FormatError(
            f"mine has {dumped.size} elements, shape {dumped.shape},"
            f" golden {golden.size}, shape {golden.shape}; only tensors of equal size can be compared"
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithms that a comparison computes, in the order of their columns.

    Attributes:
        names: Their names, of the table ``ALGORITHMS`` and of the user.
        scripts: Files of the user's algorithms among them, and the arguments that ``-a`` gives each, by name.
    """

    names: tuple[str, ...] = ALL
    scripts: Mapping[str, tuple[Path, Mapping[str, str]]] = field(default_factory=dict)

    def scores(
        self, dumped: np.ndarray, golden: np.ndarray, *, limit: int = 0, paths: tuple[str, str] = ("", "")
    ) -> tuple[Score, ...]:
        """Return the score of each algorithm for two tensors, of ``limit`` elements or all (0).

        The paths of the two are given to the user's algorithms.

        Raises:
            FormatError: The tensors differ in their number of elements, or hold text.
        """
        tabled = [name for name in self.names if name not in self.scripts]
        score_of = dict(zip(tabled, compare(dumped, golden, tabled, limit=limit), strict=True))
        if self.scripts:
            # vendor: the names of these two attributes, which users' scripts read.
            context = {"my_output_dump_file": paths[0], "ground_truth_dump_file": paths[1]}
            x, y = (side.reshape(-1)[: limit or None].astype(np.float32) for side in (dumped, golden))
            for name, (script, arguments) in self.scripts.items():
                score_of[name] = _script_score(name, script, x, y, SimpleNamespace(**arguments, **context))
        return tuple(score_of[name] for name in self.names)


EVERY: Final = Choice()
"""All algorithms of the table."""


def _script_score(name: str, script: Path, x: np.ndarray, y: np.ndarray, args: SimpleNamespace) -> Score:
    """Return the score of a user's algorithm; "NaN" and a note where it raises."""
    try:
        # Loaded here, not in choose: this may run in another process, to which functions do not travel.
        result = load_function(script, _FUNCTION, ReturnCode.ALGORITHM)(x, y, args)
        text, note = result
    except Exception as error:  # noqa: BLE001 - the user's code
        return Score(NAN, f"{name}: {type(error).__name__}: {error}")
    if not (isinstance(text, str) and isinstance(note, str)):
        return Score(NAN, f"{name}: compare() must return two texts, got {result!r:.80}")
    return Score(text, note)


def choose(selection: str = _EVERY, arguments: str = "", folder: str = "") -> Choice:
    """Return the algorithms that options choose.

    >>> choose("MaxAbsoluteError,0").names
    ('MaxAbsoluteError', 'CosineSimilarity')

    Args:
        selection: Names and numbers separated by commas, or "all" (``-alg``).
        arguments: ``Name:key=value,key=value;Name:...`` for the user's algorithms (``-a``).
        folder: Folder of the user's algorithms (``-c``), "" for none.

    Raises:
        ToolError: The selection chooses no algorithm, an argument is malformed, or a script cannot be used:
            others may write it, it is larger than a MiB, or has no function ``compare`` of three arguments.
    """
    arguments_of = _arguments(arguments)
    if folder and not os.path.isdir(folder):
        raise ToolError(ReturnCode.PATH, f"{folder}: no such directory of custom scripts (-c)")
    files = sorted(Path(folder, _FOLDER).glob("*.py")) if folder else ()
    scripts = {
        match[1]: (path, arguments_of.pop(match[1], {}))
        for path in files
        if (match := _FILE.fullmatch(path.name))
    }
    for path, _ in scripts.values():  # unusable scripts are an error before anything is compared
        load_function(path, _FUNCTION, ReturnCode.ALGORITHM)
    for name in arguments_of:
        _log.warning("-a gives %s arguments, which none of the algorithms of msdump takes", name)
    names = _names(selection, (*ALL, *scripts))
    return Choice(names, {name: scripts[name] for name in names if name in scripts})


def _names(selection: str, all_names: Sequence[str]) -> tuple[str, ...]:
    if selection.strip().lower() == _EVERY:
        return tuple(all_names)
    chosen = []
    for item in filter(None, map(str.strip, selection.split(","))):
        name = _named_by_number(item)
        if name in all_names:
            chosen.append(name)
        else:
            _log.warning("-alg: no algorithm %r; it is left out", item)
    if not chosen:
        numbers = ", ".join(f"{number}={name}" for number, name in enumerate(ALL))
        raise ToolError(
            ReturnCode.ALGORITHM, f"-alg {selection!r} chooses no algorithm; there are all, {numbers}"
        )
    return tuple(dict.fromkeys(chosen))


def _named_by_number(item: str) -> str:
    """Return the name of the algorithm with a number; a text that is no such number as it is.

    >>> _named_by_number("1"), _named_by_number("99"), _named_by_number("mine")
    ('MaxAbsoluteError', '99', 'mine')
    """
    # isdigit alone also takes digits of other scripts and superscripts.
    if item.isascii() and item.isdigit() and int(item) < len(ALL):
        return ALL[int(item)]
    return item


def _arguments(text: str) -> dict[str, dict[str, str]]:
    """Parse the arguments of algorithms from an option's text; later ones override earlier ones.

    >>> _arguments("near:low=1,high=2;0:step=3")
    {'near': {'low': '1', 'high': '2'}, 'CosineSimilarity': {'step': '3'}}
    """
    arguments_of: dict[str, dict[str, str]] = {}
    for part in filter(None, text.split(";")):
        name, colon, pairs = part.partition(":")
        malformed = ToolError(ReturnCode.PARAMETER, f"-a {part!r} is not Name:key=value,key=value")
        if not (name.strip() and colon):
            raise malformed
        own_arguments = arguments_of.setdefault(_named_by_number(name.strip()), {})
        for pair in filter(None, map(str.strip, pairs.split(","))):
            key, equals, value = (piece.strip() for piece in pair.partition("="))
            if not (key and equals and value):
                raise malformed
            own_arguments[key] = value
    return arguments_of
