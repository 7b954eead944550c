"""``msdump report`` of 5,000 operators x 20 iterations of statistics: time, memory, the page in a browser."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

from tests.bench.case import Case
from tests.bench.measure import Figure, UnavailableError
from tests.bench.programs import MSDUMP, Ran, run
from tests.browser.chromium import launched

_OPERATORS: Final = 5_000
_ITERATIONS: Final = 20
_RUNS: Final = 3
_CLICKS: Final = 9

_START: Final = 1612439563338030
_HEADER: Final = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    "Max Value,Min Value,L2Norm Value\n"
)
_NAMES: Final = "NodeExecutionOrder-FullNameWithScope\n"


def _fill(root: Path) -> None:
    """Write the statistics of the outputs of a network, and its execution order."""
    chance = random.Random(1)  # noqa: S311 - the same numbers each time
    for iteration in range(_ITERATIONS):
        folder = root / f"rank_0/Net/0/{iteration}"
        folder.mkdir(parents=True)
        rows = (_row(number, iteration, chance.gauss(0, 10)) for number in range(_OPERATORS))
        (folder / "statistic.csv").write_text(_HEADER + "".join(rows), encoding="utf-8")
    order = root / "rank_0/execution_order"
    order.mkdir()
    names = (f"Default/layer{number // 50}-Block/Conv2D-op{number}\n" for number in range(_OPERATORS))
    (order / "ms_execution_order_graph_0.csv").write_text(_NAMES + "".join(names), encoding="utf-8")


def _row(number: int, iteration: int, value: float) -> str:
    name = f"Default_layer{number // 50}-Block_Conv2D-op{number}"
    moment = _START + iteration * _OPERATORS + number
    return (
        f'Conv2D,{name},0,0,{moment},output,0,24576,float32,"(2,64,12,4)",'
        f"{value:.6g},{-value * 0.7:.6g},{value * 1.7:.6g}\n"
    )


def _reported(folder: Path) -> Ran:
    """Make the report in a process of its own."""
    return run(*MSDUMP, "report", str(folder / "dump"), "-o", str(folder / "page.html"))


def seconds(case: Case) -> Figure:
    """Seconds of the whole program."""
    _fill(case.folder / "dump")
    return Figure.of([_reported(case.folder).seconds for _ in range(_RUNS)])


def memory(case: Case) -> Figure:
    """Its peak memory in MiB."""
    _fill(case.folder / "dump")
    return Figure.of([_reported(case.folder).mib for _ in range(_RUNS)])


def megabytes(case: Case) -> Figure:
    """The size of its page."""
    _fill(case.folder / "dump")
    _reported(case.folder)
    return Figure.of([(case.folder / "page.html").stat().st_size / 1e6])


def first_paint(case: Case) -> Figure:
    """Seconds until a browser paints the page."""
    with _shown(case) as browser:
        return Figure.of([_painted(browser, case.folder / "page.html") for _ in range(_RUNS)])


def sorting(case: Case) -> Figure:
    """Seconds that the page takes to sort its table and to show it."""
    with _shown(case) as browser:
        page = _ready(browser, case.folder / "page.html")
        times = []
        for place in range(_CLICKS):
            page.click(f"[data-sort={('value', 'name', 'type')[place % 3]}]")
            times.append(float(page.evaluate("document.body.dataset.sortMs")) / 1e3)
        return Figure.of(times)


def _shown(case: Case) -> Any:
    """Make the page and return a browser."""
    _fill(case.folder / "dump")
    _reported(case.folder)
    try:
        return launched()
    except (ImportError, OSError) as error:
        raise UnavailableError(str(error)) from error


def _ready(browser: Any, path: Path) -> Any:
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    return page


def _painted(browser: Any, path: Path) -> float:
    page = _ready(browser, path)
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    milliseconds = page.evaluate(paint)
    page.close()
    return float(milliseconds) / 1e3
