"""Files on disk: complete or absent, with their modes, under every failure."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from msdump.store.write import DiskFiles, Root, place
from msdump.store.write.place import OpenDirectory


@pytest.fixture(params=["nameless", "renamed"])
def disk(request, monkeypatch):
    """Give disk files with and without the system's nameless files."""
    if request.param == "renamed":
        monkeypatch.setattr(place, "_NAMELESS", 0)
    disk = DiskFiles()
    yield disk
    disk.close()


def mode(path):
    """Return the permissions of a path."""
    return stat.S_IMODE(Path(path).stat().st_mode)


def open_descriptors():
    """Return how many descriptors this process holds open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def names(folder):
    """Return the sorted names in a directory."""
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777], ids=oct)
def test_modes_do_not_depend_on_the_umask(disk, tmp_path, umask, mask):
    """Files end at 0400 and directories that are made at 0700 whatever the umask."""
    tmp_path.chmod(0o755)
    umask(mask)

    disk.create(str(tmp_path / "a" / "b"), "t.npy", (b"x",))
    disk.replace(str(tmp_path / "a" / "b"), "g.ir", (b"x",))
    disk.append(str(tmp_path / "a" / "b"), "s.csv", b"1\n", b"")

    assert [mode(tmp_path / "a" / "b" / name) for name in ("t.npy", "g.ir", "s.csv")] == [0o400] * 3
    assert [mode(tmp_path / part) for part in ("", "a", "a/b")] == [0o755, 0o700, 0o700]


def test_a_file_appears_only_when_complete(disk, tmp_path, monkeypatch):
    """While bytes are written the directory shows no file of the final name."""
    writev = os.writev
    seen = []

    def spy(fd, buffers):
        seen.extend(names(tmp_path))
        return writev(fd, buffers)

    monkeypatch.setattr(os, "writev", spy)
    disk.create(str(tmp_path), "t.npy", (b"abc",))

    assert "t.npy" not in seen
    assert names(tmp_path) == ["t.npy"]


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ("Add.Default_Add-op0.0.0.{}.input.0.DefaultFormat.float32.npy", ["0338", "0339", "0340"]),
        ("Add.Default_Add-op0.0.0.{}", ["0338", "0339", "0340"]),
        ("Add.Default_1795216920861338-op0.0.0.{}.output.0.DefaultFormat.npy", ["0338", "0339", "0340"]),
    ],
)
def test_a_time_that_another_process_took(disk, tmp_path, taken, expected):
    """A file with a taken name is written for the next time, and older ones stay."""
    wanted = [taken.replace("{}", f"179521692086{time}") for time in expected]

    for text in (b"first", b"second", b"third"):
        disk.create(str(tmp_path), wanted[0], (text,))

    assert wanted == names(tmp_path)
    assert [b"first", b"second", b"third"] == [(tmp_path / name).read_bytes() for name in wanted]


@pytest.mark.parametrize("name", ["statistic.csv", "0.npy", "Add.1795216920861338x.npy"])
def test_a_name_without_a_time_is_taken_once(disk, tmp_path, name):
    """A file without a time in its name is not written beside another one."""
    disk.create(str(tmp_path), name, (b"first",))

    with pytest.raises(FileExistsError):
        disk.create(str(tmp_path), name, (b"second",))

    assert [name] == names(tmp_path)
    assert b"first" == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt()], ids=["full disk", "Ctrl-C"])
def test_nothing_remains_of_a_failed_file(disk, tmp_path, monkeypatch, error):
    """A failure or an interrupt in the middle of a file leaves no file and no open descriptor."""
    disk.create(str(tmp_path), "before.npy", (b"x",))
    monkeypatch.setattr(os, "writev", _writes_some_then(error))
    descriptors = open_descriptors()

    with pytest.raises(type(error)):
        disk.create(str(tmp_path), "t.npy", (b"abc", b"def"))

    assert names(tmp_path) == ["before.npy"]
    assert descriptors == open_descriptors()


def test_interrupt_behind_a_close(tmp_path, monkeypatch):
    """Ctrl-C when a directory is just closed leaves nothing that would be closed again."""
    disk = DiskFiles(root=Root(str(tmp_path)))
    before = open_descriptors()
    disk.create(str(tmp_path / "Net" / "0"), "t.npy", (b"abc",))
    close, interruptions = OpenDirectory.close, []

    def interrupted(directory):
        close(directory)
        interruptions.append(directory)
        raise KeyboardInterrupt

    monkeypatch.setattr(OpenDirectory, "close", interrupted)
    for _ in range(2):  # the directory, and the one that holds it
        with pytest.raises(KeyboardInterrupt):
            disk.close()
    disk.close()

    assert 2 == len(interruptions)
    assert before == open_descriptors()


def _writes_some_then(error):
    calls = []

    def writev(fd, buffers):
        if calls:
            raise error
        calls.append(fd)
        return os.write(fd, memoryview(buffers[0])[:2])

    return writev


@pytest.mark.parametrize("step", [1, 3, 7], ids=lambda step: f"{step} bytes a call")
def test_short_writes_are_continued(disk, tmp_path, monkeypatch, step):
    """A system that takes a few bytes a call, as it does beyond 2 GiB, loses none."""
    monkeypatch.setattr(os, "writev", lambda fd, buffers: os.write(fd, b"".join(buffers)[:step]))
    buffers = (b"abc", b"", memoryview(b"defgh"), bytearray(b"ij"))

    disk.create(str(tmp_path), "t.npy", buffers)

    assert (tmp_path / "t.npy").read_bytes() == b"abcdefghij"


def test_more_buffers_than_one_call_takes(disk, tmp_path):
    """Thousands of buffers make one file."""
    buffers = [bytes([number % 251]) for number in range(3000)]

    disk.create(str(tmp_path), "t.npy", buffers)

    assert b"".join(buffers) == (tmp_path / "t.npy").read_bytes()


@pytest.mark.parametrize("size", [100_000, 1_000_000], ids=["written", "reserved"])
def test_file_size_limit_leaves_nothing(disk, tmp_path, file_size_limit, size):
    """A file over the process's limit fails and leaves nothing; a smaller one still works."""
    file_size_limit(65536)

    with pytest.raises(OSError, match="File too large"):
        disk.create(str(tmp_path), "t.npy", (bytes(size),))
    disk.create(str(tmp_path), "small.npy", (bytes(100),))

    assert names(tmp_path) == ["small.npy"]


@pytest.mark.parametrize("size", [100_000, 700_000], ids=["written", "reserved"])
def test_full_disk_leaves_whole_files(disk, small_disk, size):
    """On a full disk the files that fitted are whole and the next one leaves nothing."""
    written = 0

    with pytest.raises(OSError, match="No space left"):  # noqa: PT012 - which file fails is not known
        for number in range(100):
            disk.create(str(small_disk), f"{number}.npy", (bytes(size),))
            written += 1

    assert written >= 1
    assert sorted(f"{number}.npy" for number in range(written)) == names(small_disk)
    assert {size} == {path.stat().st_size for path in small_disk.iterdir()}


def test_a_removed_directory_is_made_again(disk, tmp_path):
    """Files still arrive where the directory is deleted between two of them."""
    folder = tmp_path / "0"
    for name in ("a.npy", "b.npy"):
        disk.create(str(folder), name, (b"x",))
        disk.replace(str(folder), "g.ir", (b"x",))
        disk.append(str(folder), "s.csv", b"1\n", b"title\n")
        before = sorted(names(folder))
        shutil.rmtree(folder)
        assert [name, "g.ir", "s.csv"] == before

    disk.replace(str(folder), "g.ir", (b"y",))

    assert names(folder) == ["g.ir"]


def test_open_directories_are_bounded(disk, tmp_path):
    """Hundreds of directories need few descriptors, and closing releases them all."""
    before = open_descriptors()

    for number in range(200):
        disk.create(str(tmp_path / str(number)), "a.npy", (b"x",))
        disk.append(str(tmp_path / str(number)), "s.csv", b"1\n", b"")
    held = open_descriptors() - before
    disk.close()

    assert held <= 40
    assert before == open_descriptors()


def _use_all(folder):
    for _ in range(2):
        disk = DiskFiles()
        disk.create(folder, f"{len(names(folder))}.npy", (b"x",))
        disk.replace(folder, "g.ir", (b"x",))
        disk.append(folder, "s.csv", b"1\n", b"title\n")
        disk.close()
    return names(folder), Path(folder, "s.csv").read_text(), mode(f"{folder}/s.csv")


def test_ordinary_users_write_and_write_again(as_user, user_dir):
    """A user without privileges adds to a read-only csv and replaces a read-only file of a run before."""
    found = as_user(_use_all, str(user_dir))

    expected = (["0.npy", "3.npy", "g.ir", "s.csv"], "title\n1\n1\n", 0o400)
    assert str(expected) == found


@pytest.mark.parametrize("name", ["a.json", "n" * 255], ids=["short", "long"])
def test_what_killed_runs_left_is_cleared(disk, tmp_path, name):
    """Temporary files of killed writers go with the next replacement in their directory."""
    for number in (0, 1, 3):
        (tmp_path / f".msdump-{number}.tmp").write_bytes(b"older")
    (tmp_path / name).write_bytes(b"older")

    disk.replace(str(tmp_path), name, (b"new",))

    assert [name] == names(tmp_path)
    assert b"new" == (tmp_path / name).read_bytes()


def test_what_a_living_process_writes_stays(disk, tmp_path):
    """A temporary file that another process holds is neither removed nor written to."""
    (tmp_path / "a.json").write_bytes(b"older")
    with (tmp_path / ".msdump-0.tmp").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"half")
        other.flush()

        disk.replace(str(tmp_path), "a.json", (b"new",))

        assert [".msdump-0.tmp", "a.json"] == names(tmp_path)
        assert b"half" == (tmp_path / ".msdump-0.tmp").read_bytes()
    assert b"new" == (tmp_path / "a.json").read_bytes()


def test_planted_temporary_names_harm_nobody(disk, tmp_path):
    """Links, pipes and directories under the names of temporary files stay, and so do their victims."""
    (tmp_path / "victim").write_bytes(b"secret")
    (tmp_path / "a.json").write_bytes(b"older")
    (tmp_path / ".msdump-0.tmp").symlink_to("victim")
    (tmp_path / ".msdump-1.tmp").symlink_to("new")
    (tmp_path / ".msdump-2.tmp").mkdir()
    os.mkfifo(tmp_path / ".msdump-3.tmp")
    (tmp_path / ".msdump-4.tmp").hardlink_to(tmp_path / "victim")

    disk.replace(str(tmp_path), "a.json", (b"new",))

    assert [*(f".msdump-{number}.tmp" for number in range(5)), "a.json", "victim"] == names(tmp_path)
    assert [b"secret", b"new"] == [(tmp_path / name).read_bytes() for name in ("victim", "a.json")]


REPLACER = """
import sys
from msdump.store.write import place
from msdump.store.write.files import DiskFiles
if sys.argv[2] == "renamed":
    place._NAMELESS = 0
for _ in range(300):
    disk = DiskFiles()
    disk.replace(sys.argv[1], "a.json", (sys.argv[3].encode() * 1000,))
    disk.close()
"""


@pytest.mark.parametrize("way", ["nameless", "renamed"])
def test_several_that_replace_one_file(tmp_path, way):
    """Processes that replace the same file at once all succeed; the file is whole, no other name is left."""
    runs = [subprocess.Popen([sys.executable, "-c", REPLACER, str(tmp_path), way, letter]) for letter in "ab"]
    codes = [run.wait(60) for run in runs]

    assert [0, 0] == codes
    assert ["a.json"] == names(tmp_path)
    assert (tmp_path / "a.json").read_bytes() in {b"a" * 1000, b"b" * 1000}


@pytest.mark.parametrize("planted", ["rank_0", "rank_0/Net", "rank_0/Net/0"])
def test_no_directory_below_the_root_may_be_a_link(disk, tmp_path, planted):
    """A link in place of a directory below the dump path is refused by every way to write."""
    (tmp_path / "other").mkdir()
    link = tmp_path / "dump" / planted
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "other")
    rooted = DiskFiles(root=Root(f"{tmp_path}/dump"))
    below = f"{tmp_path}/dump/rank_0/Net/0"

    for write in (
        lambda: rooted.create(below, "a.npy", (b"x",)),
        lambda: rooted.replace(below, "a.ir", (b"x",)),
        lambda: rooted.append(below, "s.csv", b"1\n", b""),
        lambda: rooted.stream(below, "a.txt", (b"x",)),
    ):
        with pytest.raises(OSError, match=f"the directory '{link.name}' is a symbolic link"):
            write()

    assert [] == names(tmp_path / "other")


def test_the_root_itself_may_be_a_link(disk, tmp_path):
    """The path of a dump may lead over links: its owner chose it."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "dump").symlink_to("disk")
    rooted = DiskFiles(root=Root(f"{tmp_path}/dump/"))

    rooted.create(f"{tmp_path}/dump/rank_0/Net", "a.npy", (b"x",))

    assert b"x" == (tmp_path / "disk" / "rank_0" / "Net" / "a.npy").read_bytes()
    assert [0o700] * 2 == [mode(tmp_path / "disk" / part) for part in ("rank_0", "rank_0/Net")]


def test_no_links(tmp_path, monkeypatch):
    """Where a nameless file cannot be given a name, files are written under a dot-name and renamed."""
    calls = []

    def refused(*_arguments, **_options):
        calls.append("link")
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    disk = DiskFiles()

    for name in ("a.npy", "b.npy"):
        disk.create(str(tmp_path), name, (b"x",))
    disk.replace(str(tmp_path), "b.npy", (b"y",))

    assert ["link"] == calls
    assert {"a.npy": b"x", "b.npy": b"y"} == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {0o400} == {mode(path) for path in tmp_path.iterdir()}
