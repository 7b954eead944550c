"""The pairs of tensors of a comparison: by the operators' names, or by the rules of a graph file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from msdump.errors import DumpReadError, ToolError
from msdump.judge import (
    GOLDEN_INPUT,
    NAN,
    DumpedOperand,
    FusionRules,
    Origin,
    RuleOperator,
    read_operands,
    read_rules,
)
from msdump.judge.pair import lowest_folder
from msdump.read import Folder, FolderKind, NamedFile, read_folder
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import sanitize

ANY: Final = "*"
"""Stands in a result for an operator that one side lacks."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A row of the result: a tensor with its counterpart, or the reason why one is missing.

    Attributes:
        index: Number of the operator, or of a group of operators with the same original operators.
        op_type: Operator type, "NaN" if unknown.
        dumped: Names of the operators that are examined, separated by commas.
        golden: Names of the operators that they are compared with, separated by commas.
        tensor: ``{operator}:{input|output}:{index}``, "NaN" for an operator as a whole.
        dumped_tensor: The tensor, None if there is none.
        golden_tensor: Its counterpart, None if there is none.
        layout: Order of the counterpart's axes, "" if unknown.
        fault: Why the two cannot be compared, "" where they can.
        code: Return code of the fault.
        sequence: Place of the operator in the execution.
        scores: Results of the algorithms, as text.
        notes: Remarks of the algorithms.
        shape: Shape that was compared, else that of the tensor.
        dumped_dtype: Element type.
        golden_dtype: Element type of the counterpart.
        dumped_address: Address in the device's memory.
        golden_address: Address of the counterpart.
        overflow: YES, NO, or NaN for a tensor that is not float16.
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
    scores: tuple[str, ...] = ()
    notes: str = ""
    shape: str = NAN
    dumped_dtype: str = NAN
    golden_dtype: str = NAN
    dumped_address: str = NAN
    golden_address: str = NAN
    overflow: str = NAN


def last_execution(files: Sequence[NamedFile]) -> tuple[NamedFile, ...]:
    """Return the newest file of each tensor, or of the operator; files are sorted by time."""
    return tuple({(file.io, file.slot): file for file in files}.values())


def _slot_pairs(
    operator_pair: Pair, io: IO, dumped: Sequence[DumpedOperand], golden: Sequence[DumpedOperand]
) -> Iterator[Pair]:
    dumped_by_slot = {operand.index: operand for operand in dumped if operand.io is io}
    golden_by_slot = {operand.index: operand for operand in golden if operand.io is io}
    if not (dumped_by_slot and golden_by_slot):
        return  # one of the dumps has no inputs, or no outputs
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


def _output(folder: Folder, name: str, index: int) -> DumpedOperand | None:
    files = folder.operators.get(sanitize(name), ())
    if folder.kind is not FolderKind.DUMPS:
        files = tuple(file for file in files if file.io is IO.OUTPUT and file.slot == index)
    if not files:
        return None
    tensors = read_operands(folder, last_execution(files))
    return next((each for each in tensors if each.io is IO.OUTPUT and each.index == index), None)


Item = tuple[RuleOperator, ...]
"""Operators with the same originals, or one operator that is compared with that of its name."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The two directories of a comparison and the graph files that say which operators belong together.

    Attributes:
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        rules: Graph file of the examined network (``-f``), None if the operators have the same names.
        unfused: Graph file of the golden network where it was compiled without fusion (``-cf``).
    """

    dumped: Folder
    golden: Folder
    rules: FusionRules | None = None
    unfused: FusionRules | None = None

    def bytes(self) -> int:
        """Return the size of all files in bytes; for progress, all items count as equally large."""
        return sum(
            Path(file.path).stat().st_size for side in (self.dumped, self.golden) for file in side.files
        )

    def groups(self, chosen: frozenset[int] | None = None) -> list[Item]:
        """Return the items that are compared one by one: operators, or chosen groups of a graph file."""
        del chosen  # only a graph file has groups
        # In the order of the examined execution; operators that only golden has come last.
        listed = dict.fromkeys((*self.dumped.operators, *self.golden.operators))
        return [(RuleOperator(index, 0, name, "", (), (), ()),) for index, name in enumerate(listed)]

    def called(self, item: Item) -> str:
        """Return the name of an item for messages."""
        return f"{self.dumped.path}: {', '.join(each.name for each in item)}"

    def pairs(self, item: Item) -> list[Pair]:
        """Return the pairs of an item of ``groups``: of an operator that has the same name on both sides."""
        index, name = item[0].index, item[0].name
        dumped_files, golden_files = self.dumped.operators.get(name), self.golden.operators.get(name)
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
            dumped_tensors = read_operands(self.dumped, last_execution(dumped_files))
            golden_tensors = read_operands(self.golden, last_execution(golden_files))
        except DumpReadError as error:
            return [replace(operator_pair, fault=str(error), code=ReturnCode.DUMP_DATA)]
        pairs = [pair for io in IO for pair in _slot_pairs(operator_pair, io, dumped_tensors, golden_tensors)]
        return pairs or [replace(operator_pair, fault=f"{name} has no tensors", code=ReturnCode.DUMP_DATA)]


@dataclass(frozen=True, slots=True)
class _RuledSides(Sides):
    """Two directories with operators that are paired by a graph file.

    Golden has operators of the original network, or of the graph compiled without fusion.
    """

    rules: FusionRules

    def groups(self, chosen: frozenset[int] | None = None) -> list[Item]:
        groups = self.rules.groups.items()
        return [operators for index, operators in groups if chosen is None or index in chosen]

    def pairs(self, item: Item) -> list[Pair]:
        dumped = ",".join(operator.name for operator in item)
        operator_pair = Pair(
            item[0].index, item[0].op_type, dumped, ",".join(self._golden_names(item)) or ANY
        )
        pairs = [
            pair for operator in item for pair in self._operator_pairs(operator_pair, operator, len(item))
        ]
        if pairs:
            return pairs
        missing = f"mine has no file of operator {item[0].name}, type {item[0].op_type}"
        return [_missing(replace(operator_pair, sequence=item[0].sequence), missing)]

    def _golden_names(self, group: Sequence[RuleOperator]) -> Sequence[str]:
        """Return the original operators of a group, or their operators in the graph without fusion."""
        originals = group[0].originals
        if self.unfused is None:
            return originals
        unfused_names = (self.unfused.by_original.get(name, name) for name in originals)
        return tuple(dict.fromkeys(unfused_names))

    def _operator_pairs(self, operator_pair: Pair, operator: RuleOperator, members: int) -> Iterator[Pair]:
        files = self.dumped.operators.get(sanitize(operator.name))
        operator_pair = replace(operator_pair, op_type=operator.op_type, sequence=operator.sequence)
        if files is None or (members > 1 and operator.is_inner):
            return  # other operators of the group have the tensors
        try:
            tensors = read_operands(self.dumped, last_execution(files))
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
            # A tensor of no operator is a graph input or a weight; golden dumps may keep it with its reader.
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
        # The inputs of a fused operator begin with the inputs of its first original operator.
        for original in operator.originals[:1]:
            golden = _output(self.golden, f"{GOLDEN_INPUT}{original}", index)
            if golden is not None:
                return golden
        return None


def open_sides(dumped: str, golden: str, rules: str = "", unfused: str = "", *, version: int = 2) -> Sides:
    """Read two directories and the graph files of a comparison.

    Args:
        dumped: Directory that is examined; also one above it, if there is only one below.
        golden: Directory that it is compared with, or one above it likewise.
        rules: Graph file of the examined network, "" for none.
        unfused: Graph file of the golden network where it was compiled without fusion, "" for none.
        version: Version of the dump files: 2, or 1 for plain messages.

    Raises:
        ToolError: A directory or a file cannot be used, or the combination of them is not supported.
        DumpReadError: A directory cannot be listed.
    """
    dumped_folder, golden_folder = (read_folder(lowest_folder(path), version) for path in (dumped, golden))
    _check(dumped_folder, golden_folder, has_rules=bool(rules), has_unfused=bool(unfused))
    if not rules:
        return Sides(dumped_folder, golden_folder)
    return _RuledSides(
        dumped_folder, golden_folder, read_rules(rules), read_rules(unfused) if unfused else None
    )


def _check(dumped: Folder, golden: Folder, *, has_rules: bool, has_unfused: bool) -> None:
    """Raise ToolError where directories and graph files do not belong together."""
    is_golden = golden.kind is FolderKind.GOLDEN
    faults = (
        (
            has_unfused and not has_rules,
            ReturnCode.PARAMETER,
            "-cf is the graph without fusion; -f, the one with it, is missing",
        ),
        (
            has_rules and dumped.kind is FolderKind.GOLDEN,
            ReturnCode.DUMP_KIND,
            f"{dumped.path} holds {dumped.kind}, which no graph file (-f) describes",
        ),
        (
            is_golden and dumped.kind is not FolderKind.GOLDEN and not has_rules,
            ReturnCode.PARAMETER,
            f"{golden.path} holds {golden.kind}: give the model's graph file with -f",
        ),
        (
            is_golden and has_unfused,
            ReturnCode.PARAMETER,
            f"{golden.path} holds {golden.kind}, which -cf does not describe",
        ),
        (
            has_rules and not has_unfused and golden.kind is FolderKind.DUMPS,
            ReturnCode.PARAMETER,
            f"{golden.path} holds {golden.kind}: beside -f, -cf must give the graph that they were made by",
        ),
    )
    for is_fault, code, message in faults:
        if is_fault:
            raise ToolError(code, message)
