"""CANN's dump files by google.protobuf and the reference tool's formulas, without the code under test.

A file is an unsigned 64-bit length, a DumpData message of that length, and the bytes
of all inputs, then of all outputs. Each formula undoes one memory format with
transpose and reshape, then cuts the padding off.
"""

import csv
import math
import re
import struct
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tests.encode.dump_oracle import DumpData

NAME = re.compile(r"([\w-]+)\.([\w-]+)\.(\d+)\.(\d+)\.(\d{16})", re.ASCII)
TYPES = dict(enumerate(["f4", "f2", "i1", "u1", "i2", "u2", "i4", "i8", "u4", "u8", "?", "f8"], 1)) | {
    16: "c8",
    17: "c16",
    27: ml_dtypes.bfloat16,
}
FORMATS = {
    0: "NCHW",
    2: "ND",
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    29: "FRACTAL_NZ",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
}


@dataclass(frozen=True)
class Tensor:
    """An input or output: its description in the header, and its bytes."""

    io: str
    slot: int
    description: object
    data: bytes

    @property
    def format(self):
        """Name of the memory format."""
        return FORMATS[self.description.format]

    @property
    def dtype(self):
        """Element type on the device."""
        return np.dtype(TYPES[self.description.data_type])

    @property
    def shape(self):
        """Shape on the device."""
        return tuple(self.description.shape.dim)

    @property
    def original_shape(self):
        """Shape on the host."""
        return tuple(self.description.original_shape.dim)

    @property
    def host(self):
        """The elements in the host's layout, in the device's type."""
        device = np.frombuffer(self.data, self.dtype).reshape(self.shape)
        return TO_HOST[self.format](device, self.original_shape, self.description.sub_format)


@dataclass(frozen=True)
class File:
    """A dump file; the name is the original one where a number stands for it."""

    path: object
    op_type: str
    op_name: str
    task: int
    stream: int
    time: int
    header: object
    tensors: tuple[Tensor, ...]

    def slots(self, io):
        """Return the inputs or the outputs."""
        return [tensor for tensor in self.tensors if tensor.io == io]


def read_folder(folder):
    """Return the dump files of one execution in the order of their times."""
    names = dict(csv.reader((folder / "mapping.csv").open())) if (folder / "mapping.csv").exists() else {}
    paths = [path for path in folder.iterdir() if path.name != "mapping.csv"]
    files = [_read(path, NAME.fullmatch(names.get(path.name, path.name))) for path in paths]
    return sorted(files, key=lambda file: file.time)


def _read(path, name):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = DumpData.FromString(data[8 : 8 + length])
    tensors, offset = [], 8 + length
    for io, descriptions in (("input", header.input), ("output", header.output)):
        for slot, description in enumerate(descriptions):
            tensors.append(Tensor(io, slot, description, data[offset : offset + description.size]))
            offset += description.size
    assert len(data) == offset, f"{path}: {len(data)} bytes, {offset} are described"
    return File(path, *name.groups()[:2], *map(int, name.groups()[2:]), header, tuple(tensors))


def _same(device, original, _groups):
    assert device.shape == original
    return device


def _nc1hwc0(device, original, _groups):
    n, c1, h, w, c0 = device.shape
    channels = original[0 if len(original) < 4 else 1]  # a shape of smaller rank begins with them
    return device.transpose(0, 1, 4, 2, 3).reshape(n, c1 * c0, h, w)[:, :channels].reshape(original)


def _ndc1hwc0(device, original, _groups):
    n, d, c1, h, w, c0 = device.shape
    return device.transpose(0, 2, 5, 1, 3, 4).reshape(n, c1 * c0, d, h, w)[:, : original[1]]


def _fractal_nz(device, original, _groups):
    if len(original) == 1 and device.shape == original:
        return device
    *batch, n1, m1, m0, c0 = device.shape
    order = [*range(len(batch)), *(len(batch) + axis for axis in (1, 2, 0, 3))]
    *_, rows, columns = (1, *original)
    whole = device.transpose(order).reshape(*batch, m1 * m0, n1 * c0)
    return whole[..., :rows, :columns].reshape(original)


def _fractal_z(device, original, groups):
    if groups > 1:
        return _grouped(device, original, groups)
    n, c, h, w = original
    _, n1, n0, c0 = device.shape
    parts = device.reshape(-1, h, w, n1, n0, c0).transpose(3, 4, 0, 5, 1, 2)
    return parts.reshape(n1 * n0, -1, h, w)[:n, :c]


def _fractal_z_3d(device, original, _groups):
    n, c, d, h, w = original
    _, n1, n0, c0 = device.shape
    parts = device.reshape(d, -1, h, w, n1, n0, c0).transpose(4, 5, 1, 6, 0, 2, 3)
    return parts.reshape(n1 * n0, -1, d, h, w)[:n, :c]


def _grouped(device, original, groups):
    """Gather a weight of several groups: E of them share a block, side by side on its diagonal."""
    n, c, h, w = original
    c0, outputs = device.shape[-1], n // groups
    shared = min(math.lcm(math.lcm(c, c0) // c, math.lcm(outputs, 16) // outputs), groups)
    c1 = -(-shared * c // c0)
    output, channel, row, column = np.indices(original)
    group, inner = output // outputs, output % outputs
    place = group % shared
    dst_c, dst_n = place * c + channel, place * outputs + inner
    block = ((group // shared * c1 + dst_c // c0) * h + row) * w + column
    return device[block, dst_n // 16, dst_n % 16, dst_c % c0]


TO_HOST = {
    "NCHW": _same,
    "ND": _same,
    "NC1HWC0": _nc1hwc0,
    "NDC1HWC0": _ndc1hwc0,
    "FRACTAL_NZ": _fractal_nz,
    "FRACTAL_Z": _fractal_z,
    "FRACTAL_Z_3D": _fractal_z_3d,
}
