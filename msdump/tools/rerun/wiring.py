"""Whether an operator read what its producers wrote, and the weights of the model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.dtypes import DType
from msdump.graph.kernel.emulation import HALVES
from msdump.record import IO
from msdump.tools.matching.sides import canonical_type, is_commutative
from msdump.tools.rerun import elements
from msdump.tools.rerun.arithmetic import Arithmetic
from msdump.tools.rerun.dumped import RerunOperator, RerunTensor
from msdump.tools.rerun.values import UNREADABLE, DumpedValues, Holder, UnfitError

SWAPPED: Final = "are swapped"
"""How a fault in words ends that may be none: of a commutative operator."""


@dataclass(frozen=True, slots=True)
class _Read:
    """An input of an operator, and what its producer wrote.

    Attributes:
        slot: Its number.
        value: The value of the model that it holds.
        tensor: The dumped input.
        holder: The tensor in which its producer wrote the value, None where that is not known.
        read_type: The type to which the operator rounds it.
    """

    slot: int
    value: str
    tensor: RerunTensor
    holder: Holder | None
    read_type: DType


def fault(values: DumpedValues, position: int, arithmetic: Arithmetic) -> str:
    """Return in words which input of an operator is not what its producer wrote, "" where all are.

    A producer that the dump lacks, or of which no output was dumped, proves nothing.

    Args:
        values: The values of the run.
        position: Position of the operator in it.
        arithmetic: What the examined side computed in: files in the host's types show inputs as rounded.
    """
    return _Inputs(values, position, arithmetic).fault()


class _Inputs:
    """The dumped inputs of an operator beside what their producers wrote."""

    def __init__(self, values: DumpedValues, position: int, arithmetic: Arithmetic) -> None:
        site = values.sites[position]
        assert site is not None
        self._values, self._position, self._site = values, position, site
        self._reads = list(self._dumped(arithmetic))

    def _dumped(self, arithmetic: Arithmetic) -> Iterator[_Read]:
        """Yield the inputs that were dumped as the operator read them."""
        operator, node = self._values.operators[self._position], self._site.node
        for slot, name in enumerate(node.inputs):
            tensor = operator.tensors.get((IO.INPUT, slot))
            if tensor is not None and name and node.inputs_after_run[slot] == name:
                holder = self._values.written(self._site.graph, name, self._position)
                yield _Read(slot, name, tensor, holder, arithmetic.read_type(node, slot))

    def fault(self) -> str:
        """Return in words which input is not what its producer wrote."""
        unlike = [
            read for read in self._reads if self._is_of(read, read) is False and not self._reads_past(read)
        ]
        if is_commutative(canonical_type(self._site.node.operator.op_type)):
            unlike = self._in_no_order(unlike)
        swapped = self._swapped(unlike)
        if swapped:
            return f"inputs {swapped[0]} and {swapped[1]} {SWAPPED}"
        return "; ".join(map(self._told, unlike))

    def _is_of(self, read: _Read, expected: _Read) -> bool | None:
        """Tell whether an input is what the producer of another one, or its own, wrote; None: not known."""
        return None if expected.holder is None else self._holds(read, expected.value, expected.holder)

    def _holds(self, read: _Read, value: str, holder: Holder) -> bool | None:
        """Tell whether an input has the elements of a tensor that some operator wrote; None: not known."""
        values, site = self._values, self._site
        try:
            written = values.array(
                site.graph, value, holder.tensor, values.operators[holder.operator], holder.node
            )
            array = self._array(read, value)
        except UnfitError as unfit:
            return False if unfit.tensor is read.tensor else None
        except UNREADABLE:  # said where the tensors themselves are compared
            return None
        dtype = elements.narrower(
            elements.type_named(read.tensor.dtype, array),
            elements.type_named(holder.tensor.dtype, written),
        )
        if elements.is_same(array, written, dtype):
            return True
        return read.read_type in HALVES and elements.is_rounded(array, written, read.read_type)

    def _array(self, read: _Read, value: str) -> np.ndarray:
        """Return the elements of an input in the shape and type that the model declares of a value."""
        operator = self._values.operators[self._position]
        return self._values.array(self._site.graph, value, read.tensor, operator, self._site.node)

    def _reads_past(self, read: _Read) -> bool:
        """Tell whether an input is of an operator in another one's place, or what the replaced one reads.

        Where the last part of a fused kernel was dropped, its readers read what that part read. What the
        dump lacks there is told of the producer.
        """
        source = self._values.operators[self._position].sources.get(read.slot)
        if source is not None and self._values.is_replacement(source[0]):
            return True
        holder, graph = read.holder, self._site.graph
        if holder is None or holder.node is None or holder.operator not in self._values.replaced:
            return False
        sources = (
            self._values.written(graph, value, holder.operator) for value in holder.node.inputs if value
        )
        return any(self._holds(read, read.value, source) for source in sources if source is not None)

    def _in_no_order(self, unlike: Sequence[_Read]) -> list[_Read]:
        """Return the inputs whose producers' elements are those of no other input either."""
        free = [read for read in self._reads if read.holder is None or read in unlike]
        left = []
        for expected in unlike:
            found = next((read for read in free if self._is_of(read, expected)), None)
            if found is None:
                left.append(expected)
            else:
                free.remove(found)
        return left

    def _swapped(self, unlike: Sequence[_Read]) -> tuple[int, int] | None:
        """Return two inputs each of which is what the other one's producer wrote."""
        for one, other in itertools.combinations(unlike, 2):
            if self._is_of(one, other) and self._is_of(other, one):
                return one.slot, other.slot
        return None

    def _told(self, unlike: _Read) -> str:
        assert unlike.holder is not None, "who has no holder is not known to be unlike"
        named = _named(self._values.operators[unlike.holder.operator], unlike.holder.tensor)
        text = f"input {unlike.slot} is not {named}, which the model feeds it"
        other = self._writer(unlike)
        return f"{text}, but {other}" if other else text

    def _writer(self, unlike: _Read) -> str:
        """Return what wrote the elements of an input, "" where nothing did that can be told from others."""
        try:
            flat = self._array(unlike, unlike.value).reshape(-1)
        except UnfitError:
            return ""
        if flat.size <= 1 or not np.any(flat != flat[0]):
            return ""
        for holder in self._values.all_written(self._position):
            if self._holds(unlike, unlike.value, holder):
                return _named(self._values.operators[holder.operator], holder.tensor)
        return ""


def _named(operator: RerunOperator, tensor: RerunTensor) -> str:
    return f"{tensor.io} {tensor.slot} of {operator.name}"


def wrong_weights(values: DumpedValues, position: int, arithmetic: Arithmetic) -> dict[int, str]:
    """Return the weights and constants that an operator read and that are not the model's, by input.

    Both are compared by bits, rounded to the type in which the device read them. What training changes is
    compared in the first iteration alone.

    Args:
        values: The values of the run.
        position: Position of the operator in it.
        arithmetic: What the examined side computed in.
    """
    operator, site = values.operators[position], values.sites[position]
    assert site is not None
    wrong: dict[int, str] = {}
    graph = site.graph
    for slot, name in enumerate(site.node.inputs):
        tensor = operator.tensors.get((IO.INPUT, slot))
        if tensor is None or name not in graph.weights or site.node.inputs_after_run[slot] != name:
            continue
        if name in graph.changeable and operator.iteration != 0:
            continue
        try:
            array = values.array(graph, name, tensor, operator, site.node)
        except UnfitError:  # it has not even the weight's size
            wrong[slot] = name
            continue
        except UNREADABLE:
            continue
        weight = np.asarray(graph.weights[name])
        dtype = elements.narrower(elements.type_named(tensor.dtype, array), elements.type_named("", weight))
        if elements.is_same(array, weight, dtype):
            continue
        read_type = arithmetic.read_type(site.node, slot)
        if not (read_type in HALVES and elements.is_rounded(array, weight, read_type)):
            wrong[slot] = name
    return wrong
