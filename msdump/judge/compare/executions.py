"""Executions of operators in two directories: counterparts of their tensors, measured side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device import INSERTED_PREFIX, is_settled
from msdump.encode import npy
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.executors import ExecutorChoice, file_size, map_items
from msdump.judge import (
    CutFileError,
    DumpedOperand,
    errors,
    host_arrays,
    in_golden_layout,
    in_one_type,
    is_square,
    is_transposed,
    read_operands,
    swap_last_axes,
)
from msdump.judge.pair import (
    INPUTS,
    IdentifiedTensors,
    Identify,
    Identities,
    MatchedNames,
    in_order,
    may_be_transposed,
)
from msdump.judge.verdict import (
    Limits,
    TensorEvidence,
    TensorJudge,
    TensorResult,
    TensorVerdict,
    Uneven,
    coarser,
    joined,
)
from msdump.read import Folder, FolderKind, NamedFile, load_file
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import SUFFIX, operator_names

Place = tuple[NamedFile, IO, int]
"""Where a tensor stands: its file, whether it is an input or an output, and its number."""


@dataclass(frozen=True, slots=True)
class OperatorExecution:
    """One execution of an operator in one directory, with the places of its tensors' counterparts.

    Attributes:
        files: Its files; one, or one for each tensor.
        number: Number among the executions of its operator, from 0; None where there is only one.
        tensors: Places of its tensors; empty if its file cannot be read.
        fault: Why its file cannot be read, "" if it can.
        counterparts: Place of the counterpart of each input or output that has one, by its number.
        replaces: Name of the golden operator that it replaces, "" if both sides have the same operator.
        note: How its counterpart was found, "" if it has the same name.
    """

    files: tuple[NamedFile, ...]
    number: int | None
    tensors: tuple[Place, ...] = ()
    fault: str = ""
    counterparts: Mapping[tuple[IO, int], Place] = field(default_factory=dict)
    replaces: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """The operator as the names of files have it."""
        return self.files[-1].op_name

    @property
    def time(self) -> int:
        """Time at which it ran: microseconds since the epoch, 0 if the names of its files lack it."""
        return self.files[-1].timestamp


@dataclass(frozen=True, slots=True)
class Matched:
    """The executions of the examined directory, and the golden operators beyond them.

    Attributes:
        executions: The executions, in the order in which they ran.
        missing: Golden operators without any tensor that is a counterpart, in the order of execution.
        unreadable: Messages about golden files that cannot be read.
        uneven: Operators that did not run equally often.
        by_graphs: Pairs of operators by the graphs of both dumps.
    """

    executions: tuple[OperatorExecution, ...]
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    uneven: tuple[Uneven, ...] = ()
    by_graphs: MatchedNames = MatchedNames()  # noqa: RUF009 - frozen


def match_executions(dumped: Folder, golden: Folder, identities: Identities) -> Matched:
    """Return the executions of operators in the order in which they ran, with their counterparts.

    If an operator ran several times, the executions of both sides are paired in their order.
    """
    dumped_runs, golden_runs = _executions(dumped), _executions(golden)
    if dumped.kind.is_compiled != golden.kind.is_compiled:
        identities = in_order(identities, _slots(dumped_runs), _slots(golden_runs))
    golden_tensors: IdentifiedTensors[Place] = IdentifiedTensors()
    for run in golden_runs:
        for place in run.tensors:
            golden_tensors.add(identities.golden(run.name, *place[1:]), place[1], place)
    # A golden file that cannot be read has no tensors to pair, yet its operator is not absent.
    unreadable = {(run.name, run.number): run for run in golden_runs if run.fault}
    matched = identities.matched
    executions = [
        replace(
            run,
            counterparts=_counterparts(run, golden_tensors, identities.dumped, unreadable),
            replaces=matched.replaced.get(run.name, ""),
            note=matched.notes.get(run.name, ""),
        )
        for run in dumped_runs
    ]
    uneven: tuple[Uneven, ...] = ()
    if FolderKind.GOLDEN not in {
        dumped.kind,
        golden.kind,
    }:  # golden tensors have no order, and one pass of a loop is enough
        uneven = tuple(_uneven(dumped_runs, golden_runs, matched))
    used = {file.op_name for each in executions for file, _, _ in each.counterparts.values()}
    # operators with unreadable files were dumped, so their counterparts are not missing
    torn = {run.name for run in dumped_runs if run.fault}
    missing = dict.fromkeys(
        run.name
        for run in golden_runs
        if run.tensors
        and run.name not in used | torn
        and _is_expected(run.files[-1], dumped.kind)
        and run.name not in matched.golden
    )
    return Matched(
        tuple(executions),
        tuple(missing),
        tuple(run.fault for run in golden_runs if run.fault),
        uneven,
        matched,
    )


def _slots(runs: Iterable[OperatorExecution]) -> dict[tuple[str, IO], list[int]]:
    slots: dict[tuple[str, IO], set[int]] = {}
    for run in runs:
        for _, io, slot in run.tensors:
            slots.setdefault((run.name, io), set()).add(slot)
    return {place: sorted(each) for place, each in slots.items()}


def _is_expected(golden: NamedFile, kind: FolderKind) -> bool:
    """Return whether a directory of some kind should have the operator of a golden file.

    Parameters and inputs are no operators: often only one dump has files of them. Operators that a device
    inserts have no counterpart on another one; compiled graphs lack operators that only pass tensors on.
    """
    if golden.op_type in INPUTS or golden.op_name.startswith(INSERTED_PREFIX):
        return False
    return not kind.is_compiled or not is_settled(golden.op_type)


def _executions(folder: Folder) -> list[OperatorExecution]:
    """Return the executions of operators in the order in which they ran, without counterparts."""
    runs: list[OperatorExecution] = []
    for files in folder.operators.values():
        if files[0].op_type == operator_names.OP_DEBUG.op_type:  # a record of an overflow, no operator
            continue
        passes: dict[int, list[NamedFile]] = {}  # of a loop
        for file in files:
            passes.setdefault(file.pass_number, []).append(file)
        runs += (
            _execution(folder, tuple(each), number if len(passes) > 1 else None)
            for number, each in sorted(passes.items())
        )
    return sorted(runs, key=lambda run: (run.files[-1].timestamp, run.files[-1].name))


def _execution(folder: Folder, files: tuple[NamedFile, ...], number: int | None) -> OperatorExecution:
    if folder.kind is not FolderKind.DUMPS:
        places = ((file, file.io or IO.OUTPUT, file.slot) for file in files)
        return OperatorExecution(files, number, tuple(places))
    try:
        tensors = read_operands(folder, files)
    except DumpReadError as error:
        return OperatorExecution(files, number, fault=str(error))
    file_of = {file.path: file for file in files}
    return OperatorExecution(
        files, number, tuple((file_of[each.path], each.io, each.index) for each in tensors)
    )


def _uneven(
    dumped_runs: Iterable[OperatorExecution], golden_runs: Iterable[OperatorExecution], matched: MatchedNames
) -> Iterator[Uneven]:
    dumped, golden = (Counter(run.name for run in runs) for runs in (dumped_runs, golden_runs))
    for name, count in dumped.items():
        partner = matched.partner(name)
        # Operators that golden lacks altogether are reported as such, not as uneven.
        if count != golden.get(partner, count):
            yield Uneven(name, count, golden[partner])


def _counterparts(
    run: OperatorExecution,
    golden_tensors: IdentifiedTensors[Place],
    identify: Identify,
    unreadable: Mapping[tuple[str, int | None], OperatorExecution],
) -> Mapping[tuple[IO, int], Place]:
    """Return the counterparts of an execution; without any, the unreadable golden file of its operator."""
    asked = ((each[1:], golden_tensors.counterpart(identify, run.name, *each[1:])) for each in run.tensors)
    counterparts = {slot: place for slot, place in asked if place is not None}
    damaged = unreadable.get((run.name, run.number))
    if damaged is not None and not counterparts:
        return {(io, slot): (damaged.files[-1], io, slot) for _, io, slot in run.tensors}
    return counterparts


_FAR: Final = 0.1
"""Relative distance of a matrix from golden's from which on it may be the transposed one."""


@dataclass(frozen=True, slots=True)
class MeasuredExecution:
    """An operator of one execution, and the pairs of its tensors to be measured.

    Attributes:
        dumped: The examined directory, without the list of its files.
        golden: The golden directory, without the list of its files.
        execution: The execution, from ``match_executions``.
        weights: Numbers of its inputs that are weights or constants.
        held: Element types that a device may have rounded its weights to, beside the tensors' own.
        apart: Shortest float type of each side's device; empty if both compute in the same types.
    """

    dumped: Folder
    golden: Folder
    execution: OperatorExecution
    weights: frozenset[int] = frozenset()
    held: frozenset[str] = frozenset(errors.SHORTER)
    apart: tuple[str, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """The files that are read."""
        counterparts = (file for file, _, _ in self.execution.counterparts.values())
        return frozenset(file.path for file in (*self.execution.files, *counterparts))


def measure_executions(
    executions: Iterable[MeasuredExecution],
    *,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    progress: Callable[[int], object] = lambda _: None,
) -> Iterator[tuple[TensorEvidence, ...]]:
    """Yield the measured tensors of each execution, in order; the executions may come from an iterator."""
    yield from map_items(
        _compared_execution,
        executions,
        size=lambda each: sum(map(file_size, each.paths)),
        executor=executor,
        name=lambda each: f"{each.dumped.path}: {each.execution.name}",
        progress=progress,
    )


def read_file(path: str) -> np.ndarray:
    """Return the tensor of a .npy file.

    Raises:
        ToolError: It is missing, has another name, or is no .npy file.
    """
    if not path.endswith(SUFFIX):
        raise ToolError(ReturnCode.FILE_TYPE, f"{path}: only .npy files can be compared")
    try:
        return npy.decode(load_file(path), path)
    except DumpReadError as error:
        raise ToolError(ReturnCode.DUMP_DATA, str(error)) from error
    except FormatError as error:
        raise ToolError(ReturnCode.DATA_TYPE, str(error)) from error


def measure_files(dumped: str, golden: str, limits: Limits) -> TensorResult:
    """Return the verdict on the tensors in two .npy files.

    Raises:
        ToolError: A file is missing or is no .npy file.
    """
    dumped_array, golden_array = read_file(dumped), read_file(golden)
    dumped_dtype, golden_dtype = (
        dtypes.from_numpy(array.dtype).name for array in (dumped_array, golden_array)
    )
    compared = TensorEvidence(IO.OUTPUT, 0, dumped_array.shape, dumped_dtype, golden_dtype)
    if dumped_array.shape != golden_array.shape:
        compared = replace(
            compared,
            fault=TensorVerdict.SHAPE,
            note=f"shape {dumped_array.shape} against {golden_array.shape}",
        )
    else:
        compared = _measured(compared, dumped_array, golden_array)
    return TensorJudge(limits).results((compared,))[0]


def _compared_execution(measured: MeasuredExecution) -> tuple[TensorEvidence, ...]:
    """Return the measured tensors of an execution; runs in a worker process."""
    execution = measured.execution
    compared: list[TensorEvidence] = []
    for files in file_groups(measured.dumped, execution.files):
        try:
            tensors = read_operands(measured.dumped, files)
        except DumpReadError as error:
            io, slot = files[-1].io or IO.OUTPUT, files[-1].slot
            compared.append(TensorEvidence(io, slot, fault=TensorVerdict.UNREADABLE, note=str(error)))
            continue
        compared += (_compared_tensor(each, measured) for each in tensors)
    if execution.note:
        compared = [replace(each, note=joined(execution.note, each.note)) for each in compared]
    compared.sort(key=lambda each: (each.io, each.slot))
    nothing = TensorEvidence(IO.OUTPUT, 0, fault=TensorVerdict.UNCHECKED, note="no tensors")
    return tuple(compared) or (nothing,)


def file_groups(folder: Folder, files: tuple[NamedFile, ...]) -> Iterable[tuple[NamedFile, ...]]:
    """Return the groups of files to read together.

    Files with one tensor each are read one by one, so that a damaged one does not hide the others.
    """
    return (files,) if folder.kind is FolderKind.DUMPS else ((file,) for file in files)


def readable_operands(
    folder: Folder, files: tuple[NamedFile, ...], *, is_long_list: bool = False
) -> Iterator[DumpedOperand]:
    """Yield the tensors of an execution's readable files."""
    for group in file_groups(folder, files):
        with suppress(DumpReadError):  # reported where the tensors are compared
            yield from read_operands(folder, group, is_long_list=is_long_list)


def _compared_tensor(dumped: DumpedOperand, measured: MeasuredExecution) -> TensorEvidence:
    execution = measured.execution
    # inputs of the network, too, may be rounded by the operators that read them
    is_given = execution.files[-1].op_type in INPUTS
    is_weight = is_given or (dumped.io is IO.INPUT and dumped.index in measured.weights)
    compared = TensorEvidence(
        dumped.io, dumped.index, dumped.host_shape or dumped.shape, dumped.dtype, is_weight=is_weight
    )
    place = execution.counterparts.get((dumped.io, dumped.index))
    if place is None:
        return replace(compared, fault=TensorVerdict.UNCHECKED)
    try:
        dumped, golden = in_one_type(dumped, read_place(measured.golden, place))
        compared = replace(compared, dtype=dumped.dtype, golden_dtype=golden.dtype)
        return _straight_or_turned(compared, dumped, golden, measured)
    except DumpReadError as error:
        return replace(compared, fault=TensorVerdict.UNREADABLE, note=str(error))
    except (FormatError, ToolError) as error:
        if execution.replaces and getattr(error, "code", None) == ReturnCode.SHAPE:
            # the operator that replaces it computes something else: shapes need not fit
            return replace(compared, fault=TensorVerdict.UNCHECKED)
        # Layouts that do not fit are a ToolError, elements that cannot be read a FormatError.
        fault = TensorVerdict.SHAPE if isinstance(error, ToolError) else TensorVerdict.UNREADABLE
        if isinstance(error, CutFileError):  # nothing is lost: MindSpore writes no other file
            fault = TensorVerdict.UNCHECKED
        return replace(compared, fault=fault, note=str(error))


def _straight_or_turned(
    compared: TensorEvidence,
    dumped: DumpedOperand,
    golden: DumpedOperand,
    measured: MeasuredExecution,
) -> TensorEvidence:
    """Return a tensor compared with its counterpart, or with the transposed one if that is nearer."""
    may_turn = may_be_transposed(measured.execution.files[-1].op_type, dumped.io)
    if may_turn and is_transposed(dumped, golden):
        return _of_transposed(compared, dumped, golden, measured)
    straight = _measured(compared, *_in_one_layout(dumped, golden, measured), measured)
    is_far = straight.error is not None and straight.error.distance > _FAR
    if may_turn and is_far and is_square(dumped):
        turned = _of_transposed(compared, dumped, golden, measured)
        if turned.is_rounded or (turned.error is not None and turned.error.is_same):
            return turned
    return straight


def _of_transposed(
    compared: TensorEvidence, dumped: DumpedOperand, golden: DumpedOperand, measured: MeasuredExecution
) -> TensorEvidence:
    turned = _measured(compared, dumped.array, swap_last_axes(golden.array), measured)
    return replace(turned, note=joined("golden is transposed", turned.note))


def read_place(folder: Folder, place: Place) -> DumpedOperand:
    """Return the tensor at a place of a directory.

    Raises:
        DumpReadError: Its file cannot be read.
    """
    file, io, slot = place
    tensors = read_operands(folder, (file,))
    return next(each for each in tensors if (each.io, each.index) == (io, slot))


def _in_one_layout(
    dumped: DumpedOperand, golden: DumpedOperand, measured: MeasuredExecution
) -> tuple[np.ndarray, np.ndarray]:
    kinds = measured.dumped.kind, measured.golden.kind
    if kinds[1] is FolderKind.GOLDEN:  # without a graph file, the layout with a fitting shape is taken
        return in_golden_layout(dumped, golden, "")
    file, io, _ = measured.execution.counterparts[dumped.io, dumped.index]
    is_other = (file.op_name, io) != (measured.execution.name, dumped.io)
    is_handed_on = is_other and kinds[0].is_compiled != kinds[1].is_compiled
    return host_arrays(dumped, golden, is_handed_on=is_handed_on)


def _measured(
    compared: TensorEvidence,
    dumped: np.ndarray,
    golden: np.ndarray,
    measured: MeasuredExecution | None = None,
) -> TensorEvidence:
    """Return a tensor with its error against the counterpart.

    Raises:
        FormatError: The arrays hold text or differ in their number of elements.
    """
    for side, array in (("mine", dumped), ("golden", golden)):
        if array.dtype.kind in "OSUM":
            raise FormatError(f"{side} holds {array.dtype}; only numbers and truth values can be compared")
    if dumped.size != golden.size:
        raise FormatError(
            f"mine has {dumped.size} elements, shape {dumped.shape},"
            f" golden {golden.size}, shape {golden.shape}; only tensors of equal size can be compared"
        )
    error = errors.measure(dumped, golden, coarser(compared.dtype, compared.golden_dtype))
    compared = replace(compared, error=error, note=_note(dumped, golden))
    if error.is_same or measured is None or not (compared.is_weight or compared.io is IO.INPUT):
        return compared
    overflows = errors.overflowed(dumped, golden) if error.misplaced else 0
    held = {compared.dtype, compared.golden_dtype, *measured.held}
    # the examined model's weights may be rounded to any type, whatever its device holds
    rounded_to = errors.rounded_to(dumped, golden) if compared.is_weight else ""
    is_rounded = compared.is_weight and (
        bool(rounded_to) or errors.is_rounding(dumped, golden, held, measured.apart)
    )
    is_wrong = compared.is_weight and not is_rounded and dumped.shape == golden.shape
    places = errors.places_text(dumped, golden) if is_wrong else ""
    return replace(compared, is_rounded=is_rounded, rounded_to=rounded_to, places=places, overflows=overflows)


def shortest_apart(own: frozenset[tuple[IO, str]], other: frozenset[tuple[IO, str]]) -> tuple[str, ...]:
    """Return the shortest float type of each side; empty if both read and write the same types."""
    shortest = (coarser(*(dtype for _, dtype in side)) for side in (own, other))
    return () if own == other else tuple(filter(None, shortest))


def _note(dumped: np.ndarray, golden: np.ndarray) -> str:
    if not dumped.size:
        return "no elements"
    if dumped.size == golden.size and [n for n in dumped.shape if n != 1] != [
        n for n in golden.shape if n != 1
    ]:
        return f"shape {dumped.shape} against {golden.shape}; compared by element order"
    return ""
