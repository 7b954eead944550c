"""The executions of operators in two directories, in order, and the counterpart of each of their tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msdump.device.tasks import INSERTED_PREFIX, is_settled
from msdump.errors import DumpReadError
from msdump.record import IO
from msdump.store import operator_names
from msdump.tools.compare.pairing import operands
from msdump.tools.compare.pairing.dump_folder import COMPILED, Folder, FolderKind, NamedFile
from msdump.tools.compare.pairing.identities import (
    IdentifiedTensors,
    Identify,
    Identities,
    MatchedNames,
    in_order,
)
from msdump.tools.compare.verdict import replacements
from msdump.tools.judge.findings import Uneven
from msdump.tools.matching.sides import canonical_type, kinds
from msdump.tools.rerun.dumped import INPUTS

Place = tuple[NamedFile, IO, int]
"""Where a tensor stands: its file, whether it is an input or an output, and its number."""


@dataclass(frozen=True, slots=True)
class OperatorExecution:
    """One execution of an operator, with the places of its tensors' counterparts.

    Attributes:
        files: Its files; one, or one for each tensor.
        number: Number of the execution among those of its operator, from 0; None where there is only one.
        counterparts: Place of the counterpart of each input or output that has one, by its number.
        replaces: Name of the golden operator that stood in its place, "" where both have the same operator.
        note: How its counterpart was found, "" where it has the same name.
    """

    files: tuple[NamedFile, ...]
    number: int | None
    counterparts: dict[tuple[IO, int], Place]
    replaces: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """The operator as the names of files have it."""
        return self.files[-1].op_name

    @property
    def beside(self) -> str:
        """Golden's operator of another kind, whose first output its own is compared with; "" for none.

        Of fused ones the last part counts, as far as their names tell it.
        """
        file, side, _ = self.counterparts.get((IO.OUTPUT, 0), (self.files[-1], IO.OUTPUT, 0))
        own, golden = (
            [canonical_type(kind) for kind in kinds(name)[-1:]] for name in (self.name, file.op_name)
        )
        return file.op_name if side is IO.OUTPUT and own and golden and own != golden else ""

    @property
    def time(self) -> int:
        """Time at which it ran: microseconds since the epoch, 0 where its files' names do not hold it."""
        return self.files[-1].timestamp


@dataclass(frozen=True, slots=True)
class Matched:
    """The executions of the examined directory, and what the golden one has beyond them.

    Attributes:
        executions: The executions, in the order in which they ran.
        missing: Golden operators of which no tensor is a counterpart, in the order of execution.
        unreadable: Messages about golden files that cannot be read.
        uneven: Operators that did not run equally often.
        by_graphs: What the graphs of both dumps tell of operators that belong together; None: they have the
            same names.
    """

    executions: tuple[OperatorExecution, ...]
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    uneven: tuple[Uneven, ...] = ()
    by_graphs: MatchedNames | None = None


def match(dumped: Folder, golden: Folder, identities: Identities) -> Matched:
    """Return the executions of operators in the order in which they ran, with their counterparts.

    Where an operator ran several times, the executions of both sides belong together one by one. An
    operator that only one side has, and that stands where the other has one of its own, replaces it.

    Args:
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        identities: How the tensors of the two are paired.
    """
    dumped_runs, golden_runs = _runs(dumped), _runs(golden)
    if (dumped.kind in COMPILED) != (golden.kind in COMPILED):
        identities = in_order(identities, _slots(dumped_runs), _slots(golden_runs))
    golden_tensors: IdentifiedTensors[Place] = IdentifiedTensors()
    for run in golden_runs:
        for place in run.tensors:
            golden_tensors.add(identities.golden(run.name, *place[1:]), place[1], place)
    # A golden file that cannot be read has no tensors to pair, yet its operator is not absent.
    unreadable = {(run.name, run.number): run for run in golden_runs if run.fault}
    executions = [_execution(run, golden_tensors, identities.dumped, unreadable) for run in dumped_runs]
    uneven: tuple[Uneven, ...] = ()
    matched = identities.matched
    if matched is not None:
        executions = [_told(each, matched) for each in executions]
        uneven = tuple(_uneven(dumped_runs, golden_runs, matched.partners))
    elif FolderKind.GOLDEN not in {dumped.kind, golden.kind}:  # those have no order, and one pass is enough
        executions = _with_replacements(executions, golden_runs)
        uneven = tuple(_uneven(dumped_runs, golden_runs))
    used = {file.op_name for each in executions for file, _, _ in each.counterparts.values()}
    torn = {
        run.name for run in dumped_runs if run.fault
    }  # they are there, though nothing pairs their tensors
    missing = dict.fromkeys(
        run.name
        for run in golden_runs
        if run.tensors
        and run.name not in used | torn
        and _is_expected(run.files[-1], dumped.kind)
        and not (matched is not None and run.name in matched.golden)
    )
    return Matched(
        tuple(executions),
        tuple(missing),
        tuple(run.fault for run in golden_runs if run.fault),
        uneven,
        matched,
    )


def _slots(runs: Iterable[_Run]) -> dict[tuple[str, IO], list[int]]:
    """Return the numbers of the inputs, and of the outputs, of operators."""
    slots: dict[tuple[str, IO], set[int]] = {}
    for run in runs:
        for _, io, slot in run.tensors:
            slots.setdefault((run.name, io), set()).add(slot)
    return {place: sorted(each) for place, each in slots.items()}


def _is_expected(golden: NamedFile, kind: FolderKind) -> bool:
    """Tell whether a directory of some kind should have the operator of a golden file.

    Files of parameters and inputs are no operators: often only one of the dumps was asked for them, and a
    compiled graph has a file of an input only where a task reads it. What the device adds to bring tensors
    into its types and formats belongs to it alone; compiled graphs lack what only hands tensors on.
    """
    if golden.op_type in INPUTS or golden.op_name.startswith(INSERTED_PREFIX):
        return False
    return kind not in COMPILED or not is_settled(golden.op_type)


@dataclass(frozen=True, slots=True)
class _Run:
    """One execution of an operator in one directory.

    Attributes:
        files: Its files.
        number: Number of the execution among those of its operator, None where there is only one.
        tensors: Places of its tensors; none where its file cannot be read.
        fault: Why its file cannot be read, "" where it can.
    """

    files: tuple[NamedFile, ...]
    number: int | None
    tensors: tuple[Place, ...]
    fault: str = ""

    @property
    def name(self) -> str:
        """The operator as the names of files have it."""
        return self.files[-1].op_name


def _runs(folder: Folder) -> list[_Run]:
    """Return the executions of operators in the order in which they ran."""
    runs: list[_Run] = []
    for files in folder.operators.values():
        if files[0].op_type == operator_names.OP_DEBUG.op_type:  # a record of an overflow, no operator
            continue
        passes = _passes(files)
        runs += (_run(folder, each, number if len(passes) > 1 else None) for number, each in passes.items())
    return sorted(runs, key=lambda run: (run.files[-1].timestamp, run.files[-1].name))


def _passes(files: Iterable[NamedFile]) -> dict[int, tuple[NamedFile, ...]]:
    """Return the files of an operator by the number of the pass of a loop, in which it ran."""
    by_number: dict[int, list[NamedFile]] = {}
    for file in files:
        by_number.setdefault(file.pass_number, []).append(file)
    return {number: tuple(each) for number, each in sorted(by_number.items())}


def _run(folder: Folder, files: tuple[NamedFile, ...], number: int | None) -> _Run:
    if folder.kind is not FolderKind.DUMPS:
        return _Run(files, number, tuple((file, file.io or IO.OUTPUT, file.slot) for file in files))
    try:
        tensors = operands.read(folder, files)
    except DumpReadError as error:
        return _Run(files, number, (), str(error))
    file_of = {file.path: file for file in files}
    return _Run(files, number, tuple((file_of[each.path], each.io, each.index) for each in tensors))


def _told(execution: OperatorExecution, matched: MatchedNames) -> OperatorExecution:
    """Return an execution with what the graphs tell of its counterpart."""
    name = execution.name
    replaces, note = matched.replaced.get(name, ""), matched.notes.get(name, "")
    return replace(execution, replaces=replaces, note=note) if replaces or note else execution


def _uneven(
    dumped_runs: Iterable[_Run], golden_runs: Iterable[_Run], partners: Mapping[str, str] | None = None
) -> Iterator[Uneven]:
    """Yield the operators that did not run equally often.

    Args:
        dumped_runs: Executions of the side that is examined.
        golden_runs: Executions of the golden side.
        partners: Golden operators by the names of examined ones, None: they have the same names.
    """
    dumped, golden = (Counter(run.name for run in runs) for runs in (dumped_runs, golden_runs))
    for name, count in dumped.items():
        partner = name if partners is None else partners.get(name, "")
        # Operators that golden lacks altogether are reported as such, not as uneven.
        if count != golden.get(partner, count):
            yield Uneven(name, count, golden[partner])


def _execution(
    run: _Run,
    golden_tensors: IdentifiedTensors[Place],
    identify: Identify,
    unreadable: Mapping[tuple[str, int | None], _Run],
) -> OperatorExecution:
    """Return an execution with its counterparts; where it has none, an unreadable golden file of its name."""
    asked = ((each[1:], golden_tensors.counterpart(identify, run.name, *each[1:])) for each in run.tensors)
    counterparts = {slot: place for slot, place in asked if place is not None}
    damaged = unreadable.get((run.name, run.number))
    if damaged is not None and not counterparts:
        counterparts = {(io, slot): (damaged.files[-1], io, slot) for _, io, slot in run.tensors}
    return OperatorExecution(run.files, run.number, counterparts)


def _with_replacements(
    executions: Sequence[OperatorExecution], golden: Sequence[_Run]
) -> list[OperatorExecution]:
    """Return the executions, some of which replace a golden operator and are compared with it."""
    positions = {file.path: position for position, run in enumerate(golden) for file in run.files}
    anchors = [_anchor(execution, positions) for execution in executions]
    dumped_names, golden_names = {each.name for each in executions}, {run.name for run in golden}
    taken = {positions[file.path] for each in executions for file, _, _ in each.counterparts.values()}
    unmatched = {
        position
        for position, each in enumerate(executions)
        if not each.counterparts and each.name not in golden_names and not _is_inserted(each)
    }
    unused_golden = {
        position
        for position, run in enumerate(golden)
        if position not in taken and run.name not in dumped_names and run.tensors
    }
    matched = list(executions)
    for position, golden_position in replacements.pairs(anchors, unmatched, unused_golden):
        run = golden[golden_position]
        counterparts = {(io, slot): (file, io, slot) for file, io, slot in run.tensors}
        matched[position] = replace(matched[position], counterparts=counterparts, replaces=run.name)
    return matched


def _is_inserted(execution: OperatorExecution) -> bool:
    """Tell whether compilation has inserted an operator, which so stands in the place of no other."""
    return execution.name.startswith(INSERTED_PREFIX)


def _anchor(execution: OperatorExecution, positions: Mapping[str, int]) -> int | None:
    """Return the position of an execution's counterpart in the golden order, None where it has none.

    That is the last golden operator that wrote one of its outputs, or else read one of its inputs.
    """
    for io in (IO.OUTPUT, IO.INPUT):
        counterpart_positions = [
            positions[file.path]
            for (own, _), (file, side, _) in execution.counterparts.items()
            if own is side is io
        ]
        if counterpart_positions:  # of several, the last: by then the operator must have run
            return max(counterpart_positions)
    return None
