"""A measured table as JSON and as a page."""

import json

from scripts.bench import document, page
from scripts.bench.document import Document, Line, Verdict
from scripts.bench.measure import Figure

FACTS = {
    "cpu": "A CPU", "cores": 2, "memory_gib": 23.5, "kernel": "Linux 6", "file_system": "tmpfs",
    "python": "3.11.9", "packages": {"numpy": "2.4"}, "commit": "abc+", "load": [0.5, 1.0, 2.0],
}  # fmt: skip
LINES = (
    Line("run", "run / whole", "lenet b1", 1, 1.1, False, Verdict.HOLDS, Figure(1.0, 0.9, 1.05, (0.1, 0.1))),
    Line("run", "run / whole", "lenet b1", 2, 1.1, False, Verdict.MISSED, Figure(1.2, 1.1, 1.3, (0.1, 0.1))),
    Line(
        "files", "files a second", "", 2, 60_000, True, Verdict.MISSED, Figure(12_345.6, 12_345.6, 12_345.6)
    ),
    Line("torch", "step / PyTorch", "lenet b1", 2, 1.5, False, Verdict.UNAVAILABLE, why="no PyTorch"),
    Line("diff", "diff / runs", "bert b1", 2, 1.35, False, Verdict.FAILED, why="MemoryError"),
)
TABLE = Document("2026-01-02T03:04+00:00", FACTS, LINES)


def test_what_is_written_is_read(tmp_path):
    """A document comes back equal, with one line of the file for each goal."""
    document.write(TABLE, tmp_path / "table.json")

    assert document.read(tmp_path / "table.json") == TABLE
    content = json.loads((tmp_path / "table.json").read_text("utf-8"))
    assert ["format", "date", "machine", "goals"] == list(content)
    rows = [line for line in (tmp_path / "table.json").read_text("utf-8").splitlines() if '"name"' in line]
    assert len(LINES) == len(rows)


def test_page_has_the_table_between_its_marks():
    """Thread counts stand beside each other, missed figures in bold; the rest of the page stays."""
    before = f"# Speed\n\n{page.BEGIN}\nold\n{page.END}\n\nMore.\n"

    after = page.written(before, TABLE)

    assert (
        f"""# Speed

{page.BEGIN}
5 lines, 3 missed (in bold). Measured on 2026-01-02, commit abc+: A CPU, 2 cores, 23.5 GiB, Linux 6, \
files on tmpfs, Python 3.11.9, numpy 2.4; load 0.5 before.

| name | measured | on | 1 thread | 2 threads | goal |
| --- | --- | --- | ---: | ---: | ---: |
| `run` | run / whole | lenet b1 | 1.00 (0.900 to 1.05) | **1.20 (1.10 to 1.30)** | at most 1.1 |
| `files` | files a second |  |  | **12,346** | at least 60,000 |
| `torch` | step / PyTorch | lenet b1 |  | not available | at most 1.5 |
| `diff` | diff / runs | bert b1 |  | failed | at most 1.35 |
{page.END}

More.
"""
        == after
    )
    assert after == page.written(after, TABLE)
