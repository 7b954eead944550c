"""The conversion of a tensor to another memory format.

A blocked format (NC1HWC0, FRACTAL_Z, ...) is decoded to the host's order of axes;
from there axes are permuted to a layout that its letters name (NHWC, HWCN, ...), or
encoded in another blocked format. A tensor of ND has the host's layout already.

Scripts of the user come before, as msaccucmp takes them: ``convert_<SOURCE>_to_<TARGET>.py`` in
``DIR/format_convert`` holds a function ``convert(shape_from, shape_to, array)`` that returns an array. Its
argument ``array`` is flat; for the weight of a grouped convolution there is a fourth argument, the number of
groups. A script that others may change is refused.
"""

from __future__ import annotations

import functools
import math
import os
import stat
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump import reading
from msdump.device import formats
from msdump.dtypes import DType
from msdump.encode import TensorInfo, dump_message
from msdump.errors import FormatError, ToolError
from msdump.return_codes import ReturnCode

Dims = tuple[int, ...]

LAYOUTS: Final = formats.LAYOUTS
ND: Final = "ND"
_RANKS: Final = {layout: rank for rank, layouts in LAYOUTS.items() for layout in layouts}
# Bytes that are converted at once where samples are independent: few enough that the next ones find the
# processor's cache, and memory that the process has already.
_CHUNK: Final = 2 << 20

_BLOCKED: Final = {row.name: row for row in formats.FORMATS if row.stages and row.name not in _RANKS}
# Formats that keep N as their first axis and C0 as their last, so that samples can be converted one by one.
_BY_SAMPLE: Final = frozenset({formats.NC1HWC0, "NC1HWC0_C04", formats.NDC1HWC0})

Parts = Callable[[np.ndarray], Iterator[np.ndarray]]
"""Converts the device array; yields parts of the result that follow each other."""


@dataclass(frozen=True, slots=True)
class TargetFormat:
    """Shape and format of a converted tensor, the conversion, and whether the tensor stays ND."""

    shape: Dims
    format: str
    parts: Parts
    is_kept: bool = False


def source_of(info: TensorInfo) -> str:
    """Return the name of a tensor's format; ND if the format has another rank than the tensor.

    >>> nhwc = dump_message.FORMATS["NHWC"]
    >>> source_of(TensorInfo(1, nhwc, (1, 2, 2, 3), (), 48)), source_of(TensorInfo(1, nhwc, (2, 3), (), 24))
    ('NHWC', 'ND')
    """
    # vendor: a tensor without four axes, in a format of four axes, counts as ND.
    name = dump_message.format_name(info.format)
    return ND if _RANKS.get(name, len(info.shape)) != len(info.shape) else name


def plan(info: TensorInfo, dtype: DType, target: str, wanted_shape: Dims = ()) -> TargetFormat:
    """Return the conversion to a format and to ``wanted_shape`` (``-s``); ToolError if there is none."""
    # vendor: the sub-format is the number of groups; 0 and 1 both stand for a weight without groups.
    tensor = _Tensor(source_of(info), info.shape, dtype, max(1, info.sub_format))
    if tensor.format == target:
        # vendor: a tensor that has the target's format keeps its padding; it is reshaped, but not cut.
        if not wanted_shape:
            return TargetFormat(tensor.shape, tensor.format, _as_it_is)
        if math.prod(wanted_shape) != math.prod(tensor.shape):
            raise ToolError(
                ReturnCode.SHAPE,
                f"-s {wanted_shape} has another number of elements than the shape {tensor.shape}",
            )
        return TargetFormat(wanted_shape, tensor.format, lambda array: iter((array.reshape(wanted_shape),)))
    # vendor: the tool refuses every tensor of ND that is to be converted. Here it is kept, as its layout is
    # the host's already; with a wanted shape the conversion is refused, though.
    if tensor.format == ND:
        if wanted_shape:
            raise ToolError(
                ReturnCode.FORMAT, f"no conversion from {ND} to {target} is known, as -s needs it"
            )
        return TargetFormat(tensor.shape, ND, _as_it_is, is_kept=True)
    if tensor.format in _RANKS:
        return _from_layout(tensor, target, wanted_shape)
    if tensor.format == formats.FRACTAL_NZ:
        host = wanted_shape or info.original_shape
        # vendor: NCHW and NHWC of a matrix have its original shape, whatever its rank.
        if target not in {"NCHW", "NHWC", ND}:
            raise ToolError(ReturnCode.FORMAT, f"no conversion from {tensor.format} to {target} is known")
        if not host:
            raise ToolError(ReturnCode.PARAMETER, f"{tensor.format} without an original shape needs -s")
        if not tensor.is_form_of(host):
            raise ToolError(
                ReturnCode.FRACTAL_NZ, f"{tensor.shape} is not the {tensor.format} form of {host}"
            )
        return TargetFormat(host, target, partial(_decoded, tensor, host))
    return _from_blocks(tensor, target, _host_shape(tensor, info.original_shape, target, wanted_shape))


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Format, shape and element type of a tensor on the device; of a weight, groups of its convolution."""

    format: str
    shape: Dims
    dtype: DType
    groups: int

    @property
    def rank(self) -> int:
        """Rank on the host; ToolError where the format is not blocked."""
        row = _BLOCKED.get(self.format)
        if row is None or row.most is None:
            raise ToolError(ReturnCode.FORMAT, f"no conversion from {self.format} is known")
        return row.most

    def groups_in(self, name: str) -> int:
        """Return the number of groups in a format; only FRACTAL_Z lays weights out by group."""
        return self.groups if name == formats.FRACTAL_Z else 1

    def is_form_of(self, host: Dims) -> bool:
        """Return whether a host shape, in the tensor's format, gives the tensor's device shape."""
        return formats.is_form(self.format, self.shape, host, self.groups_in(self.format))


def _from_layout(tensor: _Tensor, target: str, wanted_shape: Dims) -> TargetFormat:
    source, rank = tensor.format, len(tensor.shape)
    if target == ND:
        return TargetFormat(tensor.shape, ND, _as_it_is)
    if _RANKS.get(target) == rank:
        shape = _permuted(tensor.shape, source, target)
        if not wanted_shape:
            result = shape
        else:
            if len(wanted_shape) != len(shape) or any(
                wanted > available for wanted, available in zip(wanted_shape, shape, strict=True)
            ):
                raise ToolError(ReturnCode.SHAPE, f"-s {wanted_shape} is not a part of the shape {shape}")
            result = wanted_shape
        # vendor: a smaller shape is cut out at the beginning of every axis.
        corner = tuple(slice(size) for size in result)
        return TargetFormat(result, target, lambda array: iter((_transposed(array, source, target)[corner],)))
    layout = LAYOUTS[rank][0]
    host = _permuted(tensor.shape, source, layout)
    return _encoded(tensor, host, target, lambda array: iter((_transposed(array, source, layout),)))


def _from_blocks(tensor: _Tensor, target: str, host: Dims) -> TargetFormat:
    layout = LAYOUTS[tensor.rank][0]
    decoded = partial(_decoded, tensor, host)
    if target in {ND, layout}:
        return TargetFormat(host, target, decoded)
    if len(host) != tensor.rank:
        raise ToolError(ReturnCode.SHAPE, f"a tensor of shape {host} has no {target} form")
    if _RANKS.get(target) != tensor.rank:
        return _encoded(tensor, host, target, decoded)

    def parts(array: np.ndarray) -> Iterator[np.ndarray]:
        # Parts are samples; the result is their concatenation only if N is the first axis of the target.
        host_parts = decoded(array) if target.startswith("N") else iter((_joined(decoded(array)),))
        return (_transposed(part, layout, target) for part in host_parts)

    return TargetFormat(_permuted(host, layout, target), target, parts)


def _encoded(tensor: _Tensor, host: Dims, target: str, to_host: Parts) -> TargetFormat:
    """Return the conversion of a tensor to a blocked format, by way of the host's layout."""
    row = _BLOCKED.get(target)
    if row is None or row.most != len(host):
        raise ToolError(ReturnCode.FORMAT, f"no conversion from {tensor.format} to {target} is known")
    groups = tensor.groups_in(target)
    try:
        shape = formats.shape(target, host, tensor.dtype, groups)
    except FormatError as error:
        raise ToolError(ReturnCode.SHAPE, str(error)) from error
    return TargetFormat(
        shape, target, lambda array: iter((formats.encode(target, _joined(to_host(array)), groups),))
    )


def _host_shape(tensor: _Tensor, original: Dims, target: str, wanted_shape: Dims) -> Dims:
    """Return a blocked tensor's shape in the host's layout.

    The header may give the original shape in another order of axes and does not name that order, so all
    orders are tried until one has the tensor's device shape.
    """
    rank = tensor.rank
    layout = LAYOUTS[rank][0]
    if wanted_shape:
        # vendor: -s names the axes in the order of the target.
        order = target if _RANKS.get(target) == len(wanted_shape) else layout
        host = _permuted(wanted_shape, order, layout) if len(wanted_shape) == rank else wanted_shape
        if not tensor.is_form_of(host):
            raise ToolError(
                ReturnCode.SHAPE, f"{tensor.shape} is no {tensor.format} form of -s {wanted_shape}"
            )
        return host
    if not original:
        # vendor: NC1HWC0 of unknown shape is converted with its padding; other formats need the shape.
        match tensor.format, tensor.shape:
            case ((formats.NC1HWC0 | "NC1HWC0_C04"), (n, c1, h, w, c0)):
                return (n, c1 * c0, h, w)
            case formats.NDC1HWC0, (n, d, c1, h, w, c0):
                return (n, c1 * c0, d, h, w)
        raise ToolError(ReturnCode.CONVERT_FUNCTION, f"{tensor.format} without an original shape needs -s")
    # vendor: the tool cuts by the original shape as it stands, also where the target has another order of
    # axes; NCHW (2, 3, 5, 4) as NHWC thus becomes 2x3x4x3. Such results are not reproduced.
    orders = LAYOUTS[rank] if len(original) == rank else ()
    for host in (*(_permuted(original, order, layout) for order in orders), original):
        if tensor.is_form_of(host):
            return host
    fault = f"{tensor.shape} is no {tensor.format} form of the original shape {original}; give -s"
    raise ToolError(ReturnCode.SHAPE_MISMATCH, fault)


def _decoded(tensor: _Tensor, host: Dims, array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the array in the host's layout, some samples at a time where both layouts begin with N.

    A large tensor thus needs no second copy in memory as a whole.
    """
    groups = tensor.groups_in(tensor.format)
    is_by_sample = tensor.format in _BY_SAMPLE and len(host) == tensor.rank
    count = max(1, host[0] * _CHUNK // max(1, array.nbytes)) if is_by_sample else 0
    if not count or count >= host[0]:
        yield formats.decode(tensor.format, array, host, groups)
        return
    for start in range(0, host[0], count):
        part = array[start : start + count]
        yield formats.decode(tensor.format, part, (len(part), *host[1:]), groups)


def _as_it_is(array: np.ndarray) -> Iterator[np.ndarray]:
    yield array


def _joined(parts: Iterator[np.ndarray]) -> np.ndarray:
    arrays = list(parts)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _permuted(shape: Dims, source: str, target: str) -> Dims:
    return tuple(shape[source.index(axis)] for axis in target)


def _transposed(array: np.ndarray, source: str, target: str) -> np.ndarray:
    return array.transpose([source.index(axis) for axis in target])


_FOLDER: Final = "format_convert"
_MOST_BYTES: Final = 1 << 20
_FOREIGN_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH


def check_scripts(directory: str) -> None:
    """Refuse (ToolError) a directory without ``format_convert``, or with a script that others may change."""
    folder = Path(directory, _FOLDER)
    if not os.path.isdir(folder):
        raise ToolError(ReturnCode.PATH, f"{directory}: has no folder {_FOLDER} with scripts")
    for path in sorted(folder.glob("convert_*_to_*.py")):
        _checked_text(path)


def find_script(directory: str, source: str, target: str) -> Callable[..., Any] | None:
    """Return the function that converts a format to another, None without a script for it."""
    path = Path(directory, _FOLDER, f"convert_{source}_to_{target}.py")
    return load_function(path, "convert", ReturnCode.CONVERT_FUNCTION) if os.path.isfile(path) else None


def call_script(
    function: Callable[..., Any], array: np.ndarray, shape_to: tuple[int, ...], groups: int
) -> np.ndarray:
    """Return an array converted by a script (else ToolError), cut to ``shape_to`` unless that is empty."""
    # vendor: functions for ungrouped weights take three arguments only.
    extra = (groups,) if groups > 1 else ()
    try:
        converted = function(list(array.shape), list(shape_to), array.reshape(-1), *extra)
    except Exception as error:
        kind = type(error).__name__
        raise ToolError(ReturnCode.CONVERT_FUNCTION, f"the script failed: {kind}: {error}") from error
    if not isinstance(converted, np.ndarray):
        kind = type(converted).__name__
        raise ToolError(ReturnCode.CONVERT_FUNCTION, f"the script returned a {kind}, not an array")
    return converted[tuple(map(slice, shape_to))] if converted.ndim == len(shape_to) else converted


# Cached: the function is loaded for each tensor.
@functools.lru_cache(maxsize=64)
def load_function(path: Path, name: str, code: ReturnCode) -> Callable[..., Any]:
    """Return a function of a script; ToolError with ``code`` if the script fails or lacks the function."""
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        # Not imported: that would read the file a second time, unchecked, and write a cache beside it.
        exec(compile(_checked_text(path), path, "exec"), module.__dict__)  # noqa: S102 - the user's own, and checked
    except ToolError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise ToolError(code, f"{path}: {kind}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ToolError(code, f"{path}: has no function {name}")
    return function  # type: ignore[no-any-return]  # whatever it is, it can be called


def _checked_text(path: Path) -> bytes:
    """Return the text of a script; ToolError where others may write it, or where it is larger than 1 MiB."""
    try:
        with reading.open_file(path) as file:
            # The status of the open file, not of the path, which may be another file by now.
            status = os.fstat(file.fileno())
            if status.st_mode & _FOREIGN_WRITERS:
                raise ToolError(
                    ReturnCode.UNSAFE_FILE, f"{path}: other users may change the script; run chmod go-w on it"
                )
            if status.st_size > _MOST_BYTES:
                fault = f"{path}: {status.st_size} bytes are over the {_MOST_BYTES} allowed"
                raise ToolError(ReturnCode.UNSAFE_FILE, fault)
            return file.readall()
    except OSError as error:
        raise ToolError(ReturnCode.UNSAFE_FILE, f"{path}: cannot be read: {error.strerror}") from error
