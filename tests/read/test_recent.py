"""Files that are read several times within a short while."""

from __future__ import annotations

import pytest

from msdump.read import RecentFiles, files


def _files(folder, *sizes):
    paths = [folder / f"{number}.npy" for number, _ in enumerate(sizes)]
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        path.write_bytes(bytes([number]) * size)
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    ("expected", "sizes", "most"),
    [
        ([True, True, True], (10, 10, 10), 30),
        ([False, True, True], (10, 10, 10), 29),
        ([False, False, True], (10, 10, 40), 30),
    ],
    ids=["all fit", "the oldest goes", "a large one stays alone"],
)
def test_holds_the_files_that_were_read_last(expected, sizes, most, tmp_path, monkeypatch):
    """A file is read once more only where others have taken its place."""
    monkeypatch.setattr(files, "_MOST_BYTES", most)
    recent, paths = RecentFiles(), _files(tmp_path, *sizes)
    views = [recent.load(path) for path in paths]
    assert [bytes([number]) * size for number, size in enumerate(sizes)] == [bytes(view) for view in views]
    held = [recent.load(path) is view for path, view in reversed(list(zip(paths, views, strict=True)))]
    assert expected == held[::-1]
