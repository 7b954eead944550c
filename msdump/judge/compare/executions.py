"""Executions of operators in two directories: counterparts of their tensors, measured side by side."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.device import INSERTED_PREFIX, is_settled
from msdump.encode import npy
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.executors import ExecutorChoice, file_size, map_items
from msdump.judge import errors, host_arrays, in_golden_layout, in_one_type, is_square, is_transposed
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
    TURNED,
    Limits,
    TensorEvidence,
    TensorVerdict,
    Uneven,
    coarser,
    joined,
    judge_tensor,
)
from msdump.read import CutFileError, Folder, FolderKind, Record, TensorlessFile, load_file
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import SUFFIX, operator_names


@dataclass(frozen=True, slots=True)
class OperatorExecution:
    """One execution of an operator in one directory, with the counterparts of its tensors."""

    tensors: tuple[Record, ...]  # its tensors by time, or a TensorlessFile
    number: int | None  # number among the executions of its operator, from 0; None where there is only one
    name: str
    op_type: str
    time: int  # time at which it ran: microseconds since the epoch, 0 if the names of its files lack it
    fault: str = ""  # why its file cannot be read, "" if it can
    # the counterpart of each input or output that has one, by its number
    counterparts: Mapping[tuple[IO, int], Record] = field(default_factory=dict)
    # name of the golden operator that it replaces, "" if both sides have the same operator
    replaces: str = ""
    note: str = ""  # how its counterpart was found, "" if it has the same name

    def tensor(self, io: IO, slot: int) -> Record | None:
        """Return an input or output, None if no file has it."""
        return next((each for each in self.tensors if (each.io, each.slot) == (io, slot)), None)

    @property
    def readable(self) -> Mapping[tuple[IO, int], Record]:
        """Its tensors that can be read, opened."""
        tensors = {}
        for each in self.tensors:
            with suppress(DumpReadError):  # reported where the tensors are compared
                tensors[each.io, each.slot] = each.opened()
        return tensors


@dataclass(frozen=True, slots=True)
class Matched:
    """The executions of the examined directory, and golden operators without a counterpart."""

    executions: tuple[OperatorExecution, ...]
    # golden operators without any tensor that is a counterpart, in the order of execution
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()  # messages about golden files that cannot be read
    uneven: tuple[Uneven, ...] = ()  # operators that did not run equally often
    # pairs of operators by the graphs of both dumps
    by_graphs: MatchedNames = MatchedNames()  # noqa: RUF009 - frozen


def match_executions(dumped: Folder, golden: Folder, identities: Identities) -> Matched:
    """Return the executions of operators in the order in which they ran, with their counterparts.

    If an operator ran several times, the executions of both sides are paired in their order.
    """
    dumped_runs, golden_runs = _executions(dumped), _executions(golden)
    if dumped.kind.is_compiled != golden.kind.is_compiled:
        identities = in_order(identities, _slots(dumped_runs), _slots(golden_runs))
    golden_tensors: IdentifiedTensors[Record] = IdentifiedTensors()
    for run in golden_runs:
        for each in _with_elements(run):
            io, slot = each.name.io, each.name.slot
            golden_tensors.add(identities.golden(run.name, io, slot), io, each)
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
    # golden tensors have no order, and one pass of a loop is enough
    is_ordered = FolderKind.GOLDEN not in {dumped.kind, golden.kind}
    counts = [Counter(run.name for run in runs) for runs in (dumped_runs, golden_runs)]
    partners = {name: matched.partner(name) for name in counts[0]} if is_ordered else {}
    # operators that golden lacks altogether are reported as such
    uneven = [
        Uneven(name, counts[0][name], counts[1][partner])
        for name, partner in partners.items()
        if counts[1].get(partner, counts[0][name]) != counts[0][name]
    ]
    used = {golden.name.op_name for each in executions for golden in each.counterparts.values()}
    # operators with unreadable files were dumped, so their counterparts are not missing
    torn = {run.name for run in dumped_runs if run.fault}
    present = used | torn | matched.golden
    missing = dict.fromkeys(
        run.name
        for run in golden_runs
        # parameters and inputs are no operators: often only one dump has files of them
        if not (run.fault or run.name in present or run.op_type in INPUTS)
        # operators that a device inserts have no counterpart; compiled graphs lack the ones that only pass on
        and not run.name.startswith(INSERTED_PREFIX)
        and not (dumped.kind.is_compiled and is_settled(run.op_type))
    )
    return Matched(
        tuple(executions),
        tuple(missing),
        tuple(run.fault for run in golden_runs if run.fault),
        tuple(uneven),
        matched,
    )


def _with_elements(run: OperatorExecution) -> list[Record]:
    return [each for each in run.tensors if not isinstance(each, TensorlessFile)]


def _slots(runs: Iterable[OperatorExecution]) -> dict[tuple[str, IO], list[int]]:
    slots: dict[tuple[str, IO], set[int]] = {}
    for run in runs:
        for each in _with_elements(run):
            slots.setdefault((run.name, each.io), set()).add(each.slot)
    return {place: sorted(each) for place, each in slots.items()}


def _executions(folder: Folder) -> list[OperatorExecution]:
    """Return the executions of operators in the order in which they ran, without counterparts."""
    runs: list[OperatorExecution] = []
    for tensors in folder.operators.values():
        if tensors[0].op_type == operator_names.OP_DEBUG.op_type:  # a record of an overflow, no operator
            continue
        passes: dict[int, list[Record]] = {}  # of a loop
        for each in tensors:
            passes.setdefault(each.pass_number, []).append(each)
        for number, run in sorted(passes.items()):
            last = run[-1].name
            faults = [each.fault for each in run if isinstance(each, TensorlessFile)]
            place = number if len(passes) > 1 else None, last.op_name, last.op_type, last.timestamp
            runs.append(OperatorExecution(tuple(run), *place, faults[0] if faults else ""))
    return sorted(runs, key=lambda run: (run.time, run.tensors[-1].path))


def _counterparts(
    run: OperatorExecution,
    golden_tensors: IdentifiedTensors[Record],
    identify: Identify,
    unreadable: Mapping[tuple[str, int | None], OperatorExecution],
) -> Mapping[tuple[IO, int], Record]:
    """Return the counterparts of an execution; without any, the unreadable golden file of its operator."""
    counterparts = {}
    for each in _with_elements(run):
        io, slot = each.name.io, each.name.slot
        golden = golden_tensors.counterpart(identify, run.name, io, slot)
        if golden is not None:
            counterparts[io, slot] = golden
    damaged = unreadable.get((run.name, run.number))
    if damaged is not None and not counterparts:
        return {(each.io, each.slot): damaged.tensors[-1] for each in run.tensors}
    return counterparts


_FAR: Final = 0.1
"""Relative distance of a matrix from golden's from which on it may be the transposed one."""


@dataclass(frozen=True, slots=True)
class MeasuredExecution:
    """An operator of one execution, and the pairs of its tensors to be measured."""

    kinds: tuple[FolderKind, FolderKind]
    execution: OperatorExecution
    weights: frozenset[int] = frozenset()  # numbers of its inputs that are weights or constants
    # element types that a device may have rounded its weights to, beside the tensors' own
    held: frozenset[str] = frozenset(errors.SHORTER)
    # shortest float type of each side's device; empty if both compute in the same types
    apart: tuple[str, ...] = ()
    # inputs and outputs that a view may have left in the shape of the view's input
    reshaped: frozenset[tuple[IO, int]] = frozenset()

    @property
    def paths(self) -> frozenset[str]:
        """The files that are read."""
        execution = self.execution
        return frozenset(each.path for each in (*execution.tensors, *execution.counterparts.values()))


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
        name=lambda each: f"{os.path.dirname(each.execution.tensors[-1].path)}: {each.execution.name}",  # noqa: PTH120
        progress=progress,
    )


def read_file(path: str) -> np.ndarray:
    """Return the tensor of a .npy file."""
    if not path.endswith(SUFFIX):
        raise ToolError(ReturnCode.FILE_TYPE, f"{path}: only .npy files can be compared")
    try:
        return npy.decode(load_file(path), path)
    except DumpReadError as error:
        raise ToolError(ReturnCode.DUMP_DATA, str(error)) from error
    except FormatError as error:
        raise ToolError(ReturnCode.DATA_TYPE, str(error)) from error


def measure_files(dumped: str, golden: str, limits: Limits) -> TensorEvidence:
    """Return the verdict on the tensors in two .npy files.

    Raises:
        ToolError: A file is missing or is no .npy file.
    """
    dumped_array, golden_array = read_file(dumped), read_file(golden)
    dumped_dtype, golden_dtype = (
        dtypes.from_numpy(array.dtype).name for array in (dumped_array, golden_array)
    )
    known = partial(TensorEvidence, IO.OUTPUT, 0, dumped_array.shape, dumped_dtype, golden_dtype)
    if dumped_array.shape != golden_array.shape:
        note = f"shape {dumped_array.shape} against {golden_array.shape}"
        compared = known(verdict=TensorVerdict.SHAPE, note=note)
    else:
        compared = known(**_measured(dumped_array, golden_array, (dumped_dtype, golden_dtype)))
    return judge_tensor(compared, limits)


def _compared_execution(measured: MeasuredExecution) -> tuple[TensorEvidence, ...]:
    """Return the measured tensors of an execution; runs in a worker process."""
    execution = measured.execution
    compared = [_compared_tensor(each, measured) for each in execution.tensors]
    if execution.op_type in _SUMMING and any(each.io is IO.OUTPUT and each.distance for each in compared):
        compared = [
            replace(each, summed=_summed(execution, math.prod(each.shape))) if each.io is IO.OUTPUT else each
            for each in compared
        ]
    if any(each.io is IO.OUTPUT and each.misplaced for each in compared) and _reads_nan(execution):
        compared = [_beside_nan(each, execution) for each in compared]
    if execution.note:
        compared = [replace(each, note=joined(execution.note, each.note)) for each in compared]
    return tuple(sorted(compared, key=lambda each: (each.io, each.slot)))


_SUMMING: Final = frozenset({"Add", "AddN", "BiasAddGrad", "ReduceSum", "Sub", "SumExt"})


def _summed(execution: OperatorExecution, size: int) -> float:
    """Return the norm of a sum of so many elements if none of its summands cancelled; 0 without inputs.

    Masks of attention stay out of it, as they stay out of the sum's distance.
    """
    total = 0.0
    for each in execution.tensors:
        if each.io is IO.INPUT:
            with suppress(DumpReadError, FormatError, ToolError):  # reported where it is compared
                array = each.loaded().array
                if array.dtype.kind == "f" and array.size and size:
                    ratio = array.size / size
                    summands = np.where(errors.are_masked(array, array), 0.0, array.astype(np.float64))
                    total += float(np.linalg.norm(summands)) * math.sqrt(max(ratio, 1 / ratio))
    return total if math.isfinite(total) else 0.0


def _reads_nan(execution: OperatorExecution) -> bool:
    """Return whether an input holds NaN on both sides: a kernel may make anything of NaN."""
    for place, golden in execution.counterparts.items():
        mine = next((each for each in execution.tensors if (each.io, each.slot) == place), None)
        if place[0] is IO.INPUT and mine is not None:
            with suppress(DumpReadError, FormatError, ToolError):  # reported where it is compared
                if all(np.isnan(np.min(side.loaded().array)) for side in (mine, golden)):
                    return True
    return False


def _beside_nan(tensor: TensorEvidence, execution: OperatorExecution) -> TensorEvidence:
    """Return an output of an operator that reads NaN, compared without telling NaN from infinities.

    vendor: MindSpore's Div on the CPU returns -inf for NaN.
    """
    golden = execution.counterparts.get((tensor.io, tensor.slot))
    if tensor.io is IO.INPUT or not tensor.misplaced or golden is None:
        return tensor
    mine = next(each for each in execution.tensors if (each.io, each.slot) == (tensor.io, tensor.slot))
    x, y = (
        np.where(np.isfinite(array), array, array.dtype.type(np.nan))
        for array in (mine.loaded().array, golden.loaded().array)
    )
    return replace(tensor, error=errors.measure(x, y, coarser(tensor.dtype, tensor.golden_dtype)))


def _compared_tensor(dumped: Record, measured: MeasuredExecution) -> TensorEvidence:
    execution, io, slot = measured.execution, dumped.name.io, dumped.name.slot
    place = io, slot
    golden = execution.counterparts.get(place)
    try:
        dumped = dumped.opened() if golden is None else dumped.loaded()
    except DumpReadError as error:
        if isinstance(dumped, TensorlessFile) and not dumped.fault:
            return TensorEvidence(*place, verdict=TensorVerdict.UNCHECKED, note="no tensors")
        return TensorEvidence(*place, verdict=TensorVerdict.UNREADABLE, note=str(error))
    # inputs of the network, too, may be rounded by the operators that read them
    is_given = execution.op_type in INPUTS
    is_weight = is_given or (io is IO.INPUT and slot in measured.weights)
    known = partial(TensorEvidence, *place, dumped.host_shape or dumped.shape, is_weight=is_weight)
    dtypes_held = (dumped.dtype, "")
    if golden is None:
        return known(*dtypes_held, verdict=TensorVerdict.UNCHECKED)
    try:
        is_typed, (dumped, golden) = dumped.is_typed, in_one_type(dumped, golden.loaded())
        dtypes_held = (dtypes_held[0] if is_typed else dumped.dtype, golden.dtype)
        return known(*dtypes_held, **_straight_or_turned(dumped, golden, measured, dtypes_held, is_weight))
    except (DumpReadError, FormatError, ToolError) as error:
        # Layouts that do not fit are a ToolError, elements that cannot be read a FormatError.
        fault, note = TensorVerdict.UNREADABLE, str(error)
        if isinstance(error, ToolError):
            fault = TensorVerdict.SHAPE
        if isinstance(error, CutFileError):  # nothing is lost: MindSpore writes no other file
            fault = TensorVerdict.UNCHECKED
        if execution.replaces and getattr(error, "code", None) == ReturnCode.SHAPE:
            # the operator that replaces it computes something else: shapes need not fit
            fault, note = TensorVerdict.UNCHECKED, ""
        return known(*dtypes_held, verdict=fault, note=note)


def _straight_or_turned(
    dumped: Record,
    golden: Record,
    measured: MeasuredExecution,
    held: tuple[str, str],
    is_weight: bool,  # noqa: FBT001 - of ``_compared_tensor`` alone
) -> dict[str, Any]:
    """Return the fields of a tensor compared with its counterpart, or with the transposed one if nearer."""
    execution, io = measured.execution, dumped.name.io
    compare = partial(_measured, dtypes_held=held, measured=measured, is_weight=is_weight, io=io)

    def turned() -> dict[str, Any]:
        transposed = np.ascontiguousarray(golden.elements.swapaxes(-1, -2))
        found = compare(dumped.elements, transposed)
        return found | {"note": joined(TURNED, found["note"])}

    may_turn = may_be_transposed(execution.op_type, io)
    if may_turn and is_transposed(dumped, golden):
        return turned()
    if measured.kinds[1] is FolderKind.GOLDEN:
        arrays = in_golden_layout(dumped, golden)
    else:
        is_other = (golden.name.op_name, golden.name.io) != (execution.name, io)
        may_be_reshaped = is_other and measured.kinds[0].is_compiled != measured.kinds[1].is_compiled
        may_be_reshaped |= (dumped.io, dumped.slot) in measured.reshaped
        arrays = host_arrays(dumped, golden, may_be_reshaped=may_be_reshaped)
    straight = compare(*arrays)
    if may_turn and straight["error"].distance > _FAR and is_square(dumped):
        other = turned()
        if other.get("is_rounded") or other["error"].is_same:
            return other
    return straight


def _measured(
    dumped: np.ndarray,
    golden: np.ndarray,
    dtypes_held: tuple[str, str],
    measured: MeasuredExecution | None = None,
    *,
    is_weight: bool = False,
    io: IO = IO.OUTPUT,
) -> dict[str, Any]:
    """Return the fields of a tensor's evidence that two arrays show."""
    for side, array in (("mine", dumped), ("golden", golden)):
        if array.dtype.kind in "OSUM":
            raise FormatError(f"{side} holds {array.dtype}; only numbers and truth values can be compared")
    if dumped.size != golden.size:
        raise FormatError(
            f"mine has {dumped.size} elements, shape {dumped.shape},"
            f" golden {golden.size}, shape {golden.shape}; only tensors of equal size can be compared"
        )
    error = errors.measure(dumped, golden, coarser(*dtypes_held))
    note = "" if dumped.size else "no elements"
    if dumped.size and [n for n in dumped.shape if n != 1] != [n for n in golden.shape if n != 1]:
        note = f"shape {dumped.shape} against {golden.shape}; compared by element order"
    found: dict[str, Any] = {"error": error, "note": note}
    if error.is_same or measured is None or not (is_weight or io is IO.INPUT):
        return found
    found["overflows"] = errors.overflowed(dumped, golden) if error.misplaced else 0
    if is_weight:
        # the examined model's weights may be rounded to any type, whatever its device holds
        rounded_to, held = errors.rounded_to(dumped, golden), {*dtypes_held, *measured.held}
        is_rounded = bool(rounded_to) or errors.is_rounding(dumped, golden, held, measured.apart)
        is_wrong = not is_rounded and dumped.shape == golden.shape
        found |= {"rounded_to": rounded_to, "is_rounded": is_rounded}
        found["places"] = errors.places_text(dumped, golden) if is_wrong else ""
    return found


def shortest_apart(own: frozenset[tuple[IO, str]], other: frozenset[tuple[IO, str]]) -> tuple[str, ...]:
    """Return the shortest float type of each side; empty if both read and write the same types."""
    shortest = (coarser(*(dtype for _, dtype in side)) for side in (own, other))
    return () if own == other else tuple(filter(None, shortest))
