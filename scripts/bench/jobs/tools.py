"""Commands as programs, their start included: time, memory, and the page of a report in a browser."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump.encode import DumpData, TensorInfo, dump_data, dump_message, npy
from scripts.bench import measure, rank_tree, sides
from scripts.bench.measure import Case, Figure, UnavailableError
from scripts.bench.programs import MSDUMP, Ran, compiled, run
from scripts.browser.chromium import launched

_START: Final = 1612439563338030
_RUNS: Final = 5
_SHORT_RUNS: Final = 11
_WARM_UPS: Final = 2


# --- short programs, in milliseconds of the processor -----------------------------------------------------

_IMPORT: Final = """
import time
before = time.process_time()
import msdump
print(1000 * (time.process_time() - before))
"""


def importing(case: Case) -> Figure:
    """``import msdump``, without the start of Python."""
    environment = compiled(case.folder)
    runs = [run(sys.executable, "-c", _IMPORT, environment=environment) for _ in range(_SHORT_RUNS)]
    return Figure.of([float(each.printed) for each in runs[_WARM_UPS:]])


def helping(case: Case) -> Figure:
    """``msdump --help``, with the start of Python."""
    return _command(case, "--help")


def checking(case: Case) -> Figure:
    """``msdump check`` of a small model, with the start of Python."""
    root = Path.cwd()  # where the measured msdump lies
    configuration, model = root / "sample_nets/mini/data_dump.json", root / "graphs/mini.onnx"
    return _command(case, "check", str(configuration), "--model", str(model))


def _command(case: Case, *arguments: str) -> Figure:
    variables = {"MS_DIAGNOSTIC_DATA_PATH": str(case.folder / "out"), "DEVICE_TARGET": "Ascend"}
    environment = compiled(case.folder) | variables
    runs = [run(*MSDUMP, *arguments, environment=environment) for _ in range(_SHORT_RUNS)]
    return Figure.of([1000 * each.cpu for each in runs[_WARM_UPS:]])


# --- diff --advise ----------------------------------------------------------------------------------------

_BOUND: Final = "1e-3"
"""Of the outputs' error, which is 1.7e-3 where all operators compute in float16."""


def advise_seconds(case: Case) -> Figure:
    """Time of ``msdump diff --advise``."""
    return Figure.of([_advise(case).seconds])


def advise_gigabytes(case: Case) -> Figure:
    """Its peak memory."""
    return Figure.of([_advise(case).mib * (1 << 20) / 1e9])


def _advise(case: Case) -> Ran:
    done = run(*MSDUMP, "diff", str(case.path), "--mine", "Ascend:force_fp16", "--advise", _BOUND)
    if not any(line.startswith("keep ") for line in done.printed.splitlines()):
        raise RuntimeError(done.printed)
    return done


# --- dump files of large tensors --------------------------------------------------------------------------


def _write(path: Path, op_type: str, number: int, infos: list[TensorInfo], data: bytes | memoryview) -> None:
    """Write a dump file; its last tensor is the output."""
    name = f"{op_type}-op{number}"
    message = DumpData(f"Default/{name}", _START + number, tuple(infos[:-1]), tuple(infos[-1:]))
    with (path / f"{op_type}.Default_{name}.{number}.0.{_START + number}").open("wb") as file:
        file.write(dump_data.header(message))
        file.write(data)


_CONVERTED: Final = 500_000_000
_DEVICE_SHAPES: Final = ((8, 16, 56, 56, 16), (8, 4, 112, 112, 16), (8, 32, 28, 28, 16), (8, 64, 14, 14, 16))
"""Device shapes of a residual network's images."""


def convert(case: Case, form: str = "") -> Figure:
    """``msdump convert`` of a large directory, as it is or from NC1HWC0 to a form, beside a copy of it."""
    source, target = case.folder / "source", case.folder / "target"
    source.mkdir()
    types, formats = dump_message.DATA_TYPES, dump_message.FORMATS
    infos = [
        TensorInfo(
            types["FLOAT16"], formats["NC1HWC0"], shape, (shape[0], shape[1] * 16, *shape[2:4]), 2 * size
        )
        for shape, size in ((each, int(np.prod(each))) for each in _DEVICE_SHAPES)
    ]
    written = number = 0
    while written < _CONVERTED:
        tensors = [infos[(number + slot) % len(infos)] for slot in range(2)]
        size = sum(info.size for info in tensors)
        data = np.random.default_rng(number).integers(0, 1 << 15, size // 2, "u2")
        _write(source, "Conv2D", number, tensors, data.data)
        written, number = written + size, number + 1
    options = ("-f", form) if form else ()
    command = (*MSDUMP, "convert", str(source), "-out", str(target), *options)
    ours = partial(run, *command, environment=compiled(case.folder))
    theirs = partial(run, "cp", "-r", str(source), str(target))
    return measure.ratio(ours, theirs, case, tidy=partial(shutil.rmtree, target), is_alone=False)


_COMPARED: Final = 850_000_000
"""Bytes of each of the two sides."""

_HOST_SHAPES: Final = ((8, 256, 56, 56), (8, 64, 112, 112), (8, 512, 28, 28), (8, 1024, 14, 14), (8, 1000))
"""Shapes of a residual network's tensors, float32."""

_LOADING: Final = """
import pathlib, sys, numpy
for folder in sys.argv[1:]:
    for path in sorted(pathlib.Path(folder).iterdir()):
        numpy.load(path)
"""


def compare(case: Case, kind: str) -> Figure:
    """``msdump compare`` of .npy or dump files beside numpy.load of their tensors."""
    return _of_loading(case, kind, ("-m", "msdump", "compare", "{mine}", "{golden}"), 1)  # the tensors differ


def _of_loading(case: Case, kind: str, command: tuple[str, ...], expected: int) -> Figure:
    folders = {
        (form, side): case.folder / form / side for form in ("npy", "bin") for side in ("mine", "golden")
    }
    for folder in folders.values():
        folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    written = number = 0
    while written < _COMPARED:
        golden = rng.standard_normal(_HOST_SHAPES[number % len(_HOST_SHAPES)], np.float32)
        np.maximum(golden, 0, out=golden)
        for side, array in (("golden", golden), ("mine", golden * np.float32(1.001))):
            stem = f"ReLU.Default_ReLU-op{number}.{number}.0.{_START + number}"
            np.save(folders["npy", side] / f"{stem}.output.0.DefaultFormat.float32.npy", array)
            float32, nd = dump_message.DATA_TYPES["FLOAT"], dump_message.ND
            info = TensorInfo(float32, nd, array.shape, array.shape, array.nbytes)
            _write(folders["bin", side], "ReLU", number, [info], array.data)
        written, number = written + golden.nbytes, number + 1
    start = partial(run, sys.executable, environment=compiled(case.folder))
    places = {side: str(folders[kind, side]) for side in ("mine", "golden")}
    given = (*(each.format(**places) for each in command), "-out", str(case.folder / "out"))
    loaded = [str(folders["npy", side]) for side in ("mine", "golden")]
    ours, theirs = partial(start, *given, expected=expected), partial(start, "-c", _LOADING, *loaded)
    return measure.ratio(ours, theirs, case, is_alone=False)


_LAYERS, _WIDTH = 12, 5000  # 300 million parameters
_LINEAR: Final = ("torch.nn.modules.linear.Linear", "aten.linear.default")


def compare_tree(case: Case) -> Figure:
    """``msdump compare`` of a dump and a tree of msprobe (L0 and L1) beside numpy.load of their tensors."""
    folder, rng = case.folder / "tree/step0/rank0/dump_tensor_data", np.random.default_rng(0)
    folder.mkdir(parents=True)
    x = rng.standard_normal((2, _WIDTH), np.float32)
    feeds, nodes, weights, data, parents = {"x0": x}, [], [], {}, {}
    for number in range(_LAYERS):
        weight, name = rng.standard_normal((_WIDTH, _WIDTH), np.float32) / np.sqrt(_WIDTH), f"layers.{number}"
        weight = weight.astype(np.float32)
        y = x @ weight.T
        ends = [f"x{number}", f"{name}.weight"], [f"x{number + 1}"]
        node = helper.make_node("Gemm", *ends, name=f"linear_{number}", transB=1)
        keys = ["name_scopes", "class_hierarchy"]
        for key, value in zip(keys, (["", name, node.name], ["__main__.Net", *_LINEAR]), strict=True):
            node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=str(value))
        nodes.append(node)
        weights.append(numpy_helper.from_array(weight, f"{name}.weight"))
        module, function = f"Module.{name}.Linear.forward.0", f"Functional.linear.{number}.forward"
        for call, read in ((module, [x]), (function, [x, weight])):
            data[call] = {
                "input_args": [_saved(folder, f"{call}.input.{at}", each) for at, each in enumerate(read)],
                "output": [_saved(folder, f"{call}.output.0", y)],
            }
        data[module]["parameters"] = {"weight": _saved(folder, f"{module}.parameters.weight", weight)}
        parents |= {module: None, function: module}
        x = y
    for file, content in (
        ("dump", {"task": "tensor", "framework": "pytorch", "data": data}),
        ("construct", parents),
    ):
        (folder.parent / f"{file}.json").write_text(json.dumps(content))
    given, returned = (helper.make_tensor_value_info(name, 1, [2, _WIDTH]) for name in ("x0", f"x{_LAYERS}"))
    graph = helper.make_graph(nodes, "net", [given], [returned], weights)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), case.folder / "net.onnx")
    mine = case.folder / "mine"
    sides.network(case.folder / "net.onnx", sides.plan(mine, "0", input_output=0)).run(feeds)
    start, tree = partial(run, sys.executable, environment=compiled(case.folder)), str(folder.parents[2])
    ours = partial(start, "-m", "msdump", "compare", str(mine), tree, "-out", str(case.folder / "out"))
    theirs = partial(start, "-c", _LOADING, str(next(mine.glob("rank_0/*/0/0"))), str(folder))
    return measure.ratio(ours, theirs, case, is_alone=False)


def _saved(folder: Path, name: str, array: np.ndarray) -> dict[str, Any]:
    """Save a tensor of a call; return its entry in dump.json."""
    np.save(folder / f"{name}.npy", array)
    statistics = {"Max": array.max(), "Min": array.min(), "Mean": array.mean(), "Norm": np.linalg.norm(array)}
    return {
        "type": "torch.Tensor",
        "dtype": f"torch.{array.dtype}",
        "shape": list(array.shape),
        **{title: float(value) for title, value in statistics.items()},
        "data_name": f"{name}.npy",
    }


def compare_ranks(case: Case) -> Figure:
    """``msdump compare`` of eight ranks with two processes beside one."""
    dumps = map(str, rank_tree.pair(case.folder))
    command = (*MSDUMP, "compare", *dumps, "-out", str(case.folder / "out"), "-j")
    two, one = (partial(run, *command, jobs, environment=compiled(case.folder), expected=1) for jobs in "21")
    return measure.ratio(two, one, case, is_alone=False)


# --- open_dump of many files ------------------------------------------------------------------------------

_FILES, _DIRECTORIES = 100_000, 20
_SLOTS: Final = (("input", 0), ("input", 1), ("input", 2), ("output", 0))
_OPENING: Final = """
import sys, time, numpy, msdump
before = time.process_time()
first = next(iter(msdump.open_dump(sys.argv[1]).records))
assert first.array.size
print(time.process_time() - before)
"""


def opening(case: Case) -> Figure:
    """Open a dump and read its first record, each time in a fresh process; imports of numpy do not count."""
    data = b"".join(npy.encode(np.ones((2, 2), np.float32)))
    time = _START
    for folder in _iterations(case.folder, _DIRECTORIES):
        for number in range(_FILES // _DIRECTORIES):
            time += 1
            io, slot = _SLOTS[number % len(_SLOTS)]
            operator = f"Conv2D.Default_layer{number // 4}-Conv2d_Conv2D-op{number // 4}"
            (folder / f"{operator}.0.0.{time}.{io}.{slot}.DefaultFormat.float32.npy").write_bytes(data)
    return _printed(_OPENING, case.folder)


def _iterations(root: Path, count: int) -> Iterator[Path]:
    """Make and yield the directories of iterations."""
    for iteration in range(count):
        folder = root / f"rank_0/Net/0/{iteration}"
        folder.mkdir(parents=True)
        yield folder


def _printed(program: str, folder: Path) -> Figure:
    runs = (run(sys.executable, "-c", program, str(folder)) for _ in range(_RUNS))
    return Figure.of([float(each.printed) for each in runs])


# --- tables of statistics ---------------------------------------------------------------------------------

_HEADER: Final = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    "Max Value,Min Value,L2Norm Value\n"
)


def _statistics(root: Path, iterations: int, slots: tuple[tuple[str, int], ...]) -> None:
    """Write the statistics of 5,000 operators, iteration by iteration, and their execution order."""
    chance = random.Random(1)
    scopes = [f"Default/layer{number // 50}-Block/Conv2D-op{number}" for number in range(5_000)]
    names = [scope.replace("/", "_") for scope in scopes]
    for iteration, folder in enumerate(_iterations(root, iterations)):
        time = _START + iteration * len(names) * len(slots)
        with (folder / "statistic.csv").open("w", encoding="utf-8") as file:
            file.write(_HEADER)
            for number, (name, (io, slot)) in enumerate((name, slot) for name in names for slot in slots):
                value = chance.gauss(0, 10)
                place = f'Conv2D,{name},0,0,{time + number},{io},{slot},24576,float32,"(2,64,12,4)"'
                file.write(f"{place},{value:.6g},{-value * 0.7:.6g},{value * 1.7:.6g}\n")
    order = root / "rank_0/execution_order"
    order.mkdir()
    text = "\n".join(["NodeExecutionOrder-FullNameWithScope", *scopes, ""])
    (order / "ms_execution_order_graph_0.csv").write_text(text, encoding="utf-8")


_ASKING: Final = """
import sys, time
from msdump.look.query import parse_sources
from msdump.look.query.session import Session
from msdump.executors import ExecutorChoice
with Session(parse_sources(sys.argv[1:]), measures=False, executor=ExecutorChoice()) as session:
    before = time.perf_counter()
    rows = session.ask(
        "select op_name, max(max) as high, count(*) from statistics group by all order by high desc limit 5"
    ).fetch(10)
    print(time.perf_counter() - before)
assert len(rows) == 5, rows
"""


def query(case: Case, form: str) -> Figure:
    """Ask a dump of 1,000,000 rows, or a pack of it, each time in a fresh process; imports do not count."""
    dump = case.within("dump").folder
    _statistics(dump, 50, _SLOTS)
    if form == "csv":
        return _printed(_ASKING, dump)
    run(*MSDUMP, "pack", str(dump), "-out", str(case.folder / "pack"))
    return _printed(_ASKING, case.folder / "pack")


# --- report -----------------------------------------------------------------------------------------------

_CLICKS: Final = 9


def report_seconds(case: Case) -> Figure:
    """Seconds of ``msdump report`` of 5,000 operators x 20 iterations of statistics."""
    return Figure.of([each.seconds for each in _reports(case)])


def report_memory(case: Case) -> Figure:
    """Its peak memory in MiB."""
    return Figure.of([each.mib for each in _reports(case)])


def report_megabytes(case: Case) -> Figure:
    """The size of its page."""
    _reports(case, 1)
    return Figure.of([_page(case).stat().st_size / 1e6])


def first_paint(case: Case) -> Figure:
    """Seconds until a browser paints the page."""
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    with _browser(case) as browser:
        return Figure.of([float(_ready(browser, case).evaluate(paint)) / 1e3 for _ in range(3)])


def sorting(case: Case) -> Figure:
    """Seconds that the page takes to sort its table and to show it."""
    with _browser(case) as browser:
        page = _ready(browser, case)
        times = []
        for place in range(_CLICKS):
            page.click(f"[data-sort={('value', 'name', 'type')[place % 3]}]")
            times.append(float(page.evaluate("document.body.dataset.sortMs")) / 1e3)
        return Figure.of(times)


def _page(case: Case) -> Path:
    return case.folder / "page.html"


def _reports(case: Case, count: int = 3) -> list[Ran]:
    """Make the report some times, each in a process of its own."""
    _statistics(case.folder / "dump", 20, _SLOTS[-1:])
    return [run(*MSDUMP, "report", str(case.folder / "dump"), "-o", str(_page(case))) for _ in range(count)]


def _browser(case: Case) -> Any:
    """Make the page and return a browser."""
    _reports(case, 1)
    try:
        return launched()
    except (ImportError, OSError) as error:
        raise UnavailableError(str(error)) from error


def _ready(browser: Any, case: Case) -> Any:
    page = browser.new_page()
    page.goto(_page(case).as_uri())
    page.wait_for_selector("body[data-ready]")
    return page
