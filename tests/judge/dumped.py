"""Dump files for tests of the tools, and the files that the tools make of them."""

from __future__ import annotations

import numpy as np

from msdump import dtypes
from msdump.convert import Target, convert_files, find_sources
from msdump.device import formats
from msdump.encode import DumpData, TensorInfo, dump_data, dump_message, elements

NAME = "Conv2D.Default_conv1-Conv2d_Conv2D-op12.1.2.1612439563338030"
PLAIN = Target()
OP_NAME = "Default/conv1-Conv2d/Conv2D-op12"


def tensor(array, form="ND", original=None, *, size=None, groups=0):
    """Return a tensor's description and its bytes, padded with zeros to a size."""
    dtype = dtypes.from_numpy(array.dtype)
    data = (elements.pack(array, dtype) if dtype.per_byte > 1 else array).tobytes()
    data = data.ljust(size or 0, b"\0")
    original = array.shape if original is None else original
    number = dump_message.FORMATS[form]
    return TensorInfo(dtype.dump, number, array.shape, original, len(data), sub_format=groups), data


def file(path, *outputs, inputs=(), buffers=(), spaces=(), op_name=OP_NAME):
    """Write a dump file of described tensors and return its path."""
    header = DumpData(
        op_name,
        1612439563338030,
        inputs=tuple(info for info, _ in inputs),
        outputs=tuple(info for info, _ in outputs),
        buffers=tuple(info for info, _ in buffers),
        spaces=tuple(info for info, _ in spaces),
    )
    blocks = [data for _, data in (*inputs, *outputs, *buffers, *spaces)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_data.header(header) + b"".join(blocks))
    return path


def counted(shape, dtype="f2"):
    """Return an array of distinct elements."""
    return np.arange(1, int(np.prod(shape)) + 1).astype(dtype).reshape(shape)


def convert(paths, output, target=PLAIN, **options):
    """Convert files and directories."""
    dump_files = find_sources([str(path) for path in paths], str(output))
    return convert_files(dump_files, str(output), target, **options)


def names(directory):
    """Return the paths of all files below a directory."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def image_file(path):
    """Write a dump file of an image in NC1HWC0 and a vector as inputs and a scalar as output."""
    return file(
        path,
        tensor(np.float32(3.5)[None].reshape(())),
        inputs=[tensor(NC1HWC0, "NC1HWC0", IMAGE.shape), tensor(np.arange(3, dtype="i8"))],
    )


IMAGE = counted((2, 20, 5, 4))
NC1HWC0 = formats.encode("NC1HWC0", IMAGE)
