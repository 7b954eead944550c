"""Overflow records in both directions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump.encode import DebugRecord, OldRecord, Unit, op_debug
from msdump.errors import DumpReadError

FIELDS = {
    "model_id": 514,
    "stream_id": 563,
    "task_id": 57,
    "task_type": 0,
    "context_id": 65535,
    "thread_id": 65535,
    "pc_start": 0x1008005B0000,
    "para_base": 0x100800297000,
    "core_id": 2,
    "block_id": 1,
}
AIC = DebugRecord(Unit.AIC, FIELDS, (2048,))
HEAD = "5a5a5a5a 00000000 01000000 00000000 00000000 58000000"
OLD = OldRecord(
    {
        "DHA Atomic Add": {},
        "L2 Atomic Add": {"task_id": 9, "status": 3},
        "AI Core": {
            **{name: FIELDS[name] for name in ("model_id", "stream_id", "task_id", "pc_start", "para_base")},
            "kernel_code": 0x1008005AE000,
            "block_idx": 1,
            "status": 32,
        },
    }
)


def words(text):
    """Return 64-bit words of which each is given by its first bytes."""
    return b"".join(bytes.fromhex(word).ljust(8, b"\0") for word in text.split())


def with_version_1(unit=Unit.AIC):
    """Return a record with four words of status."""
    return DebugRecord(unit, FIELDS, (2048, 0, 1, 7), version=1)


def test_the_bytes_of_an_old_record():
    """An old record has its tasks at 0, 128 and 256 and its status at 512, 768 and 1024."""
    expected = bytearray(2048)
    expected[128 + 16] = 9
    expected[256 : 256 + 48] = words("0202 3302 39 00 00005b000810 007029000810")
    expected[768] = 3
    expected[1024 : 1024 + 24] = words("00e05a000810 01 20")

    found = op_debug.decode(memoryview(expected))

    assert op_debug.to_json(OLD) == op_debug.to_json(found)


def test_msaccucmps_json():
    """The text is indented by four spaces, with addresses in hexadecimal and the bytes' order."""
    lines = [
        *("{", '    "magic": "0x5a5a5a5a",', '    "version": 0,', '    "acc_list": {'),
        *('        "valid": 1,', '        "acc_type": "AIC",', '        "rsv": 0,'),
        *('        "data_len": 88,', '        "data": {', '            "model_id": 514,'),
        *('            "stream_id": 563,', '            "task_id": 57,', '            "task_type": 0,'),
        *('            "context_id": 65535,', '            "thread_id": 65535,'),
        *('            "pc_start": "0x1008005b0000",', '            "para_base": "0x100800297000",'),
        *('            "core_id": 2,', '            "block_id": 1,', '            "status": 2048'),
        *("        }", "    }", "}"),
    ]

    assert "\n".join(lines) == op_debug.to_json(AIC).decode()


def test_the_old_layouts_json():
    """The three sections have their status; the AI Core has kernel and block too."""
    zeros = (
        '"model_id": 0, "stream_id": 0, "task_id": 0, "task_type": 0, "pc_start": "0x0", "para_base": "0x0"'
    )

    text = " ".join(op_debug.to_json(OLD).decode().split())

    assert f'{{ "DHA Atomic Add": {{ {zeros}, "status": 0 }}, "L2 Atomic Add": {{' in text
    assert text.endswith(
        '"AI Core": { "model_id": 514, "stream_id": 563, "task_id": 57, "task_type": 0, '
        '"pc_start": "0x1008005b0000", "para_base": "0x100800297000", '
        '"kernel_code": "0x1008005ae000", "block_idx": 1, "status": 32 } }'
    )


def test_version_1_has_four_words_of_status():
    """In version 1 an AI Core's status is a list, and 112 bytes follow the head."""
    body = op_debug.encode(with_version_1())

    shown = json.loads(op_debug.to_json(op_debug.decode(memoryview(body))))

    assert [2048, 0, 1, 7] == shown["acc_list"]["data"]["status"]
    assert 112 == shown["acc_list"]["data_len"] == body[20]


UINT64 = st.integers(0, 2**64 - 1)


def records(unit):
    """Return a strategy of records of a unit."""
    names = op_debug.FIELDS[unit][:-1]
    return st.sampled_from([0, 1, 2]).flatmap(
        lambda version: st.builds(
            DebugRecord,
            st.just(unit),
            st.fixed_dictionaries(dict.fromkeys(names, UINT64)),
            st.tuples(*[UINT64] * (4 if version == 1 and unit in {Unit.AIC, Unit.AIV} else 1)),
            version=st.just(version),
        )
    )


@pytest.mark.parametrize("unit", Unit)
@given(st.data())
def test_records_come_back(unit, data):
    """Decoding undoes encoding for every unit and version, in 2048 bytes."""
    record = data.draw(records(unit))

    body = op_debug.encode(record)

    assert len(body) == 2048
    assert record == op_debug.decode(memoryview(body))


BAD = {
    "empty": (b"", "not an overflow record: 0 bytes without 0x5a5a5a5a at the start, not 2048"),
    "old, short": (bytes(2047), "not an overflow record: 2047 bytes"),
    "only a head": (bytes.fromhex(HEAD), "truncated: an overflow record of AIC has 112 bytes, 24 are there"),
    "short of version 1": (
        op_debug.encode(with_version_1())[:112],
        "truncated: an overflow record of AIC has 136 bytes, 112 are there",
    ),
    "unknown unit": (
        bytes.fromhex(HEAD.replace("01000000 00000000", "01000000 09000000")).ljust(2048),
        "overflow record of unknown unit 9; known are 0 (AIC), 1 (AIV), 2 (AICPU), 3 (SDMA)",
    ),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_other_bytes_are_refused(data, message):
    """Other bytes give an error with file and offset."""
    with pytest.raises(DumpReadError) as caught:
        op_debug.decode(memoryview(data), "dir/file", 100)

    assert message in str(caught.value)
    assert "dir/file" == caught.value.path
    assert 100 <= caught.value.offset <= 112


@given(st.binary(max_size=200) | st.binary(min_size=2048, max_size=2048))
def test_any_bytes_are_a_record_or_refused(data):
    """Whatever the bytes are, they give a record with complete JSON, or a DumpReadError."""
    try:
        record = op_debug.decode(memoryview(data))
    except DumpReadError:
        return

    assert json.loads(op_debug.to_json(record)) == json.loads(op_debug.to_compact_json(record))
