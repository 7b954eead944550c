"""``msdump compare`` of dumps that hold statistics alone: one line for each tensor, an honest exit code."""

from __future__ import annotations

import csv
import json

import pytest
from click.testing import CliRunner

from msdump.cli import main

HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
TITLES = "Max Value,Min Value,L2Norm Value"


def write(root, rows, titles=TITLES, place="0"):
    """Write a dump of statistics; a row is ``(name, io, dtype, shape, cells)``."""
    folder = root / place
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{HEAD},{titles}"]
    for time, (name, io, dtype, shape, cells) in enumerate(rows, 1795219089580885):
        lines.append(f'Add,{name},0,0,{time},{io},0,24,{dtype},"{shape}",{cells}')
    (folder / "statistic.csv").write_text("".join(f"{line}\n" for line in lines))
    return root


def row(name="a", cells="3,-1,4.5", dtype="float32", io="output", shape="(2,3)"):
    """Return a row."""
    return (name, io, dtype, shape, cells)


def run(tmp_path, *options):
    """Compare the dump ``mine`` with ``golden``; return exit code, output and the rows of the table."""
    arguments = ["compare", str(tmp_path / "mine"), str(tmp_path / "golden"), "-out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [*arguments, *options])
    tables = sorted((tmp_path / "out").glob("compare_*.csv"))
    with tables[-1].open() if tables else open("/dev/null") as file:  # noqa: PTH123
        return done.exit_code, done.output, list(csv.DictReader(file))


def case(verdict, mine, golden, titles=TITLES, *limits):
    """Return two rows, or cells of rows, with their titles, the limits of statistics, and the verdict."""
    rows = (each if isinstance(each, tuple) else row(cells=each) for each in (mine, golden))
    return *rows, titles, limits, verdict


RANGE = "Max Value,Min Value"
VERDICTS = {
    "equal": case("equal", row(), row()),
    "the last digit": case("agrees", "3,-1,4.50001", row()),
    "2 percent": case("differs", "3.06,-1,4.59", row()),
    "small scale": case("differs", "1.02e-8,0,1e-8", "1e-8,0,1e-8"),
    "float16 against float32": case("agrees", row(cells="3.001,-1,4.501", dtype="float16"), row()),
    "at the end of float32": case("agrees", "3.40282e+38,-1,1", "3.40281e+38,-1,1"),
    "both NaN": case("equal", "nan,nan,nan", "nan,nan,nan"),
    "one NaN": case("differs", "nan,nan,nan", row()),
    "inf beside -inf": case("differs", "inf,0,inf", "-inf,0,inf"),
    "shape": case("shape", row(shape="(6)"), row()),
    "an input": case("differs", row(io="input", cells="9,-1,9"), row(io="input")),
    "integers": case("differs", row(cells="4,-1,4.5", dtype="int64"), row(dtype="int64")),
    "a digest": case("equal", "00ff", "00ff", "MD5"),
    "another digest": case("differs", "00ff", "11ff", "MD5"),
    "a digest beside numbers": case("agrees", "3,00ff", "3,11ff", "Max Value,MD5"),
    "a count of NaN": case("differs", "nan,1", "nan,2", "Max Value,NaN Count"),
    "a count of zeros": case("agrees", "3,1", "3,2", "Max Value,Zero Count"),
    "within a limit": case("agrees", "3.06,-1", "3,-1", RANGE, "max=0.03"),
    "beyond a limit": case("differs", "3.06,-1", "3,-1", RANGE, "max=0.01"),
    "no tolerance": case("differs", "3.00001,-1", "3,-1", RANGE, "max=0"),
    "a limit of another": case("differs", "3.06,-2", "3,-1", RANGE, "max=1"),
    "limits of both": case("agrees", "3.06,-2", "3,-1", RANGE, "max=1", "min=1"),
    "a limit of digests": case("differs", "3,00ff", "3,11ff", "Max Value,MD5", "md5=0"),
    "beyond a share of the elements": case("differs", "3,1", "3,2", "Max Value,Zero Count", "zero count=0.1"),
    "within a share of the elements": case("agrees", "3,1", "3,2", "Max Value,NaN Count", "nan count=0.5"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("mine", "golden", "titles", "limits", "verdict"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts(tmp_path, mine, golden, titles, limits, verdict):
    """Numbers count by the tensor's scale and coarser type, or by --statistic; digests must be the same."""
    write(tmp_path / "mine", [mine], titles)
    write(tmp_path / "golden", [golden], titles)

    found, output, table = run(tmp_path, *(word for limit in limits for word in ("--statistic", limit)))

    assert (verdict not in {"equal", "agrees"}, [verdict]) == (found, [line["Verdict"] for line in table]), (
        output
    )


def test_one_line_for_each_tensor(tmp_path):
    """Inputs, outputs and passes have lines of their own, each once; the first that differs is named."""
    rows = [row("a", io="input"), row("a"), row("b"), row("b", cells="7,7,7")]
    write(tmp_path / "mine", rows)
    write(tmp_path / "golden", [*rows[:2], row("b", cells="9,-1,4.5"), row("b", cells="8,8,8")])

    code, output, table = run(tmp_path)

    assert 1 == code
    lines = [line.split("  ")[0] for line in output.splitlines() if line[:2] in {"a ", "b "}]
    assert lines == list(dict.fromkeys(lines))
    assert "first     b (Add), pass 0, operator 2 of 3: output 0 differs" in output
    assert "4 tensors of 3 operators: 2 agree (2 exactly), 2 differ, 0 failed" in output
    assert 4 == len(table)


def test_alone(tmp_path):
    """A row that only one side has is listed, and is no difference."""
    write(tmp_path / "mine", [row("a"), row("b")])
    write(tmp_path / "golden", [row("a"), row("c")])

    code, output, table = run(tmp_path)

    assert 0 == code
    assert "alone     1 tensor without a counterpart" in output
    assert "missing   1 operator of golden, such as c" in output
    assert ["equal", "unchecked", "missing"] == [line["Verdict"] for line in table]


def test_executions(tmp_path):
    """Of several programs in one path the last one is taken, and another may be chosen."""
    write(tmp_path / "mine", [row(cells="1,1,1"), row(cells="2,2,2")], place="rank_0/Net/0/0")
    order = tmp_path / "mine/rank_0/execution_order/ms_execution_order_graph_0.csv"
    order.parent.mkdir()
    order.write_text("NodeExecutionOrder-FullNameWithScope\na\n")
    write(tmp_path / "golden", [row(cells="2,2,2")])

    assert 0 == run(tmp_path)[0]
    assert "1 (of 0-1) is taken" in run(tmp_path)[1]
    assert 1 == run(tmp_path, "--execution", "0")[0]
    assert 2 == run(tmp_path, "--execution", "2")[0]


@pytest.mark.parametrize("text", ["max", "max=", "max=-1", "max=nan", "l2nom=1"])
def test_limits_that_are_none(tmp_path, text):
    """A limit without a number, or of no statistic, is refused; the message lists the statistics."""
    write(tmp_path / "mine", [row()])

    code, output, _ = run(tmp_path, "--statistic", text)

    assert (2, True) == (code, "positive inf count" in output)


def test_an_error_that_is_passed_on(tmp_path):
    """An operator with a differing input has inherited its error; one with equal inputs is accused."""
    rows = [
        *(row("a", io="input"), row("a")),
        *(row("b", io="input"), row("b")),
    ]
    wrong = [
        rows[0],
        row("a", cells="3.6,-1,5"),
        row("b", io="input", cells="3.6,-1,5"),
        row("b", cells="4,0,5"),
    ]
    write(tmp_path / "mine", wrong)
    write(tmp_path / "golden", rows)
    arguments = ["compare", str(tmp_path / "mine"), str(tmp_path / "golden"), "-out", str(tmp_path), "--json"]

    document = json.loads(CliRunner().invoke(main, arguments).stdout)

    assert ["own", "inherited"] == [each["verdict"] for each in document["operators"]]


def test_limits_of_a_file(tmp_path):
    """The file of limits has limits of statistics, too; an option goes before them."""
    write(tmp_path / "mine", [row(cells="3.06,-1", shape="(2)")], "Max Value,Min Value")
    write(tmp_path / "golden", [row(cells="3,-1", shape="(2)")], "Max Value,Min Value")
    (tmp_path / "limits.json").write_text('{"statistics": {"max": 0.03}}')
    (tmp_path / "wrong.json").write_text('{"statistics": {"maxx": 0.03}}')
    given = ("--limits", str(tmp_path / "limits.json"))

    assert ["agrees"] == [line["Verdict"] for line in run(tmp_path, *given)[2]]
    assert 1 == run(tmp_path, *given, "--statistic", "max=0.01")[0]
    code, output, _ = run(tmp_path, "--limits", str(tmp_path / "wrong.json"))
    assert (2, True) == (code, "did you mean 'max'?" in output)
