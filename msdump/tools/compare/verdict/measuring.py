"""Executions of operators, each tensor measured beside its counterpart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.record import IO
from msdump.tools.compare.cann import two_files as file_compare
from msdump.tools.compare.pairing import counterparts, operands
from msdump.tools.compare.pairing.dump_folder import COMPILED, Folder, FolderKind, NamedFile
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.compare.verdict.matching import OperatorExecution, Place
from msdump.tools.judge import errors
from msdump.tools.judge.evidence import TensorEvidence
from msdump.tools.judge.findings import TensorResult
from msdump.tools.judge.limits import Limits, coarser
from msdump.tools.judge.tensors import TensorJudge
from msdump.tools.judge.verdicts import TensorVerdict
from msdump.tools.mapping import mapper
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.mapping.sizes import file_size
from msdump.tools.rerun.dumped import INPUTS
from msdump.tools.return_codes import ReturnCode

_FAR: Final = 0.1
"""Relative distance of a matrix from golden's from which on it may be the transposed one."""


@dataclass(frozen=True, slots=True)
class MeasuredExecution:
    """An execution of an operator whose tensors are to be measured.

    Attributes:
        dumped: The directory that it is examined in, without the list of its files.
        golden: The directory that it is compared with, likewise.
        execution: The execution, from ``matching.match``.
        weights: Numbers of its inputs that are weights or constants.
        held: Element types that a device may have rounded its weights to, beside those of the tensors.
    """

    dumped: Folder
    golden: Folder
    execution: OperatorExecution
    weights: frozenset[int] = frozenset()
    held: frozenset[str] = frozenset(errors.SHORTER)

    @property
    def paths(self) -> frozenset[str]:
        """The files that are read."""
        counterparts = (file for file, _, _ in self.execution.counterparts.values())
        return frozenset(file.path for file in (*self.execution.files, *counterparts))


def tensors(
    executions: Iterable[MeasuredExecution],
    *,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    progress: Callable[[int], object] = lambda _: None,
) -> Iterator[tuple[TensorEvidence, ...]]:
    """Yield the tensors of executions of operators beside their counterparts, in their order.

    Args:
        executions: The executions, which may be matched while others are measured.
        executor: Who does the work.
        progress: Called with the bytes of each execution that is measured.
    """
    yield from mapper.each(
        _compared_execution,
        executions,
        size=lambda each: sum(map(file_size, each.paths)),
        executor=executor,
        name=lambda each: f"{each.dumped.path}: {each.execution.name}",
        progress=progress,
    )


def files(dumped: str, golden: str, limits: Limits) -> TensorResult:
    """Return the verdict on the tensors in two .npy files.

    Args:
        dumped: The file that is examined.
        golden: The file that it is compared with.
        limits: What counts as agreement.

    Raises:
        ToolError: A file is missing or is no .npy file.
    """
    dumped_array, golden_array = file_compare.read(dumped), file_compare.read(golden)
    dumped_dtype, golden_dtype = (
        dtypes.from_numpy(array.dtype).name for array in (dumped_array, golden_array)
    )
    compared = TensorEvidence(IO.OUTPUT, 0, dumped_array.shape, dumped_dtype, golden_dtype)
    if dumped_array.shape != golden_array.shape:
        compared = replace(
            compared,
            fault=TensorVerdict.SHAPE,
            note=f"shape {dumped_array.shape} beside {golden_array.shape}",
        )
    else:
        compared = _measured(compared, dumped_array, golden_array)
    return TensorJudge(limits).results((compared,))[0]


def _compared_execution(measured: MeasuredExecution) -> tuple[TensorEvidence, ...]:
    """Return an execution's tensors beside their counterparts; runs in a process of its own."""
    execution = measured.execution
    compared: list[TensorEvidence] = []
    for files in _separate(measured.dumped, execution.files):
        try:
            tensors = operands.read(measured.dumped, files)
        except DumpReadError as error:
            io, slot = files[-1].io or IO.OUTPUT, files[-1].slot
            compared.append(TensorEvidence(io, slot, fault=TensorVerdict.UNREADABLE, note=str(error)))
            continue
        compared += (_compared_tensor(each, measured) for each in tensors)
    if execution.note:
        compared = [
            replace(each, note="; ".join(filter(None, (execution.note, each.note)))) for each in compared
        ]
    compared.sort(key=lambda each: (each.io, each.slot))
    nothing = TensorEvidence(IO.OUTPUT, 0, fault=TensorVerdict.UNCHECKED, note="no tensors")
    return tuple(compared) or (nothing,)


def _separate(folder: Folder, files: tuple[NamedFile, ...]) -> Iterator[tuple[NamedFile, ...]]:
    """Yield the groups of files to read together.

    Files with one tensor each are read one by one, so that a damaged one does not hide the others.
    """
    if folder.kind is FolderKind.DUMPS:
        yield files
    else:
        yield from ((file,) for file in files)


def _compared_tensor(dumped: DumpedOperand, measured: MeasuredExecution) -> TensorEvidence:
    execution = measured.execution
    # what the network is given, too, may be rounded by the operators that read it
    is_given = execution.files[-1].op_type in INPUTS
    is_weight = is_given or (dumped.io is IO.INPUT and dumped.index in measured.weights)
    compared = TensorEvidence(
        dumped.io, dumped.index, dumped.host_shape or dumped.shape, dumped.dtype, is_weight=is_weight
    )
    place = execution.counterparts.get((dumped.io, dumped.index))
    if place is None:
        return replace(compared, fault=TensorVerdict.UNCHECKED)
    try:
        dumped, golden = counterparts.typed(dumped, _golden(measured.golden, place))
        compared = replace(compared, dtype=dumped.dtype, golden_dtype=golden.dtype)
        return _straight_or_turned(compared, dumped, golden, measured)
    except DumpReadError as error:
        return replace(compared, fault=TensorVerdict.UNREADABLE, note=str(error))
    except (FormatError, ToolError) as error:
        if execution.replaces and getattr(error, "code", None) == ReturnCode.SHAPE:
            # what stands in its place does something else
            return replace(compared, fault=TensorVerdict.UNCHECKED)
        # Layouts that do not fit are a ToolError, elements that cannot be read a FormatError.
        fault = TensorVerdict.SHAPE if isinstance(error, ToolError) else TensorVerdict.UNREADABLE
        return replace(compared, fault=fault, note=str(error))


def _straight_or_turned(
    compared: TensorEvidence,
    dumped: DumpedOperand,
    golden: DumpedOperand,
    measured: MeasuredExecution,
) -> TensorEvidence:
    """Return a tensor beside its counterpart, or a matrix beside the transposed one."""
    may_turn = counterparts.may_be_transposed(measured.execution.files[-1].op_type, dumped.io)
    if may_turn and counterparts.is_transposed(dumped, golden):
        return _of_transposed(compared, dumped, golden, measured)
    straight = _measured(compared, *_in_one_layout(dumped, golden, measured), measured.held)
    is_far = straight.error is not None and straight.error.distance > _FAR
    if may_turn and is_far and counterparts.is_square(dumped):
        turned = _of_transposed(compared, dumped, golden, measured)
        if turned.is_rounded or (turned.error is not None and turned.error.is_same):
            return turned
    return straight


def _of_transposed(
    compared: TensorEvidence, dumped: DumpedOperand, golden: DumpedOperand, measured: MeasuredExecution
) -> TensorEvidence:
    """Return a matrix beside the transposed one that golden holds."""
    turned = _measured(compared, dumped.array, counterparts.transposed(golden.array), measured.held)
    return replace(turned, note="; ".join(filter(None, ("golden is transposed", turned.note))))


def _golden(folder: Folder, place: Place) -> DumpedOperand:
    file, io, slot = place
    tensors = operands.read(folder, (file,))
    return next(each for each in tensors if (each.io, each.index) == (io, slot))


def _in_one_layout(
    dumped: DumpedOperand, golden: DumpedOperand, measured: MeasuredExecution
) -> tuple[np.ndarray, np.ndarray]:
    kinds = measured.dumped.kind, measured.golden.kind
    if kinds[1] is FolderKind.GOLDEN:  # without a graph file its layout is the one whose shape fits
        return counterparts.in_golden_layout(dumped, golden, "")
    file, io, _ = measured.execution.counterparts[dumped.io, dumped.index]
    is_other = (file.op_name, io) != (measured.execution.name, dumped.io)
    is_handed_on = is_other and (kinds[0] in COMPILED) != (kinds[1] in COMPILED)
    return counterparts.alike(dumped, golden, is_handed_on=is_handed_on)


def _measured(
    compared: TensorEvidence, dumped: np.ndarray, golden: np.ndarray, held: Iterable[str] = ()
) -> TensorEvidence:
    """Return a tensor with its scores and how far it is from its counterpart.

    Raises:
        FormatError: The arrays hold text or differ in their number of elements.
    """
    # msaccucmp's algorithms refuse truth values; as numbers they can be compared.
    if dumped.dtype == golden.dtype == np.bool_:
        dumped, golden = dumped.view(np.uint8), golden.view(np.uint8)
    scores, error = errors.measure_with_scores(dumped, golden, coarser(compared.dtype, compared.golden_dtype))
    texts = tuple(score.text for score in scores)
    held = {compared.dtype, compared.golden_dtype, *held}
    is_rounded = compared.is_weight and not error.is_same and errors.is_rounding(dumped, golden, held)
    return replace(compared, scores=texts, error=error, is_rounded=is_rounded, note=_note(dumped, golden))


def _note(dumped: np.ndarray, golden: np.ndarray) -> str:
    if not dumped.size:
        return "no elements"
    if dumped.size == golden.size and [n for n in dumped.shape if n != 1] != [
        n for n in golden.shape if n != 1
    ]:
        return f"shape {dumped.shape} beside {golden.shape}, compared in the order of the elements"
    return ""
