"""Whether an operator read what its producers wrote, and the weights of the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.dtypes import DType
from msdump.graph.graph import Graph
from msdump.graph.kernel.emulation import HALVES
from msdump.record import IO
from msdump.tools.rerun import elements
from msdump.tools.rerun.arithmetic import Arithmetic
from msdump.tools.rerun.compiled_model import ModelOperator
from msdump.tools.rerun.dumped import RerunOperator, RerunTensor
from msdump.tools.rerun.values import UNREADABLE, DumpedValues, Holder

SWAPPED: Final = "are swapped"
"""How a fault in words ends that may be none: of a commutative operator."""


@dataclass(frozen=True, slots=True)
class _Read:
    """An input beside what its producer wrote.

    Attributes:
        slot: Its number.
        tensor: The dumped input.
        array: Its elements.
        holder: The tensor in which its producer wrote the value.
        read_type: The type to which the operator rounds it.
    """

    slot: int
    tensor: RerunTensor
    array: np.ndarray
    holder: Holder
    read_type: DType


def fault(values: DumpedValues, position: int, arithmetic: Arithmetic) -> str:
    """Return in words which input of an operator is not what its producer wrote, "" where all are.

    A producer that the dump lacks, or of which no output was dumped, proves nothing.

    Args:
        values: The values of the run.
        position: Position of the operator in it.
        arithmetic: What the examined side computed in: files in the host's types show inputs as rounded.
    """
    site = values.sites[position]
    assert site is not None
    unlike = list(_unlike(values, position, site, arithmetic))
    if not unlike:
        return ""
    swapped = _swapped(values, site, unlike)
    if swapped:
        return f"inputs {swapped[0]} and {swapped[1]} {SWAPPED}"
    return "; ".join(_told(values, position, site, each) for each in unlike)


def _unlike(
    values: DumpedValues, position: int, site: ModelOperator, arithmetic: Arithmetic
) -> Iterator[_Read]:
    operator = values.operators[position]
    for slot, name in enumerate(site.node.inputs):
        tensor = operator.tensors.get((IO.INPUT, slot))
        if tensor is None or not name or site.node.inputs_after_run[slot] != name:
            continue
        holder = values.written(site.graph, name, position)
        if holder is None:
            continue
        try:
            array = values.array(site.graph, name, tensor, operator, site.node)
            read = _Read(slot, tensor, array, holder, arithmetic.read_type(site.node, slot))
            if not _holds(values, site.graph, name, read, holder):
                yield read
        except UNREADABLE:  # said where the tensors themselves are compared
            continue


def _holds(values: DumpedValues, graph: Graph, name: str, read: _Read, holder: Holder) -> bool:
    """Tell whether an input has the elements of a tensor that some operator wrote."""
    written = values.array(graph, name, holder.tensor, values.operators[holder.operator], holder.node)
    dtype = elements.narrower(
        elements.type_named(read.tensor.dtype, read.array),
        elements.type_named(holder.tensor.dtype, written),
    )
    if elements.is_same(read.array, written, dtype):
        return True
    return read.read_type in HALVES and elements.is_rounded(read.array, written, read.read_type)


def _swapped(values: DumpedValues, site: ModelOperator, unlike: list[_Read]) -> tuple[int, int] | None:
    """Return two inputs each of which is what the other one's producer wrote."""
    for one in unlike:
        for other in unlike:
            if (
                one.slot < other.slot
                and _reads(values, site, one, other)
                and _reads(values, site, other, one)
            ):
                return one.slot, other.slot
    return None


def _reads(values: DumpedValues, site: ModelOperator, one: _Read, other: _Read) -> bool:
    """Tell whether an input is what the producer of another one wrote."""
    name = site.node.inputs[other.slot]
    try:
        return _holds(values, site.graph, name, one, other.holder)
    except UNREADABLE:
        return False


def _told(values: DumpedValues, position: int, site: ModelOperator, unlike: _Read) -> str:
    named = _named(values.operators[unlike.holder.operator], unlike.holder.tensor)
    text = f"input {unlike.slot} is not {named}, which the model feeds it"
    other = _writer(values, position, site, unlike)
    return f"{text}, but {other}" if other else text


def _writer(values: DumpedValues, position: int, site: ModelOperator, unlike: _Read) -> str:
    """Return what wrote the elements of an input, "" where nothing did that can be told from others."""
    flat = unlike.array.reshape(-1)
    if flat.size <= 1 or not np.any(flat != flat[0]):
        return ""
    name = site.node.inputs[unlike.slot]
    for holder in values.all_written(position):
        try:
            if _holds(values, site.graph, name, unlike, holder):
                return _named(values.operators[holder.operator], holder.tensor)
        except UNREADABLE:  # another shape or type
            continue
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
