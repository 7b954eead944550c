"""``msdump compare`` of statistics with tensors, which are measured as the statistics were."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx.helper
import pytest
from click.testing import CliRunner

from msdump import env
from msdump.capture import Process
from msdump.cli import main
from msdump.frontends import mindspore
from tests.texts import parsed
from tests.world import common_settings

GRAPHS = Path(__file__).resolve().parents[4] / "graphs"
CATEGORIES = ["max", "min", "avg", "l2norm", "nan count", "zero count", "hash:md5"]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """Give each test no variable of the environment."""
    for variable in env.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)


@pytest.fixture
def dump(tmp_path, monkeypatch):
    """Return a function that runs a model on Ascend and dumps it; the dump's directory has the given name."""

    def make(name, saved, model=None, *, level="O0", mode="host", precision="high", categories=CATEGORIES):
        monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))  # iterations from 0
        common = common_settings(
            f"{tmp_path}/{name}", iteration="0", saved_data=saved, statistic_category=categories
        )
        if level == "O2":
            common |= {"file_format": "npy", "op_debug_mode": 0}
        device = {"stat_calc_mode": mode, "device_stat_precision_mode": precision}
        e2e = {"enable": True, "trans_flag": True, **(device if level == "O0" else {})}
        blocks = {"common_dump_settings": common, "e2e_dump_settings": e2e}
        config = tmp_path / f"{name}.json"
        config.write_text(json.dumps(blocks))
        model = GRAPHS / "mini.onnx" if model is None else model
        options = ["--config", str(config), "--device-target", "Ascend", "--jit-level", level]
        ran = CliRunner().invoke(main, ["run", str(model), *options])
        assert 0 == ran.exit_code, ran.output
        return tmp_path / name

    return make


def compared(tmp_path, dumped, golden, *options):
    """Compare two dumps; return the exit code, and of the document the verdicts on all tensors."""
    arguments = ["compare", str(dumped), str(golden), "-out", str(tmp_path / "out"), *options, "--json"]
    done = CliRunner().invoke(main, arguments)
    document = json.loads(done.stdout)
    return done.exit_code, document


def verdicts(document):
    """Return the verdicts on all tensors of a document."""
    return {
        tensor["verdict"]
        for operator in document["operators"]
        for tensor in (*operator["inputs"], *operator["outputs"])
    }


@pytest.mark.parametrize("level", ["O0", "O2"])
@pytest.mark.parametrize(("dumped", "golden"), [("statistic", "tensor"), ("tensor", "full")])
def test_the_same_run_is_equal(tmp_path, dump, level, dumped, golden):
    """Rows and the tensors that they were measured from are the same, digests included, either way round."""
    sides = [dump("mine", dumped, level=level), dump("golden", golden, level=level)]
    if "statistic" not in {dumped, golden}:  # remove the tensors of the dump that has both
        for path in [*sides[1].rglob("*.npy")]:
            path.unlink()

    code, document = compared(tmp_path, *sides)

    assert (0, {"equal"}) == (code, verdicts(document))
    assert document["tensors"]["equal"] > 12


HALVES = parsed(
    "g (float16[300,70] x) => (float16[300,70] z) { y = Add(x, b) z = Relu(y) }",
    b=np.array([700], np.float16),
)


@pytest.mark.parametrize("precision", ["high", "low"])
def test_statistics_of_a_device(tmp_path, dump, precision):
    """Sums that a device folded, in float16 even, are found again in the tensors."""
    onnx.save(HALVES, tmp_path / "m.onnx")
    sums = ["max", "min", "avg", "l2norm"]
    mine = dump("mine", "statistic", tmp_path / "m.onnx", mode="device", precision=precision, categories=sums)
    golden = dump("golden", "tensor", tmp_path / "m.onnx")

    code, document = compared(tmp_path, mine, golden)

    assert (0, {"equal"}) == (code, verdicts(document))


def test_sums_that_overflowed_on_a_device(tmp_path, dump):
    """Rows of a host and of a device that adds in float16 agree: its infinite sums say nothing."""
    onnx.save(HALVES, tmp_path / "m.onnx")
    sums = ["max", "min", "l2norm"]
    mine = dump("mine", "statistic", tmp_path / "m.onnx", mode="device", precision="low", categories=sums)
    golden = dump("golden", "statistic", tmp_path / "m.onnx", categories=sums)

    code, document = compared(tmp_path, mine, golden)

    assert ",inf\n" in next(mine.rglob("statistic.csv")).read_text()
    assert (0, {"equal", "agrees"}) == (code, verdicts(document))


def test_a_tensor_that_differs(tmp_path, dump):
    """A tensor that another number slipped into is named with the statistic that shows it."""
    mine, golden = dump("mine", "statistic"), dump("golden", "tensor")
    (path,) = golden.rglob("ReLU.*.output.0.*.npy")
    array = np.load(path)
    array.flat[3] += 1
    path.chmod(0o600)
    np.save(path, array)

    code, document = compared(tmp_path, mine, golden)

    assert (1, ["Default/relu-ReLU/ReLU-op0"]) == (code, document["accused"])
    (output,) = next(each for each in document["operators"] if each["op_type"] == "ReLU")["outputs"]
    assert output["note"].split()[0] in {"Max", "Avg", "L2Norm"}


def test_files_that_cannot_be_read(tmp_path, dump):
    """A torn tensor is reported on either side, and the others are compared."""
    statistics, tensors = dump("statistics", "statistic"), dump("tensors", "tensor")
    (path,) = tensors.rglob("ReLU.*.output.0.*.npy")
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-8])

    code, document = compared(tmp_path, tensors, statistics)
    assert (1, {"equal", "unreadable"}) == (code, verdicts(document))

    code, document = compared(tmp_path, statistics, tensors)
    assert (1, {"equal", "unchecked"}) == (code, verdicts(document))
    assert "ReLU" in document["unreadable"][0]


def test_bfloat16_is_measured_as_it_was(tmp_path):
    """Files hold bfloat16 as float32; the digest of a row is that of the original bytes."""
    array = np.array([1.5, -2, 0.25], ml_dtypes.bfloat16)
    name = "Add.a.0.0.1795219089580885.output.0.DefaultFormat.bfloat16.npy"
    for side in ("mine", "golden"):
        (tmp_path / side).mkdir()
    np.save(tmp_path / "golden" / name, array.astype(np.float32))
    head = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,MD5"
    digest = "9e5f1f4c"  # of other bytes
    row = f'Add,a,0,0,1795219089580885,output,0,6,bfloat16,"(3)",{digest}'
    (tmp_path / "mine" / "statistic.csv").write_text(f"{head}\n{row}\n")

    assert {"differs"} == verdicts(compared(tmp_path, tmp_path / "mine", tmp_path / "golden")[1])
    right = hashlib.md5(array.tobytes(), usedforsecurity=False).hexdigest()
    (tmp_path / "mine" / "statistic.csv").write_text(f"{head}\n{row.replace(digest, right)}\n")
    assert {"equal"} == verdicts(compared(tmp_path, tmp_path / "mine", tmp_path / "golden")[1])


TITLES = "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count"


def test_csv_files_of_acl(tmp_path):
    """Acl's csv files, one for each operator, are compared by their names of statistics."""
    for side, largest in (("mine", "6"), ("golden", "6.5")):
        for number, high in ((0, "3"), (1, largest)):
            path = tmp_path / side / f"Add.a{number}.{number}.0.{1795219089580885 + number}.csv"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{TITLES}\nOutput,0,24,DT_FLOAT,ND,2x3,{high},1,2,6,0\n")

    code, document = compared(tmp_path, tmp_path / "mine", tmp_path / "golden")

    assert (1, ["a1"]) == (code, document["accused"])
    (output,) = document["operators"][1]["outputs"]
    assert ("float32", [2, 3], "Max Value 6 against 6.5") == (
        output["dtype"],
        output["shape"],
        output["note"],
    )


def test_rows_that_contradict_their_tensor(tmp_path, dump):
    """Of a dump with both the tensors are compared; a row that another number slipped into is reported."""
    mine, golden = dump("mine", "full"), dump("golden", "full")
    arguments = ["compare", str(mine), str(golden), "-out", str(tmp_path / "out")]
    assert "contradicts" not in CliRunner().invoke(main, arguments).stderr

    (table,) = mine.rglob("statistic.csv")
    lines = table.read_text().splitlines()
    table.chmod(0o600)
    table.write_text("\n".join([lines[0], lines[1].replace(",1,", ",2,", 1), *lines[2:]]) + "\n")
    number = next(number for number, line in enumerate(lines) if line.startswith("ReLU") and "output" in line)
    cells = lines[number].split(",")
    cells[-6] = "99"  # the smallest
    table.write_text("\n".join([*lines[:number], ",".join(cells), *lines[number + 1 :]]) + "\n")
    done = CliRunner().invoke(main, arguments)

    assert 0 == done.exit_code
    assert (
        f"{table} contradicts the tensor files in its directory, and the files are compared: " in done.stderr
    )
    assert "ReLU-op0 output 0: Min Value 99 against 0" in done.stderr
