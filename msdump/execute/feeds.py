"""The inputs of one run of a network: arguments bound to names, checked against the graph's types."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import FormatError, InputError, name_hint
from msdump.execute.values import is_map
from msdump.graph.graph import Graph, Value, ValueType

_WIDTHS: Final = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
"""Kinds of numbers, each of which holds all smaller ones; the types that numpy lacks count as widest."""

_WIDEST: Final = 3


def bind(graph: Graph, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs by name: arrays, lists of arrays (sequences), maps, or None (absent optionals).

    Python numbers and lists take the declared dtype; arrays must have it.

    Raises:
        InputError: A missing, unknown, double, wrongly typed or wrongly shaped input, or two
            inputs that disagree on a dynamic dimension; every fault is named.
    """
    items = _by_name(graph, positional, named)
    problems: list[str] = []
    sizes: dict[str, tuple[int, str]] = {}
    feeds: dict[str, Any] = {}
    for value in (*graph.inputs, *_overridden(graph, items)):
        if value.name not in items:
            if value.type.kind != "optional":
                problems.append(f"input {value.name!r} ({_type_text(value.type)}) is missing")
            feeds[value.name] = None  # so that the faults of the other inputs are looked for as well
            continue
        try:
            feeds[value.name] = _checked(value, items[value.name], sizes)
        except (InputError, FormatError) as error:
            problems.append(f"input {value.name!r}: {error}")
    if problems:
        raise InputError(f"{graph.source}: " + "; ".join(problems))
    return feeds


def _by_name(graph: Graph, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    order = [value.name for value in graph.inputs]
    if len(positional) > len(order):
        expected = f"{len(order)} ({', '.join(order)})" if order else "none"
        raise InputError(f"{graph.source}: {len(positional)} inputs given, the network takes {expected}")
    items = dict(zip(order, positional, strict=False))
    for name, item in named.items():
        if name in items:
            raise InputError(f"{graph.source}: input {name!r} is given twice")
        if name not in order and name not in graph.overridable:
            inputs = f"the inputs are {', '.join(order)}" if order else "the network takes none"
            raise InputError(f"{graph.source}: no input {name!r}; {inputs}{name_hint(name, order)}")
        items[name] = item
    return items


def _overridden(graph: Graph, items: Mapping[str, Any]) -> list[Value]:
    """Return the weights that a run feeds in place of the model's own (IR version 4 and later)."""
    return [Value(name, graph.type_of(name)) for name in items if name in graph.overridable]


def _checked(value: Value, item: Any, sizes: dict[str, tuple[int, str]]) -> Any:
    """Return an input in the form in which it is fed.

    Args:
        value: The graph's input.
        item: What the caller passes for it.
        sizes: Size of each dynamic dimension so far, and the input that set it.

    Raises:
        InputError: It does not fit the input's type or shape.
    """
    kind = value.type.kind
    if item is None:
        if kind in {"optional", ""}:
            return None
        raise InputError(f"None given, {_type_text(value.type)} expected")
    if kind == "map" or (kind != "tensor" and is_map(item)):
        if not is_map(item):
            raise InputError(f"{type(item).__name__} given, a dict expected")
        return item
    if kind == "sequence" or (kind != "tensor" and isinstance(item, (list, tuple))):
        if not isinstance(item, (list, tuple)):
            raise InputError(f"{type(item).__name__} given, a list of tensors expected")
        return [_array(part, value.type.dtype) for part in item]
    array = _array(item, value.type.dtype)
    if kind == "tensor":
        _check_shape(value, array.shape, sizes)
    return array


def _array(item: Any, dtype: DType | None) -> np.ndarray:
    if dtype is not None and isinstance(item, (bool, int, float, complex, str, list, tuple)):
        return _converted(item, dtype)
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise InputError(f"{reprlib.repr(item)} is no tensor: {error}") from error
    actual = dtypes.from_numpy(array.dtype)
    if dtype is not None and actual is not dtype:
        raise InputError(f"dtype {actual.name} given, {dtype.name} expected; convert it with astype")
    if array.dtype == dtypes.STRING.numpy:
        _check_texts(array)
    return array


def _converted(item: Any, dtype: DType) -> np.ndarray:
    """Return a Python number or list as an array of the declared dtype, if that loses nothing."""
    try:
        natural = np.asarray(item)
        array = np.asarray(item, dtype=dtype.numpy)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{reprlib.repr(item)} is no tensor of {dtype.name}: {error}") from error
    # numpy would turn 1.5 into the integer 1 without a word
    if natural.size and _WIDTHS.get(natural.dtype.kind, 0) > _WIDTHS.get(array.dtype.kind, _WIDEST):
        raise InputError(f"{reprlib.repr(item)} would lose its value as {dtype.name}")
    if dtype is dtypes.STRING:
        _check_texts(array)
    return array


def _check_texts(array: np.ndarray) -> None:
    for item in array.reshape(-1):  # anything may stand in an array of objects
        if not isinstance(item, (str, bytes)):
            raise InputError(f"an array of objects holds {item!r}; only texts can be fed as objects")


def _check_shape(value: Value, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]]) -> None:
    declared = value.type.shape
    if declared is None:
        return
    if len(declared) != len(shape):
        raise InputError(f"shape {shape} given, {_shape_text(declared)} expected")
    for axis, (dimension, size) in enumerate(zip(declared, shape, strict=True)):
        if isinstance(dimension, int) and dimension != size:
            raise InputError(f"shape {shape} given, {_shape_text(declared)} expected")
        if isinstance(dimension, str):
            first, owner = sizes.setdefault(dimension, (size, value.name))
            if first != size:
                raise InputError(
                    f"dimension {dimension!r} is {size} on axis {axis}, but {first} in input {owner!r}"
                )


def _type_text(declared: ValueType) -> str:
    """Return what an input takes, for messages."""
    dtype = declared.dtype.name if declared.dtype else "any dtype"
    if declared.kind != "tensor":
        return declared.kind or "any value"
    return f"{dtype}, shape {_shape_text(declared.shape)}" if declared.shape is not None else dtype


def _shape_text(shape: Sequence[int | str | None]) -> str:
    """Return a shape as Python writes a tuple, a dimension without size or name as ``?``."""
    inner = ", ".join("?" if size is None else str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
