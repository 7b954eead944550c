"""The pairs of tensors of a comparison: by the operators' names, or by the rules of a graph file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msdump.errors import DumpReadError
from msdump.record import IO
from msdump.tools.compare.pairing import dump_folder, operands
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.compare.pairing.fusion_rules import FusionRules, Origin, RuleOperator
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores.algorithms import NAN

ANY: Final = "*"
"""Stands in a result for an operator that one side lacks."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A tensor and its counterpart, or why there are none.

    Attributes:
        index: Number of the operator, or of the operators with the same originals.
        op_type: Operator type, "NaN" where it is not known.
        dumped: Names of the operators that are examined, separated by commas.
        golden: Names of the operators that they are compared with, separated by commas.
        tensor: ``{operator}:{input|output}:{index}``, "NaN" for an operator as a whole.
        dumped_tensor: The tensor, None where there is none.
        golden_tensor: Its counterpart, None where there is none.
        layout: Order of the counterpart's axes, "" where it is not told.
        fault: Why the two cannot be compared, "" where they can.
        code: Return code of the fault.
        sequence: Place of the operator in the execution.
    """

    index: int
    op_type: str
    dumped: str
    golden: str
    tensor: str = NAN
    dumped_tensor: DumpedOperand | None = None
    golden_tensor: DumpedOperand | None = None
    layout: str = ""
    fault: str = ""
    code: ReturnCode = ReturnCode.DONE
    sequence: int = 0


def of_name(dumped: Folder, golden: Folder, item: tuple[int, str]) -> list[Pair]:
    """Return the pairs of an operator that has the same name on both sides.

    Args:
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        item: Number and name of the operator.
    """
    index, name = item
    dumped_files, golden_files = dumped.operators.get(name), golden.operators.get(name)
    operator_pair = Pair(index, NAN, name, name)
    if golden_files is None:
        return [_missing(replace(operator_pair, golden=ANY), f"golden has no file of operator {name}")]
    if dumped_files is None:
        return [_missing(replace(operator_pair, dumped=ANY), f"mine has no file of operator {name}")]
    # Golden tensors have no operator type in their names.
    operator_pair = replace(
        operator_pair, op_type=dumped_files[-1].op_type or golden_files[-1].op_type or NAN
    )
    try:
        dumped_tensors = operands.read(dumped, last_execution(dumped_files))
        golden_tensors = operands.read(golden, last_execution(golden_files))
    except DumpReadError as error:
        return [replace(operator_pair, fault=str(error), code=ReturnCode.DUMP_DATA)]
    pairs = [pair for io in IO for pair in _slot_pairs(operator_pair, io, dumped_tensors, golden_tensors)]
    return pairs or [replace(operator_pair, fault=f"{name} has no tensors", code=ReturnCode.DUMP_DATA)]


def last_execution(files: Sequence[NamedFile]) -> tuple[NamedFile, ...]:
    """Return the newest file of each tensor, or of the operator; files are sorted by time."""
    return tuple({(file.io, file.slot): file for file in files}.values())


def _slot_pairs(
    operator_pair: Pair, io: IO, dumped: Sequence[DumpedOperand], golden: Sequence[DumpedOperand]
) -> Iterator[Pair]:
    """Yield the pairs of an operator's inputs or outputs, by their numbers."""
    dumped_by_slot = {operand.index: operand for operand in dumped if operand.io is io}
    golden_by_slot = {operand.index: operand for operand in golden if operand.io is io}
    if not (dumped_by_slot and golden_by_slot):
        return  # the dumps were asked for different sides
    for number in sorted(dumped_by_slot.keys() | golden_by_slot.keys()):
        dumped_tensor, golden_tensor = dumped_by_slot.get(number), golden_by_slot.get(number)
        pair = replace(
            operator_pair,
            tensor=f"{operator_pair.dumped}:{io}:{number}",
            dumped_tensor=dumped_tensor,
            golden_tensor=golden_tensor,
        )
        if dumped_tensor is None or golden_tensor is None:
            side = "mine" if dumped_tensor is None else "golden"
            yield _missing(pair, f"{side} has no {pair.tensor}")
        else:
            yield pair


def _missing(pair: Pair, fault: str) -> Pair:
    return replace(pair, fault=fault, code=ReturnCode.NO_DUMP_FILE)


@dataclass(frozen=True, slots=True)
class Ruled:
    """Pairs the operators of two directories by a graph file.

    Attributes:
        dumped: Directory with operators of the compiled graph.
        golden: Directory with operators of the original network, or of the graph compiled without fusion.
        rules: The compiled graph.
        unfused: The graph compiled without fusion, None where golden has operators of the original network.
    """

    dumped: Folder
    golden: Folder
    rules: FusionRules
    unfused: FusionRules | None = None

    def pairs(self, group: Sequence[RuleOperator]) -> list[Pair]:
        """Return the pairs of the operators with the same originals."""
        dumped = ",".join(operator.name for operator in group)
        operator_pair = Pair(
            group[0].index, group[0].op_type, dumped, ",".join(self._golden_names(group)) or ANY
        )
        pairs = [
            pair for operator in group for pair in self._operator_pairs(operator_pair, operator, len(group))
        ]
        if pairs:
            return pairs
        missing = f"mine has no file of operator {group[0].name}, type {group[0].op_type}"
        return [_missing(replace(operator_pair, sequence=group[0].sequence), missing)]

    def _golden_names(self, group: Sequence[RuleOperator]) -> Sequence[str]:
        """Return the operators that a group is compared with: its originals, or ``unfused``'s for them."""
        originals = group[0].originals
        if self.unfused is None:
            return originals
        unfused_names = (self.unfused.by_original.get(name, name) for name in originals)
        return tuple(dict.fromkeys(unfused_names))

    def _operator_pairs(self, operator_pair: Pair, operator: RuleOperator, members: int) -> Iterator[Pair]:
        files = self.dumped.operators.get(dump_folder.key(operator.name))
        operator_pair = replace(operator_pair, op_type=operator.op_type, sequence=operator.sequence)
        if files is None or (members > 1 and operator.is_inner):
            return  # the other operators with these originals hold the tensors
        try:
            tensors = operands.read(self.dumped, last_execution(files))
        except DumpReadError as error:
            yield replace(operator_pair, fault=str(error), code=ReturnCode.DUMP_DATA)
            return
        for tensor in tensors:
            yield self._tensor_pair(operator_pair, operator, tensor)

    def _tensor_pair(self, operator_pair: Pair, operator: RuleOperator, tensor: DumpedOperand) -> Pair:
        name = f"{operator.name}:{tensor.io}:{tensor.index}"
        pair = replace(operator_pair, tensor=name, dumped_tensor=tensor)
        is_input = tensor.io is IO.INPUT
        origin_of = self.rules.input_origin if is_input else self.rules.output_origin
        origin = origin_of(operator, tensor.index)
        try:
            golden = None if origin is None else self._golden(origin)
            # What no operator writes is a graph input or a weight; golden dumps may keep it with its reader.
            if golden is None and is_input:
                golden = self._graph_input(operator, tensor.index)
        except DumpReadError as error:
            return replace(pair, fault=str(error), code=ReturnCode.DUMP_DATA)
        if golden is None:
            whose = "" if origin is None else f", which is output {origin.index} of {origin.name}"
            return replace(pair, fault=f"golden has no counterpart of {name}{whose}")
        return replace(pair, golden_tensor=golden, layout=origin.format if origin else "")

    def _golden(self, origin: Origin) -> DumpedOperand | None:
        if self.unfused is None:
            return _output(self.golden, origin.name, origin.index)
        unfused_output = self.unfused.by_origin.get((origin.name, origin.index))
        return None if unfused_output is None else _output(self.golden, *unfused_output)

    def _graph_input(self, operator: RuleOperator, index: int) -> DumpedOperand | None:
        """Return a golden tensor that an offline dump of onnxruntime keeps as an input of an operator."""
        # The inputs of a fused operator begin with those of its first original.
        for original in operator.originals[:1]:
            golden = _output(self.golden, f"{GOLDEN_INPUT}{original}", index)
            if golden is not None:
                return golden
        return None


GOLDEN_INPUT: Final = "input_"
"""Prefix of golden tensors that are graph inputs or weights of an operator.

msprobe's offline dump of onnxruntime writes them as ``input_{node}.{index}.{timestamp}.npy``.
"""


def _output(folder: Folder, name: str, index: int) -> DumpedOperand | None:
    """Return an output of an operator in a directory, None where it is not there."""
    files = folder.operators.get(dump_folder.key(name), ())
    if folder.kind is not FolderKind.DUMPS:
        files = tuple(file for file in files if file.io is IO.OUTPUT and file.slot == index)
    if not files:
        return None
    tensors = operands.read(folder, last_execution(files))
    return next((each for each in tensors if each.io is IO.OUTPUT and each.index == index), None)
