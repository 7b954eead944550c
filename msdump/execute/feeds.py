"""The inputs of one run, checked against the graph."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import FormatError, InputError
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
    given = _by_name(graph, positional, named)
    problems: list[str] = []
    sizes: dict[str, tuple[int, str]] = {}
    feeds: dict[str, Any] = {}
    for value in (*graph.inputs, *_overridden(graph, given)):
        if value.name not in given:
            if value.type.kind != "optional":
                problems.append(f"input {value.name!r} ({_wanted(value.type)}) is missing")
            feeds[value.name] = None
            continue
        try:
            feeds[value.name] = _checked(value, given[value.name], sizes)
        except (InputError, FormatError) as error:
            problems.append(f"input {value.name!r}: {error}")
    if problems:
        raise InputError(f"{graph.source}: " + "; ".join(problems))
    return feeds


def _by_name(graph: Graph, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    order = [value.name for value in graph.inputs]
    if len(positional) > len(order):
        taken = f"{len(order)} ({', '.join(order)})" if order else "none"
        raise InputError(f"{graph.source}: {len(positional)} inputs given, the network takes {taken}")
    given = dict(zip(order, positional, strict=False))
    for name, item in named.items():
        if name in given:
            raise InputError(f"{graph.source}: input {name!r} is given twice")
        if name not in order and name not in graph.overridable:
            close = difflib.get_close_matches(name, order, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            inputs = f"the inputs are {', '.join(order)}" if order else "the network takes none"
            raise InputError(f"{graph.source}: no input {name!r}; {inputs}{hint}")
        given[name] = item
    return given


def _overridden(graph: Graph, given: Mapping[str, Any]) -> list[Value]:
    return [Value(name, graph.type_of(name)) for name in given if name in graph.overridable]


def _checked(value: Value, item: Any, sizes: dict[str, tuple[int, str]]) -> Any:
    kind = value.type.kind
    if item is None:
        if kind in {"optional", ""}:
            return None
        raise InputError(f"None given, {_wanted(value.type)} expected")
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
        return _made(item, dtype)
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise InputError(f"{reprlib.repr(item)} is no tensor: {error}") from error
    found = dtypes.from_numpy(array.dtype)
    if dtype is not None and found is not dtype:
        raise InputError(f"dtype {found.name} given, {dtype.name} expected; convert it with astype")
    if array.dtype == dtypes.STRING.numpy:
        _check_texts(array)
    return array


def _made(item: Any, dtype: DType) -> np.ndarray:
    try:
        given = np.asarray(item)
        array = np.asarray(item, dtype=dtype.numpy)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{reprlib.repr(item)} is no tensor of {dtype.name}: {error}") from error
    if given.size and _WIDTHS.get(given.dtype.kind, 0) > _WIDTHS.get(array.dtype.kind, _WIDEST):
        raise InputError(f"{reprlib.repr(item)} would lose its value as {dtype.name}")
    if dtype is dtypes.STRING:
        _check_texts(array)
    return array


def _check_texts(array: np.ndarray) -> None:
    for item in array.reshape(-1):
        if not isinstance(item, (str, bytes)):
            raise InputError(f"an array of objects holds {item!r}; only texts can be fed as objects")


def _check_shape(value: Value, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]]) -> None:
    declared = value.type.shape
    if declared is None:
        return
    if len(declared) != len(shape):
        raise InputError(f"shape {shape} given, {_shape_text(declared)} expected")
    for axis, (wanted, size) in enumerate(zip(declared, shape, strict=True)):
        if isinstance(wanted, int) and wanted != size:
            raise InputError(f"shape {shape} given, {_shape_text(declared)} expected")
        if isinstance(wanted, str):
            first, owner = sizes.setdefault(wanted, (size, value.name))
            if first != size:
                raise InputError(
                    f"dimension {wanted!r} is {size} on axis {axis}, but {first} in input {owner!r}"
                )


def _wanted(known: ValueType) -> str:
    dtype = known.dtype.name if known.dtype else "any dtype"
    if known.kind != "tensor":
        return known.kind or "any value"
    return f"{dtype}, shape {_shape_text(known.shape)}" if known.shape is not None else dtype


def _shape_text(shape: Sequence[int | str | None]) -> str:
    inner = ", ".join("?" if size is None else str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
