"""Files of earlier programs: counted and removed by the grammar of names, and by nothing else."""

import os
import subprocess
import sys

import pytest

from msdump.store import ExistingFiles, RunPlace, existing

TENSOR = "Add.Default_Add-op0.0.0.1795219089580885.input.0.DefaultFormat.float32.npy"
OPERATOR = "Add.Default_Add-op0.3.1.1795219089580885"
RANK_0 = "rank_0/Net/0"
MODEL = "20261122030405/0/model/1"
OURS = [
    f"{RANK_0}/2/{TENSOR}",
    f"{RANK_0}/2/statistic.csv",
    f"{RANK_0}/2/Add.Default_Add-op0.json",
    f"{RANK_0}/constants/{TENSOR}",
    "rank_0/graphs/ms_output_trace_code_graph_0.ir",
    "rank_0/execution_order/ms_execution_order_graph_0.csv",
    "rank_0/.dump_metadata/config.json",
]
OF_MODELS = [
    f"{MODEL}/0/{OPERATOR}",
    f"{MODEL}/0/{OPERATOR}.csv",
    f"{MODEL}/0/{TENSOR}",
    f"3/{MODEL}/0/statistic.csv",
    f"20261122030405/0/{OPERATOR}",
]
OTHERS = [
    "notes.txt",
    "acl_dump_0.json",
    f"{RANK_0}/2/notes.txt",
    f"{RANK_0}/2/{TENSOR}.bak",
    f"{RANK_0}/2/é{TENSOR}",
    f"{RANK_0}/2/123.npy",  # a stand-in without a mapping
    f"{RANK_0}/2/below/{TENSOR}",
    f"{RANK_0}/notes/{TENSOR}",
    f"rank_0/Other/0/2/{TENSOR}",
    f"rank_1/Net/0/2/{TENSOR}",
    "rank_0/graphs/notes.ir",
    f"{MODEL}/0/notes.txt",
    f"20261122030405/1/model/1/0/{OPERATOR}",
    f"somewhere/{TENSOR}",
]


def put(root, *paths):
    """Write files of four bytes, and the directories above them."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"1234")


def left(root):
    """Return the files that are there, links included."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir())


def test_a_network_of_a_rank(tmp_path):
    """Everything of the network and the rank goes, and the directories that it leaves empty."""
    put(tmp_path, *OURS, *OTHERS)
    place = RunPlace(str(tmp_path), rank=0, net="Net")

    assert ExistingFiles(4, 16, 2) == existing.find(place)
    assert len(OURS) == existing.remove(place)
    assert sorted(OTHERS) == left(tmp_path)
    assert not (tmp_path / RANK_0 / "constants").exists()
    assert ExistingFiles() == existing.find(place)


def test_a_device(tmp_path):
    """Everything below the times of a device goes, whatever the models are called."""
    put(tmp_path, *OF_MODELS, *OTHERS)
    place = RunPlace(str(tmp_path), device=0)

    assert ExistingFiles(5, 20, 3) == existing.find(place)
    assert len(OF_MODELS) == existing.remove(place)
    assert sorted(OTHERS) == left(tmp_path)


def test_a_run_that_goes_on(tmp_path):
    """Where a run begins later, earlier iterations and files beside them are left alone."""
    put(tmp_path, *OURS, f"{RANK_0}/9/{TENSOR}")
    place = RunPlace(str(tmp_path), rank=0, net="Net", first=9)

    assert ExistingFiles(1, 4, 1) == existing.find(place)
    assert 1 == existing.remove(place)
    assert sorted(OURS) == left(tmp_path)


def test_stand_ins(tmp_path):
    """A stand-in goes with its mapping if its original name is one of a tensor."""
    put(tmp_path, *(f"{RANK_0}/2/{name}" for name in ("1.npy", "2.npy", "3.npy")))
    (tmp_path / RANK_0 / "2" / "mapping.csv").write_text(f"1.npy,{TENSOR}\n2.npy,notes.npy\n")

    assert 2 == existing.remove(RunPlace(str(tmp_path), rank=0, net="Net"))
    assert [f"{RANK_0}/2/2.npy", f"{RANK_0}/2/3.npy"] == left(tmp_path)


REMOVE = """
import sys
from msdump.store import RunPlace, existing
print("ready", flush=True)
sys.stdin.readline()
print(existing.remove(RunPlace(sys.argv[1], rank=0, net="Net")))
"""


def test_programs_that_remove_at_once(tmp_path):
    """Each file is removed and counted once, and a file that is gone already is no error."""
    put(tmp_path, *(f"{RANK_0}/{number}/{TENSOR}" for number in range(1000)))
    command = [sys.executable, "-c", REMOVE, str(tmp_path)]
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    programs = [subprocess.Popen(command, text=True, **pipes) for _ in range(3)]
    for program in programs:
        assert "ready\n" == program.stdout.readline()
    for program in programs:
        program.stdin.write("\n")
        program.stdin.flush()
    counts = [int(program.communicate(timeout=60)[0]) for program in programs]

    assert [0] * 3 == [program.returncode for program in programs]
    assert 1000 == sum(counts)
    assert [] == left(tmp_path)


@pytest.mark.parametrize("link", [f"{RANK_0}/2/{TENSOR}", f"{RANK_0}/2", "rank_0/Net", "rank_0"])
def test_links_are_left_alone(tmp_path, link):
    """Neither a link nor its target is touched."""
    victim = tmp_path / "victim"
    put(victim, *OURS, TENSOR)
    root = tmp_path / "dump"
    (root / link).parent.mkdir(parents=True)
    is_file = link.endswith(".npy")
    (root / link).symlink_to(victim / (TENSOR if is_file else link))
    before = left(victim)

    assert 0 == existing.remove(RunPlace(str(root), rank=0, net="Net"))
    assert (root / link).is_symlink()
    assert before == left(victim)


def test_a_root_behind_a_link(tmp_path):
    """The path that the user gives may lead through a link."""
    put(tmp_path / "disk", *OURS)
    (tmp_path / "dump").symlink_to(tmp_path / "disk")

    assert len(OURS) == existing.remove(RunPlace(str(tmp_path / "dump"), rank=0, net="Net"))


def test_pipes_are_left_alone(tmp_path):
    """Other things than regular files are neither counted nor opened nor removed."""
    (tmp_path / RANK_0 / "2").mkdir(parents=True)
    os.mkfifo(tmp_path / RANK_0 / "2" / TENSOR)
    os.mkfifo(tmp_path / RANK_0 / "2" / "mapping.csv")

    assert ExistingFiles() == existing.find(RunPlace(str(tmp_path), rank=0, net="Net"))
    assert 0 == existing.remove(RunPlace(str(tmp_path), rank=0, net="Net"))


@pytest.mark.parametrize(
    ("taken", "free"), [([], "20261231235959"), (["20261231235959", "20270101000000"], "20270101000001")]
)
def test_free_time(tmp_path, taken, free):
    """Of two programs that start in one second the later one takes the next second that is free."""
    for time in taken:
        (tmp_path / time).mkdir()

    assert free == existing.free_time("20261231235959", lambda time: str(tmp_path / time))


def test_temporary_files_of_other_ranks_may_be_gone(tmp_path, monkeypatch):
    """A file that a rank has renamed between a look at the names and one at the files is no error."""
    put(tmp_path, *OURS)
    walk = os.fwalk

    def outdated(root):
        for folder, subfolders, names, fd in walk(root):
            yield folder, subfolders, [".msdump-0.tmp", *names], fd

    monkeypatch.setattr(os, "fwalk", outdated)

    assert ExistingFiles(4, 16, 2) == existing.find(RunPlace(str(tmp_path), rank=0, net="Net"))
