"""File names of dumped operators: every kind, and foreign names."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump.errors import ToolError
from msdump.read import FolderKind, parse_file_name, read_folder
from msdump.record import IO
from msdump.store import OperatorName, TensorName

T = 1700000000000000
TEXT = st.text("ABCabc019_-", min_size=1, max_size=20)
NUMBER = st.integers(0, 10**9)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (f"Conv2D.conv-op1.3.2.{T}", "DUMPS", {"op_type": "Conv2D", "op_name": "conv-op1"}),
        (f"Conv2D.conv.3.{T}", "DUMPS", {"task_id": 3, "stream_id": 0, "timestamp": T}),
        (f"Conv2D.conv.3.2.{T}.4.487.0.0", "DUMPS", {"suffix": (4, 487, 0, 0)}),
        (f"Conv2D.conv.3.2.{T}.4.487.0", "DUMPS", {"suffix": (4, 487, 0)}),
        ("Conv2D.conv.3.2.123", "DUMPS", {"timestamp": 123}),
        (f"conv1.0.{T}.npy", "GOLDEN", {"op_name": "conv1", "slot": 0, "io": IO.OUTPUT, "timestamp": T}),
        (f"a.b.c.12.{T}.npy", "GOLDEN", {"op_name": "a_b_c", "slot": 12}),
        (f"Add.x.0.0.{T}.input.3.NCHW.float16.npy", "TENSORS", {"slot": 3, "dtype": "float16"}),
        (f"Add.x.0.0.{T}.output.0.DefaultFormat.npy", "TENSORS", {"io": IO.OUTPUT, "dtype": None}),
    ],
    ids=["dump", "no_stream", "ffts_device", "ffts", "short_time", "golden", "dots", "tensor", "untyped"],
)  # fmt: skip
def test_fields_of_a_name(name, kind, expected):
    """Each kind of name gives its fields."""
    found_kind, found = parse_file_name(name)

    assert FolderKind[kind] is found_kind
    assert expected == {field: getattr(found, field) for field in expected}


@pytest.mark.parametrize(
    "name",
    ["", ".", "statistic.csv", "Conv2D.json", f"Conv2D.conv.3.2.{T}.csv", f"Conv 2D.conv.3.2.{T}",
     f"Cönv.conv.3.2.{T}", f"Conv2D.conv.3.2.{T}.4", f"Conv2D..3.2.{T}", "a.npy", f"a.{T}.npy",
     f"Conv2D.conv.x.2.{T}", f".Conv2D.conv.1.2.{T}", f"conv.0.{T}.pb"],
)  # fmt: skip
def test_names_of_somebody_else(name):
    """Other names are no dump files."""
    assert parse_file_name(name) is None


@given(TEXT, TEXT, NUMBER, NUMBER, st.integers(10**15, 10**16 - 1))
def test_names_that_are_written_are_read(op_type, op_name, task, stream, time):
    """The names of operators' files and of tensors' files have the fields that they were made of."""
    whole = str(OperatorName(op_type, op_name, task, stream, time))
    tensor = str(TensorName(op_type, op_name, time, IO.INPUT, task, "NCHW", "float16", task, stream))

    for name in (whole, tensor):
        _, found = parse_file_name(name)
        assert (op_type, op_name, task, stream, time) == (
            found.op_type, found.op_name, found.task_id, found.stream_id, found.timestamp,
        )  # fmt: skip


@given(st.text(max_size=60))
def test_no_name_is_a_fault(name):
    """Whatever a file is called, its name is that of a dump file or not."""
    found = parse_file_name(name)

    assert found is None or found[0] in FolderKind


class TestFolder:
    """A directory."""

    @staticmethod
    def touch(folder, *names):
        """Make empty files."""
        for name in names:
            (folder / name).write_bytes(b"")

    def test_operators_in_the_order_of_their_last_files(self, tmp_path):
        """Operators stand in the order of their last files, their files in that of the timestamps."""
        self.touch(tmp_path, f"A.b.1.0.{T + 1}", f"A.a.1.0.{T + 2}", f"A.b.1.0.{T + 3}")

        found = read_folder(str(tmp_path))

        assert {"a": [T + 2], "b": [T + 1, T + 3]} == {
            name: [each.timestamp for each in tensors] for name, tensors in found.operators.items()
        }
        assert ["a", "b"] == [*found.operators]
        assert 3 == sum(1 for _ in found.tensors)

    def test_what_lies_beside_is_left_out(self, tmp_path, caplog):
        """Files of a dump without tensors are left out, foreign files with one warning."""
        self.touch(
            tmp_path, f"A.a.1.0.{T}", "statistic.csv", "convert_failed_file_list.txt", "x.txt", "y.txt"
        )
        (tmp_path / f"A.dir.1.0.{T}").mkdir()

        with caplog.at_level(logging.WARNING, "msdump"):
            found = read_folder(str(tmp_path))

        assert ["a"] == [*found.operators]
        assert [f"{tmp_path}: left out 2 files with names that are not of dump files, such as 'x.txt'"] == [
            record.getMessage() for record in caplog.records
        ]

    @pytest.mark.parametrize(
        ("stand_in", "name"), [("77", f"A.a.1.0.{T}"), ("99.npy", f"conv.0.{T}.npy")], ids=["dump", "npy"]
    )
    def test_stand_ins(self, tmp_path, stand_in, name):
        """Digits stand for the name that mapping.csv gives them; unknown ones are left out."""
        self.touch(tmp_path, stand_in, "78")
        (tmp_path / "mapping.csv").write_text(f"{stand_in},{name}\n", encoding="utf-8")

        found = read_folder(str(tmp_path))

        assert [f"{tmp_path}/{stand_in}"] == [each.path for each in found.tensors]
        assert [parse_file_name(name)[1].op_name] == [*found.operators]

    @pytest.mark.parametrize(
        ("formats", "kind"),
        [(("DefaultFormat", "NC1HWC0"), "TENSORS"), (("NCHW.float16", "ND.float32"), "COMPILED")],
    )
    def test_tensors_of_compiled_graphs(self, tmp_path, formats, kind):
        """Formats tell whether MindSpore compiled the graph: its operators leave no format open."""
        self.touch(tmp_path, *(f"A.a.1.0.{T}.input.{n}.{text}.npy" for n, text in enumerate(formats)))

        assert read_folder(str(tmp_path)).kind is FolderKind[kind]

    def test_kinds_do_not_mix(self, tmp_path):
        """A directory with several kinds of files is an error that shows one of each."""
        self.touch(tmp_path, f"A.a.1.0.{T}", f"conv.0.{T}.npy")

        examples = r"'conv\.0\..*' \(golden tensors\), 'A\.a\..*' \(dump files of operators\)"
        with pytest.raises(ToolError, match=examples) as raised:
            read_folder(str(tmp_path))

        assert 18 == raised.value.code
