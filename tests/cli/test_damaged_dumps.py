"""A command delivers the readable part of a damaged dump, counts the missing one, and ends with 1."""

import codecs
import csv
import io
import json
import re
import shutil

import numpy as np
import pytest

import msdump
from tests.texts import parsed
from tests.world import cli, common_settings

COMMANDS = {
    "compare": ("compare", "mine", "golden", "-out", "out"),
    "compare, as golden": ("compare", "golden", "mine", "-out", "out"),
    "baseline": ("baseline", "mine", "-out", "out"),
    "watch": ("watch", "mine", "--rules", "rules.json"),
    "trend": ("trend", "mine", "*ReLU-op0"),
    "show": ("show", "mine", "*ReLU-op0"),
    "report": ("report", "mine", "-o", "page.html"),
    "pack": ("pack", "mine", "-out", "out"),
    "query": ("query", "mine", "select sum(max) from statistics, tensors"),
    "report with golden": ("report", "mine", "golden", "-o", "page.html"),
    "report with golden, as golden": ("report", "golden", "mine", "-o", "page.html"),
    "pack measured": ("pack", "mine", "-out", "out", "--measure"),
    "explain": ("explain", "mine", "*ReLU-op0"),
    "extract": ("extract", "mine", "*ReLU-op0", "-o", "out"),
}

PARTS = "A part of a dump could not be read and is left out."
PROMISES = {
    "compare": (1, "Tensors differ, a tensor could not be compared, or a file could not be read."),
    "baseline": (1, "A tensor or a row could not be read and is left out."),
    "watch": (2, "No rule could be checked, a file could not be read, or an option is wrong."),
    "trend": (1, "A file could not be read. Hyphens replace its values."),
    "show": (1, "The dump has no tensor of the operator, or one of its files could not be read."),
    "report": (1, "The report is written, but a file or directory could not be read."),
    "pack": (1, PARTS),
    "query": (1, PARTS),
    "explain": (1, "The operator is unknown, or a file could not be read."),
    "extract": (1, "A file could not be written, or another file of the dump could not be read."),
    "overflow": (1, "A record or a dump file could not be read."),
    "convert": (1, "A tensor was not converted."),
}
"""By command: the exit code for a file that cannot be read, and the sentence of --help that promises it."""


def cut(path, size):
    """Keep the first bytes of a file."""
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:size])


def cut_in_a_row(root):
    """Cut the table within its fourth row."""
    table = next(root.rglob("statistic.csv"))
    cut(table, len(b"".join(table.read_bytes().splitlines(keepends=True)[:4])) + 9)


def cut_behind_a_row(root):
    """Cut the table behind its third row."""
    table = next(root.rglob("statistic.csv"))
    cut(table, len(b"".join(table.read_bytes().splitlines(keepends=True)[:4])))


def remove_a_file(root):
    """Remove the tensor of an output."""
    next(root.rglob("ReLU.*.output.0.*.npy")).unlink()


def cut_a_tensor(root):
    """Cut the tensor of an output that has no row."""
    next(root.rglob("statistic.csv")).unlink()
    cut_tensor(next(root.rglob("ReLU.*.output.0.*.npy")))


def cut_an_input(root):
    """Cut the tensor of an input that has a row."""
    cut_tensor(next(root.rglob("Neg.*.input.0.*.npy")))


def cut_tensor(path):
    """Cut the last element of a tensor."""
    cut(path, path.stat().st_size - 3)


def rewrite(change):
    """Return a function that changes the bytes of the table."""

    def harm(root):
        table = next(root.rglob("statistic.csv"))
        table.chmod(0o600)
        table.write_bytes(change(table.read_bytes()))

    return harm


def save_with_semicolons(data):
    """Return the table as spreadsheets of many countries save it: semicolons and decimal commas."""
    rows = csv.reader(io.StringIO(data.decode()))
    sheet = io.StringIO()
    lines = [[cell.replace(".", ",") for cell in row] for row in rows]
    csv.writer(sheet, delimiter=";").writerows(lines)
    return codecs.BOM_UTF8 + sheet.getvalue().encode()


def save_with_decimal_commas(data):
    """Return the table as a spreadsheet saves it with commas for cells and decimals."""
    sheet = io.StringIO()
    rows = csv.reader(io.StringIO(data.decode()))
    csv.writer(sheet).writerows([[cell.replace(".", ",") for cell in row] for row in rows])
    return sheet.getvalue().encode()


def cut_a_graph(root):
    """Cut the graph file in the middle."""
    graph = next(root.rglob("*.ir"))
    cut(graph, graph.stat().st_size // 2)


ROW, COUNT = "the last row has no line feed", "3 of 6 tensors have no row in statistic.csv"
GONE, GRAPH = "1 of 6 tensors with a row in statistic.csv have no file", "ends after 2 of 3 operators"
DAMAGES = {
    "a row": (cut_in_a_row, ROW, COMMANDS.keys()),
    "rows": (cut_behind_a_row, COUNT, COMMANDS.keys()),
    "a file": (remove_a_file, GONE, COMMANDS.keys() - {"extract"}),
    "a graph": (
        cut_a_graph,
        GRAPH,
        COMMANDS.keys() - {"baseline", "trend", "show", "query", "explain", "extract"},
    ),
    "a tensor": (cut_a_tensor, "the data is truncated", COMMANDS.keys() - {"explain", "extract"}),
    "an input": (
        cut_an_input,
        "the data is truncated",
        ["compare", "compare, as golden", "report with golden", "report with golden, as golden"],
    ),
    "semicolons": (
        rewrite(save_with_semicolons),
        "statistic.csv: semicolons separate its cells: a spreadsheet has saved it; save it as CSV",
        COMMANDS.keys(),
    ),
    "decimal commas": (rewrite(save_with_decimal_commas), "is '0,367879', no number", COMMANDS.keys()),
    "UTF-16": (
        rewrite(lambda data: data.decode().encode("utf-16")),
        "statistic.csv: UTF-16 text: a spreadsheet has saved it; save it as CSV",
        COMMANDS.keys(),
    ),
    "emptied": (rewrite(lambda _: b""), "statistic.csv: the table is empty", COMMANDS.keys()),
    "other bytes": (
        rewrite(lambda _: bytes(range(255, -1, -1)) * 9),
        "the first line has no titles of statistics",
        COMMANDS.keys(),
    ),
}


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    """Return a dump of three operators, files and statistics."""
    folder = tmp_path_factory.mktemp("damaged")
    body = '["net/Relu"] a = Relu(x) ["net/Neg"] b = Neg(a) ["net/Exp"] y = Exp(b)'
    model = parsed(f"g (float[2,2] x) => (y) {{ {body} }}")
    blocks = {
        "common_dump_settings": common_settings(folder / "dump") | {"saved_data": "full"},
        "e2e_dump_settings": {"enable": True},
    }
    network = msdump.load(model, config=blocks, context={"device_target": "Ascend", "jit_level": "O0"})
    network.run({"x": np.float32([[1, 2], [3, 4]])})
    return folder / "dump"


@pytest.fixture
def sides(dumped, tmp_path, monkeypatch):
    """Put two equal dumps into the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [{"condition": "tensor_overflow"}]}))
    for side in ("mine", "golden"):
        shutil.copytree(dumped, tmp_path / side)
    return tmp_path


@pytest.mark.parametrize("patterns", [("*.ir",), ("*.pb",), ("*.ir", "*.pb"), ("*.csv",)], ids=" ".join)
@pytest.mark.parametrize("command", COMMANDS)
def test_tensors_are_read_without_the_graph(sides, command, patterns):
    """A wrecked graph file is a warning of commands that need it, and a file that could not be read."""
    folders = (sides / "mine/rank_0/graphs", sides / "mine/rank_0/execution_order")
    damaged = [path for folder in folders for pattern in patterns for path in folder.glob(pattern)]
    for path in damaged:
        path.chmod(0o600)
        path.write_bytes(bytes(range(255, 127, -1)) * 9)

    done = cli(*COMMANDS[command])

    assert damaged
    code = PROMISES[COMMANDS[command][0]][0] if done.stderr else 0
    assert (code, False) == (done.exit_code, "error" in done.stderr), done.stderr
    assert "missing" in done.stderr or not done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_whole_dump_ends_with_0(sides, command):
    """Nothing is missing of a dump as it was written."""
    done = cli(*COMMANDS[command])

    assert (0, "") == (done.exit_code, done.stderr)


@pytest.mark.parametrize(
    ("damage", "command"), [(name, each) for name, row in DAMAGES.items() for each in sorted(row[2])]
)
def test_what_is_missing_is_counted(sides, damage, command):
    """The command does its work, names the missing files or rows, and ends as its --help promises."""
    harm, told, _ = DAMAGES[damage]
    harm(sides / "mine")

    done = cli(*COMMANDS[command])

    assert PROMISES[COMMANDS[command][0]][0] == done.exit_code, done.output
    assert told in done.output
    assert "internal error" not in done.stderr
    assert "" != done.stdout
    assert command.startswith("report") == (sides / "page.html").is_file()


@pytest.mark.parametrize("command", PROMISES)
def test_help_has_the_promises(command):
    """The tests of this file expect the exit codes of --help."""
    code, sentence = PROMISES[command]

    told = cli(command, "--help", env={"COLUMNS": "200"}).stdout

    assert f"{code} {sentence}" in re.sub(r"\s+", " ", told)


@pytest.mark.parametrize("name", ["Opdebug.*", "ReLU.*"])
@pytest.mark.parametrize("command", ["overflow", "convert"])
def test_damaged_files_of_a_compiled_graph(tmp_path, monkeypatch, command, name):
    """A cut record of an overflow, or file of an operator, is named with exit code 1; others are read."""
    monkeypatch.chdir(tmp_path)
    model = parsed('g (float[2] x) => (y) { ["net/Relu"] a = Relu(x) ["net/Exp"] y = Exp(a) }')
    blocks = {"common_dump_settings": common_settings(tmp_path / "dump") | {"op_debug_mode": 3}}
    network = msdump.load(model, config=blocks, context={"device_target": "Ascend", "jit_level": "O2"})
    network.run({"x": np.float32([1, 400])})
    damaged = next((tmp_path / "dump").rglob(name))
    cut(damaged, 30)

    done = cli(command, "dump", "-out", "out")

    failed = (tmp_path / "out/convert_failed_file_list.txt") if command == "convert" else None
    assert PROMISES[command][0] == done.exit_code, done.output
    assert damaged.name in (done.stderr if failed is None else failed.read_text())
    assert "" != done.stdout


FILES_OF_USERS = {
    "limits": ("compare", "mine", "golden", "--limits", "deep.json"),
    "a configuration, of report": ("report", "mine", "--config", "deep.json"),
    "a configuration, of explain": ("explain", "mine", "ReLU-op0", "--config", "deep.json"),
    "rules": ("watch", "mine", "--rules", "deep.json"),
    "a result": ("query", "deep.json", "from comparisons"),
    "a pack": ("query", "pack", "from statistics"),
}


@pytest.mark.parametrize("arguments", FILES_OF_USERS.values(), ids=FILES_OF_USERS)
def test_deeply_nested_json(sides, arguments):
    """A JSON file with more brackets than Python can nest is refused in a sentence that names the file."""
    (sides / "pack").mkdir()
    for name in ("deep.json", "pack/msdump_pack.json"):
        (sides / name).write_text("[" * 100_000)

    done = cli(*arguments)

    assert 2 == done.exit_code
    assert re.search(r"msdump: error: \S*(deep|msdump_pack)\.json: .*nested too deeply\n", done.stderr)
