"""Protobuf's wire format against protobuf itself."""

import contextlib

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.wire import (
    ALL_BITS,
    LENGTH,
    VARINT,
    WireError,
    WireFault,
    fields,
    length_delimited,
    read_varint,
    tag_of,
    varint,
)

FAULTS = {
    "field 0": ("0801 0200", WireFault.FIELD_NUMBER, 2),
    "a field beyond 29 bits": ("0801 80808080 7f00", WireFault.FIELD_NUMBER, 2),
    "wire type of groups": ("0801 0b", WireFault.WIRE_TYPE, 2),
    "a tag breaks off": ("0801 80", WireFault.TORN_NUMBER, 2),
    "a number breaks off": ("0801 08ff", WireFault.TORN_NUMBER, 3),
    "a number of eleven bytes": ("08 ffffffffffffffffffff01", WireFault.LONG_NUMBER, 1),
    "a size breaks off": ("0801 0a80", WireFault.TORN_NUMBER, 3),
    "bytes break off": ("0801 0a03 0000", WireFault.TORN_FIELD, 2),
    "four bytes break off": ("0801 0d 000000", WireFault.TORN_FIELD, 2),
    "eight bytes break off": ("0801 09 000000", WireFault.TORN_FIELD, 2),
}


def read(data):
    """Return (number of the field, number or bytes that it holds) of each field."""
    return [
        (tag >> 3, value if tag & 7 == VARINT else data[body:end])
        for tag, value, _, body, end in fields(memoryview(data), 0, len(data))
    ]


@given(st.integers(0, ALL_BITS))
@settings(deadline=None)
def test_numbers_come_back(number):
    """A number is read as it was written, and no byte behind it."""
    data = varint(number)

    assert (number, len(data)) == read_varint(memoryview(data + b"\xff"), 0, len(data) + 1)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=300), st.floats(width=32, allow_nan=False))
@settings(deadline=None)
def test_fields_are_those_of_protobuf(number, data, single):
    """Numbers, bytes and floats of a message of protobuf stand in its fields, in their order."""
    message = onnx.AttributeProto(f=single, i=number, s=data)

    found = dict(read(message.SerializeToString()))

    assert (number & ALL_BITS, data) == (found[3], found[4])
    assert onnx.AttributeProto(f=single).SerializeToString()[1:] == found[2]


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_bytes_are_written_as_protobuf_does(data):
    """Bytes behind their tag and length are protobuf's own."""
    expected = onnx.AttributeProto(s=data).SerializeToString()

    assert expected == length_delimited(tag_of(4, LENGTH), data)


@pytest.mark.parametrize(("text", "fault", "start"), FAULTS.values(), ids=FAULTS)
def test_faults_are_told_with_their_place(text, fault, start):
    """Bytes that are no field are an error that gives their offset."""
    with pytest.raises(WireError) as caught:
        read(bytes.fromhex(text))

    assert (fault, start) == (caught.value.fault, caught.value.start)


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_fields_or_refused(data):
    """Fields of random bytes lie one behind the other up to the end, or the bytes are refused."""
    at = 0
    with contextlib.suppress(WireError):
        for _, _, start, body, end in fields(memoryview(data), 0, len(data)):
            assert at == start < body <= end <= len(data)
            at = end
        assert len(data) == at
