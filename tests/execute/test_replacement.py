"""Tensors of the caller in the place of operators' outputs: the network runs on, and the dump shows them."""

import numpy as np
import onnx
import pytest

import msdump
from msdump.errors import InputError
from tests.execute.whole import model_of
from tests.world import O0, O1, O2, cli

NET = """g (float[2,N] x, bool c) => (float[2,N] y, float[2,N] z, float[2,M] t) {
    a = Relu(x)
    [negation] b = Neg(a)
    i = If(c) <then_branch = yes () => (q) { q = Abs(b) }, else_branch = no () => (q) { q = Sqrt(b) }>
    y = Mul(i, i)
    z = Exp(a)
    s, t = Split<axis=1, num_outputs=2>(a) }"""
X = np.array([[1, -2, 3, 4], [5, 6, -7, 8]], np.float32)
FEEDS = {"x": X, "c": np.array(True)}
HALF, ODD = np.full((2, 4), 0.5, np.float32), np.full((2, 4), 1 / 3, np.float32)
FLOAT16 = {"ascend_config": {"precision_mode": "force_fp16"}}
DEVICES = {"CPU": {}, "O0": O0, "O1": O1, "O2": O2}

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize("context", DEVICES.values(), ids=DEVICES)
def test_later_operators_read_the_tensor(context):
    """Readers of a replaced output compute from the tensor, all others as before, in this run alone."""
    network = msdump.load(model_of(NET), context=context)
    plain = network.run(FEEDS)

    replaced = network.run(FEEDS, replace={"Neg-op0": HALF})

    np.testing.assert_array_equal(HALF * HALF, replaced["y"])
    np.testing.assert_array_equal(plain["z"], replaced["z"])
    np.testing.assert_array_equal(plain["y"], network.run(FEEDS)["y"])


NAMES = {
    "full name": ("Default/Neg-op0", HALF, "y", HALF**2),
    "last component": ("Neg-op0", HALF, "y", HALF**2),
    "ONNX name": ("negation", HALF, "y", HALF**2),
    "with the output": ("negation:0", HALF, "y", HALF**2),
    "second output": ("Split:1", HALF[:, :2], "t", HALF[:, :2]),
    "branch": ("If", HALF, "y", HALF**2),
    "nan": ("Neg-op0", HALF * np.nan, "y", HALF * np.nan),
    "list": ("Exp-op0", [[1.0] * 4] * 2, "z", np.ones((2, 4))),
}


@pytest.mark.parametrize(("name", "tensor", "output", "expected"), NAMES.values(), ids=NAMES)
def test_names_of_outputs(name, tensor, output, expected):
    """An operator answers to its full name, an end of it and its ONNX name; a number chooses an output."""
    found = msdump.load(model_of(NET)).run(FEEDS, replace={name: tensor})

    np.testing.assert_array_equal(expected, found[output])


def test_an_operator_of_the_network_is_a_name():
    """``network.operator`` gives keys of ``replace``."""
    network = msdump.load(model_of(NET))

    found = network.run(FEEDS, replace={network.operator("negation"): HALF})

    np.testing.assert_array_equal(HALF**2, found["y"])


def test_the_device_rounds_the_tensor():
    """A float16 device holds the tensor in float16."""
    network = msdump.load(model_of(NET), context=DEVICES["O0"] | FLOAT16)

    found = network.run(FEEDS, replace={"Exp-op0": ODD})

    np.testing.assert_array_equal(ODD.astype(np.float16).astype(np.float32), found["z"])


FAULTS = {
    "unknown": ({"Nug-op0": HALF}, r"no operator 'Nug-op0' \(did you mean 'Neg-op0'\?\)"),
    "several": ({"Default/": HALF}, r"8 operators match 'Default/'; give a full name:"),
    "no such output": ({"Neg-op0:1": HALF}, "Default/Neg-op0 has no output 1; it has output 0"),
    "inside of a branch": ({"Abs-op0": HALF}, "is inside of a branch or loop, where each pass has tensors"),
    "type": ({"Neg-op0": HALF.astype("f8")}, "dtype float64 given, float32 expected; convert"),
    "rank": ({"Neg-op0": HALF[0]}, r"shape \(4,\) given, \(2, N\) expected"),
    "shape of this run": ({"Neg-op0": HALF[:, :3]}, r"is float32\[2, 4\] in this run, float32\[2, 3\] is"),
    "twice": ({"Neg-op0": HALF, "negation": HALF}, "replace 'negation': the output is given twice"),
    "nothing": ({"Neg-op0": None}, "replace 'Neg-op0': None given"),
}


@pytest.mark.parametrize(("replace", "message"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_replaced(replace, message):
    """Each unknown name, and each tensor of another type or shape, is refused by name."""
    with pytest.raises(InputError, match=message):
        msdump.load(model_of(NET)).run(FEEDS, replace=replace)


def test_an_operator_inside_a_fused_one():
    """A fused operator has the output of its last part; the others have none to replace."""
    model = model_of("g (float[4] x) => (float[4] y) { a = Abs(x) b = Neg(a) y = Exp(b) }")
    network = msdump.load(model, context=DEVICES["O1"])
    fed = {"x": HALF[0]}

    found = network.run(fed, replace={"Exp-op0": ODD[0]})

    np.testing.assert_array_equal(ODD[0], found["y"])
    with pytest.raises(InputError, match="is fused of it and others, and has the output of the last one"):
        network.run(fed, replace={"Default/Neg-op0": ODD[0]})


@pytest.fixture
def files(tmp_path):
    """Return the folder of a model, of inputs, and of tensors for ``--replace``."""
    onnx.save(model_of(NET), tmp_path / "model.onnx")
    np.savez(tmp_path / "inputs.npz", **FEEDS)
    np.save(tmp_path / "half.npy", HALF)
    np.save(tmp_path / "flat.npy", HALF[0])
    return tmp_path


def run(folder, *options):
    """Run the model with the inputs from the command line, and dump it."""
    fixed = ("run", folder / "model.onnx", "--inputs", folder / "inputs.npz", "--path", folder / "dump")
    return cli(*fixed, *options)


def test_the_dump_shows_the_tensor(files):
    """The dump has the tensor as the output of its operator, and as the input of the readers."""
    done = run(files, "--replace", f"Neg-op0={files}/half.npy", "--replace", f"Exp-op0={files}/half.npy")

    assert 0 == done.exit_code, done.stderr
    dump = msdump.open_dump(files / "dump")
    for name, io in (("Neg-op0", "output"), ("Abs-op0", "input"), ("Exp-op0", "output")):
        (record,) = dump.select(name=name, io=io)
        np.testing.assert_array_equal(HALF, record.array)


REFUSED = {
    "no file": ("Neg-op0", "not OPERATOR=FILE.npy, such as Conv2D-op0=tensor.npy"),
    "twice": ("Neg-op0=half.npy --replace Neg-op0=half.npy", "'Neg-op0' is given twice"),
    "missing": ("Neg-op0=none.npy", "--replace takes a file of numpy.save(path, array), such as a dumped"),
    "shape": ("Neg-op0=flat.npy", "replace 'Neg-op0': shape (4,) given, (2, N) expected"),
    "name": ("Mug-op0=half.npy", "no operator 'Mug-op0' (did you mean 'Mul-op0'?)"),
    "train": ("Neg-op0=half.npy --train", "--replace excludes --train"),
}


@pytest.mark.parametrize(("option", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_options_write_nothing(files, monkeypatch, option, message):
    """A wrong name, file or tensor ends the program with 2 before anything is written."""
    monkeypatch.chdir(files)

    done = run(files, "--replace", *option.split())

    assert 2 == done.exit_code
    assert message in " ".join(done.stderr.split())
    assert not (files / "dump").exists()
