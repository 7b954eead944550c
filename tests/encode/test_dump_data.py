"""CANN's dump files in both directions, beside google.protobuf and formats written out element by element."""

import dataclasses
import mmap
import tracemalloc

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msdump import dtypes
from msdump.device import formats
from msdump.encode import DumpData, OriginalOp, RawInfo, TensorInfo, dump_data, dump_message, elements
from msdump.encode.dump_data import DimRange, OpAttr
from msdump.errors import DumpReadError, FormatError
from tests.encode import dump_oracle

TIME = 1612439563338030
ONE = DumpData("one", TIME, outputs=(TensorInfo(1, 2, (1,), (1,), 4),))
ONE_FILE = bytes.fromhex(
    "2500000000000000 0a03322e30 10ae8294bb95d0ee02"
    "1a10 08011002 1a030a0101 3004 3a030a0101 32036f6e65 00006040"
)
FULL = DumpData(
    "Default/conv1-Conv2d/Conv2D-op12",
    TIME,
    inputs=(
        TensorInfo(
            2, 3, (2, 2, 5, 4, 16), (2, 20, 5, 4), 2560, address=0x12C0C0001000, arg_index=1, input_type=2
        ),
        TensorInfo(2, 4, (40, 1, 16, 16), (6, 3, 5, 4), 20480, sub_format=2, offset=512),
    ),
    outputs=(
        TensorInfo(
            1,
            dump_message.ND,
            (),
            (),
            4,
            original_op=OriginalOp("conv1", 1, 2, 0),
            dim_range=(DimRange(0, 5), DimRange(1, 2)),
        ),
        TensorInfo(1, 0, (2, 0), (2, 0), 0),
    ),
    buffers=(RawInfo(7),),
    spaces=(RawInfo(3, 1), RawInfo(0)),
    attributes=(OpAttr("ffts", "{}"),),
    dfx_message="exception \u00e9",
)


def as_message(data):
    """Return the protobuf message of a header."""
    message = dump_oracle.DumpData(
        version=data.version, dump_time=data.dump_time, op_name=data.op_name, dfx_message=data.dfx_message
    )
    for target, infos in ((message.output, data.outputs), (message.input, data.inputs)):
        for info in infos:
            _fill(target.add(), info)
    for info in data.buffers:
        message.buffer.add(buffer_type=info.type, size=info.size)
    for info in data.spaces:
        message.space.add(type=info.type, size=info.size)
    for attribute in data.attributes:
        message.attr.add(name=attribute.name, value=attribute.value)
    return message


def _fill(target, info):
    names = {field.name for field in target.DESCRIPTOR.fields}
    for name in names & {
        *("data_type", "format", "size", "sub_format", "address"),
        "offset",
        "arg_index",
        "input_type",
    }:
        setattr(target, name, getattr(info, name))
    for name in ("shape", "original_shape"):
        getattr(target, name).SetInParent()
        getattr(target, name).dim.extend(getattr(info, name))
    if "original_op" in names and info.original_op is not None:
        original = target.original_op
        original.SetInParent()
        original.name, original.output_index = info.original_op.name, info.original_op.output_index
        original.data_type, original.format = info.original_op.data_type, info.original_op.format
    for part in info.dim_range if "dim_range" in names else ():
        target.dim_range.add(dim_start=part.dim_start, dim_end=part.dim_end)


def size_of(data):
    """Return the bytes behind a header."""
    return sum(info.size for _, infos in data.sections() for info in infos)


def test_the_worked_example():
    """One float32 of 3.5 without inputs is this file of 49 bytes."""
    block = np.array([3.5], "<f4")

    written = dump_data.header(ONE) + block.tobytes()
    data, offset = dump_data.read_header(memoryview(ONE_FILE))

    assert len(ONE_FILE) == 49
    assert ONE_FILE == written
    assert (ONE, 45) == (data, offset)
    assert [3.5] == dump_data.tensor(data.outputs[0], memoryview(ONE_FILE)[45:]).tolist()


HOSTS = {
    "NCHW": ((2, 3, 2, 2), (2, 3, 2, 2)),
    "NHWC": ((2, 3, 2, 2), (2, 2, 2, 3)),
    "HWCN": ((2, 3, 2, 2), (2, 2, 3, 2)),
    "ND": ((2, 5, 3), (2, 5, 3)),
    "NC1HWC0": ((2, 33, 1, 3), {16: (2, 3, 1, 3, 16), 32: (2, 2, 1, 3, 32), 64: (2, 1, 1, 3, 64)}),
    "FRACTAL_Z": ((17, 33, 2, 1), {16: (6, 2, 16, 16), 32: (4, 2, 16, 32), 64: (2, 2, 16, 64)}),
    "FRACTAL_NZ": ((2, 17, 33), {16: (2, 3, 2, 16, 16), 32: (2, 2, 2, 16, 32), 64: (2, 1, 2, 16, 64)}),
    "NDC1HWC0": (
        (1, 17, 2, 1, 2),
        {16: (1, 2, 2, 1, 2, 16), 32: (1, 2, 1, 1, 2, 32), 64: (1, 2, 1, 1, 2, 64)},
    ),
}


def numbered(text):
    """Return numbers by name."""
    return {name: int(number) for name, number in (pair.split("=") for pair in text.split())}


FORMAT_NUMBERS = numbered("NCHW=0 NHWC=1 ND=2 NC1HWC0=3 FRACTAL_Z=4 HWCN=16 FRACTAL_NZ=29 NDC1HWC0=32")
DATA_TYPES = numbered("""
    float32=1 float16=2 int8=3 uint8=4 int16=5 uint16=6 int32=7 int64=8 uint32=9 uint64=10 bool=11
    float64=12 complex64=16 complex128=17 bfloat16=27 int4=28 uint1=29 int2=30 uint2=31
    float8_e5m2=34 float8_e4m3fn=35 float8_e8m0=36 float4_e2m1=39
""")
VALUES = {
    "float32": ([1, -0.5, 65504], "0000803f 000000bf 00e07f47"),
    "float16": ([1, -0.5, 65504], "003c 00b8 ff7b"),
    "bfloat16": ([1, -0.5, 3.140625], "803f 00bf 4940"),
    "float64": ([1, -0.5, 2], "000000000000f03f 000000000000e0bf 0000000000000040"),
    "int8": ([1, -1, -128], "01 ff 80"),
    "uint8": ([1, 255, 128], "01 ff 80"),
    "int16": ([1, -1, 256], "0100 ffff 0001"),
    "uint16": ([1, 65535, 256], "0100 ffff 0001"),
    "int32": ([1, -1, 65536], "01000000 ffffffff 00000100"),
    "uint32": ([1, 2**32 - 1, 65536], "01000000 ffffffff 00000100"),
    "int64": ([1, -1, 2**40], "0100000000000000 ffffffffffffffff 0000000000010000"),
    "uint64": ([1, 2**64 - 1, 2**40], "0100000000000000 ffffffffffffffff 0000000000010000"),
    "bool": ([True, False, True], "01 00 01"),
    "complex64": ([1 - 0.5j, 0, 2], "0000803f000000bf 0000000000000000 0000004000000000"),
    "complex128": ([1 - 0.5j, 0, 0], "000000000000f03f000000000000e0bf" + "00" * 32),
    "float8_e5m2": ([1, -0.5, 57344], "3c b8 7b"),
    "float8_e4m3fn": ([1, -0.5, 448], "38 b0 7e"),
    "float8_e8m0": ([1, 0.5, 2], "7f 7e 80"),
    "int4": ([1, -1, -8], "f1 08"),
    "uint1": ([1, 0, 1], "a0"),
    "int2": ([1, -1, -2], "2d"),
    "uint2": ([1, 3, 2], "2d"),
    "float4_e2m1": ([1, -0.5, 6], "92 07"),
}


@pytest.mark.parametrize("name", VALUES)
def test_elements_lie_in_these_bytes(name):
    """Three elements of every type, packed where they are below a byte, have these bytes."""
    values, text = VALUES[name]
    data = bytes.fromhex(text)
    info = TensorInfo(DATA_TYPES[name], 2, (3,), (3,), len(data))

    array = dump_data.tensor(info, memoryview(data))

    assert dtypes.from_name(name).numpy == array.dtype
    assert values == array.tolist()
    assert data == bytes_of(array)


def bytes_of(array):
    """Return the bytes of a device array."""
    dtype = dtypes.from_numpy(array.dtype)
    return (elements.pack(array, dtype) if dtype.per_byte > 1 else array).tobytes()


def host_array(dtype, shape):
    """Return an array with neighbours that differ, as far as the type has values."""
    count = int(np.prod(shape))
    if dtype.per_byte > 1:
        return (
            (np.arange(count) * 5 // 3 % (1 << 8 // dtype.per_byte))
            .astype("u1")
            .view(dtype.numpy)
            .reshape(shape)
        )
    return (np.arange(count) % 101 + 1).astype("f4").astype(dtype.numpy).reshape(shape)


@pytest.mark.parametrize("form", HOSTS)
@pytest.mark.parametrize("name", DATA_TYPES)
def test_every_type_in_every_format(name, form):
    """The file of a tensor of each type in each format equals one put together element by element."""
    dtype, (shape, device) = dtypes.from_name(name), HOSTS[form]
    array = host_array(dtype, shape)
    if isinstance(device, dict):
        device = device[{"int8": 32, "uint8": 32, "int4": 64}.get(name, 16)]
    payload = bytes_of(dump_oracle.laid_out(array, form, device))
    message = dump_oracle.DumpData(version="2.0", dump_time=TIME, op_name="scope/op")
    message.output.add(data_type=DATA_TYPES[name], format=FORMAT_NUMBERS[form], size=len(payload))
    message.output[0].shape.dim.extend(device)
    message.output[0].original_shape.dim.extend(shape)
    expected = dump_oracle.file_of(message, [payload])

    laid_out = formats.encode(form, array)
    info = TensorInfo(dtype.dump, formats.find(form).number, laid_out.shape, shape, len(bytes_of(laid_out)))
    written = dump_data.header(DumpData("scope/op", TIME, outputs=(info,))) + bytes_of(laid_out)
    data, offset = dump_data.read_header(memoryview(expected))
    back = dump_data.tensor(data.outputs[0], memoryview(expected)[offset:])

    assert expected == written
    assert array.tolist() == formats.decode(form, back, data.outputs[0].original_shape).tolist()


UINT64 = st.integers(0, 2**64 - 1)
UINT32 = st.integers(0, 2**32 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(max_size=20)
DIMS = st.lists(UINT64, max_size=6).map(tuple)
SIZES = st.integers(0, 100)
TENSORS = {
    "data_type": INT32,
    "format": INT32,
    "shape": DIMS,
    "original_shape": DIMS,
    "size": SIZES,
    "sub_format": INT32,
    "address": UINT64,
    "offset": UINT64,
}
OUTPUTS = st.builds(
    TensorInfo,
    **TENSORS,
    original_op=st.none() | st.builds(OriginalOp, TEXTS, UINT32, INT32, INT32),
    dim_range=st.lists(st.builds(DimRange, UINT64, UINT64), max_size=3).map(tuple),
)
INPUTS = st.builds(TensorInfo, **TENSORS, arg_index=UINT32, input_type=UINT32)
RAWS = st.lists(st.builds(RawInfo, SIZES, INT32), max_size=3).map(tuple)
HEADERS = st.builds(
    DumpData,
    TEXTS,
    UINT64,
    inputs=st.lists(INPUTS, max_size=3).map(tuple),
    outputs=st.lists(OUTPUTS, max_size=3).map(tuple),
    buffers=RAWS,
    spaces=RAWS,
    attributes=st.lists(st.builds(OpAttr, TEXTS, TEXTS), max_size=3).map(tuple),
    dfx_message=TEXTS,
    version=TEXTS,
)


@given(HEADERS)
@example(FULL)
@example(DumpData("", 0, version=""))
def test_headers_come_back(data):
    """Reading undoes writing, and the bytes are protobuf's."""
    header = dump_data.header(data)

    back = dump_data.read_header(memoryview(header + bytes(size_of(data)) + b"")) if len(header) > 8 else None

    assert dump_oracle.file_of(as_message(data)) == header
    assert back is None or (data, len(header)) == back


def attempt(read):
    """Return the result of a function, or None, and its DumpReadError, or None."""
    try:
        return read(), None
    except DumpReadError as error:
        return None, error


def parsed(message):
    """Return protobuf's reading, or None."""
    try:
        return dump_oracle.DumpData.FromString(message)
    except DecodeError:
        return None


@settings(max_examples=300)
@given(HEADERS.map(lambda data: as_message(data).SerializeToString()), st.data())
def test_changed_messages_are_read_as_protobuf_reads_them(message, data):
    """A message with bytes changed, cut or doubled is refused, or read as by protobuf."""
    changed = bytearray(message)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(changed)))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    changed = bytes(changed)

    ours, error = attempt(lambda: dump_data.read_message(memoryview(changed)))
    if error is not None:
        assert 0 <= error.offset <= len(changed)
        return
    theirs = parsed(changed)

    assert theirs is not None
    for one, other in ((ours[0].outputs, theirs.output), (ours[0].inputs, theirs.input)):
        assert [len(item.data) for item in other] == [item.size for item in one]
        assert [tuple(item.shape.dim) for item in other] == [item.shape for item in one]
        assert [item.data_type for item in other] == [item.data_type for item in one]
        assert [item.address for item in other] == [item.address for item in one]
    assert (theirs.op_name, theirs.dump_time, theirs.version) == (
        ours[0].op_name,
        ours[0].dump_time,
        ours[0].version,
    )
    assert [(a.name, a.value) for a in theirs.attr] == [(a.name, a.value) for a in ours[0].attributes]


def test_repeated_fields_are_merged():
    """Of numbers that come twice the last counts; shapes go on and operators merge, packed or not."""
    twice = bytes.fromhex("0801 0802  1a02 0805  1a04 0a02 0607  2203 0a0161  2202 1003")
    message = bytes((0x1A, len(twice))) + twice

    data, _ = dump_data.read_message(memoryview(message))

    info = TensorInfo(2, 0, (5, 6, 7), (), 0, original_op=OriginalOp("a", 3, 0, 0))
    assert (info,) == data.outputs


def test_version_1_has_the_data_inside():
    """A file that is one message gives the same tensors, whatever sizes it says."""
    message = as_message(FULL)
    payloads = [bytes([number] * (number + 1)) for number in range(7)]
    for item, payload in zip(
        (*message.input, *message.output, *message.buffer, *message.space), payloads, strict=True
    ):
        item.data = payload
    view = memoryview(message.SerializeToString())

    data, blocks = dump_data.read_message(view)

    assert payloads == [bytes(view[block.offset : block.end]) for block in blocks]
    assert ["input", "input", "output", "output", "l1buffer", "space", "space"] == [b.section for b in blocks]
    assert FULL.inputs[0].shape == data.inputs[0].shape


VARINT_MAX = "ffffffffffffffffff01"
HOSTILE = {
    "empty": ("", 0, "0 bytes, a header needs more than 8"),
    "only a length": ("0000000000000000", 0, "8 bytes, a header needs more than 8"),
    "length overflows": ("ffffffffffffffff 0a", 0, "should have 18446744073709551615 bytes, 1 are left"),
    "text file": ("7b22616263223a2031327d", 0, "bytes, 3 are left"),
    "field overflows": (
        f"0b00000000000000 1a{VARINT_MAX}",
        8,
        "a field of 18446744073709551615 bytes, 0 are left",
    ),
    "endless number": ("0c00000000000000 10ffffffffffffffffffff01", 9, "a number of more than ten bytes"),
    "torn number": ("0200000000000000 10ff", 9, "ends inside a number"),
    "group": ("0200000000000000 0b0c", 8, "wire type 3"),
    "field 0": ("0200000000000000 0200", 8, "a field has the number 0"),
    "no text": ("0300000000000000 3201ff", 10, "op_name is no UTF-8 text"),
    "sizes overflow": (
        f"0d00000000000000 1a0b30{VARINT_MAX} 00",
        21,
        "truncated: the tensors have 18446744073709551615 bytes by the header, the file has 1",
    ),
    "bytes are missing": (
        ONE_FILE[:-1].hex(),
        45,
        "truncated: the tensors have 4 bytes by the header, the file has 3",
    ),
    "bytes too many": (
        ONE_FILE.hex() + "00",
        45,
        "too long: the tensors have 4 bytes by the header, the file has 5",
    ),
}


@pytest.mark.parametrize(("text", "offset", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused(text, offset, message):
    """Other files give an error with file and offset."""
    with pytest.raises(DumpReadError) as caught:
        dump_data.read_header(memoryview(bytes.fromhex(text)), "dir/file")

    assert ("dir/file", offset) == (caught.value.path, caught.value.offset)
    assert message in str(caught.value)


def with_shape(*dims, data_type=1, size=4):
    """Return a tensor's description."""
    return TensorInfo(data_type, 2, dims, dims, size)


IMPOSSIBLE = {
    "too few bytes": (with_shape(2), r"shape \(2,\) of DT_FLOAT needs 8 bytes, the tensor has 4"),
    "product overflows": (with_shape(2**32, 2**32), r"needs 73786976294838206464 bytes"),
    "product wraps to zero": (with_shape(2**63, 2), r"needs 73786976294838206464 bytes"),
    "endless but empty": (
        with_shape(2**63, 0, size=0),
        r"the shape \(9223372036854775808, 0\) is impossible",
    ),
    "packed": (with_shape(100, data_type=28), r"shape \(100,\) of DT_INT4 needs 50 bytes"),
    "packed, endless but empty": (with_shape(2**63, 0, data_type=29), r"is impossible"),
    "64 dimensions": (with_shape(*(2**60,) * 64), r"needs \d+ bytes"),
}


@pytest.mark.parametrize(("info", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_shapes_are_refused(info, message):
    """A shape that the bytes cannot fill gives an error with file and offset, and takes no memory."""
    with pytest.raises(DumpReadError, match=message) as caught:
        dump_data.tensor(info, memoryview(bytes(4)), "dir/file", 45)

    assert ("dir/file", 45) == (caught.value.path, caught.value.offset)


@pytest.mark.parametrize(
    "body",
    {
        "10^9 dimensions": b"\x1a" + b"\x80\x94\xeb\xdc\x03\x1a\xf9\x93\xeb\xdc\x03\x0a\xf2\x93\xeb\xdc\x03",
        "dimensions": None,
        "outputs": b"\x1a\x00" * ((1 << 18) + 9),
        "unknown fields": b"\x78\x00" * ((1 << 18) + 9),
        "texts": b"\x12\x00" * 5,
    }.values(),
    ids=["10^9 dimensions", "many dimensions", "outputs", "unknown fields", "cut"],
)
def test_hostile_files_take_little_memory(body):
    """A header made to fill the memory is refused soon, at a fraction of its demands."""
    if body is None:
        dims = b"\x01" * (1 << 20)
        shape = b"\x0a\x80\x80\x40" + dims
        output = b"\x1a" + b"\x84\x80\x40" + shape
        body = b"\x1a" + b"\x88\x80\x40" + output
    file = len(body).to_bytes(8, "little") + body + b"\x00"
    tracemalloc.start()

    with pytest.raises(DumpReadError):
        dump_data.read_header(memoryview(file))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 300 << 20


@settings(max_examples=400)
@given(st.integers(0, len(dump_data.header(FULL)) * 8 - 1))
def test_flipped_bits_are_refused_or_read(bit):
    """With any bit of a header flipped, the file is refused or its tensors are read or refused."""
    file = bytearray(dump_data.header(FULL) + bytes(size_of(FULL)))
    file[bit // 8] ^= 1 << bit % 8
    view = memoryview(bytes(file))

    try:
        data, offset = dump_data.read_header(view)
        for block in dump_data.blocks(data, offset):
            if isinstance(block.info, TensorInfo):
                dump_data.tensor(block.info, view[block.offset : block.end], offset=block.offset)
    except (DumpReadError, FormatError):
        return

    assert len(view) == offset + size_of(data)


READ_AS = {
    "undefined": (TensorInfo(0, 2, (3, 3), (), 2), [1, -1], "int8"),
    "resource": (TensorInfo(23, 2, (1,), (), 8), [-255], "int64"),
    "no dimensions": (TensorInfo(3, 2, (), (), 1), 1, "int8"),
    "no elements": (TensorInfo(2, 2, (2, 0, 3), (), 0), [[], []], "float16"),
}


@pytest.mark.parametrize(("info", "values", "name"), READ_AS.values(), ids=READ_AS)
def test_special_tensors(info, values, name):
    """Undefined types are bytes, resources numbers; scalars and empty tensors keep their shape and type."""
    array = dump_data.tensor(info, memoryview(b"\x01\xff\xff\xff\xff\xff\xff\xff")[: info.size])

    assert name == array.dtype
    assert values == array.tolist()


@pytest.mark.parametrize("number", [13, 14, 18, 24, 33, 40, 999, -1])
def test_types_without_elements_are_refused(number):
    """Text, quantised and unknown types are named in an error."""
    with pytest.raises(FormatError, match=r"elements of (DT_[A-Z0-9_]+|-?\d+) cannot be read"):
        dump_data.tensor(with_shape(1, data_type=number), memoryview(bytes(4)))


BAD_FIELDS = {
    "negative address": ({"address": -1}, r"address -1 does not fit a dump file"),
    "long size": ({"size": 2**64}, r"size 18446744073709551616 does not fit"),
    "unknown dimension": ({"shape": (-1, 3)}, r"dimension -1 does not fit"),
    "format": ({"format": 2**31}, r"format 2147483648 does not fit .* holds -2147483648 to 2147483647"),
}


@pytest.mark.parametrize(("change", "message"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_numbers_that_do_not_fit_are_refused(change, message):
    """A number beyond its field is an error, not a wrong one."""
    info = dataclasses.replace(with_shape(1), **change)

    with pytest.raises(FormatError, match=message):
        dump_data.header(dataclasses.replace(ONE, outputs=(info,)))


def test_a_file_over_2_gib(tmp_path):
    """Blocks beyond 2 GiB are found in a mapped file, without reading its other pages."""
    big = TensorInfo(4, 2, (3 << 30,), (3 << 30,), 3 << 30)
    data = DumpData("big", TIME, inputs=(big,), outputs=(with_shape(1),))
    path = tmp_path / "big"
    header = dump_data.header(data)
    with path.open("wb") as file:
        file.write(header)
        file.seek(3 << 30, 1)
        file.write(np.array([3.5], "<f4").tobytes())

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        found, offset = dump_data.read_header(view, str(path))
        last = dump_data.blocks(found, offset)[-1]
        value = dump_data.tensor(last.info, view[last.offset : last.end]).tolist()
        view.release()

    assert [3.5] == value
    assert len(header) + (3 << 30) == last.offset
