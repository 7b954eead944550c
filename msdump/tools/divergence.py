"""Where two dumps of a network part: every tensor against its counterpart, in the order of execution."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.record import IO
from msdump.tools import algorithms, counterparts, operands, parallel
from msdump.tools.algorithms import NAN
from msdump.tools.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.matching import Execution, Place
from msdump.tools.operands import Operand

_ZEROS: Final = 0.001  # largest absolute error where all elements of one side are zero


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as agreement.

    Attributes:
        cosine: Least cosine similarity.
        distance: Largest relative Euclidean distance.
    """

    cosine: float = 0.99
    distance: float = 0.05


class Verdict(enum.StrEnum):
    """What a comparison of two tensors comes to."""

    EQUAL = "equal"
    CLOSE = "close"
    DIFFERENT = "different"
    ALONE = "alone"
    """There is no counterpart."""
    FAILED = "failed"
    """A file cannot be read, or the shapes do not fit."""


AGREEING: Final = frozenset({Verdict.EQUAL, Verdict.CLOSE})


@dataclass(frozen=True, slots=True)
class TensorResult:
    """A tensor against its counterpart.

    Attributes:
        io: Input or output.
        slot: Its number.
        verdict: What the comparison comes to.
        note: Why, where the numbers do not tell.
        shape: That of the tensor on the host, where it is known.
        mine_dtype: Its element type, "" where it is not known.
        golden_dtype: That of the counterpart, "" where there is none.
        scores: Texts of all algorithms; none where nothing was compared.
    """

    io: IO
    slot: int
    verdict: Verdict
    note: str = ""
    shape: tuple[int, ...] = ()
    mine_dtype: str = ""
    golden_dtype: str = ""
    scores: tuple[str, ...] = ()

    def score(self, name: str) -> str:
        """Return the text of an algorithm, "NaN" where nothing was compared."""
        return self.scores[algorithms.ALL.index(name)] if self.scores else NAN


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """The tensors of one execution of an operator.

    Attributes:
        name: The operator as the names of files have it.
        op_type: Its type.
        tensors: What is said of each, inputs first.
    """

    name: str
    op_type: str
    tensors: tuple[TensorResult, ...]

    def of(self, io: IO) -> tuple[TensorResult, ...]:
        """Return what is said of the inputs or the outputs."""
        return tuple(tensor for tensor in self.tensors if tensor.io is io)

    @property
    def worst(self) -> TensorResult:
        """The output that agrees least; an input where no output was dumped."""
        return max(self.of(IO.OUTPUT) or self.tensors, key=_badness)

    @property
    def verdict(self) -> Verdict:
        """That of the output that agrees least."""
        return self.worst.verdict


_SEVERITY: Final = (Verdict.ALONE, Verdict.EQUAL, Verdict.CLOSE, Verdict.FAILED, Verdict.DIFFERENT)


def _badness(tensor: TensorResult) -> tuple[int, float]:
    cosine = _number(tensor.score("CosineSimilarity"))
    return _SEVERITY.index(tensor.verdict), 1.0 if math.isnan(cosine) else -cosine


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def results(
    mine: Folder, golden: Folder, executions: Sequence[Execution], limits: Limits, *, jobs: int = 0
) -> Iterator[OperatorResult]:
    """Yield what is said of executions of operators, in their order.

    Args:
        mine: The directory that is examined.
        golden: The directory that it is compared with.
        executions: What ``matching.executions`` gave.
        limits: What counts as agreement.
        jobs: Number of processes, 0: one for each core.
    """
    work = partial(_result, replace(mine, operators={}), replace(golden, operators={}), limits)
    amount = sum(Path(file.path).stat().st_size for side in (mine, golden) for file in side.files)
    yield from parallel.each(work, executions, amount=amount, jobs=jobs)


def _result(mine: Folder, golden: Folder, limits: Limits, execution: Execution) -> OperatorResult:
    last = execution.files[-1]
    try:
        tensors = operands.read(mine, execution.files)
    except DumpReadError as error:
        failed = (TensorResult(IO.OUTPUT, 0, Verdict.FAILED, str(error)),)
        return OperatorResult(last.op_name, last.op_type, failed)
    places = execution.counterparts
    found = tuple(
        _tensor_result(tensor, golden, places.get((tensor.io, tensor.index)), limits) for tensor in tensors
    )
    return OperatorResult(last.op_name, last.op_type, found or (TensorResult(IO.OUTPUT, 0, Verdict.ALONE),))


def _tensor_result(mine: Operand, folder: Folder, place: Place | None, limits: Limits) -> TensorResult:
    shape = mine.host_shape or mine.shape
    plain = partial(TensorResult, mine.io, mine.index, shape=shape, mine_dtype=mine.dtype)
    if place is None:
        return plain(Verdict.ALONE)
    try:
        golden = _golden(folder, *place)
        ours, theirs = _in_one_layout(mine, golden, folder)
        verdict, note, scores = _judged(ours, theirs, limits)
    except (DumpReadError, FormatError, ToolError) as error:
        return plain(Verdict.FAILED, str(error))
    return plain(verdict, note, golden_dtype=golden.dtype, scores=scores)


def _golden(folder: Folder, file: NamedFile, io: IO, slot: int) -> Operand:
    found = operands.read(folder, (file,))
    return next(each for each in found if (each.io, each.index) == (io, slot))


def _in_one_layout(mine: Operand, golden: Operand, folder: Folder) -> tuple[np.ndarray, np.ndarray]:
    if folder.kind is FolderKind.GOLDEN:  # its layout is not told: the one whose shape fits
        return counterparts.in_golden_layout(mine, golden, "")
    return counterparts.alike(mine, golden)


def _judged(mine: np.ndarray, golden: np.ndarray, limits: Limits) -> tuple[Verdict, str, tuple[str, ...]]:
    if mine.dtype == golden.dtype == np.bool_:
        mine, golden = mine.view(np.uint8), golden.view(np.uint8)
    scores = tuple(score.text for score in algorithms.compare(mine, golden))
    if not mine.size:
        return Verdict.EQUAL, "no elements", scores
    cosine, largest, _, distance = map(_number, scores[:4])
    if largest == 0:
        return Verdict.EQUAL, "", scores
    if math.isnan(largest) or math.isinf(largest):
        if np.array_equal(mine, golden, equal_nan=mine.dtype.kind in "fcV"):
            return Verdict.EQUAL, "with NaN or infinities", scores
        return Verdict.DIFFERENT, "NaN or infinities", scores
    if math.isnan(cosine):  # one side is zero
        return (Verdict.CLOSE if largest <= _ZEROS else Verdict.DIFFERENT), "one side is zero", scores
    agrees = cosine >= limits.cosine and distance <= limits.distance
    return (Verdict.CLOSE if agrees else Verdict.DIFFERENT), "", scores
