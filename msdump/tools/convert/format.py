"""What ``convert`` makes of a tensor in another memory format.

A blocked format (NC1HWC0, FRACTAL_Z, ...) is decoded to the host's order of axes;
from there axes are permuted to a layout that its letters name (NHWC, HWCN, ...), or
encoded in another blocked format. A tensor of ND has the host's layout already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from msdump.device import formats
from msdump.dtypes import DType
from msdump.encode import dump_enums
from msdump.encode.dump_data import TensorInfo
from msdump.errors import FormatError, ToolError
from msdump.tools.return_codes import ReturnCode

Dims = tuple[int, ...]

LAYOUTS: Final = {4: ("NCHW", "NHWC", "HWCN", "CHWN"), 5: ("NCDHW", "NDHWC", "DHWCN", "DHWNC")}
"""Formats that are an order of named axes, by rank; the first is the host's."""

ND: Final = "ND"
_RANKS: Final = {layout: rank for rank, layouts in LAYOUTS.items() for layout in layouts}
_CHUNK: Final = 8 << 20  # bytes that are converted at once where samples are independent

_BLOCKED: Final = {row.name: row for row in formats.FORMATS if row.stages and row.name not in _RANKS}
_BY_SAMPLE: Final = frozenset({formats.NC1HWC0, "NC1HWC0_C04", formats.NDC1HWC0})

Parts = Callable[[np.ndarray], Iterator[np.ndarray]]


@dataclass(frozen=True, slots=True)
class TargetFormat:
    """How a tensor is converted.

    Attributes:
        shape: Of the result.
        format: Of the result.
        parts: Gives the result for the device array, in parts that follow each other.
        is_kept: The tensor stays in its format, because nothing converts it and nothing needs to.
    """

    shape: Dims
    format: str
    parts: Parts
    is_kept: bool = False


def source_of(info: TensorInfo) -> str:
    """Return the name of a tensor's format; a layout of another rank than the tensor's is ND."""
    name = dump_enums.format_name(info.format)
    return ND if _RANKS.get(name, len(info.shape)) != len(info.shape) else name


def plan(info: TensorInfo, dtype: DType, target: str, wanted: Dims = ()) -> TargetFormat:
    """Return how to convert a tensor.

    Args:
        info: What the header says of it; its shape is the device shape.
        dtype: Its element type.
        target: Name of the format that it is to have.
        wanted: The result's shape, in place of the one that the header implies.

    Raises:
        ToolError: There is no such conversion, or the shapes do not allow it.
    """
    tensor = _Tensor(source_of(info), info.shape, dtype, max(1, info.sub_format))
    if tensor.format == target:
        return _same(tensor, wanted)
    if tensor.format == ND:
        if wanted:
            raise ToolError(
                ReturnCode.FORMAT, f"no conversion from {ND} to {target} is known, as -s needs it"
            )
        return TargetFormat(tensor.shape, ND, _whole, is_kept=True)
    if tensor.format in _RANKS:
        return _from_layout(tensor, target, wanted)
    if tensor.format == formats.FRACTAL_NZ:
        return _from_matrix(tensor, target, wanted or info.original_shape)
    return _from_blocks(tensor, target, _host_shape(tensor, info.original_shape, target, wanted))


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor on the device.

    Attributes:
        format: Name of its format.
        shape: Device shape.
        dtype: Element type.
        groups: Of the convolution that reads it.
    """

    format: str
    shape: Dims
    dtype: DType
    groups: int

    @property
    def rank(self) -> int:
        """Rank on the host of a blocked format; ToolError where the format is none."""
        row = _BLOCKED.get(self.format)
        if row is None or row.most is None:
            raise ToolError(ReturnCode.FORMAT, f"no conversion from {self.format} is known")
        return row.most

    def groups_in(self, name: str) -> int:
        """Return the groups that a format has a place for."""
        return self.groups if name == formats.FRACTAL_Z else 1

    def is_form_of(self, host: Dims) -> bool:
        """Tell whether the tensor can have a shape on the host."""
        return formats.is_form(self.format, self.shape, host, self.groups_in(self.format))


def _same(tensor: _Tensor, wanted: Dims) -> TargetFormat:
    if not wanted:
        return TargetFormat(tensor.shape, tensor.format, _whole)
    if math.prod(wanted) != math.prod(tensor.shape):
        raise ToolError(ReturnCode.SHAPE, f"-s {wanted} has not as many elements as the shape {tensor.shape}")
    return TargetFormat(wanted, tensor.format, lambda array: iter((array.reshape(wanted),)))


def _from_layout(tensor: _Tensor, target: str, wanted: Dims) -> TargetFormat:
    source, rank = tensor.format, len(tensor.shape)
    if target == ND:
        return TargetFormat(tensor.shape, ND, _whole)
    if _RANKS.get(target) == rank:
        result = _part(_permuted(tensor.shape, source, target), wanted)
        box = tuple(slice(size) for size in result)
        return TargetFormat(result, target, lambda array: iter((_transposed(array, source, target)[box],)))
    layout = LAYOUTS[rank][0]
    host = _permuted(tensor.shape, source, layout)
    return _encoded(tensor, host, target, lambda array: iter((_transposed(array, source, layout),)))


def _from_matrix(tensor: _Tensor, target: str, host: Dims) -> TargetFormat:
    # vendor: msaccucmp gives NCHW and NHWC of a matrix in its original shape, whatever its rank
    if target not in {"NCHW", "NHWC", ND}:
        raise ToolError(ReturnCode.FORMAT, f"no conversion from {tensor.format} to {target} is known")
    if not host:
        raise ToolError(ReturnCode.PARAMETER, f"{tensor.format} without an original shape needs -s")
    if not tensor.is_form_of(host):
        raise ToolError(ReturnCode.FRACTAL_NZ, f"{tensor.shape} is not the {tensor.format} form of {host}")
    return TargetFormat(host, target, partial(_decoded, tensor, host))


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
        found = decoded(array) if target.startswith("N") else iter((_joined(decoded(array)),))
        return (_transposed(part, layout, target) for part in found)

    return TargetFormat(_permuted(host, layout, target), target, parts)


def _encoded(tensor: _Tensor, host: Dims, target: str, to_host: Parts) -> TargetFormat:
    """Return the conversion of what is in the host's layout to a blocked format."""
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


def _host_shape(tensor: _Tensor, original: Dims, target: str, wanted: Dims) -> Dims:
    """Return a blocked tensor's shape in the host's layout; the header may tell it in another one."""
    rank = tensor.rank
    layout = LAYOUTS[rank][0]
    if wanted:
        order = target if _RANKS.get(target) == len(wanted) else layout
        host = _permuted(wanted, order, layout) if len(wanted) == rank else wanted
        if not tensor.is_form_of(host):
            raise ToolError(ReturnCode.SHAPE, f"{tensor.shape} is no {tensor.format} form of -s {wanted}")
        return host
    if not original:
        return _unsliced(tensor)
    orders = LAYOUTS[rank] if len(original) == rank else ()
    for host in (*(_permuted(original, order, layout) for order in orders), original):
        if tensor.is_form_of(host):
            return host
    fault = f"{tensor.shape} is no {tensor.format} form of the original shape {original}; give -s"
    raise ToolError(ReturnCode.SHAPE_MISMATCH, fault)


def _unsliced(tensor: _Tensor) -> Dims:
    """Return the host shape with the padding of the channels, where the device shape alone tells it."""
    match tensor.format, tensor.shape:
        case ((formats.NC1HWC0 | "NC1HWC0_C04"), (n, c1, h, w, c0)):
            return (n, c1 * c0, h, w)
        case formats.NDC1HWC0, (n, d, c1, h, w, c0):
            return (n, c1 * c0, d, h, w)
    raise ToolError(ReturnCode.CONVERT_FUNCTION, f"{tensor.format} without an original shape needs -s")


def _decoded(tensor: _Tensor, host: Dims, array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the array on the host, some samples at a time where both sides begin with them."""
    groups = tensor.groups_in(tensor.format)
    is_by_sample = tensor.format in _BY_SAMPLE and len(host) == tensor.rank
    count = max(1, host[0] * _CHUNK // max(1, array.nbytes)) if is_by_sample else 0
    if not count or count >= host[0]:
        yield formats.decode(tensor.format, array, host, groups)
        return
    for start in range(0, host[0], count):
        part = array[start : start + count]
        yield formats.decode(tensor.format, part, (len(part), *host[1:]), groups)


def _whole(array: np.ndarray) -> Iterator[np.ndarray]:
    yield array


def _joined(parts: Iterator[np.ndarray]) -> np.ndarray:
    arrays = list(parts)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _permuted(shape: Dims, source: str, target: str) -> Dims:
    return tuple(shape[source.index(axis)] for axis in target)


def _transposed(array: np.ndarray, source: str, target: str) -> np.ndarray:
    return array.transpose([source.index(axis) for axis in target])


def _part(shape: Dims, wanted: Dims) -> Dims:
    """Return the shape that is wanted of an array, which may be a part of it."""
    if not wanted:
        return shape
    if len(wanted) != len(shape) or any(size > have for size, have in zip(wanted, shape, strict=True)):
        raise ToolError(ReturnCode.SHAPE, f"-s {wanted} is no part of the shape {shape}")
    return wanted
