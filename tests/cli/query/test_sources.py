"""What questions are asked of, what is wrong with it, and how answers are printed."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

from msdump.cli import main

HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value"
STATISTICS = f'{HEAD}\nAdd,Default_Add-op0,0,0,9,output,0,24,float32,"(2,3)",6\n'
PLACE = "rank_0/Net/0/3/statistic.csv"


@pytest.fixture
def dump(put, tmp_path):
    """Return the path of a dump with one row of statistics."""
    put(tmp_path / "dump" / PLACE, STATISTICS)
    return tmp_path / "dump"


QUESTIONS = {
    "no SQL": ("choose max", 'the question fails: Parser Error: syntax error at or near "choose"'),
    "no such column": ("select maxx from statistics", 'Referenced column "maxx" not found'),
    "no such view": ("select * from statistic where 1 = 1", "Table with name statistic does not exist"),
    "a cell that does not fit": (
        "select cast(op_name as bigint) from statistics",
        "Could not convert string",
    ),
    "an error further down": ("select 1 ; choose 2", "syntax error at or near"),
    "nothing": ("  -- only words  ", "the question is empty"),
}


@pytest.mark.parametrize(("question", "message"), QUESTIONS.values(), ids=QUESTIONS)
def test_bad_question(dump, ask, question, message):
    """A question that cannot be answered is refused in DuckDB's words, with exit code 2."""
    code, rows, stderr = ask(dump, question)

    assert (2, []) == (code, rows)
    assert message in stderr
    assert stderr.startswith("msdump: error: ")
    assert "_answer" not in stderr


ARGUMENTS = {
    "no such dump": (["{0}/nothing", "select 1"], "no such file or directory"),
    "a file that is no result": (
        ["{0}/dump/" + PLACE, "select 1 from comparisons"],
        "no result of msdump compare",
    ),
    "a file of another kind": (["{0}/words.txt", "select 1"], "no .json or .csv file of msdump compare"),
    "JSON of something else": (["{0}/other.json", "from comparisons"], "no result of msdump compare"),
    "an empty directory": (["{0}/empty", "select 1"], "no dump"),
    "two of one name": (["a={0}/dump", "a={0}/empty", "select 1"], "two sources are called 'a'"),
    "a question alone": (["select 1"], "a question alone; name a dump before it"),
    "a pack of another form": (["{0}/pack", "select 1"], "a pack of form 99; this msdump reads form 1"),
    "a broken pack": (["{0}/broken", "select 1"], "not JSON"),
}


@pytest.mark.parametrize(("arguments", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_bad_arguments(dump, put, ask, tmp_path, arguments, message):
    """What is no source is refused with exit code 2; the message names it."""
    put(tmp_path / "words.txt", "words")
    put(tmp_path / "other.json", '{"verdict": 1}')
    put(tmp_path / "pack/msdump_pack.json", '{"format": 99}')
    put(tmp_path / "broken/msdump_pack.json", "{")
    (tmp_path / "empty").mkdir()

    code, rows, stderr = ask(*(argument.format(tmp_path) for argument in arguments))

    assert (2, []) == (code, rows)
    assert message in stderr


@pytest.mark.parametrize("options", [("--csv", "--json"), ("--csv", "--parquet", "x.parquet")])
def test_one_kind_of_output(dump, options):
    """Answers have one form."""
    done = CliRunner().invoke(main, ["query", str(dump), "select 1 as x", *options])

    assert 2 == done.exit_code
    assert "--csv, --json and --parquet exclude each other" in done.stderr


def test_without_duckdb(dump, monkeypatch):
    """Where the extra is not installed, the message has the command that installs it."""
    monkeypatch.setitem(sys.modules, "duckdb", None)

    done = CliRunner().invoke(main, ["query", str(dump), "select 1 from runs"])

    assert (2, "") == (done.exit_code, done.stdout)
    assert (
        "duckdb is not installed; install it, or msdump with its extra: pip install 'msdump[query]'"
        in done.stderr
    )


def test_no_rows(dump):
    """An answer without rows says so, and ends well; as csv it has its titles."""
    empty = ["query", str(dump), "select max from statistics where max > 100"]

    shown = CliRunner().invoke(main, empty)

    assert (0, "no rows\n") == (shown.exit_code, shown.stdout)
    assert "max\n" == CliRunner().invoke(main, [*empty, "--csv"]).stdout


def test_table_is_cut(dump):
    """Of many rows the first fifty are shown, and how to get the others; -v shows all."""
    question = ["query", str(dump), "select i from range(1000000) t(i)"]

    lines = CliRunner().invoke(main, question).stdout.splitlines()

    assert 55 == len(lines)
    assert "the first 50 rows; -v shows all, --csv, --json and --parquet hold all" == lines[-1]


def test_names_steer_no_terminal(dump):
    """Control characters and marks that turn the direction of writing are spelled out; brackets stay."""
    question = r"select 'a' || chr(27) || '[31m' || chr(8238) || '<script>[bold]:smile:' as name"

    shown = CliRunner().invoke(main, ["query", str(dump), question]).stdout

    assert r"a\x1b[31m\u202e<script>[bold]:smile:" in shown


def test_document(dump):
    """The document has names and types of the columns, NaN and times as texts, equal names apart."""
    question = (
        "select 'nan'::double as x, '-inf'::double as x, [1, null] as l, timestamp '2026-01-02 03:04:05' as t"
        ", 1.5::decimal(3, 1) as d, {'a': 1} as s, true as b, null as n"
    )

    document = json.loads(CliRunner().invoke(main, ["query", str(dump), question, "--json"]).stdout)

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
        }
    ] == document["rows"]


def test_parquet(dump, answered, tmp_path):
    """The answer is written as a Parquet file, which DuckDB reads back with its types."""
    path = tmp_path / "it's.parquet"

    done = CliRunner().invoke(
        main, ["query", str(dump), "--parquet", str(path), "select max, shape from statistics; "]
    )

    assert (0, f"written   {path} (1 rows)\n") == (done.exit_code, done.stdout)
    quoted = str(path).replace("'", "''")
    assert [["6.0", "[2, 3]"]] == answered(dump, f"from '{quoted}'")


def test_parquet_that_cannot_be_written(dump, ask, tmp_path):
    """A file that cannot be written is told."""
    done = CliRunner().invoke(
        main, ["query", str(dump), "--parquet", f"{tmp_path}/no/where.parquet", "select 1 as x"]
    )

    assert 2 == done.exit_code
    assert "where.parquet" in done.stderr


def test_from_standard_input(dump):
    """Without a question the SQL comes from a pipe; the last statement is answered."""
    script = "create table high as select * from statistics where max > 5;\nselect count(*) as n from high;\n"

    done = CliRunner().invoke(main, ["query", str(dump), "--csv"], input=script)

    assert (0, "n\n1\n") == (done.exit_code, done.stdout)


def test_views_are_listed(dump, answered):
    """SHOW TABLES and DESCRIBE know all views, also those that nobody has asked for."""
    views = [[name] for name in ("comparisons", "files", "operators", "runs", "statistics", "tensors")]

    assert views == answered(dump, "show tables")
    assert ["dump", "VARCHAR"] == answered(dump, "describe runs")[0][:2]


def test_pack_refuses_what_is_there(dump):
    """A directory that holds something is no place for a pack."""
    done = CliRunner().invoke(main, ["pack", str(dump), "-out", str(dump)])

    assert 2 == done.exit_code
    assert "holds files already; remove them first" in done.stderr


def test_pack_of_dumps_and_packs(dump, answered, tmp_path):
    """A pack and a dump are asked together; labels stay those of the pack, whatever it is called."""
    pack = tmp_path / "it's a pack"
    done = CliRunner().invoke(main, ["pack", f"old={dump}", "-out", str(pack), "--json"])

    assert {"statistics": 1, "files": 1, "runs": 1} == json.loads(done.stdout)["rows"]
    rows = answered(pack, f"new={dump}", "select dump, max, directory from statistics order by dump")
    assert [["new", "6.0", "rank_0/Net/0/3"], ["old", "6.0", "rank_0/Net/0/3"]] == rows


def test_pack_of_irregular_statistics(put, answered, tmp_path):
    """A pack holds every row and cell that can be read; what cannot is told when it is made."""
    path = put(tmp_path / "dump" / PLACE, f"{STATISTICS}Mul,Default_Mul-op0\n{STATISTICS}Mul,b,0,0,9")

    done = CliRunner().invoke(main, ["pack", str(tmp_path / "dump"), "-out", str(tmp_path / "pack")])

    assert (0, 2) == (done.exit_code, len(done.stderr.splitlines())), done.stderr
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
    done = CliRunner().invoke(
        main,
        ["query", str(tmp_path / "dump"), "--parquet", str(path), "from statistics select iteration, max"],
    )
    assert f"written   {path} (10,000,000 rows)\n" == done.stdout
