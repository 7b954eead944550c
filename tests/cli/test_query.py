"""``msdump query`` and ``msdump pack``: questions, sources, statistics and views."""

import csv
import io
import json
import os
import re
import shutil
import sys

import duckdb
import numpy as np
import pytest

from msdump.encode import DumpData, TensorInfo, dump_data, npy
from tests.world import ROOT, cli, completed


@pytest.fixture
def ask():
    """Return a function that puts a question and returns the exit code, the rows and standard error."""

    def call(*arguments, **options):
        done = cli("query", *arguments, "--csv", **options)
        return done.exit_code, [*csv.reader(io.StringIO(done.stdout))][1:], done.stderr

    return call


@pytest.fixture
def answered(ask):
    """Return a function that returns the rows of an answer that comes without a warning."""

    def call(*arguments):
        code, rows, stderr = ask(*arguments)
        assert (code, stderr) == (0, "")
        return rows

    return call


@pytest.fixture
def put():
    """Return a function that writes a file of a dump, of bytes, text or an array."""

    def write(path, contents):
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(contents, np.ndarray):
            contents = b"".join(npy.encode(contents))
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return path

    return write


PAGE = ROOT / "docs" / "how-to" / "ask-questions.md"
QUESTIONS = {
    int(number): (title, question)
    for number, title, question in re.findall(
        r"^(\d+)\. (.*?)\n\n```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
}
OVERFLOWED = "Default_norm-RMSNorm_Mul-op0"
MUL = "Default/norm-RMSNorm/Mul-op0"
NORM = [f"Default_norm-RMSNorm_{name}-op0" for name in ("Add", "Mul", "ReduceMean", "Sqrt")]
ONES = ("Add", "Div", "Flatten", "ReLU", "ReduceMean", "Sqrt")
DEVICE = {"device_target": "Ascend", "ms_version": "2.7.0"}

ANSWERS = {
    1: [("bad", 0, "Mul", OVERFLOWED, "output", 0, "Infinity")],
    2: [(MUL, "Default/norm-RMSNorm", "net.py:24: squares = op.Mul(x, x)")],
    3: [(name, 3) for name in NORM],
    4: [(OVERFLOWED,), *((f"Default_norm-RMSNorm_{name}-op0",) for name in ("Add", "ReduceMean"))],
    5: [(OVERFLOWED,)],
    6: [(0,), (1,), (2,), (3,)],
    7: [
        ("Default_fc2-Dense_MatMul-op0",),
        ("Default_norm-RMSNorm_Div-op0",),
        ("Default_norm-RMSNorm_Mul-op1",),
    ],
    8: [("Default_fc2-Dense_MatMul-op0", 1)],
    9: [(OVERFLOWED,)],
    10: [(1, "Default_relu-ReLU_ReLU-op0", "output", 0)],
    11: [(name, 2) for name in ("BiasAdd", "MatMul", "Mul")] + [(name, 1) for name in ONES],
    12: [("Default/relu-ReLU/ReLU-op0", "layers.py:129: return op.Relu(x)")],
    13: [("inherited",), ("agrees",), ("nonfinite", 1)],
    14: [(MUL, "Infinity")],
    15: [("bad", 0, 0, 12, 2596), ("bad", 0, 1, 12, 2596), ("bad", 0, 2, 12, 2596), ("good", 0, 0, 11, 2584)],
    16: [("ir", 3), ("statistics", 11), ("pb", 3)],
    17: [(3,)],
    18: [("bad", 0), ("bad", 1), ("bad", 2), ("good", 0)],
    19: [("bad", "Ascend", "2.7.0", "force_fp16"), ("good", "Ascend", "2.7.0", "force_fp32")],
    20: [("Default/fc2-Dense/BiasAdd-op0",)],
}
"""The first cells of the first rows."""


def run_in(folder, *arguments, **variables):
    """Run a program and return its standard output."""
    command = [*map(str, arguments)]
    environment = os.environ | {"DEVICE_TARGET": "Ascend"} | variables
    done = completed(*command, env=environment, cwd=folder)
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory, forks):
    """Return the arguments for the dumps and their comparison.

    The good dump has a fourth iteration, a second rank that disagrees about one tensor, and no output of the
    last operator; both have the metadata that MindSpore adds.
    """
    folder = tmp_path_factory.mktemp("questions")
    run_in(ROOT, forks / "python", "sample_nets/build.py", "overflow", "--out", folder)
    for name, config, steps in (("good", "statistic_float32", 4), ("bad", "statistic", 3)):
        path = ROOT / f"sample_nets/overflow/data_dump_{config}.json"
        run = (forks / "msdump", "run", "overflow_b1_s0.onnx", "--config", path, "--steps", steps)
        run_in(folder, *run, MS_DIAGNOSTIC_DATA_PATH=str(folder / name))
        metadata = folder / name / "debug_dump/rank_0/.dump_metadata"
        metadata.mkdir()
        shutil.copy(path, metadata / "data_dump.json")
        (metadata / "config.json").write_text(json.dumps(DEVICE))
    options = ("--precision", "float16", "--json", "-out", "tables")
    compare = (forks / "msdump", "compare", "bad/debug_dump", "good/debug_dump", *options)
    (folder / "result.json").write_text(run_in(folder, *compare))
    good = folder / "good/debug_dump"
    for path in good.rglob("statistic.csv"):
        rewrite(path, r"BiasAdd,Default_fc2.*\n", "")
    shutil.copytree(good / "rank_0", good / "rank_1")
    rewrite(good / "rank_1/Overflow/0/1/statistic.csv", r"(ReLU-op0.*,)[^,]+(,\d+,\d+\n)", r"\g<1>123\2")
    return f"good={good}", f"bad={folder / 'bad/debug_dump'}", str(folder / "result.json")


def rewrite(path, pattern, text):
    """Replace matches of a pattern in a read-only file."""
    path.chmod(0o600)
    path.write_text(re.sub(pattern, text, path.read_text()))


def test_page_has_twenty():
    """The page has twenty questions, each with an answer here."""
    assert [*range(1, 21)] == [*QUESTIONS] == [*ANSWERS]


@pytest.fixture(scope="module")
def pack(sources, tmp_path_factory):
    """Return the path of a pack of the dumps and their comparison."""
    folder = tmp_path_factory.mktemp("pack") / "pack"
    done = cli("pack", *sources, "-out", folder)
    assert (0, "") == (done.exit_code, done.stderr)
    return folder


@pytest.mark.parametrize("number", QUESTIONS)
def test_question(sources, pack, number):
    """The question of the page is answered without a warning, and by a pack as by the dumps."""
    title, question = QUESTIONS[number]

    of_dumps, of_pack = (cli("query", *given, question, "--json") for given in (sources, [str(pack)]))

    assert (0, "", 0) == (of_dumps.exit_code, of_dumps.stderr, of_pack.exit_code), title
    rows, again = (
        [tuple(row.values()) for row in json.loads(done.stdout)["rows"]] for done in (of_dumps, of_pack)
    )
    wanted = ANSWERS[number]
    assert wanted == [row[: len(first)] for row, first in zip(rows, wanted, strict=False)], rows
    assert sorted(map(repr, rows)) == sorted(map(repr, again))


PLACE = "rank_0/Net/0/3/statistic.csv"
TITLES = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
HEAD = f"{TITLES},Max Value"
STATISTICS = f'{HEAD}\nAdd,Default_Add-op0,0,0,9,output,0,24,float32,"(2,3)",6\n'


@pytest.fixture
def dump(put, tmp_path):
    """Return the path of a dump with one row of statistics."""
    put(tmp_path / "dump" / PLACE, STATISTICS)
    return tmp_path / "dump"


ABOUT_SOURCES = {
    "no SQL": ("choose max", 'the question fails: Parser Error: syntax error at or near "choose"'),
    "no such column": ("select maxx from statistics", 'Referenced column "maxx" not found'),
    "no such view": ("select * from statistic where 1 = 1", "Table with name statistic does not exist"),
    "a cell that does not fit": (
        "select cast(op_name as bigint) from statistics",
        "Could not convert string",
    ),
    "an error further down": ("select 1 ; choose 2", "syntax error at or near"),
    "a value beyond Python's": ("select interval 100000000 years", "Python int too large"),
    "other extensions": ("update extensions", "a question installs, updates and loads no extensions"),
    "nothing": ("  -- only words  ", "the question is empty"),
}


@pytest.mark.parametrize(("question", "message"), ABOUT_SOURCES.values(), ids=ABOUT_SOURCES)
def test_bad_question(dump, ask, question, message):
    """A question that cannot be answered is refused in DuckDB's words, with exit code 2."""
    code, rows, stderr = ask(dump, question)

    assert (2, []) == (code, rows)
    assert message in stderr
    assert stderr.startswith("msdump: error: ")
    assert "_answer" not in stderr


ARGUMENTS = {
    "no such dump": (["{0}/nothing", "select 1"], "no such file or directory"),
    "a file of another kind": (["{0}/words.txt", "select 1"], "no .json file of msdump compare"),
    "JSON of something else": (["{0}/other.json", "from comparisons"], "no result of msdump compare"),
    "an empty directory": (["{0}/empty", "select 1"], "nor tensor files"),
    "two of one name": (["a={0}/dump", "a={0}/empty", "select 1"], "two sources are called 'a'"),
    "a question alone": (["select 1"], "the question needs a dump before it"),
    "a pack of another form": (["{0}/pack", "select 1"], "a pack of form 99; this msdump reads form 1"),
    "a broken pack": (["{0}/broken", "select 1"], "not JSON"),
    "a deep pack": (["{0}/deep", "select 1"], "the JSON is nested too deeply"),
    "a deep result": (["{0}/deep.json", "from comparisons"], "the JSON is nested too deeply"),
    "no place": (
        ["{0}/dump", "select 1", "--parquet", "{0}/x"],
        "--csv, --json and --parquet exclude each other",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_bad_arguments(dump, put, ask, tmp_path, arguments, message):
    """An argument that is no source is refused with exit code 2; the message names it."""
    put(tmp_path / "words.txt", "words")
    put(tmp_path / "other.json", '{"verdict": 1}')
    put(tmp_path / "pack/msdump_pack.json", '{"format": 99}')
    put(tmp_path / "broken/msdump_pack.json", "{")
    put(tmp_path / "deep/msdump_pack.json", "[" * 100_000)
    put(tmp_path / "deep.json", "[" * 100_000)
    (tmp_path / "empty").mkdir()

    code, rows, stderr = ask(*(argument.format(tmp_path) for argument in arguments))

    assert (2, []) == (code, rows)
    assert message in stderr


def test_without_duckdb(dump, monkeypatch):
    """Where the extra is not installed, the message has the command that installs it."""
    monkeypatch.setitem(sys.modules, "duckdb", None)

    done = cli("query", dump, "select 1 from runs")

    assert (2, "") == (done.exit_code, done.stdout)
    assert (
        "duckdb is not installed; install it, or msdump with its extra: pip install 'msdump[query]'"
        in done.stderr
    )


def test_no_rows(dump):
    """An answer without rows says so, and ends well; as csv it has its titles."""
    empty = ["query", str(dump), "select max from statistics where max > 100"]

    shown = cli(*empty)

    assert (0, "no rows\n") == (shown.exit_code, shown.stdout)
    assert "max\n" == cli(*empty, "--csv").stdout


def test_table_is_cut(dump):
    """Of many rows the first fifty are shown, and how to get the others; -v shows all."""
    question = ["query", str(dump), "select i from range(1000000) t(i)"]

    lines = cli(*question).stdout.splitlines()

    assert 55 == len(lines)
    assert "the first 50 rows; -v shows all, --csv, --json and --parquet hold all" == lines[-1]


def test_names_steer_no_terminal(dump):
    """Control characters and marks that turn the direction of writing are spelled out; brackets stay."""
    question = r"select 'a' || chr(27) || '[31m' || chr(8238) || '<script>[bold]:smile:' as name"

    shown = cli("query", dump, question).stdout

    assert r"a\x1b[31m\u202e<script>[bold]:smile:" in shown


def test_document(dump):
    """The document has names and types of the columns, NaN and times as texts, equal names apart."""
    question = (
        "select 'nan'::double as x, '-inf'::double as x, [1, null] as l, timestamp '2026-01-02 03:04:05' as t"
        ", 1.5::decimal(3, 1) as d, {'a': 1} as s, true as b, null as n"
        ", [timestamptz '2026-01-02 03:04:05+02'] as z"
    )

    document = json.loads(cli("query", dump, question, "--json").stdout)

    assert ["DOUBLE", "DOUBLE", "INTEGER[]"] == [column["type"] for column in document["columns"]][:3]
    assert [
        {
            "x": "NaN",
            "x_1": "-Infinity",
            "l": [1, None],
            "t": "2026-01-02T03:04:05",
            "d": 1.5,
            "s": {"a": 1},
            "b": True,
            "n": None,
            "z": ["2026-01-02T01:04:05"],
        }
    ] == document["rows"]
    assert "TIMESTAMP WITH TIME ZONE[]" == document["columns"][-1]["type"]


def test_parquet(dump, answered, tmp_path):
    """The answer is written as a Parquet file, which DuckDB reads back with its types."""
    path = tmp_path / "it's.parquet"

    done = cli("query", dump, "--parquet", path, "select max, shape from statistics; ")

    assert (0, f"written   {path} (1 rows)\n") == (done.exit_code, done.stdout)
    quoted = str(path).replace("'", "''")
    assert [["6.0", "[2, 3]"]] == answered(dump, f"from '{quoted}'")


def test_from_standard_input(dump):
    """Without a question the SQL comes from a pipe; the last statement is answered."""
    script = "create table high as select * from statistics where max > 5;\nselect count(*) as n from high;\n"

    done = cli("query", dump, "--csv", input=script)

    assert (0, "n\n1\n") == (done.exit_code, done.stdout)


def test_views_are_listed(dump, answered):
    """SHOW TABLES and DESCRIBE know all views, also without a question that mentions them."""
    views = [[name] for name in ("comparisons", "files", "operators", "runs", "statistics", "tensors")]

    assert views == answered(dump, "show tables")
    assert ["dump", "VARCHAR"] == answered(dump, "describe runs")[0][:2]


def test_pack_refuses_what_is_there(dump):
    """A directory that holds something is no place for a pack."""
    done = cli("pack", dump, "-out", dump)

    assert 2 == done.exit_code
    assert "holds files already; remove them first" in done.stderr


def test_pack_of_dumps_and_packs(dump, answered, tmp_path):
    """A pack and a dump are queried together; labels of the pack stay, under any name of it."""
    pack = tmp_path / "it's a pack"
    done = cli("pack", f"old={dump}", "-out", pack, "--json")

    assert {"statistics": 1, "files": 1, "runs": 1} == json.loads(done.stdout)["rows"]
    rows = answered(pack, f"new={dump}", "select dump, max, directory from statistics order by dump")
    assert [["new", "6.0", "rank_0/Net/0/3"], ["old", "6.0", "rank_0/Net/0/3"]] == rows


def cut_the_end(path):
    """Cut the end of a file."""
    path.write_bytes(path.read_bytes()[:-100])


def wreck_the_middle(path):
    """Overwrite the bytes of all cells, not the file's description at the end."""
    data = path.read_bytes()
    cells = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:4] + bytes(255 - number % 100 for number in range(4, cells)) + data[cells:])


def put_a_pipe(path):
    """Put a pipe without a writer in the place of a file."""
    path.unlink()
    os.mkfifo(path)


def put_another_table(path):
    """Put a table with other columns in the place of a file."""
    duckdb.sql("select 1 as a").write_parquet(str(path))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("options", [(), ("--read-only",)], ids=["", "read-only"])
@pytest.mark.parametrize("damage", [cut_the_end, wreck_the_middle, put_a_pipe, put_another_table])
def test_damaged_pack(put, ask, tmp_path, damage, options):
    """A file of a pack that cannot be read is left out by name with exit code 1; other ranks answer."""
    for rank in (0, 1):
        put(tmp_path / "dump" / PLACE.replace("rank_0", f"rank_{rank}"), STATISTICS)
    cli("pack", tmp_path / "dump", "-out", tmp_path / "pack")
    damaged = next((tmp_path / "pack/statistics/rank=0").iterdir())
    damage(damaged)

    code, rows, stderr = ask(tmp_path / "pack", "select rank, max from statistics", *options)

    assert (1, [["1", "6.0"]]) == (code, rows), stderr
    assert f"warning: {damaged}: " in stderr
    assert "the file is left out: pack the dump again" in stderr


def test_pack_of_irregular_statistics(put, answered, tmp_path):
    """A pack holds every row and cell that can be read; others are reported when it is made."""
    path = put(tmp_path / "dump" / PLACE, f"{STATISTICS}Mul,Default_Mul-op0\n{STATISTICS}Mul,b,0,0,9")

    done = cli("pack", tmp_path / "dump", "-out", tmp_path / "pack")

    assert (1, 2) == (done.exit_code, len(done.stderr.splitlines())), done.stderr
    assert f"{path}: the last row has no line feed yet and is left out" in done.stderr
    assert [["6.0"], ["6.0"]] == answered(tmp_path / "pack", "select max from statistics")


@pytest.mark.slow
def test_ten_million_rows(put, answered, tmp_path):
    """Ten million rows of many iterations are counted, sorted and written, none is lost."""
    row = STATISTICS.splitlines(keepends=True)[1]
    for iteration in range(20):
        put(tmp_path / "dump" / f"rank_0/Net/0/{iteration}/statistic.csv", f"{HEAD}\n" + row * 500_000)

    question = "select count(*), count(distinct iteration), sum(max) from statistics"
    assert [["10000000", "20", "60000000.0"]] == answered(tmp_path / "dump", question)
    path = tmp_path / "all.parquet"
    done = cli("query", tmp_path / "dump", "--parquet", path, "from statistics select iteration, max")
    assert f"written   {path} (10,000,000 rows)\n" == done.stdout


REFUSED = {
    "a file is read": ("select * from read_csv('{0}/words.csv')", "file system operations are disabled"),
    "a file is written": ("copy (select 1) to '{0}/new.csv'", "file system operations are disabled"),
    "a database": ("attach '{0}/new.db'", "file system operations are disabled"),
    "a setting": ("set enable_external_access = true", "Cannot"),
    "an extension": ("install httpfs", "a question installs, updates and loads no extensions"),
    "a variable of the program": ("select * from _DRIVERS", "Table with name _DRIVERS does not exist"),
}


@pytest.mark.parametrize(("question", "message"), REFUSED.values(), ids=REFUSED)
def test_read_only(dump, put, ask, tmp_path, question, message):
    """A question that may see the dump alone reads and writes nothing else, and cannot undo that."""
    put(tmp_path / "words.csv", "a,b\n1,2\n")

    code, rows, stderr = ask(dump, question.format(tmp_path), "--read-only")

    assert (2, []) == (code, rows)
    assert message in stderr
    assert ["words.csv", "dump"] == sorted((each.name for each in tmp_path.iterdir()), reverse=True)


def test_read_only_answers(dump, put, answered, tmp_path):
    """Every view answers as without it, irregular rows included."""
    put(dump / PLACE, f"{HEAD}\n{STATISTICS}")
    for view in ("tensors", "statistics", "operators", "files", "comparisons", "runs"):
        assert answered(dump, f"from {view}") == answered(dump, f"from {view}", "--read-only")


@pytest.mark.parametrize("command", ["query", "pack"])
def test_a_number_that_no_column_holds(dump, put, tmp_path, command):
    """A directory with such a number is left out and reported by name; everything else is there."""
    number = "9" * 26
    put(dump / PLACE.replace("/3/", f"/{number}/"), STATISTICS)
    asked = ["select * from statistics", "--csv"] if command == "query" else ["-out", str(tmp_path / "pack")]

    done = cli(command, dump, *asked)

    assert f"rank_0/Net/0/{number}: iteration {number} is no number of 64 bits; it is left out" in done.stderr
    assert ("1 statistics" if command == "pack" else "Default_Add-op0") in done.stdout


ACL_PLACE = "20240112093000/0/resnet50/1/3/Add.Default_Add-op0.5.7.1795217009720246.csv"
ROW = "Add,Default_Add-op0,5,7,1795217009720246,input,1,24,float32"
ACL_SHORT = "Input/Output,Index,Data Size,Data Type,Format,Shape"
ACL_HEAD = f"{ACL_SHORT},Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count"

FILES = {
    "msdump's": (
        PLACE,
        f'{TITLES},Max Value,Min Value,Avg Value,Count,NaN Count\n{ROW},"(2,3)",6,-1e+06,3.5,6,0\n',
    ),
    "MindSpore's, with a comma at the end of a row": (
        PLACE,
        f'{TITLES},Max Value,Min Value,Avg Value,Count,NaN Count\n{ROW},"(2,3)",6,-1e+06,3.5,6,0,\n',
    ),
    "another order of columns": (
        PLACE,
        f'{TITLES},NaN Count,Count,Avg Value,Min Value,Max Value\n{ROW},"(2,3)",0,6,3.5,-1e+06,6\n',
    ),
    "lines of Windows": (
        PLACE,
        f'{TITLES},Max Value,Min Value,Avg Value,Count,NaN Count\r\n{ROW},"(2,3)",6,-1e+06,3.5,6,0\r\n',
    ),
    "acl's": (ACL_PLACE, f"{ACL_HEAD}\nInput,1,24,DT_FLOAT,ND,2x3,6,-1e+06,3.5,6,0,0,0\n"),
    "acl's of other statistics": (
        ACL_PLACE,
        f"{ACL_SHORT},Count,Max Value,Min Value,Avg Value\nInput,1,24,DT_FLOAT,ND,2x3,6,6,-1e6,3.5\n",
    ),
}
COLUMNS = "op_type, op_name, task_id, stream_id, timestamp, io, slot, bytes, dtype, shape, max, min, avg"
WANTED = [
    *("Add", "Default_Add-op0", "5", "7", "1795217009720246", "input", "1", "24", "float32"),
    *("[2, 3]", "6.0", "-1000000.0", "3.5", "6", "3", "0"),
]


@pytest.mark.parametrize(("place", "text"), FILES.values(), ids=FILES)
def test_files_are_read_alike(put, answered, tmp_path, place, text):
    """Files of msdump, of MindSpore and of CANN's stats mode tell the same in the same columns."""
    put(tmp_path / place, text)

    (row,) = answered(tmp_path, f"select {COLUMNS}, count, iteration, rank from statistics")

    assert WANTED == row


CELLS = (
    *(
        ("nan", "nan"),
        ("-nan", "nan"),
        ("inf", "inf"),
        ("-inf", "-inf"),
        ("-0", "-0.0"),
        ("1e+06", "1000000.0"),
    ),
    *(("null", ""), ("", ""), ("True", "1.0"), ("False", "0.0")),
)


def test_cells(put, answered, tmp_path):
    """Numbers as a C++ stream prints them, truth values and NULL are read; types are given, not guessed."""
    rows = "".join(
        f'1,2,5,7,{place},input,1,24,float32,"()",{cell},33\n' for place, (cell, _) in enumerate(CELLS)
    )
    put(tmp_path / PLACE, f"{HEAD},MD5\n{rows}")

    assert [[value] for _, value in CELLS] == answered(
        tmp_path, "select max from statistics order by timestamp"
    )
    types = "select distinct typeof(op_type), typeof(md5), typeof(max), typeof(shape), shape from statistics"
    assert [["VARCHAR", "VARCHAR", "DOUBLE", "BIGINT[]", "[]"]] == answered(tmp_path, types)


TORN = {
    "half a row": ("Mul,Default_Mul-op0,5,7,17952", 1),
    "a row without its line feed, whose last number may lack digits": (f'{ROW},"(2,3)",1', 1),
    "half the titles": (None, 0),
}


@pytest.mark.parametrize(("tail", "count"), TORN.values(), ids=TORN)
def test_half_written(put, ask, tmp_path, tail, count):
    """Rows before a half-written one are read, and the half is reported."""
    text = f'{TITLES},Max Value\n{ROW},"(2,3)",6\n{tail}' if tail else f"{TITLES},Max"
    path = put(tmp_path / PLACE, text)

    code, rows, stderr = ask(tmp_path, "select max from statistics")

    assert (1, [["6.0"]] * count) == (code, rows)
    assert f"msdump: warning: {path}: the last row has no line feed yet and is left out\n" == stderr


UNFIT = "1 row with another number of cells than titles left out"
IRREGULAR = {
    "too short": ("Add,Default_Add-op0", UNFIT, None),
    "too long": (f'{ROW},"()",6,7,8,9', UNFIT, None),
    "an open quote": (f'{ROW},"(),6,aa', UNFIT, None),
    "digits that are no ASCII": (
        f'{ROW},"()",\u0666,00ff',
        "Max Value is '\u0666', no number; it is left out",
        "00ff",
    ),
    "a word for a number": (f'{ROW},"()",six,00ff', "Max Value is 'six', no number; it is left out", "00ff"),
    "more digits than a number has": (
        f'{ROW},"()",{"9" * 500}x,00ff',
        f"Max Value is '{'9' * 40}', no number; it is left out",
        "00ff",
    ),
}


@pytest.mark.parametrize(("line", "fault", "md5"), IRREGULAR.values(), ids=IRREGULAR)
def test_row_or_cell_that_cannot_be_read(put, ask, tmp_path, line, fault, md5):
    """It is left out and reported with its file; a row also where no column is queried."""
    good = f'{ROW},"()",6,aa\n'
    path = put(tmp_path / PLACE, f"{HEAD},MD5\n{good}{line}\n{good}")
    rest = [] if md5 is None else [["", md5]]
    stderr = f"msdump: warning: {path}: {fault}\n"

    rows = [["6.0", "aa"], *rest, ["6.0", "aa"]]
    assert (1, rows, stderr) == ask(tmp_path, "select max, md5 from statistics")
    if md5 is None:
        assert (1, [["1"], ["1"]], stderr) == ask(tmp_path, "select 1 from statistics")


@pytest.mark.parametrize(
    "question", ["summarize statistics", "with a as (from statistics) select count(*) from a"]
)
def test_any_statement_meets_irregular_rows(put, ask, tmp_path, question):
    """Whatever form a question has: a row that cannot be read is reported, the others count."""
    put(tmp_path / PLACE, f'{TITLES},Max Value\n{ROW},"()",6\nAdd,Default_Add-op0\n')

    code, rows, stderr = ask(tmp_path, question)

    assert 1 == code
    assert ["1"] in ([row[-2:-1] for row in rows] if "summarize" in question else rows)
    assert UNFIT in stderr


def test_other_titles_further_down(put, answered, tmp_path):
    """A later run into the same file may have other titles: each row is read by the titles above it."""
    rows = f'{TITLES},Max Value\n{ROW},"(2,3)",6\n{TITLES},Min Value,Max Value\n{ROW},"(2,3)",1,7\n'
    put(tmp_path / PLACE, rows)

    assert [["", "6.0"], ["1.0", "7.0"]] == answered(tmp_path, "select min, max from statistics order by max")
    assert [["2"]] == answered(tmp_path, "select count(*) from statistics")


def test_unknown_columns_and_files(put, ask, tmp_path):
    """A column that the view lacks is reported, as is a file without titles; the rest is read."""
    known = put(tmp_path / PLACE, f'{TITLES},Median Value,Max Value\n{ROW},"(2,3)",3,6\n')
    foreign = put(tmp_path / "rank_0/Net/0/4/statistic.csv", "a,b\n1,2\n")

    code, rows, stderr = ask(tmp_path, "select max from statistics")

    assert (1, [["6.0"]]) == (code, rows)
    assert [
        f"msdump: warning: {known}: the column 'Median Value' is not known and is left out",
        f"msdump: warning: {foreign}: the first line has no titles of statistics; dump again; left out",
    ] == stderr.splitlines()


NAMES = ["it's", 'a "quote"', "st*r[1]", "blank here", "semi;colon", "b\\slash", "ünïcode"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_directories(put, answered, tmp_path, name):
    """A dump is read whatever its directory is called, and no other one in its place."""
    put(tmp_path / name / PLACE, f'{TITLES},Max Value\n{ROW},"(2,3)",6\n')
    put(tmp_path / "star1" / PLACE, f'{TITLES},Max Value\n{ROW},"(2,3)",7\n')

    rows = answered(tmp_path / name, "select max, path from statistics")

    assert [["6.0", f"{tmp_path / name / PLACE}"]] == rows


def test_many_dumps_ranks_and_iterations(put, answered, tmp_path):
    """One question is about several dumps, by their names, with all their ranks and iterations."""
    for dump, high in (("good", 1), ("bad", 2)):
        for rank in (0, 1):
            for iteration in (0, 10):
                place = f"{dump}/rank_{rank}/Net/0/{iteration}/statistic.csv"
                value = high * 100 + rank * 10 + iteration
                put(tmp_path / place, f'{TITLES},Max Value\n{ROW},"()",{value}\n')

    question = "select dump, rank, iteration, max from statistics order by all"
    rows = answered(f"a={tmp_path / 'good'}", f"b={tmp_path / 'bad'}", question)

    assert [
        ["a", "0", "0", "100.0"],
        ["a", "0", "10", "110.0"],
        ["a", "1", "0", "110.0"],
        ["a", "1", "10", "120.0"],
        ["b", "0", "0", "200.0"],
        ["b", "0", "10", "210.0"],
        ["b", "1", "0", "210.0"],
        ["b", "1", "10", "220.0"],
    ] == rows


STAMP = 1795219089580885
NAME = "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{time}.{io}.{slot}.DefaultFormat.{dtype}.npy"


def named(time=STAMP, io="output", slot=0, dtype="float32"):
    """Return the name of a tensor's file."""
    return NAME.format(time=time, io=io, slot=slot, dtype=dtype)


TREES = {
    "rank_1/Net/2/3": [1, "Net", 2, 3],
    "20240112093000/5/resnet/1/3": [5, "resnet", 1, 3],
    "rank_1/Net/2/constants": [1, "Net", 2, ""],
}


def test_place_of_a_tensor(put, answered, tmp_path):
    """Rank, network, graph and iteration come from the path, of ranks and compiled models below one root."""
    for directory in TREES:
        put(tmp_path / directory / named(), np.ones((2, 3), np.float32))

    columns = "rank, network, graph, iteration, directory, op_type, io, slot, dtype, shape, bytes"
    rows = answered(tmp_path, f"select {columns} from tensors")

    rest = ["Conv2D", "output", "0", "float32", "[2, 3]", "24"]
    assert sorted([*map(str, place), directory, *rest] for directory, place in TREES.items()) == sorted(rows)


def test_file_of_an_operator(put, answered, tmp_path):
    """Every tensor of CANN's dump file of an operator is a row, as in its header."""
    info = TensorInfo(data_type=2, format=2, shape=(2, 3), original_shape=(2, 3), size=12)
    header = DumpData(dump_time=STAMP, op_name="Default/Add-op0", inputs=(info,), outputs=(info,))
    data = dump_data.header(header) + bytes(24)
    put(tmp_path / f"20240112093000/0/net/1/3/Add.Default_Add-op0.5.7.{STAMP}", data)

    columns = "full_name, io, slot, dtype, shape, format, bytes, task_id, stream_id"
    question = f"select {columns} from tensors order by io"
    told = ["0", "float16", "[2, 3]", "ND", "12", "5", "7"]
    assert [["Default/Add-op0", "input", *told], ["Default/Add-op0", "output", *told]] == answered(
        tmp_path, question
    )


def test_torn_file(put, ask, tmp_path):
    """A file that is torn has a row without a shape, and is reported; the others are there."""
    place = tmp_path / "rank_0/Net/0/0"
    put(place / named(slot=0), np.ones(3, np.float32))
    torn = put(place / named(STAMP + 1, slot=1), b"\x93NUMPY\x01\x00v")

    code, rows, stderr = ask(tmp_path, "select slot, shape, path from tensors order by slot")

    assert (1, [["0", "[3]", f"{place / named(slot=0)}"], ["1", "", str(torn)]]) == (code, rows)
    assert f"msdump: warning: {torn} at byte 9: the header is truncated: no length field\n" == stderr


def test_executions(put, answered, tmp_path):
    """Of two programs that wrote into one directory all tensors and both runs are there."""
    for start in (STAMP, STAMP + 1000):
        for slot in (0, 1):
            put(tmp_path / "rank_0/Net/0/0" / named(start + slot, slot=slot), np.ones(3, np.float32))

    rows = answered(tmp_path, "select execution, slot, timestamp from tensors order by all")
    assert [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]] == [row[:2] for row in rows]
    runs = (
        "select execution, is_whole, tensors, started, ended - started as took from runs order by execution"
    )
    assert [
        ["0", "true", "2", "2026-11-20 23:58:09.580885", "0:00:00.000001"],
        ["1", "true", "2", "2026-11-20 23:58:09.581885", "0:00:00.000001"],
    ] == answered(tmp_path, runs)


def test_kinds_of_files(put, answered, tmp_path):
    """Every file has its kind and size, foreign ones too, also with marks in their names."""
    put(tmp_path / "rank_0/Net/0/0" / named(), np.ones(3, np.float32))
    put(tmp_path / "rank_0/Net/0/0/statistic.csv", "")
    put(tmp_path / "rank_0/execution_order/ms_execution_order_graph_0.csv", "x\n")
    put(tmp_path / "rank_0/notes <script>.txt", "words")

    rows = answered(tmp_path, "select kind, name, bytes, graph from files order by kind")

    assert [
        ["execution_order", "ms_execution_order_graph_0.csv", "2", "0"],
        ["foreign", "notes <script>.txt", "5", ""],
        ["statistics", "statistic.csv", "0", "0"],
        ["tensor", named(), "140", "0"],
    ] == rows


def test_operators_without_a_graph_file(put, answered, tmp_path):
    """The order of execution has names; ``classic`` files spell the last component of a name alone."""
    order = "NodeExecutionOrder-FullNameWithScope\nDefault/conv1-Conv2d/Conv2D-op0\nDefault/ReLU-op1\n"
    put(tmp_path / "rank_0/execution_order/ms_execution_order_graph_0.csv", order)
    put(
        tmp_path / "rank_0/Net/0/0/Conv2D.Conv2D-op0.0.0.1.output.0.DefaultFormat.npy", np.ones(3, np.float32)
    )

    rows = answered(tmp_path, "select execution_order, full_name, scope, op_name from operators order by all")

    assert [
        ["0", "Default/conv1-Conv2d/Conv2D-op0", "Default/conv1-Conv2d", "Conv2D-op0"],
        ["1", "Default/ReLU-op1", "Default", "Default_ReLU-op1"],
    ] == rows


def test_measured_tensors(put, ask, tmp_path):
    """With --measure a tensor that lost its row of statistics has one; others keep theirs."""
    place = tmp_path / "rank_0/Net/0/0"
    put(place / named(slot=0), np.array([1, -2, np.nan], np.float32))
    put(place / named(STAMP + 1, slot=1), np.array([1, 2, 3], np.float32))
    row = f'Conv2D,Default_conv1-Conv2d_Conv2D-op0,0,0,{STAMP + 1},output,1,12,float32,"(3)",7'
    put(place / "statistic.csv", f"{HEAD}\n{row}\n")

    question = "select slot, max, nan_count, count, dtype from statistics order by slot"
    told = f"msdump: warning: {place}: 1 of 2 tensors have no row in statistic.csv\n"
    assert (1, [["1", "7.0", "", "", "float32"]], told) == ask(tmp_path, question)
    measured = [["0", "nan", "1", "3", "float32"], ["1", "7.0", "", "", "float32"]]
    assert (1, measured, told) == ask("--measure", tmp_path, question)


def test_comparison(put, answered, tmp_path):
    """Each tensor of a comparison's document is a row, with its errors and the verdicts."""
    for dump, high in (("good", 3.0), ("bad", 9.0)):
        put(tmp_path / dump / "rank_0/Net/0/0" / named(), np.array([1, 2, high], np.float32))
    both = [str(tmp_path / "bad"), str(tmp_path / "good")]
    done = cli("compare", *both, "--json", "-out", tmp_path / "tables")
    put(tmp_path / "result.json", done.stdout)

    columns = "op_type, op_name, io, slot, verdict, operator_verdict, dtype, shape, iteration, rank"
    question = f"select {columns}, round(distance, 3), max_error, ulps > 1 from comparisons"

    told = ["Conv2D", "Default_conv1-Conv2d_Conv2D-op0", "output", "0", "differs", "own", "float32", "[3]"]
    assert [[*told, "0", "0", "1.604", "6.0", "true"]] == answered(tmp_path / "result.json", question)
