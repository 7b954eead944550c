"""The first question of a session about 1,000,000 rows of statistics, in seconds: from csv, from Parquet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.bench.case import Case
from tests.bench.measure import Figure
from tests.bench.programs import MSDUMP, run

_ROWS: Final = 1_000_000
_ITERATIONS: Final = 50
_RUNS: Final = 5

_START: Final = 1612439563338030
_HEADER: Final = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    "Max Value,Min Value,L2Norm Value\n"
)
_ASKING: Final = """
import sys, time
from msdump.analysis.query.sources import parse_sources
from msdump.analysis.query.session import Session
from msdump.executors import ExecutorChoice
with Session(parse_sources(sys.argv[1:]), measures=False, executor=ExecutorChoice()) as session:
    before = time.perf_counter()
    rows = session.ask(
        "select op_name, max(max) as high, count(*) from statistics group by all order by high desc limit 5"
    ).fetch(10)
    print(time.perf_counter() - before)
assert len(rows) == 5, rows
"""


def _fill(root: Path) -> None:
    """Write the statistics of a network with 5,000 operators, iteration by iteration."""
    for iteration in range(_ITERATIONS):
        folder = root / f"rank_0/Net/0/{iteration}"
        folder.mkdir(parents=True)
        rows = (_row(number, iteration) for number in range(_ROWS // _ITERATIONS))
        (folder / "statistic.csv").write_text(_HEADER + "".join(rows), encoding="utf-8")


def _row(number: int, iteration: int) -> str:
    operator, slot = divmod(number, 4)
    place = f"output,{0}" if slot == 3 else f"input,{slot}"
    time = _START + iteration * _ROWS + number
    largest = (number * 37 + iteration) % 1000 / 7
    name = f"Default_network-Net_layer{operator}-Conv2d_Conv2D-op{operator}"
    return (
        f'Conv2D,{name},0,0,{time},{place},24576,float32,"(2,64,12,4)",'
        f"{largest:.6g},{-largest:.6g},{largest * 1.1:.6g}\n"
    )


def from_csv(case: Case) -> Figure:
    """Ask the dump, each time in a fresh process; imports and the opening of the session do not count."""
    _fill(case.folder)
    return _ask(case.folder)


def from_parquet(case: Case) -> Figure:
    """Ask a pack of the dump, likewise."""
    _fill(case.within("dump").folder)
    pack = str(case.folder / "pack")
    run(*MSDUMP, "pack", str(case.folder / "dump"), "-out", pack)
    return _ask(case.folder / "pack")


def _ask(folder: Path) -> Figure:
    runs = (run(sys.executable, "-c", _ASKING, str(folder)) for _ in range(_RUNS))
    return Figure.of([float(each.printed) for each in runs])
