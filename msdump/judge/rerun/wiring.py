"""The dumped inputs of an operator beside its producers' outputs, and its weights beside the model's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from msdump.dtypes import DType
from msdump.graph.kernel import HALVES
from msdump.judge import errors
from msdump.judge.pair import canonical_type, is_commutative
from msdump.judge.rerun.arithmetic import Arithmetic, is_rounded, is_same, narrower, type_named
from msdump.judge.rerun.own import is_near
from msdump.judge.rerun.sites import RerunOperator
from msdump.judge.rerun.values import UNREADABLE, DumpedValues, Holder, UnfitError
from msdump.read import Record
from msdump.record import IO

SWAPPED: Final = "are swapped"
"""End of a sentence on swapped inputs, which are no fault if the results agree."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A dumped input of an operator."""

    value: str  # the value of the model that it holds
    tensor: Record
    holder: Holder | None  # the dumped output of its producer; None without one
    read_type: DType  # the type to which the operator rounds the input


class DumpedInputs:
    """The dumped inputs of an operator, compared with the outputs of their producers."""

    def __init__(self, values: DumpedValues, position: int, arithmetic: Arithmetic) -> None:
        """List the dumped inputs that the operator does not overwrite.

        ``arithmetic`` is the examined side's: inputs may be dumped as rounded in it.
        """
        self._values, self._position, self._site = values, position, values.site(position)
        tensors, node = values.operators[position].tensors, self._site.node
        self._reads = [
            _Read(
                name,
                tensors[IO.INPUT, slot],
                values.written(self._site.graph, name, position)
                or values.carried(self._site.graph, name, position),
                arithmetic.read_type(node, slot),
            )
            for slot, name in enumerate(node.inputs)
            if (IO.INPUT, slot) in tensors and name and node.inputs_after_run[slot] == name
        ]

    def fault(self) -> str:
        """Return a sentence on an input that differs from its producer's output, "" for none.

        Inputs of a producer without a dumped output are not judged.
        """
        for one, other in itertools.combinations(self._unlike, 2):
            if self._is_of(one, other) and self._is_of(other, one):
                return f"inputs {one.tensor.slot} and {other.tensor.slot} {SWAPPED}"
        texts = []
        for read in self._unlike:
            assert read.holder is not None, "an input without a holder is never unlike"
            expected, writer = self._named(read.holder), self._writer(read)
            texts.append(f"input {read.tensor.slot} is not {expected}, its source in the model")
            if writer is not None:
                texts[-1] = f"input {read.tensor.slot} is {self._named(writer)}, in the model {expected}"
        return "; ".join(texts)

    def strangers(self) -> Iterator[tuple[int, str]]:
        """Yield the producers of wrong inputs that the model lacks: position in the run, and a sentence."""
        name = self._values.operators[self._position].name
        for read in self._unlike:
            writer = self._writer(read)
            if writer is None or read.holder is None:
                continue
            if self._values.operators[writer.operator].site is None:
                yield writer.operator, f"{name} reads it in place of {self._named(read.holder)}"

    @cached_property
    def _unlike(self) -> Sequence[_Read]:
        unlike = [read for read in self._reads if self._is_of(read, read) is False]
        if is_commutative(canonical_type(self._site.node.operator.op_type)):
            # only the inputs with producers that no input matches, in any order of the inputs
            free, left = (
                [each for each in self._reads if each.holder is None or each in unlike],
                list[_Read](),
            )
            for expected in unlike:
                found = next((read for read in free if self._is_of(read, expected)), None)
                if found is None:
                    left.append(expected)
                else:
                    free.remove(found)
            return left
        return unlike

    def _is_of(self, read: _Read, expected: _Read) -> bool | None:
        """Return whether an input equals the output of the producer of ``expected``; None: unknown."""
        if expected.holder is None or self._values.operators[expected.holder.operator].replaces:
            return None
        return self._holds(read, expected.value, expected.holder)

    def _holds(self, read: _Read, value: str, holder: Holder) -> bool | None:
        """Return whether an input equals an operator's output up to rounding; None if one is unreadable."""
        try:
            written = self._values.array(self._site.graph, value, holder)
            array = self._array(read, value)
        except UnfitError as unfit:
            return False if unfit.tensor is read.tensor else None
        except UNREADABLE:  # said where the tensors themselves are compared
            return None
        dtype = narrower(
            type_named(read.tensor.dtype, array),
            type_named(holder.tensor.dtype, written),
        )
        if is_same(array, written, dtype):
            return True
        return _is_read_as(array, written, read.read_type, self._values.operators[self._position])

    def _array(self, read: _Read, value: str) -> np.ndarray:
        """Return an input in the shape and type that the model declares."""
        holder = Holder(read.tensor, self._position, self._site.node)
        return self._values.array(self._site.graph, value, holder)

    def _writer(self, unlike: _Read) -> Holder | None:
        """Return an earlier output that equals an input; None without one, or for a constant input."""
        try:
            flat = self._array(unlike, unlike.value).reshape(-1)
        except UnfitError:
            return None
        if flat.size <= 1 or not np.any(flat != flat[0]):
            return None
        written = self._values.all_written(self._position)
        return next((holder for holder in written if self._holds(unlike, unlike.value, holder)), None)

    def _named(self, holder: Holder) -> str:
        return f"{holder.tensor.io} {holder.tensor.slot} of {self._values.operators[holder.operator].name}"


def _is_read_as(array: np.ndarray, value: np.ndarray, read_type: DType, operator: RerunOperator) -> bool:
    """Return whether an input equals a value rounded to a 16-bit type in which the operator may read it."""
    halves = (half for half in HALVES if half is read_type or half.name in operator.held)
    return any(is_rounded(array, value, half) for half in halves)


def wrong_weights(values: DumpedValues, position: int, arithmetic: Arithmetic) -> dict[int, str]:
    """Return the names of weights and constants that differ from the model's, by the operator's input.

    They are compared by bits. Rounded ones are not wrong: the operator runs again on the dumped ones. Trained
    weights are compared in the first iteration only.
    """
    operator, site = values.operators[position], values.site(position)
    wrong: dict[int, str] = {}
    graph = site.graph
    for slot, name in enumerate(site.node.inputs):
        tensor = operator.tensors.get((IO.INPUT, slot))
        if tensor is None or site.node.inputs_after_run[slot] != name:
            continue
        if name not in graph.weights or (name in graph.changeable and operator.iteration != 0):
            continue
        try:
            array = values.array(graph, name, Holder(tensor, position, site.node))
        except UnfitError:  # another number of elements
            wrong |= {} if values.is_of_other_form else {tensor.slot: name}
            continue
        except UNREADABLE:
            continue
        weight = np.asarray(graph.weights[name])
        dtype = narrower(type_named(tensor.dtype, array), type_named("", weight))
        if is_same(array, weight, dtype):
            continue
        if values.is_folded(name) and is_near(errors.measure(array, weight, dtype.name)):
            continue  # a constant folded in the device's arithmetic
        if _is_read_as(array, weight, arithmetic.read_type(site.node, slot), operator):
            continue
        # the examined model's weight is rounded, or files alone judge the weights of another form of it
        if values.is_of_other_form or any(is_rounded(array, weight, half) for half in HALVES):
            values.rounded.setdefault(position, set()).add(name)
        else:
            wrong[tensor.slot] = name
    return wrong
