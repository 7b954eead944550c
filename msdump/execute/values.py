"""Conversion between numpy's arrays and the runtime's values, and the inputs of a run, checked against types.

An absent optional is None on both sides: the runtime crashes when the type of an optional
without a value is read, or when one is fed.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnxruntime

from msdump import dtypes
from msdump.dtypes import DType
from msdump.encode import elements
from msdump.errors import FormatError, InputError, name_hint
from msdump.execute.native import native
from msdump.execute.runtime import OrtValue, cpu_runtime
from msdump.graph import Graph, Value, ValueType, fits_sizes
from msdump.graph.kernel import onenode, type_text

Native: Final = native.OrtValue
"""The class of the runtime's values; complex arrays and maps are not among them."""

_CPU: Final = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
_NATIVE_TYPES: Final = frozenset(row.numpy for row in dtypes.DTYPES if row.numpy.isbuiltin == 1)
_NUMPY_TYPES: Final = {type_text(row): row for row in dtypes.DTYPES if row.numpy in _NATIVE_TYPES}
_OTHER_TYPES: Final = {type_text(row): row for row in dtypes.DTYPES if row.numpy not in _NATIVE_TYPES}
_INT64: Final = dtypes.from_name("int64").onnx
_STRING: Final = type_text(dtypes.STRING)


def from_array(array: np.ndarray) -> OrtValue:
    """Return a value over an array's memory, which the caller keeps alive, or over a copy.

    Arrays that are not in C order or not in native byte order, and types that numpy lacks, are copied.

    Raises:
        FormatError: The dtype has no ONNX counterpart.
    """
    original, array = array, contiguous(array)
    row = dtypes.from_numpy(array.dtype)
    if array.dtype.kind == "c":
        return array  # the runtime has no complex tensors; ONNX's reference computes on them
    if row is dtypes.STRING:  # only a model can make string values
        return cpu_runtime().session(onenode.string_model(array)).run_with_ort_values({}, ["y"], None)[0]
    # the value does not keep the array alive: only the caller's own array may be used, not a temporary copy
    # of this function
    if array is original and array.dtype in _NATIVE_TYPES:
        return native.OrtValue.ortvalue_from_numpy(array, _CPU)
    return _copied(_packed(array, row), array.shape, row)


def owned(array: np.ndarray) -> OrtValue:
    """Return a value that holds a copy of an array."""
    array = contiguous(array)
    row = dtypes.from_numpy(array.dtype)
    if row is dtypes.STRING or array.dtype.kind == "c":
        return from_array(array)
    return _copied(_packed(array, row), array.shape, row)


def number(count: int, rank: int) -> OrtValue:
    """Return an int64 value of one element that owns its memory: the counter of a Loop's iteration."""
    value = native.OrtValue.ortvalue_from_shape_and_onnx_type([1] * rank, _INT64, _CPU)
    ctypes.c_int64.from_address(value.data_ptr()).value = count
    return value


def space(shape: tuple[int, ...], dtype: np.dtype) -> tuple[OrtValue | None, np.ndarray]:
    """Return an uninitialized value and an array over it; the value is None for types that numpy lacks."""
    row = dtypes.from_numpy(dtype)
    if row.numpy not in _NATIVE_TYPES or row is dtypes.STRING or dtype.kind == "c":
        return None, np.empty(shape, dtype)
    value = native.OrtValue.ortvalue_from_shape_and_onnx_type(list(shape), row.onnx, _CPU)
    return value, to_array(value)


def contiguous(array: np.ndarray) -> np.ndarray:
    """Return the array in C order and native byte order; a copy only if it is not."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.flags.c_contiguous else np.array(array, order="C")


def _copied(data: np.ndarray, shape: tuple[int, ...], row: DType) -> OrtValue:
    if not row.onnx:
        raise FormatError(f"dtype {row.name} has no ONNX counterpart")
    value = native.OrtValue.ortvalue_from_shape_and_onnx_type(list(shape), row.onnx, _CPU)
    ctypes.memmove(value.data_ptr(), data.ctypes.data, data.nbytes)
    return value


def _packed(array: np.ndarray, row: DType) -> np.ndarray:
    return np.atleast_1d(array).view(np.uint8) if row.per_byte == 1 else elements.pack(array, row)


def kind_of(value: OrtValue) -> str:
    """Return the runtime's type text of a value, such as ``tensor(float)``; "" for a map, which has none."""
    if isinstance(value, np.ndarray):
        return type_text(dtypes.from_numpy(value.dtype))
    if is_map(value):
        return ""
    text: str = value.data_type()
    return text


def to_array(value: OrtValue) -> np.ndarray:
    """Return a tensor value as an array.

    Types that numpy has are views, which keep the value's memory alive. Strings are copies; so are types of
    ml_dtypes.
    """
    kind = value.data_type()
    if kind in _NUMPY_TYPES or kind == _STRING:  # numpy() raises for other types
        array: np.ndarray = value.numpy()
        return array
    return _raw_copy(value, _OTHER_TYPES[kind])


def _raw_copy(value: OrtValue, row: DType) -> np.ndarray:
    """Return a tensor of a type that numpy lacks, copied byte by byte from the value's address."""
    shape = tuple(value.shape())
    count = math.prod(shape)
    # a type below a byte fills whole bytes; a value without elements may have no address
    size = -(-count // row.per_byte) * (row.numpy.itemsize if row.per_byte == 1 else 1)
    data = (
        np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.uint8) if size else np.zeros(0, np.uint8)
    )
    if row.per_byte > 1:
        return elements.unpack(data, row, shape)
    array: np.ndarray = data.view(row.numpy).reshape(shape)
    return array


def from_python(value: Any, element: DType | None = None) -> OrtValue | None:
    """Return the value of an array, a list of arrays (sequence), or None (absent optional).

    Maps and lists of maps stay the Python objects that the runtime's own ``run`` takes.

    Raises:
        InputError: A list of tensors of several dtypes.
    """
    if value is None or is_map(value):
        return value
    if isinstance(value, (list, tuple)):
        return _from_list([np.asarray(item) for item in value], element or dtypes.DTYPES[0])
    return from_array(np.asarray(value))


def is_map(value: Any) -> bool:
    """Return whether a value is a Python map or a list of maps."""
    if isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, dict)


def _from_list(items: list[np.ndarray], element: DType) -> OrtValue:
    """Return a sequence of tensors; the runtime makes one only by running SequenceConstruct."""
    if not items:
        return _operator("SequenceEmpty", dtype=element.onnx)({})
    kinds = {dtypes.from_numpy(item.dtype) for item in items}
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.name for kind in kinds))
        raise InputError(f"a sequence holds tensors of one dtype, got {names}")
    fed = {f"x{position}": from_array(item) for position, item in enumerate(items)}
    kind = type_text(kinds.pop())
    return _operator("SequenceConstruct", *((name, kind) for name in fed))(fed)


@functools.lru_cache(maxsize=64)
def _operator(
    op_type: str, *inputs: tuple[str, str], **attributes: Any
) -> Callable[[dict[str, OrtValue]], OrtValue]:
    """Return the function of one operator; the sessions of the most recent operators are cached."""
    model = onenode.one_operator(op_type, *inputs, **attributes)
    run = cpu_runtime().session(model).run_with_ort_values
    return lambda fed: run(fed, ["y"], None)[0]


@functools.lru_cache(maxsize=8)
def _passing(kind: str) -> Callable[[list[str], dict[str, Any], None], list[Any]]:
    """Return a session's ``run`` that returns its input "x" as Python objects."""
    run: Callable[[list[str], dict[str, Any], None], list[Any]] = (
        cpu_runtime().session(onenode.passage_model(kind)).run
    )
    return run


def public(value: OrtValue) -> Any:
    """Return a value as the runtime's ``run`` takes it; maps stay Python objects."""
    return onnxruntime.OrtValue(value) if isinstance(value, Native) else value


def to_python(value: OrtValue | None) -> Any:
    """Return an array, a list of arrays, a map, a list of maps, or None."""
    if not isinstance(value, Native):
        return value  # None, a map, or a result of the reference in a type that the runtime lacks
    if not value.has_value():
        return None
    if value.is_tensor():
        return to_array(value)
    kind = value.data_type()
    if "map(" in kind:
        return _passing(kind)(["x"], {"x": public(value)}, None)[0]
    if kind.startswith("optional("):
        return to_python(_operator("OptionalGetElement", ("x", kind))({"x": value}))
    count = int(_operator("SequenceLength", ("x", kind))({"x": value}).numpy())
    item = _operator("SequenceAt", ("x", kind), ("i", "tensor(int64)"))
    positions = [np.array(position) for position in range(count)]
    return [to_python(item({"x": value, "i": from_array(position)})) for position in positions]


_WIDTHS: Final = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
"""Kinds of numbers, each of which holds all smaller ones; the types that numpy lacks count as widest."""

_WIDEST: Final = 3


_log = logging.getLogger("msdump.execute")

_Places = dict[str, dict[int, tuple[str, int]]]
"""By dynamic dimension and size: the first input and axis with this size."""


def bind_inputs(graph: Graph, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs by name: arrays, lists of arrays (sequences), maps, or None (absent optionals).

    Python numbers and lists take the declared dtype; arrays must have it.

    Raises:
        InputError: Inputs are missing, unknown, given twice, of a wrong type or shape, or disagree on a
            dynamic dimension; the message names every fault.
    """
    order = [value.name for value in graph.inputs]
    if len(positional) > len(order):
        expected = f"{len(order)} ({', '.join(order)})" if order else "none"
        raise InputError(f"{graph.source}: {len(positional)} inputs given, the network has {expected}")
    items = dict(zip(order, positional, strict=False))
    for name, item in named.items():
        if name in items:
            raise InputError(f"{graph.source}: input {name!r} is given twice")
        if name not in order and name not in graph.overridable:
            inputs = f"the inputs are {', '.join(order)}" if order else "the network has none"
            raise InputError(f"{graph.source}: no input {name!r}; {inputs}{name_hint(name, order)}")
        items[name] = item

    problems: list[str] = []
    sizes: _Places = {}
    feeds: dict[str, Any] = {}
    # weights may be fed in place of the model's own (IR version 4 and later)
    overridden = [Value(name, graph.type_of(name)) for name in items if name in graph.overridable]
    for value in (*graph.inputs, *overridden):
        if value.name not in items:
            if value.type.kind != "optional":
                problems.append(f"input {value.name!r} ({_type_text(value.type)}) is missing")
            feeds[value.name] = None  # go on: every fault is reported
            continue
        try:
            feeds[value.name] = checked(value, items[value.name], sizes)
        except (InputError, FormatError) as error:
            problems.append(f"input {value.name!r}: {error}")
    problems += _disagreements(graph, sizes)
    if problems:
        raise InputError(f"{graph.source}: " + "; ".join(problems))
    return feeds


def _disagreements(graph: Graph, sizes: _Places) -> Iterator[str]:
    """Yield the inputs with another size of a dimension than an earlier input.

    Only a warning, as onnxruntime runs it, where the model allows none of these sizes for all of the inputs.
    """
    firsts = {name: next(iter(places)) for name, places in sizes.items()}
    for name, places in sizes.items():
        first, *others = places
        faults = [
            f"input {places[size][0]!r}: dimension {name!r} is {size} on axis {places[size][1]},"
            f" but {first} in input {places[first][0]!r}"
            for size in others
        ]
        if faults and any(fits_sizes(graph, {**firsts, name: size}) for size in places):
            yield from faults
        elif faults:
            _warn_once(f"{graph.source}: {'; '.join(faults)}: the model itself needs different sizes")


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning("%s", message)


def unmasked(item: Any, place: str = "") -> Any:
    """Return an array or list of arrays; InputError for masks, which numpy's conversions drop."""
    for part in item if isinstance(item, (list, tuple)) else (item,):
        if isinstance(part, np.ma.MaskedArray) and (count := np.count_nonzero(part.mask)):
            raise InputError(f"{place}masked elements: {count:,}; give them a number with .filled(number)")
    return item


def described(array: np.ndarray) -> str:
    """Return ``float32[2, 3]`` for an array."""
    try:
        title = dtypes.from_numpy(array.dtype).name
    except FormatError:  # no tensor type
        title = str(array.dtype)
    return f"{title}{list(array.shape)}"


def checked(value: Value, item: Any, sizes: _Places) -> Any:
    """Check the caller's item for a value of a graph and convert it to the value that is fed.

    ``sizes`` takes the sizes of its dynamic dimensions.

    Raises:
        InputError: It does not fit the value's type or shape.
    """
    kind, item = value.type.kind, unmasked(item)
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
        return [_input_array(part, value.type.dtype) for part in item]
    array = _input_array(item, value.type.dtype)
    if kind == "tensor":
        declared = value.type.shape
        if declared is not None:
            if len(declared) != len(array.shape):
                raise InputError(f"shape {array.shape} given, {_shape_text(declared)} expected")
            for axis, (dimension, size) in enumerate(zip(declared, array.shape, strict=True)):
                if isinstance(dimension, int) and dimension != size:
                    raise InputError(f"shape {array.shape} given, {_shape_text(declared)} expected")
                if isinstance(dimension, str):
                    sizes.setdefault(dimension, {}).setdefault(size, (value.name, axis))
    return array


def _input_array(item: Any, dtype: DType | None) -> np.ndarray:
    if dtype is not None and isinstance(item, (bool, int, float, complex, str, list, tuple)):
        return _converted(item, dtype)
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise InputError(f"{reprlib.repr(item)} is not a tensor: {error}") from error
    if array.dtype == dtypes.STRING.numpy:
        _check_texts(array)
    actual = dtypes.from_numpy(array.dtype)
    if dtype is not None and actual is not dtype:
        raise InputError(f"dtype {actual.name} given, {dtype.name} expected; convert it with astype")
    return array


def _converted(item: Any, dtype: DType) -> np.ndarray:
    """Return a Python number or list as an array of the declared dtype, if that loses nothing."""
    try:
        natural = np.asarray(item)
        array = np.asarray(item, dtype=dtype.numpy)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{reprlib.repr(item)} is not a tensor of {dtype.name}: {error}") from error
    # numpy would silently convert 1.5 to the integer 1
    if natural.size and _WIDTHS.get(natural.dtype.kind, 0) > _WIDTHS.get(array.dtype.kind, _WIDEST):
        raise InputError(f"{reprlib.repr(item)} would lose its value as {dtype.name}")
    if dtype is dtypes.STRING:
        _check_texts(array)
    return array


def _check_texts(array: np.ndarray) -> None:
    for item in array.reshape(-1):  # anything may stand in an array of objects
        if not isinstance(item, (str, bytes)):
            raise InputError(
                f"an array of objects holds {item!r} ({type(item).__name__}); only texts can be given as"
                " objects: convert numbers with astype"
            )


def _type_text(declared: ValueType) -> str:
    dtype = declared.dtype.name if declared.dtype else "any dtype"
    if declared.kind != "tensor":
        return declared.kind or "any value"
    return f"{dtype}, shape {_shape_text(declared.shape)}" if declared.shape is not None else dtype


def _shape_text(shape: Sequence[int | str | None]) -> str:
    inner = ", ".join("?" if size is None else str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
