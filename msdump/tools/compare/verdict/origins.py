"""The operator that wrote an input which differs although no output before it does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from msdump.device.tasks import INSERTED_PREFIX
from msdump.record import IO
from msdump.tools.compare.pairing import operands
from msdump.tools.compare.pairing.dump_folder import Folder
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.compare.verdict.folders import ComparedFolder
from msdump.tools.compare.verdict.matching import OperatorExecution, Place
from msdump.tools.judge.findings import Finding, Report
from msdump.tools.judge.verdicts import AGREEING, BAD, TensorVerdict, Verdict


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an operator that was compared and agrees.

    Attributes:
        name: Name of the operator.
        slot: Number of the output.
        folder: The golden directory.
        place: Place of its counterpart in the golden directory.
    """

    name: str
    slot: int
    folder: Folder
    place: Place


def writer(read: tuple[Folder, Place], outputs: Iterable[Output]) -> tuple[str, int] | None:
    """Return the name of the operator that wrote an input, and the number of its output.

    Dumps do not tell which output an input reads. So it is looked for by its golden elements.

    Args:
        read: The golden directory, and the place of the input's counterpart in it.
        outputs: The outputs that were written before, the newest first.

    Returns:
        None where no output has just these elements, or where all elements are alike.
    """
    operand = _golden_operand(*read)
    if operand is None or not _is_told_apart(operand):
        return None
    writers = (output for output in outputs if _holds(output, operand))
    return next(((output.name, output.slot) for output in writers), None)


def _golden_operand(golden: Folder, place: Place) -> DumpedOperand | None:
    file, io, slot = place
    return next(
        (each for each in operands.read(golden, (file,)) if (each.io, each.index) == (io, slot)), None
    )


def _is_told_apart(operand: DumpedOperand) -> bool:
    """Return whether an operand's elements identify it: those of many tensors are all zeros or ones."""
    elements = operand.array.reshape(-1)
    return elements.size > 1 and bool(np.any(elements != elements[0]))


def _holds(output: Output, operand: DumpedOperand) -> bool:
    golden_output = _golden_operand(output.folder, output.place)
    return (
        golden_output is not None
        and _form(golden_output) == _form(operand)
        and np.array_equal(golden_output.array, operand.array)
    )


# Compared before the elements, most of which then need not be read.
def _form(operand: DumpedOperand) -> tuple[tuple[int, ...], str, str]:
    return operand.shape, operand.dtype, operand.format


def lines(report: Report, folders: Mapping[str, ComparedFolder]) -> Iterator[str]:
    """Yield lines on the origin of the inputs that differ of the first operator that differs.

    Where a graph tells what an accused operator reads, its verdict says so already.

    Args:
        report: The verdicts.
        folders: The directories by their labels.
    """
    first = report.first
    if first is None or (first.is_accused and (not first.tensors or _has_graph(first, folders))):
        return
    search = _Search(report, folders, first)
    for tensor in first.wrong(IO.INPUT):
        if tensor.verdict is TensorVerdict.DIFFERS:
            yield search.line(tensor.slot)
    if search.uncompared and not any(each.verdict in AGREEING | BAD for each in first.of(IO.INPUT)):
        yield f"{search.uncompared[-1]}, which ran before it, was not compared"


def settle(report: Report, folders: Mapping[str, ComparedFolder]) -> None:
    """Accuse the operator where a difference begins that the first one with a difference reads.

    That is the first one itself, where no operator wrote its input so; or one that golden lacks, which did.

    Args:
        report: The verdicts; that on the accused operator is replaced.
        folders: The directories by their labels.
    """
    first = report.first
    if first is None or first.is_accused or not first.wrong(IO.INPUT) or _has_graph(first, folders):
        return
    if first.own:  # it ran again, and so did those before it
        return
    search = _Search(report, folders, first)
    for tensor in first.wrong(IO.INPUT):
        if tensor.verdict is not TensorVerdict.DIFFERS:
            continue
        settled = search.stranger(tensor.slot) if search.uncompared else search.settled(tensor.slot)
        if settled is not None:
            replaced = next(each for each in report.findings if each.place == settled.place)
            report.findings[report.findings.index(replaced)] = settled
            return


def _has_graph(finding: Finding, folders: Mapping[str, ComparedFolder]) -> bool:
    return folders[finding.place.label].mine.operator(finding.place.name) is not None


class _Search:
    """Looks for the operator that wrote an input."""

    def __init__(self, report: Report, folders: Mapping[str, ComparedFolder], first: Finding) -> None:
        self._folders, self._first = folders, first
        self.earlier = report.before(first)
        # What was not compared may be where a difference began, so no output can be ruled out.
        self.uncompared = [each.place.name for each in self.earlier if not each.is_compared]

    def line(self, slot: int) -> str:
        """Return in words where an input comes from."""
        origin = self.writer(slot)
        if origin is None:
            unless = (
                f", unless {self.uncompared[-1]} wrote it, which was not compared" if self.uncompared else ""
            )
            return f"what feeds input {slot} differs and lies outside the dump{unless}"
        name, output = origin
        return f"golden's input {slot} is output {output} of {name}, where both agree: it changed in between"

    def settled(self, slot: int) -> Finding | None:
        """Return the first operator accused, as an input of it came from nowhere or changed on the way."""
        verdict = Verdict.WEIGHT if self.writer(slot) is None else Verdict.OWN
        if verdict is Verdict.WEIGHT and not self.earlier and not slot:
            return None  # the first input of the first operator is what the network was fed with
        return replace(self._first, verdict=verdict, note=self.line(slot))

    def stranger(self, slot: int) -> Finding | None:
        """Return the operator without a counterpart that wrote an input, accused; None where none did."""
        read = self._own_place(self._first, IO.INPUT, slot)
        strangers = {
            finding.place.name: finding
            for finding in self.earlier
            if finding.verdict is Verdict.UNCHECKED and not finding.place.name.startswith(INSERTED_PREFIX)
        }
        outputs = (
            Output(finding.place.name, tensor.slot, *place)
            for finding in reversed(strangers.values())
            for tensor in finding.of(IO.OUTPUT)
            if (place := self._own_place(finding, IO.OUTPUT, tensor.slot)) is not None
        )
        wrote = None if read is None else writer(read, outputs)
        if wrote is None:
            return None
        note = f"golden has none such, and its output is input {slot} of {self._first.place.name}"
        return replace(strangers[wrote[0]], verdict=Verdict.REPLACED, note=note)

    def _own_place(self, finding: Finding, io: IO, slot: int) -> tuple[Folder, Place] | None:
        """Return the place of a tensor of the examined side."""
        folder = self._folders[finding.place.label]
        files = folder.matched.executions[finding.place.order - 1].files
        fitting = (file for file in files if file.io is None or (file.io, file.slot) == (io, slot))
        file = next(fitting, None)
        return None if file is None else (folder.dumped, (file, io, slot))

    def writer(self, slot: int) -> tuple[str, int] | None:
        """Return name and output of the operator that wrote an input, None where none did."""
        golden, execution = self._source(self._first)
        outputs = (output for each in reversed(self.earlier) for output in self._outputs(each))
        return writer((golden, execution.counterparts[IO.INPUT, slot]), outputs)

    def _outputs(self, finding: Finding) -> Iterator[Output]:
        """Yield the outputs of an operator that agree."""
        if finding.verdict is Verdict.MISSING:
            return
        golden, execution = self._source(finding)
        for tensor in finding.of(IO.OUTPUT):
            if tensor.verdict in AGREEING:
                place = execution.counterparts.get((tensor.io, tensor.slot))
                if place is not None:
                    yield Output(execution.name, tensor.slot, golden, place)

    def _source(self, finding: Finding) -> tuple[Folder, OperatorExecution]:
        folder = self._folders[finding.place.label]
        return folder.golden, folder.matched.executions[finding.place.order - 1]
