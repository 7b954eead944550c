"""``msdump trend``: statistics of tensors over the iterations of a dump."""

import numpy as np
import pytest
from click.testing import CliRunner

from msdump.cli import documents, main
from msdump.cli import trend as trend_command
from tests.world import cli

START = 1795219089580885
HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,NaN Count"


def statistics(folder, *largest, first=START, name="Default_fc1-Dense_MatMul-op0"):
    """Write the rows of an operator's output, one for each of its passes."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f'MatMul,{name},0,0,{first + number},output,0,24,float32,"(2,3)",{high},{int(high == "nan")}\n'
        for number, high in enumerate(largest)
    ]
    path = folder / "statistic.csv"
    path.write_text((path.read_text() if path.exists() else f"{HEAD}\n") + "".join(lines))


def trend(dump, *arguments):
    """Call the command and return the exit code and its lines."""
    done = cli("trend", dump, *arguments)
    return done.exit_code, done.stdout.splitlines(), done.stderr


def test_rows(tmp_path):
    """Rows of statistic.csv are listed by iteration, the bars lie between its extremes."""
    for iteration, high in ((0, "1"), (1, "nan"), (2, "4.5"), (10, "8")):
        statistics(tmp_path / "rank_0" / "Net" / "0" / str(iteration), high)

    code, lines, _ = trend(tmp_path, "*MatMul-op0", "--stat", "max,nan")

    assert 0 == code
    assert [
        "Default_fc1-Dense_MatMul-op0 (MatMul), output 0",
        "iteration  max  nan count",
        "0          1    0",
        "1          nan  1",
        "2          4.5  0",
        "10         8    0",
        "max        ▁!▅█  1 to 8",
        "nan count  ▁█▁▁  0 to 1",
    ] == lines


def test_tensors(tmp_path):
    """Statistics that were not saved are measured from the elements, of inputs as well."""
    for iteration in range(2):
        folder = tmp_path / "rank_0" / "Net" / "0" / str(iteration)
        folder.mkdir(parents=True)
        name = f"Add.a.0.0.{START}.input.1.DefaultFormat.float32.npy"
        np.save(folder / name, np.float32([iteration, -3]))

    code, lines, _ = trend(tmp_path, "a", "--stat", "min,mean,zero", "--slot", "input:1")

    assert (0, ["0          -3   -1.5  1", "1          -3   -1    0"]) == (code, lines[2:4])


def test_a_torn_file(tmp_path):
    """A file that cannot be read is named, with hyphens in its place; the other iterations are there."""
    for iteration in range(3):
        folder = tmp_path / "rank_0" / "Net" / "0" / str(iteration)
        folder.mkdir(parents=True)
        path = folder / f"Add.a.0.0.{START}.output.0.DefaultFormat.float32.npy"
        np.save(path, np.float32([iteration, -3]))
    path.write_bytes(path.read_bytes()[:-3])

    code, lines, errors = trend(tmp_path, "a", "--stat", "max,min")
    document = cli("trend", tmp_path, "a", "--stat", "max", "--json")

    assert (1, ["0          0    -3", "1          1    -3", "2          -    -"]) == (code, lines[2:5])
    assert 1 == errors.count("error: ")
    assert path.name in errors
    told = documents.model(trend_command.DOCUMENT).model_validate_json(document.stdout)
    assert [0, 1, None] == [point.values["max"] for point in told.series[0].points]
    assert (1, [errors.strip().rpartition("error: ")[2]]) == (document.exit_code, told.unreadable)


def test_ranks_executions_and_passes(tmp_path):
    """Each rank has its series, and so has each execution in a directory."""
    for rank in (0, 1):
        folder = tmp_path / f"rank_{rank}" / "Net" / "0" / "0"
        statistics(folder, "1")
        statistics(folder, "2", first=START + 1000)

    done = cli("trend", tmp_path, "*", "--stat", "max", "--json")
    document = documents.model(trend_command.DOCUMENT).model_validate_json(done.stdout)
    points = [
        (series.rank, point.iteration, point.execution, point.pass_number, point.values["max"])
        for series in document.series
        for point in series.points
    ]

    assert [(0, 0, 0, 0, 1.0), (0, 0, 1, 0, 2.0), (1, 0, 0, 0, 1.0), (1, 0, 1, 0, 2.0)] == points
    _, lines, _ = trend(tmp_path, "*", "--stat", "max")
    assert "Default_fc1-Dense_MatMul-op0 (MatMul), output 0, rank 1, execution 0" in lines
    assert "Default_fc1-Dense_MatMul-op0 (MatMul), output 0, rank 1, execution 1" in lines


def test_many_iterations(tmp_path):
    """Of many iterations the first and last ones are listed, the line takes the largest of each few."""
    for iteration in range(150):
        high = "inf" if iteration == 75 else str(iteration)
        statistics(tmp_path / "rank_0" / "Net" / "0" / str(iteration), high)

    _, lines, _ = trend(tmp_path, "*", "--stat", "max")
    assert ["0", "9", "... 130", "140", "149"] == [
        lines[number].split("  ")[0] for number in (2, 11, 12, 13, 22)
    ]
    bars = lines[-1].split("  ")[1]
    assert (50, "!", 25) == (len(bars), bars[25], bars.index("!"))
    assert 150 + 3 == len(trend(tmp_path, "*", "--stat", "max", "-v")[1])


def test_acl(tmp_path):
    """Acl's csv files of operators have their points by step."""
    for step in (3, 4):
        folder = tmp_path / "20240131120000" / "0" / "net" / "1" / str(step)
        folder.mkdir(parents=True)
        titles = "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value,l2norm"
        path = folder / f"Add.a.1.0.{START}.csv"
        path.write_text(f"{titles}\nOutput,0,24,DT_FLOAT,ND,2x3,6,{step}.5,7\n")

    _, lines, _ = trend(tmp_path, "a", "--stat", "max,l2norm")

    assert ["3          3.5  7", "4          4.5  7"] == lines[2:4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Default_fc1-Dense_MatMul-op1",), "did you mean 'Default_fc1-Dense_MatMul-op0'?"),
        (("zzz",), "no operator 'zzz'; there are:\n  Default_fc1-Dense_MatMul-op0"),
        (("*", "nothing"), "no operator 'nothing'"),
        (("*", "--slot", "output:1"), "no output:1 of these operators was dumped; there are output:0"),
        (("*", "--slot", "out:0"), "'out:0' is not an input or output such as output:0"),
        (("*", "--stat", "maxx"), "did you mean 'max'?"),
        (("*", "--stat", "md5"), "no statistic 'md5'"),
        ((), "Missing argument 'OPERATOR...'"),
    ],
)
def test_what_is_wrong(tmp_path, arguments, message):
    """Unknown operators, slots and statistics are refused with suggestions."""
    statistics(tmp_path / "rank_0" / "Net" / "0" / "0", "1")

    code, lines, error = trend(tmp_path, *arguments)

    assert (2, []) == (code, lines)
    assert message in error


def test_a_terminal_without_unicode(tmp_path):
    """Where bars cannot be written other characters stand for them."""
    for iteration, high in ((0, "1"), (1, "8")):
        statistics(tmp_path / "rank_0" / "Net" / "0" / str(iteration), high)

    done = CliRunner(charset="ascii").invoke(main, ["trend", str(tmp_path), "*", "--stat", "max"])

    assert "max  _#  1 to 8" in done.stdout.splitlines()
