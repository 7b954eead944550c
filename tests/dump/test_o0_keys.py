"""Every key of Ascend O0/O1, in both ways of dumping, on six numbers; expected values are written out."""

import re

import numpy as np
import onnx
import pytest

import msdump
from msdump.errors import ExecutionError
from tests.dump import nets, trees
from tests.texts import parsed
from tests.world import O0

STATISTIC_NAMES = (
    *("max", "min", "avg", "count", "negative zero count", "positive zero count", "nan count"),
    *("negative inf count", "positive inf count", "zero count", "md5", "l2norm"),
    *("hash", "hash:md5", "hash:sha1"),  # since MindSpore 2.7
)

KEYS = {
    "op_debug_mode": ("0", "3", "4"),
    "dump_mode": ("0", "1", "2"),
    "path": ("given", "from the environment"),
    "net_name": ("given",),
    "iteration": ("all", "one", "range", "several", "with spaces"),
    "saved_data": ("tensor", "statistic", "full"),
    "input_output": ("0", "1", "2"),
    "kernels": ("names", "type", "expression", "none"),
    "support_device": ("with", "without"),
    "statistic_category": ("default", *STATISTIC_NAMES),
    "overflow_number": ("0", "2"),
    "initial_iteration": ("5",),
    "enable": ("missing",),  # true and false are the two ways of every test
    "trans_flag": ("true", "false"),
    "stat_calc_mode": ("host", "device"),
    "device_stat_precision_mode": ("high", "low"),
    "sample_mode": ("0", "1"),
    "sample_num": ("default", "4"),
    "save_kernel_args": ("true", "false"),
}

ALL = {f"{key} {value}" for key, values in KEYS.items() for value in values}
"""Names of the rows of tests, such as ``iteration all``."""

ENABLE = pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])

X = [[1, 2, 3], [4, 5, 6]]
K = [[2]]
DOUBLE = [[2, 4, 6], [8, 10, 12]]
NEGATIVE = [[-2, -4, -6], [-8, -10, -12]]
W = [[1, 0], [0, 1], [1, 1]]
PRODUCT = [[-8, -10], [-20, -22]]
MUL = {"Mul input 0": X, "Mul input 1": K, "Mul output 0": DOUBLE}
NEG = {"Neg input 0": DOUBLE, "Neg output 0": NEGATIVE}
MATMUL = {"MatMul input 0": NEGATIVE, "MatMul input 1": W, "MatMul output 0": PRODUCT}
EVERYTHING = MUL | NEG | MATMUL


def three():
    """Return a doubling, a change of sign and a matrix product."""
    weights = {"k": np.array(K, np.float32), "w": np.array(W, np.float32)}
    return parsed(
        """graph (float[2,3] x) => (y) {
            ["one-Cell/Mul"] a = Mul(x, k)
            ["two-Cell/Neg"] b = Neg(a)
            ["three-Dense/MatMul"] y = MatMul(b, w)
        }""",
        **weights,
    )


FEEDS = {"x": np.array(X, np.float32)}


def only(io, tensors=None):
    """Return the inputs or outputs among tensors."""
    return {key: value for key, value in (tensors or EVERYTHING).items() if f" {io} " in key}


def numbers(folder):
    """Return ``Mul input 0`` -> its numbers, for the tensor files of a step."""
    return {f"{m['type']} {m['io']} {m['slot']}": np.load(p).tolist() for m, p in trees.tensors(folder)}


def steps(door, net="Net"):
    """Return the tensors of each step that has a directory."""
    folder = door.path / "rank_0" / net / "0"
    return {path.name: numbers(path) for path in sorted(folder.iterdir())} if folder.exists() else {}


# changes, tensors of each step of the four that run
CHOICES = {
    "op_debug_mode 0": ({"op_debug_mode": 0}, {"0": EVERYTHING}),
    "dump_mode 0": ({"dump_mode": 0, "kernels": ["Neg"]}, {"0": EVERYTHING}),
    "dump_mode 1": ({"dump_mode": 1, "kernels": ["Neg"]}, {"0": NEG}),
    "dump_mode 2": ({"dump_mode": 2}, {"0": MATMUL}),
    "iteration all": ({"iteration": "all"}, dict.fromkeys("0123", EVERYTHING)),
    "iteration one": ({"iteration": "2"}, {"2": EVERYTHING}),
    "iteration range": ({"iteration": "1-2"}, dict.fromkeys("12", EVERYTHING)),
    "iteration several": ({"iteration": "0|2-3|7"}, dict.fromkeys("023", EVERYTHING)),
    "iteration with spaces": ({"iteration": "0 | 2-3"}, dict.fromkeys("023", EVERYTHING)),
    "initial_iteration 5": ({"initial_iteration": 5, "iteration": "0|6-7"}, dict.fromkeys("67", EVERYTHING)),
    "input_output 0": ({"input_output": 0}, {"0": EVERYTHING}),
    "input_output 1": ({"input_output": 1}, {"0": only("input")}),
    "input_output 2": ({"input_output": 2}, {"0": only("output")}),
    "kernels names": (
        {"dump_mode": 1, "kernels": ["Default/two-Cell/Neg-op0", "Default/one-Cell/Mul-op0"]},
        {"0": MUL | NEG},
    ),
    "kernels type": ({"dump_mode": 1, "kernels": ["mUL"]}, {"0": MUL | MATMUL}),
    "kernels expression": (
        {"dump_mode": 1, "kernels": ["name-regex(Default/t.+-(Cell|Dense)/.+)"]},
        {"0": NEG | MATMUL},
    ),
    "kernels none": ({"dump_mode": 1, "kernels": []}, {"0": EVERYTHING}),
    "support_device with": ({"support_device": [1, 3]}, {"0": EVERYTHING}),
    "support_device without": ({"support_device": [0, 1, 2]}, {}),
    "saved_data tensor": ({"saved_data": "tensor"}, {"0": EVERYTHING}),
    "sample_mode 0": ({"sample_mode": 0, "sample_num": 4}, {"0": EVERYTHING}),
    "sample_mode 1": ({"sample_mode": 1, "sample_num": 6}, {"0": EVERYTHING}),
    "sample_num default": ({"sample_mode": 1}, {"0": EVERYTHING}),
    "sample_num 4": (
        {"sample_mode": 1, "sample_num": 4},
        {
            "0": {
                "Mul input 0": [1, 2, 3, 4],
                "Mul input 1": K,
                "Mul output 0": [2, 4, 6, 8],
                "Neg input 0": [2, 4, 6, 8],
                "Neg output 0": [-2, -4, -6, -8],
                "MatMul input 0": [-2, -4, -6, -8],
                "MatMul input 1": [1, 0, 0, 1],
                "MatMul output 0": PRODUCT,
            }
        },
    ),
    "save_kernel_args false": ({"save_kernel_args": False}, {"0": EVERYTHING}),
    "trans_flag true": ({"trans_flag": True}, {"0": EVERYTHING}),
}


@ENABLE
@pytest.mark.parametrize(("changes", "expected"), CHOICES.values(), ids=CHOICES)
def test_choices(door, enable, changes, expected):
    """Exactly the tensors that the key selects are there, in order, with their numbers."""
    msdump.set_dump("three")

    door.dump(
        three(),
        FEEDS,
        steps=4,
        context={**O0, "device_id": 3},
        enable=enable,
        **{"iteration": "0", "support_device": [3], **changes},
    )

    assert expected == steps(door)
    assert [list(tensors) for tensors in expected.values()] == [list(each) for each in steps(door).values()]
    kinds = {(m["format"], m["dtype"]) for m, _ in trees.tensors(door.rank)}
    assert kinds == ({("DefaultFormat", "float32")} if expected else set())
    assert list(door.rank.rglob("*.csv")) == list(door.rank.glob("execution_order/*.csv"))


def test_enable_missing(door):
    """Without ``enable`` the dump is asynchronous, and complete when the step returns."""
    network = door.dump(three(), FEEDS, context=O0, enable=None)

    assert network.plan.files.is_async
    assert steps(door) == {"0": EVERYTHING}


PLACES = {
    "path given": ({"path": "{folder}/own/place", "net_name": "Net"}, "own/place/rank_0/Net/0/0"),
    "path from the environment": ({"path": ""}, "debug_dump/rank_0/Net/0/0"),
    "net_name given": ({"path": "{folder}/own", "net_name": "Six_numbers-1"}, "own/rank_0/Six_numbers-1/0/0"),
}


@ENABLE
@pytest.mark.parametrize(("changes", "place"), PLACES.values(), ids=PLACES)
def test_places(door, enable, changes, place):
    """The files stand where ``path``, MS_DIAGNOSTIC_DATA_PATH and ``net_name`` say."""
    door.monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", str(door.folder))
    changes = {key: text.format(folder=door.folder) for key, text in changes.items()}

    door.dump(three(), FEEDS, context=O0, enable=enable, **changes)

    assert numbers(door.folder / place) == EVERYTHING


def blocks(rows):
    """Return a small matrix in FRACTAL_NZ: one block of sixteen by sixteen, zeros beside it."""
    filled = [[*row, *[0] * (16 - len(row))] for row in rows]
    return [[[*filled, *[[0] * 16] * (16 - len(rows))]]]


@ENABLE
def test_trans_flag_false(door, enable):
    """``trans_flag false``: the product's matrices lie in FRACTAL_NZ, read as float16, written as float32."""
    door.dump(three(), FEEDS, context=O0, enable=enable, trans_flag=False)

    device = {
        "MatMul input 0": blocks(NEGATIVE),
        "MatMul input 1": blocks(W),
        "MatMul output 0": blocks(PRODUCT),
    }
    assert steps(door) == {"0": EVERYTHING | device}
    kinds = {
        f"{m['type']} {m['io']} {m['slot']}": (m["format"], m["dtype"]) for m, _ in trees.tensors(door.rank)
    }
    assert kinds == {
        **dict.fromkeys(MUL | NEG, ("DefaultFormat", "float32")),
        "MatMul input 0": ("FRACTAL_NZ", "float16"),
        "MatMul input 1": ("FRACTAL_NZ", "float16"),
        "MatMul output 0": ("FRACTAL_NZ", "float32"),
    }


MD5 = {
    "x": "fa85978152c7dfb5f1322082915cb050",
    "doubled": "2d36f02bad1bedff1d772e0bcae2625f",
    "negative": "74305974c2ad66143e694f766b4d8404",
}
SHA1 = {
    "x": "5baa3a1be4e6d56160aa961c0da63c0de7ede5d7",
    "doubled": "1e77bd70556ab3c27683effd9fbc5bc9a7aa9037",
    "negative": "5bbf6911adfacbd270750d8ab1510d7a335bfcf3",
}
# title, cells of [[1, 2, 3], [4, 5, 6]], [[2, 4, 6], [8, 10, 12]] and [[-2, -4, -6], [-8, -10, -12]]
STATISTICS = {
    "max": ("Max Value", ["6", "12", "-2"]),
    "min": ("Min Value", ["1", "2", "-12"]),
    "avg": ("Avg Value", ["3.5", "7", "-7"]),
    "count": ("Count", ["6", "6", "6"]),
    "negative zero count": ("Negative Zero Count", ["0", "0", "6"]),
    "positive zero count": ("Positive Zero Count", ["6", "6", "0"]),
    "nan count": ("NaN Count", ["0", "0", "0"]),
    "negative inf count": ("Negative Inf Count", ["0", "0", "0"]),
    "positive inf count": ("Positive Inf Count", ["0", "0", "0"]),
    "zero count": ("Zero Count", ["0", "0", "0"]),
    "md5": ("MD5", list(MD5.values())),
    "l2norm": ("L2Norm Value", ["9.53939", "19.0788", "19.0788"]),
    "hash": ("SHA1", list(SHA1.values())),
    "hash:md5": ("MD5", list(MD5.values())),
    "hash:sha1": ("SHA1", list(SHA1.values())),
}
DEFAULT = ("Max Value,Min Value,L2Norm Value", ["6,1,9.53939", "12,2,19.0788", "-2,-12,19.0788"])
# changes, titles, cells of the three tensors
TABLES = {
    **{
        f"statistic_category {name}": ({"statistic_category": [name]}, *expected)
        for name, expected in STATISTICS.items()
    },
    "statistic_category default": ({}, *DEFAULT),
    "saved_data statistic": ({"saved_data": "statistic"}, *DEFAULT),
    "saved_data full": ({"saved_data": "full"}, *DEFAULT),
    "stat_calc_mode host": ({"stat_calc_mode": "host"}, *DEFAULT),
    "stat_calc_mode device": ({"stat_calc_mode": "device"}, *DEFAULT),
}
HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
LINES = [
    "Mul,Default_one-Cell_Mul-op0,0,0,{ts},input,0",
    "Mul,Default_one-Cell_Mul-op0,0,0,{ts},output,0",
    "Neg,Default_two-Cell_Neg-op0,0,0,{ts},output,0",
]


def statistics(door):
    """Return the lines of a step's statistics without times."""
    text = (door.rank / "Net" / "0" / "0" / "statistic.csv").read_text()
    return re.sub(r"(?<=,0,0,)[0-9]{16}(?=,)", "{ts}", text).splitlines()


@ENABLE
@pytest.mark.parametrize(("changes", "titles", "cells"), TABLES.values(), ids=TABLES)
def test_statistics(door, enable, changes, titles, cells):
    """The rows of three tensors, letter by letter; tensor files beside them only where they are wanted."""
    changes = {"saved_data": "statistic"} | changes

    door.dump(three(), FEEDS, context=O0, enable=enable, dump_mode=1, kernels=["Mul", "Neg"], **changes)

    header, *rows = statistics(door)
    assert header == f"{HEAD},{titles}"
    wanted = [f'{line},24,float32,"(2,3)",{cell}' for line, cell in zip(LINES, cells, strict=True)]
    assert wanted == [row for row in rows if row.startswith(tuple(LINES))]
    assert len(rows) == len(EVERYTHING)
    assert steps(door) == {"0": EVERYTHING if changes["saved_data"] == "full" else {}}


# float16 40000, 40000, 40000: max, min, avg, l2norm
PRECISIONS = {
    "device_stat_precision_mode high": ("high", "40000,40000,40000,69282"),
    "device_stat_precision_mode low": ("low", "40000,40000,inf,inf"),
}


@ENABLE
@pytest.mark.parametrize(("precision", "cells"), PRECISIONS.values(), ids=PRECISIONS)
def test_statistics_of_the_device(door, enable, precision, cells):
    """Sums in float16 overflow where the device computes in the tensor's own type."""
    kind = onnx.TensorProto.FLOAT16
    model = nets.model(
        [nets.node("Abs", "x", "y", "abs/Abs")], [nets.value("x", [3], kind)], [nets.value("y", [3], kind)]
    )

    door.dump(
        model,
        {"x": np.full(3, 40000, np.float16)},
        context=O0,
        enable=enable,
        saved_data="statistic",
        stat_calc_mode="device",
        device_stat_precision_mode=precision,
        statistic_category=["max", "min", "avg", "l2norm"],
    )

    assert statistics(door) == [
        f"{HEAD},Max Value,Min Value,Avg Value,L2Norm Value",
        f'Abs,Default_abs_Abs-op0,0,0,{{ts}},input,0,6,float16,"(3)",{cells}',
        f'Abs,Default_abs_Abs-op0,0,0,{{ts}},output,0,6,float16,"(3)",{cells}',
    ]


def sums():
    """Return four sums of one number with itself, the second one of half of it."""
    nodes = [nets.node("Mul", "x half", "h", "s/Mul")]
    nodes += [
        nets.node("Add", f"{name} {name}", f"y{at}", f"s{at}/Add")
        for at, name in enumerate(("x", "h", "x", "x"))
    ]
    return nets.model(
        nodes, [nets.value("x", [1])], [f"y{at}" for at in range(4)], {"half": np.array(0.5, np.float32)}
    )


# changes, overflow mode, result, sums that are dumped
OVERFLOWS = {
    "op_debug_mode 3": ({}, "INFNAN_MODE", np.inf, "023"),
    "saturation": ({}, "SATURATION_MODE", 65504, "023"),
    "overflow_number 0": ({"overflow_number": 0}, "INFNAN_MODE", np.inf, "023"),
    "overflow_number 2": ({"overflow_number": 2}, "INFNAN_MODE", np.inf, "02"),
}


@ENABLE
@pytest.mark.parametrize(("changes", "mode", "result", "expected"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_overflow(door, enable, changes, mode, result, expected):
    """60000 + 60000 overflows float16, 30000 + 30000 does not; each sum leaves two inputs and an output."""
    door.monkeypatch.setenv("MS_ASCEND_CHECK_OVERFLOW_MODE", mode)

    door.dump(
        sums(),
        {"x": np.array([60000], np.float32)},
        context=O0,
        enable=enable,
        op_debug_mode=3,
        precision_mode="force_fp16",
        **changes,
    )

    files = [
        (m["name"].removeprefix("Default_s")[0], m["io"], m["slot"], np.load(path).tolist())
        for m, path in trees.tensors(door.rank)
    ]
    tensors = (("input", "0", [60000]), ("input", "1", [60000]), ("output", "0", [result]))
    assert files == [(name, *tensor) for name in expected for tensor in tensors]


@ENABLE
def test_exception(door, enable):
    """``op_debug_mode 4``: a lookup of row 5 in two rows leaves the rows and the 5, and raises."""
    door.configure(enable=enable, op_debug_mode=4, input_output=1)
    network = door.load(
        parsed("""graph (float[2,3] x, int64[1] i) => (y) {
        ["neg/Neg"] n = Neg(x)
        ["look/Gather"] y = Gather(n, i)
    }"""),
        **O0,
    )

    with pytest.raises(ExecutionError, match="Default/look/Gather-op0"):
        network.run(FEEDS | {"i": np.array([5])})

    assert steps(door) == {"0": {"Gather input 0": [[-1, -2, -3], [-4, -5, -6]], "Gather input 1": [5]}}


@ENABLE
def test_save_kernel_args(door, caplog, enable):
    """``save_kernel_args true``: the product's two arguments; an asynchronous dump has none, and says so."""
    door.dump(three(), FEEDS, context=O0, enable=enable, save_kernel_args=True)

    texts = {path.name: path.read_text().rstrip("\n") for path in door.rank.rglob("*.json")}
    assert texts == (
        {
            "Mul.Default_one-Cell_Mul-op0.json": "{}",
            "Neg.Default_two-Cell_Neg-op0.json": "{}",
            "MatMul.Default_three-Dense_MatMul-op0.json": (
                '{\n    "transpose_a": "False",\n    "transpose_b": "False"\n}'
            ),
        }
        if enable
        else {}
    )
    assert all(trees.mode(path) == 0o400 for path in door.rank.rglob("*.json"))
    assert enable != any("save_kernel_args" in record.getMessage() for record in caplog.records)
    assert steps(door) == {"0": EVERYTHING}


def test_every_key_has_a_row():
    """Each key of the documents, with each of its values, is a row above or a test of its own."""
    rows = {*CHOICES, *PLACES, *TABLES, *PRECISIONS, *OVERFLOWS} - {"saturation"}

    own = {"enable missing", "op_debug_mode 4", "save_kernel_args true", "trans_flag false"}
    assert own == ALL - rows
    assert rows <= ALL
