"""One use of a primitive: its arguments, from which the body of its function follows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import Parameter, signature
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.graph.graph import Shape, ValueType
from msdump.graph.kernel.emulation import FLOAT32, HALVES
from msdump.graph.operators import moves
from msdump.graph.primitives.body import BodyFunction, OperatorBody, Structure, Value, op
from msdump.graph.primitives.slots import SLOTS, text_of

COMPUTED: Final = object()
"""Stands for the value of an operand that is computed in a run."""


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a primitive."""

    op_type: str  # MindSpore's name
    names: Sequence[str]  # names of the values by slot, "" for one that the kernel does not read
    values: Sequence[Any]  # by slot the constant as Python value or array, ``COMPUTED`` for any other operand
    types: Sequence[ValueType | None]  # types of the operands by slot, None for an operand that is no tensor
    outputs: Sequence[ValueType | None]  # declared types of the outputs
    attributes: Mapping[str, Any]  # MindSpore's attributes by name

    def keywords(self, entry: OperatorBody) -> tuple[dict[str, Structure], dict[str, int]]:
        """Return the keywords of a body by name, and the slots of the ones that are computed in a run.

        They are constants of slots, attributes, or facts.

        Raises:
            ValueError: There is none of a name that has no default.
        """
        own = ARGUMENTS.get(self.op_type)
        if own is not None:
            return {name: _plain(value) for name, value in own(self).items()}, {}
        found: dict[str, Structure] = {}
        computed: dict[str, int] = {}
        for parameter in _keywords(entry.build):
            place = self._place(parameter.name)
            if place is not None and self.values[place] is COMPUTED:
                computed[parameter.name] = place
                continue
            value = self.argument(parameter.name)
            if value is not None:
                found[parameter.name] = _plain(value)
            elif parameter.default is Parameter.empty:
                raise ValueError(f"the argument {parameter.name} is missing")
        return found, computed

    def _place(self, name: str) -> int | None:
        """Return the number of a slot by its name; None for none that is given."""
        slots = SLOTS.get(self.op_type, ())
        place = _PLACES.get(self.op_type, {}).get(name)
        if place is not None and slots[0].is_repeated:
            place += len(self.values) - len(slots)  # behind any number of tensors, slots count from the end
        return None if place is None or place >= len(self.values) else place

    def argument(self, name: str, default: Any = None) -> Any:
        """Return the constant of a slot, attribute or fact, or the default; ValueError if it is computed."""
        place = self._place(name)
        if place is not None:
            value = self.values[place]
            if value is COMPUTED:
                raise ValueError(f"the argument {name} is computed in a run")
            return default if value is None else text_of(name, value)
        if name in self.attributes:
            return self.attributes[name]
        fact = _FACTS.get(name)
        return default if fact is None else fact(self)

    def element(self, entry: OperatorBody) -> DType:
        """Return the element type of the tensors of a body; ValueError if no operand has one."""
        for kind in (*self.types[entry.element : entry.element + 1], *self.types, *self.outputs):
            if kind is not None and kind.dtype is not None:
                return kind.dtype
        raise ValueError("no operand is a tensor")

    def common_type(self) -> DType:
        """Return the element type that holds the numbers of all operands."""
        known = [kind.dtype.numpy for kind in self.types if kind is not None and kind.dtype is not None]
        return dtypes.from_numpy(np.result_type(*known))

    def in_float32(self, entry: OperatorBody) -> OperatorBody | None:
        """Return a body that computes in float32 and rounds its results; None where no operand is smaller.

        MindSpore's kernels of float16 do so; some have results in float32 beside others in float16.
        """
        halves = [slot for slot, kind in enumerate(self.types) if kind is not None and kind.dtype in HALVES]
        if not halves or moves(self.op_type):
            return None
        own = [kind is not None and kind.dtype in HALVES for kind in self.outputs]

        def build(*slots: Value, **structure: Structure) -> tuple[Value, ...]:
            wide = [
                op.Cast(value, to=FLOAT32.onnx) if slot in halves else value
                for slot, value in enumerate(slots)
            ]
            results = entry.results(wide, structure)
            # in the element type of the operand, which an emulated device may hold in float32
            return tuple(
                op.CastLike(value, slots[halves[0]]) if is_half else value
                for value, is_half in itertools.zip_longest(results, own[: len(results)])
            )

        return replace(entry, build=build, element=0, variant={"rounds": self.element(entry).name})

    def sizes(self, slot: int = 0) -> tuple[int, ...]:
        """Return the shape of an operand; ValueError if a dimension is dynamic."""
        return _sizes(self.types[slot], f"input {slot}")

    def shape(self, slot: int = 0) -> Shape:
        """Return the shape of an operand, in which sizes may be dynamic; ValueError if it is not known."""
        kind = self.types[slot]
        if kind is None or kind.shape is None:
            raise ValueError(f"the number of axes of input {slot} is not known")
        return kind.shape

    def constant(self, name: str) -> Any:
        """Return the constant of a slot, ``COMPUTED`` for one that is computed in a run."""
        place = self._place(name)
        return None if place is None else self.values[place]

    def output_sizes(self, slot: int = 0) -> tuple[int, ...]:
        """Return the shape of an output; ValueError if a dimension is dynamic."""
        return _sizes(self.outputs[slot], f"output {slot}")


def _sizes(kind: ValueType | None, place: str) -> tuple[int, ...]:
    """Return the shape of an operand or output that messages name."""
    if kind is None or kind.sizes is None:
        raise ValueError(f"the shape of {place} is dynamic; give its dimensions sizes (--dim)")
    return kind.sizes


_PLACES: Final = {
    op_type: {slot.name: place for place, slot in enumerate(slots)} for op_type, slots in SLOTS.items()
}
"""By primitive: the number of each slot by its name."""


@lru_cache
def _keywords(build: BodyFunction) -> tuple[Parameter, ...]:
    """Return the keywords of a body; Python takes long to find them."""
    each = signature(build).parameters.values()
    return tuple(parameter for parameter in each if parameter.kind is Parameter.KEYWORD_ONLY)


def _number(kind: ValueType | None) -> int | None:
    """Return ONNX's number of an element type."""
    return None if kind is None or kind.dtype is None else kind.dtype.onnx


_FACTS: Final[Mapping[str, Callable[[Call], Any]]] = {
    "rank": lambda call: len(call.types[0].shape or ()) if call.types[0] is not None else None,
    "input_shape": lambda call: call.sizes(),
    "input_shapes": lambda call: tuple(call.sizes(slot) for slot in range(len(call.types))),
    "output_shape": lambda call: call.output_sizes(),
    "input_type": lambda call: _number(call.types[0]),
    "output_type": lambda call: _number(call.outputs[0]),
    "outputs": lambda call: len(call.outputs),
    "given": lambda call: tuple(int(bool(name)) for name in call.names),
    "is_whole": lambda call: call.common_type().numpy.kind in "iub",
    "count": lambda call: len(call.values) - max(len(SLOTS.get(call.op_type, ())) - 1, 0),
}
"""Facts that a body may have as keywords."""

ARGUMENTS: Final[dict[str, Callable[[Call], Mapping[str, Any]]]] = {}
"""By primitive: the keywords of its body, where they are not named as MindSpore names its arguments."""

PLAIN: Final[dict[str, Callable[[Call], tuple[str, Mapping[str, Any]] | None]]] = {}
"""By primitive: ONNX's operator with the same inputs, and its attributes; None where a body is needed."""


def _plain(value: Any) -> Any:
    """Return a value as an attribute of a function: numbers, texts and tuples of them."""
    if isinstance(value, np.ndarray):
        return tuple(value.reshape(-1).tolist()) if value.ndim else value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (tuple, list)):
        return tuple(_plain(item) for item in value)
    return value
