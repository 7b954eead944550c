"""Records of overflows, joined to the dump files of their operators."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msdump.device import formats
from msdump.encode import DebugRecord, Unit, dump_data, op_debug
from msdump.errors import ToolError
from msdump.look import overflow
from tests.judge import dumped
from tests.world import cli

START = 1612439563338030
BAR = "=" * 49
NONE = 65535
AIC = DebugRecord(Unit.AIC, {"task_id": 9, "stream_id": 2, "context_id": NONE, "thread_id": NONE}, (2048,))
HALVES = np.array([[1, np.inf, 2]], "f2")
WORD = 8  # bytes


def record(folder, told, number=0, ids="7.3"):
    """Write a record of an overflow, or the bytes of one, and return its path."""
    header = op_debug.header_data(START + number)
    path = folder / f"Opdebug.Node_OpDebug.{ids}.{START + number}"
    folder.mkdir(parents=True, exist_ok=True)
    body = told if isinstance(told, bytes) else op_debug.encode(told)
    path.write_bytes(dump_data.header(header) + body)
    return path


def old_record(**words):
    """Return a record of older devices: tasks of L2, AI Core at words 16, 32, statuses at 96, 130."""
    body = bytearray(op_debug.SIZE)
    for name, number in words.items():
        body[int(name[1:]) * WORD] = number
    return bytes(body)


def mul(folder, number=2, ids="9.2"):
    """Write the dump file of an operator that overflowed and return its path."""
    path = folder / f"Mul.Default_Mul-op9.{ids}.{START + number}"
    return dumped.file(
        path, dumped.tensor(HALVES), inputs=[dumped.tensor(np.float16([1, 2]))], op_name="Default/Mul-op9"
    )


def analyse(folder, count=0):
    """Return the report on a directory; results go beside it."""
    return overflow.analyse(overflow.find(str(folder)), str(folder.parent / "out"), count)


def test_block_has_the_documented_form(tmp_path):
    """A block states operator, unit, ids, status and time, and each tensor's file and contents."""
    record(tmp_path / "dump", AIC)
    mul(tmp_path / "dump")

    report = analyse(tmp_path / "dump")

    name = f"Mul.Default_Mul-op9.9.2.{START + 2}"
    assert [
        f"{BAR}[1]={BAR}",
        "[Mul] Default/Mul-op9",
        " [AIC][TaskId:9][StreamId:2][Status:2048]",
        f" [timestamp:{START}]",
        f" {name}.input.0.npy",
        " -[Format: ND] [Shape: (2,)] [Dtype: float16] [Max: 2.0] [Min: 1.0] [Mean: 1.5]",
        f" {name}.output.0.npy",
        " -[Format: ND] [Shape: (1, 3)] [Dtype: float16] [Max: inf] [Min: 1.0] [Mean: inf]",
    ] == report.blocks[0].splitlines()
    assert ([], 1) == (report.errors, report.record_count)


def test_record_and_tensors_are_converted(tmp_path):
    """The record's JSON form and the operator's tensors lie among the results."""
    path = record(tmp_path / "dump", AIC)
    mul(tmp_path / "dump")

    analyse(tmp_path / "dump")

    out = tmp_path / "out"
    told = json.loads((out / f"{path.name}.output.0.json").read_text(encoding="utf-8"))
    assert 2048 == told["acc_list"]["data"]["status"]
    assert np.array_equal(HALVES, np.load(out / f"Mul.Default_Mul-op9.9.2.{START + 2}.output.0.npy"))


def test_oldest_overflow_comes_first(tmp_path):
    """Records anywhere below the directory are reported in the order of time, up to the requested number."""
    record(tmp_path / "dump" / "1", AIC, 50)
    record(tmp_path / "dump" / "2" / "deep", DebugRecord(Unit.AICPU, {"task_id": 5}, (1,)), 40)
    record(tmp_path / "dump", DebugRecord(Unit.SDMA, {"task_id": 6}, (1,)), 60)

    report = analyse(tmp_path / "dump", 2)

    assert ["[AICPU][TaskId:5]", "[AIC][TaskId:9][S"] == [
        block.splitlines()[1][1:18] for block in report.blocks
    ]
    assert 3 == report.record_count


@pytest.mark.parametrize(
    ("places", "ids"), [(("", ""), "8.2"), (("0", "1"), "9.2")], ids=["ids", "iteration"]
)
def test_record_without_a_dump_file(tmp_path, places, ids):
    """A record of an operator that was dumped elsewhere or not at all has a block without both."""
    record(tmp_path / "dump" / places[0], AIC)
    mul(tmp_path / "dump" / places[1], ids=ids)

    (block,) = analyse(tmp_path / "dump").blocks

    assert f"{BAR}[1]={BAR}\n [AIC][TaskId:9][StreamId:2][Status:2048]\n [timestamp:{START}]\n" == block


def test_files_of_the_same_name_do_not_meet(tmp_path):
    """Operators of two iterations with equal file names keep both results."""
    for number in (0, 1):
        record(tmp_path / "dump" / str(number), AIC, number)
        mul(tmp_path / "dump" / str(number))

    first, second = analyse(tmp_path / "dump").blocks

    name = f"Mul.Default_Mul-op9.9.2.{START + 2}.output.0.npy"
    assert f"\n {name}\n" in first
    assert f"\n 1/{name}\n" in second
    assert {True} == {(tmp_path / "out" / path).is_file() for path in (name, f"1/{name}")}


RECORDS = {
    "four words of status": (
        DebugRecord(Unit.AIV, AIC.fields, (0, 0, 3, 4), 1),
        ["[AIV][TaskId:9][StreamId:2][Status:[0, 0, 3, 4]]"],
    ),
    "older devices": (
        old_record(w17=2, w18=9, w33=2, w34=9, w96=1, w130=1),
        ["[L2 Atomic Add][TaskId:9][StreamId:2][Status:1]", "[AI Core][TaskId:9][StreamId:2][Status:1]"],
    ),
}


@pytest.mark.parametrize(("told", "lines"), RECORDS.values(), ids=RECORDS)
def test_every_kind_of_record(tmp_path, told, lines):
    """Records with several words of status and records of older devices are reported with their operator."""
    record(tmp_path / "dump", told)
    mul(tmp_path / "dump")

    (block,) = analyse(tmp_path / "dump").blocks

    wanted = ["[Mul] Default/Mul-op9", *(f" {line}" for line in lines)]
    assert wanted == block.splitlines()[1 : 2 + len(lines)]


def test_record_without_numbers_tells_of_no_operator(tmp_path):
    """A record with a task that is no number is reported unchanged, without an operator."""
    folder = tmp_path / "dump"
    folder.mkdir()
    told = {"AI Core": {"task_id": [9], "stream_id": {}, "status": 32}}
    (folder / f"Opdebug.Node_OpDebug.7.3.{START}.output.0.json").write_text(json.dumps(told))
    mul(folder)

    (block,) = analyse(folder).blocks

    assert [" [AI Core][TaskId:[9]][StreamId:{}][Status:32]", f" [timestamp:{START}]"] == block.splitlines()[
        1:
    ]


def test_device_format_is_told(tmp_path):
    """Tensors are reported as the device holds them, with their format."""
    record(tmp_path / "dump", AIC)
    image = np.ones((1, 20, 2, 2), "f2")
    laid_out = dumped.tensor(formats.encode("NC1HWC0", image), "NC1HWC0", image.shape)
    dumped.file(tmp_path / "dump" / f"Add.a.9.2.{START}", laid_out)

    (block,) = analyse(tmp_path / "dump").blocks

    assert " -[Format: NC1HWC0] [Shape: (1, 2, 2, 2, 16)] [Dtype: float16] [Max: 1.0] [Min: 0.0]" in block


def test_records_beside_npy_files(tmp_path):
    """The JSON form of a record that stands beside .npy files finds them by task and stream."""
    folder = tmp_path / "dump"
    folder.mkdir()
    path = folder / f"Opdebug.Node_OpDebug.7.3.{START}.output.0.json"
    path.write_bytes(op_debug.to_compact_json(AIC))
    stem = f"Mul.Default_Mul-op9.9.2.{START + 2}"
    np.save(folder / f"{stem}.input.0.ND.float32.npy", np.float32([1, 2]))
    np.save(folder / f"{stem}.output.0.ND.float16.npy", HALVES)
    np.save(folder / f"Add.Default_Add.8.2.{START}.output.0.ND.float16.npy", HALVES)

    (block,) = analyse(folder).blocks

    assert [
        "[Mul] Default_Mul-op9",
        f" {stem}.input.0.ND.float32.npy",
        f" {stem}.output.0.ND.float16.npy",
    ] == [line for line in block.splitlines() if "Mul" in line]


def test_passes_of_a_loop_are_told_apart(tmp_path):
    """Each record of a loop's body is joined to the file of its own pass, by the number behind the name."""
    for number in (0, 10, 20):
        record(tmp_path / "dump", AIC, number)
        mul(tmp_path / "dump", number + 2)

    blocks = analyse(tmp_path / "dump").blocks

    heads = [block.splitlines()[1] for block in blocks]
    files = [block.splitlines()[4] for block in blocks]
    assert [f"[Mul] Default/Mul-op9, pass {number}" for number in range(3)] == heads
    assert [f" Mul.Default_Mul-op9.9.2.{START + n}.input.0.npy" for n in (2, 12, 22)] == files


def test_passes_beside_npy_files_are_told_apart(tmp_path):
    """The .npy files of one pass are shown, not the files of every pass of the loop."""
    folder = tmp_path / "dump"
    folder.mkdir()
    for number in (0, 10):
        path = folder / f"Opdebug.Node_OpDebug.7.3.{START + number}.output.0.json"
        path.write_bytes(op_debug.to_compact_json(AIC))
        for place in ("input.0", "output.0"):
            stem = f"Mul.Default_Mul-op9.9.2.{START + number + 2}.{place}"
            np.save(folder / f"{stem}.ND.float16.npy", HALVES)

    blocks = analyse(folder).blocks

    assert [["[Mul] Default_Mul-op9, pass 0", 2], ["[Mul] Default_Mul-op9, pass 1", 2]] == [
        [block.splitlines()[1], block.count(".npy")] for block in blocks
    ]
    assert f" Mul.Default_Mul-op9.9.2.{START + 12}.output.0.ND.float16.npy" in blocks[1].splitlines()


def test_json_form_beside_its_record_counts_once(tmp_path):
    """A record and its JSON form are one overflow."""
    path = record(tmp_path / "dump", AIC)
    path.with_name(f"{path.name}.output.0.json").write_bytes(op_debug.to_json(AIC))

    assert [str(path)] == [found for found, _ in overflow.find(str(tmp_path))]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: record(path.parent, DebugRecord(Unit.AIC, {}, (0,))), "the status of AIC is 0"),
        (lambda path: record(path.parent, old_record()), "no unit has a status other than 0"),
        (lambda path: path.write_bytes(b"\xff" * 30), "not a dump file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "truncated"),
    ],
    ids=["status 0", "older device without a status", "foreign", "torn"],
)
def test_bad_records_are_told(tmp_path, damage, message):
    """An unreadable or empty record is an error; the other records have blocks."""
    bad = record(tmp_path / "dump", AIC)
    damage(bad)
    record(tmp_path / "dump", AIC, 9)

    report = analyse(tmp_path / "dump")

    assert 1 == len(report.blocks)
    assert [True] == [str(bad) in error and message in error for error in report.errors]


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"magic": "0x5a5a5a5a"}', '{"magic": 1, "acc_list": {"acc_type": "X"}}']
)
def test_bad_json_forms_are_told(tmp_path, text):
    """A JSON form that holds something else is an error that names the file."""
    path = tmp_path / "dump" / f"Opdebug.Node_OpDebug.7.3.{START}.output.0.json"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")

    report = analyse(tmp_path / "dump")

    assert [True] == [str(path) in error for error in report.errors]


def test_missing_directory_is_an_error(tmp_path):
    """A directory that is not there is code 3."""
    with pytest.raises(ToolError, match="no such directory") as raised:
        overflow.find(str(tmp_path / "missing"))

    assert 3 == raised.value.code


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 2200), bits=st.integers(1, 255))
def test_damaged_records_never_crash(tmp_path, at, bits):
    """Whatever a bit flip makes of a record or dump file, there is a block or an error."""
    for path in (record(tmp_path / "dump", AIC), mul(tmp_path / "dump")):
        data = bytearray(path.read_bytes())
        data[at % len(data)] ^= bits
        path.write_bytes(data)

    report = analyse(tmp_path / "dump")

    assert report.blocks or report.errors


class TestPrograms:
    """``msdump overflow``."""

    @pytest.fixture
    def dump(self, tmp_path):
        """Return a dump with two overflows."""
        for number in (0, 10):
            record(tmp_path / "dump", AIC, number)
        mul(tmp_path / "dump")
        return tmp_path / "dump"

    def test_summary_is_printed_and_written(self, tmp_path, dump):
        """Msdump overflow prints every block, counts, and writes the summary; its code is 0."""
        done = cli("overflow", dump, "-out", tmp_path / "out")

        text = next((tmp_path / "out").glob("overflow_summary_*.txt")).read_text(encoding="utf-8")
        assert (0, 2) == (done.exit_code, text.count("[Mul] Default/Mul-op9"))
        assert done.stdout.startswith(text)
        assert "2 of 2 overflows, written to" in done.stdout

    def test_bad_record_is_a_failure(self, tmp_path, dump):
        """A record that cannot be read is reported, the others are reported, and the code is 1."""
        record(dump, AIC).write_bytes(b"")

        done = cli("overflow", dump, "-out", tmp_path / "out")

        assert 1 == done.exit_code
        assert "1 of 2 overflows" in done.stdout
