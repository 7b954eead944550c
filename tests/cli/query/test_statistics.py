"""The view ``statistics``: every vendor's files give the same columns of the same types."""

from __future__ import annotations

import pytest

PLACE = "rank_0/Net/0/3/statistic.csv"
ACL_PLACE = "20240112093000/0/resnet50/1/3/Add.Default_Add-op0.5.7.1795217009720246.csv"
HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
ROW = "Add,Default_Add-op0,5,7,1795217009720246,input,1,24,float32"
ACL_SHORT = "Input/Output,Index,Data Size,Data Type,Format,Shape"
ACL_HEAD = f"{ACL_SHORT},Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count"

FILES = {
    "msdump's": (
        PLACE,
        f'{HEAD},Max Value,Min Value,Avg Value,Count,NaN Count\n{ROW},"(2,3)",6,-1e+06,3.5,6,0\n',
    ),
    "MindSpore's, with a comma at the end of a row": (
        PLACE,
        f'{HEAD},Max Value,Min Value,Avg Value,Count,NaN Count\n{ROW},"(2,3)",6,-1e+06,3.5,6,0,\n',
    ),
    "another order of columns": (
        PLACE,
        f'{HEAD},NaN Count,Count,Avg Value,Min Value,Max Value\n{ROW},"(2,3)",0,6,3.5,-1e+06,6\n',
    ),
    "lines of Windows": (
        PLACE,
        f'{HEAD},Max Value,Min Value,Avg Value,Count,NaN Count\r\n{ROW},"(2,3)",6,-1e+06,3.5,6,0\r\n',
    ),
    "acl's": (
        ACL_PLACE,
        f"{ACL_HEAD}\nInput,1,24,DT_FLOAT,ND,2x3,6,-1e+06,3.5,6,0,0,0\n",
    ),
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


CELLS = {
    "nan": ("nan", "nan"),
    "-nan": ("-nan", "nan"),
    "inf": ("inf", "inf"),
    "-inf": ("-inf", "-inf"),
    "-0": ("-0", "-0.0"),
    "exponent": ("1e+06", "1000000.0"),
    "null": ("null", ""),
    "empty": ("", ""),
    "True": ("True", "1.0"),
    "False": ("False", "0.0"),
}


@pytest.mark.parametrize(("cell", "value"), CELLS.values(), ids=CELLS)
def test_cells(put, answered, tmp_path, cell, value):
    """What a C++ stream prints of a number, a device's truth values and NULL are read."""
    put(tmp_path / PLACE, f'{HEAD},Max Value,MD5\n{ROW},"()",{cell},00ff\n')

    assert [[value, "[]", "00ff"]] == answered(tmp_path, "select max, shape, md5 from statistics")


def test_types_are_given(put, answered, tmp_path):
    """A column whose cells all look like numbers is a text where the table of columns says so."""
    put(tmp_path / PLACE, f'{HEAD},MD5\n1,2,5,7,9,input,1,24,float32,"(2,3)",33\n')

    described = "select typeof(op_type), typeof(op_name), typeof(md5), typeof(max), typeof(shape)"
    assert [["VARCHAR", "VARCHAR", "VARCHAR", "DOUBLE", "BIGINT[]"]] == answered(
        tmp_path, f"{described} from statistics"
    )


TORN = {
    "half a row": ("Mul,Default_Mul-op0,5,7,17952", 1),
    "a row without its line feed, whose last number may lack digits": (f'{ROW},"(2,3)",1', 1),
    "nothing behind the titles": (None, 0),
}


@pytest.mark.parametrize(("tail", "count"), TORN.values(), ids=TORN)
def test_half_written(put, ask, tmp_path, tail, count):
    """Rows before a half-written one are read, and the half is told."""
    text = f'{HEAD},Max Value\n{ROW},"(2,3)",6\n{tail}' if tail else f"{HEAD},Max"
    path = put(tmp_path / PLACE, text)

    code, rows, stderr = ask(tmp_path, "select max from statistics")

    assert (0, [["6.0"]] * count) == (code, rows)
    told = f"msdump: warning: {path}: the last row has no line feed yet and is left out\n"
    assert (told if count else "") == stderr


IRREGULAR = {
    "too short": (b"Add,Default_Add-op0\n", "a row has 2 cells, the header has 11"),
    "too long": (f'{ROW},"(2,3)",6,7,8\n'.encode(), "a row has 13 cells, the header has 11"),
    "a quote that is never closed": (f'{ROW},"(2,3),6\n'.encode(), "a row has 10 cells, the header has 11"),
}


@pytest.mark.parametrize(("line", "fault"), IRREGULAR.values(), ids=IRREGULAR)
@pytest.mark.parametrize("question", ["select max from statistics", "select 6.0 from statistics"])
def test_row_that_cannot_be_read(put, ask, tmp_path, line, fault, question):
    """It is left out and told with its place; the rows around it are all there."""
    good = f'{ROW},"(2,3)",6\n'.encode()
    path = put(tmp_path / PLACE, f"{HEAD},Max Value\n".encode() + good + line + good)

    code, rows, stderr = ask(tmp_path, question)

    place = f"{path} at byte {len(HEAD) + 11 + len(good)}"
    assert f"msdump: warning: {place}: {fault}; the row is left out\n" == stderr
    assert (0, [["6.0"], ["6.0"]]) == (code, rows)


MISFITS = {
    "a word for a number": ('"()",six,00ff', "Max Value is 'six', no number; it is left out"),
    "more digits than a number has": (
        f'"()",{"9" * 500}x,00ff',
        "Max Value is '" + "9" * 40 + "', no number; it is left out",
    ),
}


@pytest.mark.parametrize(("cells", "fault"), MISFITS.values(), ids=MISFITS)
def test_cell_that_cannot_be_read(put, ask, tmp_path, cells, fault):
    """It is NULL and told; its row is there, whatever is asked."""
    path = put(tmp_path / PLACE, f'{HEAD},Max Value,MD5\n{ROW},"()",6,aa\n{ROW},{cells}\n')

    code, rows, stderr = ask(tmp_path, "select max, md5 from statistics")

    place = f"{path} at byte {len(HEAD) + 15 + len(ROW) + 11}"
    assert (0, [["6.0", "aa"], ["", "00ff"]]) == (code, rows)
    assert f"msdump: warning: {place}: {fault}\n" == stderr


@pytest.mark.parametrize(
    "question", ["summarize statistics", "with a as (from statistics) select count(*) from a"]
)
def test_any_statement_meets_irregular_rows(put, ask, tmp_path, question):
    """Whatever form a question has: a row that cannot be read is told, the others count."""
    put(tmp_path / PLACE, f'{HEAD},Max Value\n{ROW},"()",6\nAdd,Default_Add-op0\n')

    code, rows, stderr = ask(tmp_path, question)

    assert 0 == code
    assert ["1"] in ([row[-2:-1] for row in rows] if "summarize" in question else rows)
    assert "a row has 2 cells, the header has 11; the row is left out" in stderr


def test_other_titles_further_down(put, answered, tmp_path):
    """A later run into the same file may have other titles: each row is read by those above it."""
    rows = f'{HEAD},Max Value\n{ROW},"(2,3)",6\n{HEAD},Min Value,Max Value\n{ROW},"(2,3)",1,7\n'
    put(tmp_path / PLACE, rows)

    assert [["", "6.0"], ["1.0", "7.0"]] == answered(tmp_path, "select min, max from statistics order by max")
    assert [["2"]] == answered(tmp_path, "select count(*) from statistics")


def test_unknown_columns_and_files(put, ask, tmp_path):
    """A column that the view lacks is told, as is a file without titles; the rest is read."""
    known = put(tmp_path / PLACE, f'{HEAD},Median Value,Max Value\n{ROW},"(2,3)",3,6\n')
    foreign = put(tmp_path / "rank_0/Net/0/4/statistic.csv", "a,b\n1,2\n")

    code, rows, stderr = ask(tmp_path, "select max from statistics")

    assert (0, [["6.0"]]) == (code, rows)
    assert [
        f"msdump: warning: {known}: the column 'Median Value' is not known and is left out",
        f"msdump: warning: {foreign}: the first line has no titles of statistics; the file is left out",
    ] == stderr.splitlines()


NAMES = ["it's", 'a "quote"', "st*r[1]", "blank here", "semi;colon", "b\\slash", "ünïcode"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_directories(put, answered, tmp_path, name):
    """A dump is read whatever its directory is called, and no other one in its place."""
    put(tmp_path / name / PLACE, f'{HEAD},Max Value\n{ROW},"(2,3)",6\n')
    put(tmp_path / "star1" / PLACE, f'{HEAD},Max Value\n{ROW},"(2,3)",7\n')

    rows = answered(tmp_path / name, "select max, path from statistics")

    assert [["6.0", f"{tmp_path / name / PLACE}"]] == rows


def test_many_dumps_ranks_and_iterations(put, answered, tmp_path):
    """One question is asked of several dumps, by their names, with all their ranks and iterations."""
    for dump, high in (("good", 1), ("bad", 2)):
        for rank in (0, 1):
            for iteration in (0, 10):
                place = f"{dump}/rank_{rank}/Net/0/{iteration}/statistic.csv"
                put(tmp_path / place, f'{HEAD},Max Value\n{ROW},"()",{high * 100 + rank * 10 + iteration}\n')

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
