"""The lines of mapping.csv."""

from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.store.write import parse_mapping
from msdump.store.write.sinks import StandIns
from tests.store.memory import MemoryFiles


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.sampled_from("aZ9_.-,\"' é名\u2028"), min_size=256, max_size=260), max_size=6))
def test_mapping_inverts_the_stand_ins(originals):
    """Every stand-in is found in mapping.csv under its own name, and no two names share one."""
    files = MemoryFiles()
    stand_ins = StandIns(files)

    found = {stand_ins.name("/x", original): original for original in originals}

    assert len(set(originals)) == len(found)
    assert found == parse_mapping(files.read("/x", "mapping.csv"))


def test_a_name_keeps_its_stand_in():
    """A name that comes again, after many directories too, has the stand-in of its file, and one line."""
    files = MemoryFiles()
    stand_ins = StandIns(files)
    name = "a" * 300 + ".npy"
    first = [stand_ins.name(f"/{number}", name) for number in range(30)]
    for number, stand_in in enumerate(first):
        files.create(f"/{number}", stand_in, [b"x"])

    second = [stand_ins.name(f"/{number}", name) for number in range(30)]

    assert first == second
    assert {f"{first[0]},{name}\n".encode()} == {files.read(f"/{n}", "mapping.csv") for n in range(30)}
    assert len(stand_ins._mappings) <= 8
