"""The lines of mapping.csv."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.store.write import parse_mapping
from msdump.store.write.sinks import StandIns, is_too_long
from tests.store.memory import MemoryFiles

MAPPINGS = {
    "empty": (b"", {}),
    "one": (b"57885795.npy,MatMul.a.npy\n", {"57885795.npy": "MatMul.a.npy"}),
    "torn last line": (b"1.npy,a.npy\n2.npy,b", {"1.npy": "a.npy"}),
    "comma in the name": (b"1.npy,a,b.npy\n", {"1.npy": "a,b.npy"}),
    "dos line ends": (b"1.npy,a.npy\r\n", {"1.npy": "a.npy"}),
    "no comma": (b"1.npy\n2.npy,b.npy\n", {"2.npy": "b.npy"}),
    "no text": (b"1.npy,\xff.npy\n", {"1.npy": "\udcff.npy"}),
}


@pytest.mark.parametrize(("text", "expected"), MAPPINGS.values(), ids=MAPPINGS)
def test_lines_are_parsed(text, expected):
    """Whole lines give original names by stand-in; others are passed over."""
    assert expected == parse_mapping(text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("x" * 255, False), ("x" * 256, True), ("é" * 127, False), ("é" * 128, True)],
    ids=["255", "256", "254 in UTF-8", "256 in UTF-8"],
)
def test_length_is_counted_in_bytes(name, expected):
    """A name is too long from 256 bytes on, whatever its characters."""
    assert expected is is_too_long(name)


@pytest.mark.parametrize(
    ("suffix", "expected"), [(".npy", ".npy"), (".json", ".json"), (".161243956333802", "")], ids=str
)
def test_suffix_of_a_stand_in(suffix, expected):
    """Tensors and JSON files keep their suffix; a name without one becomes digits alone."""
    stand_in = StandIns(MemoryFiles()).name("/x", "a" * 300 + suffix)

    digits = stand_in.removesuffix(expected)
    assert digits.isdigit()
    assert expected == stand_in[len(digits) :]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.sampled_from("aZ9_.-,\"' é名\u2028"), min_size=256, max_size=260), max_size=6))
def test_mapping_inverts_the_stand_ins(originals):
    """Every stand-in is found in mapping.csv under its own name, and no two names share one."""
    files = MemoryFiles()
    stand_ins = StandIns(files)

    found = {stand_ins.name("/x", original): original for original in originals}

    assert len(set(originals)) == len(found)
    assert found == parse_mapping(files.read("/x", "mapping.csv"))


def test_colliding_names_get_different_stand_ins():
    """Two names with one checksum do not share a stand-in."""
    files = MemoryFiles()
    first = StandIns(files).name("/x", "a" * 300 + ".npy")
    files.contents["/x/mapping.csv"] = f"{first},another name\n".encode()

    second = StandIns(files).name("/x", "a" * 300 + ".npy")

    assert int(first.removesuffix(".npy")) + 1 == int(second.removesuffix(".npy"))


def test_a_name_keeps_its_stand_in_when_its_file_is_there():
    """A name that comes again has the stand-in that its file got, and one line in mapping.csv."""
    files = MemoryFiles()
    stand_ins = StandIns(files)
    name = "a" * 300 + ".npy"
    first = stand_ins.name("/x", name)
    files.create("/x", first, [b"x"])

    second = stand_ins.name("/x", name)

    assert first == second
    assert f"{first},{name}\n".encode() == files.read("/x", "mapping.csv")


def test_many_directories_are_not_all_remembered():
    """Names mapped in a directory long ago keep their stand-ins."""
    stand_ins = StandIns(MemoryFiles())
    name = "a" * 300 + ".npy"

    first = [stand_ins.name(f"/{number}", name) for number in range(30)]
    second = [stand_ins.name(f"/{number}", name) for number in range(30)]

    assert first == second
    assert len(stand_ins._mappings) <= 8
