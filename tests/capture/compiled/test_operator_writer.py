"""The files of operators: dump files, .npy files, statistics; each against values worked out by hand."""

from __future__ import annotations

import csv
import io

import ml_dtypes
import numpy as np
import pytest

from msdump import dtypes
from msdump.capture.compiled.held import Held
from msdump.capture.compiled.operator_statistics import StatisticsWriter
from msdump.capture.compiled.operator_writer import DumpDataWriter, NpyWriter, described
from msdump.device import formats
from msdump.device.placement import DeviceTensor
from msdump.encode import dump_data, operator_csv
from msdump.plan import DeviceTarget, Naming
from msdump.record import IO, OperatorRef
from msdump.store import names
from msdump.store.operator_names import OperatorName
from msdump.store.write.sinks import MemorySink

CONV = OperatorRef("Conv2D", "Default/conv1/Conv2D-op0")
NAME = OperatorName("Conv2D", "Default_conv1_Conv2D-op0", 2, 7, 1_600_000_000_000_000)
STYLE = names.STYLES[Naming.V2_5, DeviceTarget.ASCEND]
ALL = tuple(operator_csv.TITLES)


def held(array, side=IO.INPUT, slot=0, *, layout=None, groups=1, address=0):
    """Return a tensor as the device holds it."""
    dtype = dtypes.from_numpy(array.dtype)
    placed = None
    if layout is not None:
        placed = DeviceTensor(layout, dtype, formats.shape(layout, array.shape, dtype, groups), groups)
    return Held(side, slot, array, dtype, lay, placed, address, "Default/conv1/Conv2D-op0", dtype)


def lay(array, tensor):
    """Return an array as it lies in device memory."""
    return formats.encode(tensor.format, array, tensor.groups)


def written(writer, *tensors):
    """Return the one file that a writer makes of tensors."""
    sink = MemorySink()
    writer(sink).write("/d", CONV, NAME, tensors)
    ((_, data),) = sink.files.contents.items()
    return data


def read(*tensors):
    """Return the header of the dump file of tensors, and its bytes behind the header."""
    data = written(DumpDataWriter, *tensors)
    header, offset = dump_data.read_header(memoryview(data))
    return header, data[offset:]


IMAGE = np.arange(24, dtype=np.float16).reshape(1, 3, 2, 4)
WEIGHT = np.arange(4 * 2 * 1 * 1, dtype=np.float16).reshape(4, 2, 1, 1)

DEVICE = {
    "host image": (held(IMAGE), ("FLOAT16", "NCHW", (1, 3, 2, 4), 0)),
    "host matrix": (held(IMAGE[0, 0]), ("FLOAT16", "ND", (2, 4), 0)),
    "image": (held(IMAGE, layout="NC1HWC0"), ("FLOAT16", "NC1HWC0", (1, 1, 2, 4, 16), 0)),
    "matrix": (held(IMAGE[0, 0], layout="FRACTAL_NZ"), ("FLOAT16", "FRACTAL_NZ", (1, 1, 16, 16), 0)),
    "grouped weight": (
        held(WEIGHT, layout="FRACTAL_Z", groups=2),
        ("FLOAT16", "FRACTAL_Z", formats.shape("FRACTAL_Z", WEIGHT.shape, None, 2), 2),
    ),
    "as on the host": (held(IMAGE, layout="DefaultFormat"), ("FLOAT16", "NCHW", (1, 3, 2, 4), 0)),
    "ChannelLast": (held(IMAGE, layout="ChannelLast"), ("FLOAT16", "NCHW", (1, 3, 2, 4), 0)),
    "scalar": (held(np.float32(3).reshape(())), ("FLOAT", "ND", (), 0)),
    "no elements": (held(np.zeros((0, 3), np.int64)), ("INT64", "ND", (0, 3), 0)),
    "bfloat16": (held(np.ones(3, ml_dtypes.bfloat16)), ("BF16", "ND", (3,), 0)),
    "type without a number": (held(np.ones(3, ml_dtypes.float8_e5m2fnuz)), ("UNDEFINED", "ND", (3,), 0)),
}


@pytest.mark.parametrize(("tensor", "expected"), DEVICE.values(), ids=DEVICE)
def test_tensor_in_device_memory(tensor, expected):
    """A tensor is told in the device's type, format and shape, beside the shape that it has on the host."""
    dtype, layout, shape, groups = expected

    info, array = described(tensor)

    assert (dump_data.dump_enums.DATA_TYPES[dtype], dump_data.dump_enums.FORMATS[layout], shape, groups) == (
        *(info.data_type, info.format),
        *(info.shape, info.sub_format),
    )
    assert (tensor.array.shape, shape, array.nbytes) == (info.original_shape, array.shape, info.size)


def test_dump_file():
    """A dump file has inputs before outputs, each as it lies in device memory, right behind the header."""
    image, result = held(IMAGE, layout="NC1HWC0", address=4096), held(np.float32([1, 2]), IO.OUTPUT)

    header, data = read(image, result)

    assert ("Default/conv1/Conv2D-op0", 1_600_000_000_000_000) == (header.op_name, header.dump_time)
    assert 4096 == header.inputs[0].address
    assert formats.encode("NC1HWC0", IMAGE).tobytes() + result.array.tobytes() == data
    assert header.inputs[0].original_op is None
    assert ("Default/conv1/Conv2D-op0", 0, 1, 2) == (
        *(header.outputs[0].original_op.name, header.outputs[0].original_op.output_index),
        *(header.outputs[0].original_op.data_type, header.outputs[0].original_op.format),
    )


STRIDED = np.arange(12, dtype=np.int32).reshape(3, 4)
BYTES = {
    "transposed": (held(STRIDED.T), STRIDED.T.tobytes()),
    "big endian": (held(STRIDED.astype(">i4")), STRIDED.tobytes()),
    "int4": (held(np.array([1, -2, 3], ml_dtypes.int4)), b"\xe1\x03"),
    "bool": (held(np.array([True, False])), b"\x01\x00"),
    "complex": (held(np.array([1j], np.complex64)), np.array([1j], np.complex64).tobytes()),
    "no elements": (held(np.zeros((0, 2), np.float32)), b""),
}


@pytest.mark.parametrize(("tensor", "expected"), BYTES.values(), ids=BYTES)
def test_bytes_of_a_tensor(tensor, expected):
    """Elements are little endian, in C order, packed where their type is."""
    assert expected == read(tensor)[1]


def test_text_is_left_out(caplog):
    """Text is no tensor of a dump file; it is counted and told."""
    sink = MemorySink()
    text = np.array(["a"], object)
    tensors = [Held(IO.INPUT, 0, text, dtypes.STRING, lay), held(np.float32([1]), slot=1)]

    DumpDataWriter(sink).write("/d", CONV, NAME, tensors)
    DumpDataWriter(sink).write("/d", CONV, NAME, tensors[:1])

    ((_, data),) = sink.files.contents.items()
    assert 1 == len(dump_data.read_header(memoryview(data))[0].inputs)
    assert {"text": 2} == dict(sink.summary.skipped)
    assert "is text" in caplog.text


def test_npy_files_have_the_host_layout():
    """Each tensor is a file of its own in the host's layout and the device's type."""
    sink = MemorySink()

    NpyWriter(sink, STYLE, None).write(
        "/d", CONV, NAME, [held(IMAGE, layout="NC1HWC0"), held(np.ones(3, ml_dtypes.bfloat16), IO.OUTPUT)]
    )

    found = {path.rsplit("/", 1)[1]: np.load(io.BytesIO(data)) for path, data in sink.files.contents.items()}
    first, second = f"{NAME}.input.0.NCHW.float16.npy", f"{NAME}.output.0.ND.bfloat16.npy"
    assert {first, second} == set(found)
    np.testing.assert_array_equal(IMAGE, found[first], strict=True)
    np.testing.assert_array_equal(np.ones(3, np.float32), found[second], strict=True)


def cells(array, chosen=ALL):
    """Return the cells of the statistics of a tensor by their titles."""
    data = written(lambda sink: StatisticsWriter(sink, chosen), held(array))
    (row,) = csv.DictReader(io.StringIO(data.decode()))
    return list(row.values())[6:]


NAN, INF = np.nan, np.inf
STATISTICS = {
    "numbers": ([1, 2, 4], ["3", "4", "1", "2.33333", "0", "0", "0", "4.58258"]),
    "nan first": ([NAN, 2, 4], ["3", "nan", "nan", "nan", "1", "0", "0", "nan"]),
    "nan later": ([1, NAN, 4], ["3", "4", "1", "nan", "1", "0", "0", "nan"]),
    "inf": ([1, INF], ["2", "inf", "1", "inf", "0", "0", "1", "inf"]),
    "-inf": ([1, -INF], ["2", "1", "-inf", "-inf", "0", "1", "0", "inf"]),
    "both": ([-INF, INF], ["2", "inf", "-inf", "nan", "0", "1", "1", "inf"]),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize(("values", "expected"), STATISTICS.values(), ids=STATISTICS)
def test_statistics(values, dtype, expected):
    """NaN counts for the extremes only where it comes first; infinities give the mean that C++ gives."""
    array = np.array(values).astype(dtypes.from_name(dtype).numpy)

    assert expected == cells(array)


def test_statistics_count_padding():
    """The zeros that fill a device format are elements too."""
    data = written(lambda sink: StatisticsWriter(sink, ("Max", "Min")), held(IMAGE + 1, layout="NC1HWC0"))

    (row,) = csv.DictReader(io.StringIO(data.decode()))
    assert ("128", "24", "0") == (row["Count"], row["Max Value"], row["Min Value"])


def test_statistics_of_integers():
    """Integers and truth values are measured; small integers print as numbers."""
    assert ["3", "-1", "-128"] == cells(np.array([-1, -128, -7], np.int8), ("Max", "Min"))
    assert ["2", "1", "0"] == cells(np.array([True, False]), ("Max", "Min"))


@pytest.mark.parametrize(
    "array", [np.array([1j], np.complex64), np.zeros(0, np.float32)], ids=["complex", "empty"]
)
def test_types_without_statistics(array):
    """What cannot be measured has cells that say so."""
    assert ["NA", "NA"] == cells(array, ("Max",))
    assert [""] * 7 == cells(array, operator_csv.DEFAULT)


def test_statistics_file_has_a_row_for_each_tensor():
    """The file is named after the operator; indices count within inputs and within outputs."""
    sink = MemorySink()
    tensors = [held(IMAGE, slot=0), held(IMAGE, slot=2), held(IMAGE, IO.OUTPUT)]

    StatisticsWriter(sink, ("Max",)).write("/d", CONV, NAME, tensors)

    ((path, data),) = sink.files.contents.items()
    assert f"/d/{NAME}.csv" == path
    assert [("Input", "0"), ("Input", "1"), ("Output", "0")] == [
        (row["Input/Output"], row["Index"]) for row in csv.DictReader(io.StringIO(data.decode()))
    ]
