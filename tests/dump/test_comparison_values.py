"""Dumps that differ in values: exchanged inputs, transposed weights, types, overflows, random numbers."""

import shutil

import numpy as np
import pytest
from onnx import helper

from tests.dump import o2
from tests.dump.compared import accused, document, faults
from tests.dump.nets import model, node, value
from tests.texts import parsed
from tests.world import CPU, O0, O1

pytestmark = pytest.mark.usefixtures("quiet")


WEIGHT = np.random.default_rng(1).standard_normal((3, 5)).astype("f4")
INPUTS = {
    "x": np.random.default_rng(2).standard_normal((2, 3)).astype("f4"),
    "t": np.random.default_rng(3).standard_normal((5, 4)).astype("f4"),
}
NODES = [
    node("Tanh", "x", "p"),
    node("MatMul", "p w", "q"),
    node("Sin", "t", "r"),
    node("MatMul", "q r", "s"),
    node("Relu", "s", "y"),
]


@pytest.fixture
def inputs(door):
    """Return two dumps of one network."""
    inputs = [value("x", [2, 3]), value("t", [5, 4])]
    return door.twice(model(NODES, inputs, ["y"], {"w": WEIGHT}), INPUTS)


def exchange(root, operator, first=0, second=1):
    """Exchange the contents of two input files of an operator."""
    paths = [next(root.rglob(f"*{operator}.*.input.{slot}.*.npy")) for slot in (first, second)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("operator", "verdict", "note"),
    [
        ("MatMul-op0", "weight", "input 1 w: shape"),
        ("MatMul-op1", "own", "input 0 is not the output of Default/MatMul-op0: shape"),
    ],
    ids=["weight", "values"],
)
def test_exchanged_inputs_of_other_shapes(inputs, operator, verdict, note):
    """An operator with exchanged contents of its input files is accused, not healed."""
    mine, golden = inputs
    exchange(mine, operator)

    code, report = document(mine, golden)

    (found,) = [each for each in report["operators"] if each["verdict"] not in {"equal", "agrees"}]
    assert (1, verdict, f"Default/{operator}") == (code, found["verdict"], found["operator"])
    assert found["note"].startswith(note)


def test_an_input_that_changed_in_between(inputs):
    """An input that differs from its producer's output is reported, even if its reader's output agrees."""
    mine, golden = inputs
    (path,) = mine.rglob("ReLU.*.input.0.*.npy")
    np.save(path, np.load(path) - 3 * (np.load(path) < 0).astype("f4"))

    _, report = document(mine, golden)

    (found,) = [each for each in report["operators"] if each["verdict"] == "own"]
    assert "input 0 is not the output of Default/MatMul-op1: the tensor changed in between" == found["note"]


def test_an_input_that_its_producer_wrote_so(inputs):
    """A wrong output accuses its producer, not a reader with right results."""
    mine, golden = inputs
    for path in (*mine.rglob("MatMul*-op1.*.output.0.*.npy"), *mine.rglob("ReLU.*.input.0.*.npy")):
        np.save(path, np.load(path) - 3 * (np.load(path) < 0).astype("f4"))

    assert [("own", "MatMul-op1")] == accused(mine, golden)


def test_inputs_behind_a_reshape_that_has_no_file(door):
    """Inputs of a compiled kernel are compared with tensors from before a reshape, element by element."""
    network, feeds = "graphs/mini.onnx", {"x": np.linspace(-1, 1, 36, dtype="f4").reshape(1, 1, 6, 6)}
    golden = door.aside("golden", network, feeds, naming="2.7")

    code, report = document(o2.aside(door, "mine", network, feeds), golden)

    assert 0 == code
    assert {"equal", "agrees", "unchecked"} >= {each["verdict"] for each in report["operators"]}


ROWS = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype("f4")}


def dense(width):
    """Return a network of one product with a matrix of four rows."""
    weight = np.random.default_rng(1).standard_normal((4, width)).astype("f4")
    nodes = [node("MatMul", "x w", "y"), node("Relu", "y", "z")]
    return model(nodes, [value("x", [3, 4])], ["z"], {"w": weight})


def hold_transposed(root):
    """Let a product read its weight transposed, as MindSpore's dense layers do: an argument says so."""
    shutil.rmtree(root / "rank_0" / "graphs")  # they declare the other shape
    for path in [*root.rglob("MatMul.*.input.1.*.npy"), *root.rglob("Parameter.w.*.npy")]:
        np.save(path, np.load(path).T.copy())
    (path,) = root.rglob("MatMul.*.input.1.*.npy")
    for slot in (2, 3):
        np.save(
            path.with_name(path.name.replace("input.1", f"input.{slot}").replace("Float32", "Bool")),
            slot == 3,
        )


@pytest.mark.parametrize("is_with_model", [False, True], ids=["files", "model"])
@pytest.mark.parametrize("width", [2, 4], ids=["oblong", "square"])
def test_transposed_weight(door, width, is_with_model):
    """A product that reads the transposed weight agrees; with another weight it is accused."""
    mine, golden = door.twice(dense(width), ROWS)
    hold_transposed(mine)
    options = ("--model", f"{golden}.onnx") if is_with_model else ()

    assert [] == accused(mine, golden, *options)
    assert [] == accused(golden, mine, *options)

    for weight in [*mine.rglob("MatMul.*.input.1.*.npy"), *mine.rglob("Parameter.w.*.npy")]:
        np.save(weight, np.load(weight) * np.float32(1.5))
    assert "weight" == accused(mine, golden, *options)[0][0]


def grouped(groups):
    """Return a network of one convolution in groups."""
    weight = np.random.default_rng(2).standard_normal((8, 8 // groups, 3, 3)).astype("f4")
    convolution = node("Conv", "x w", "y", group=groups, pads=[1] * 4)
    return model([convolution, node("Relu", "y", "z")], [value("x", [1, 8, 6, 6])], ["z"], {"w": weight})


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_weight_that_is_laid_out_by_group(door, groups):
    """A weight in a device's format is read by the groups in the graph."""
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 8, 6, 6)).astype("f4")}
    golden = door.aside("golden", grouped(groups), feeds)
    door.dump(grouped(groups), feeds, context=O0, enable=True, trans_flag=False)
    (held,) = door.path.rglob("*.input.1.FRACTAL_Z.*.npy")

    assert [] == accused(door.path, golden)
    # only the CPU writes files of parameters
    assert {("unchecked", "x"), ("unchecked", "w")} == {*accused(golden, door.path)}

    np.save(held, np.load(held) * np.float16(1.5))
    assert ["weight"] == [verdict for verdict, _ in accused(door.path, golden)]


@pytest.mark.parametrize(("types", "accused"), [((1, 10), ["Default/Cast-op1"]), ((10, 10), [])])
def test_operators_in_another_type(door, types, accused):
    """The first operator that writes another type is named; a network that was converted has none."""

    def model(wide, narrow):
        source = f"""g (float[4] x) => (float[4] y) {{
            a = Cast<to = {wide}>(x)
            b = Exp(a)
            c = Cast<to = {narrow}>(b)
            d = Sin(c)
            e = Abs(d)
            f = Cast<to = {wide}>(e)
            g = Tanh(f)
            y = Cast<to = 1>(g) }}"""
        return parsed(source)

    feeds = {"x": np.float32([0.1, 0.2, 0.3, 0.4])}
    sides = door.aside("mine", model(*types), feeds), door.aside("golden", model(1, 1), feeds)

    _, told = document(*sides)

    assert accused == faults(told)


KERNEL = """g (float[4,8] x) => (float[4,8] y) {
        a = MatMul(x, w)
        CHAIN
        b = MatMul(f, v)
        c = Tanh(b)
        y = Softmax(c) }"""
RELU = "f = Relu(a)"
NARROW_RELU = "h = Cast<to = 10>(a) r = Relu(h) f = Cast<to = 1>(r)"
NARROW_PAIR = "h = Cast<to = 10>(a) r = Relu(h) s = Abs(r) f = Cast<to = 1>(s)"


@pytest.mark.parametrize(
    ("chains", "levels", "accused"),
    [
        ((NARROW_RELU, RELU), ("O1", "O1"), [("CastReLUCast", "own")]),
        ((NARROW_RELU, RELU), ("O1", "CPU"), [("CastReLUCast", "dtype")]),
        ((RELU, NARROW_RELU), ("CPU", "O1"), [("ReLU", "dtype")]),
        ((NARROW_RELU, RELU), ("CPU", "CPU"), [("ReLU", "dtype")]),
        ((NARROW_PAIR, "r = Relu(a) f = Abs(r)"), ("O1", "O1"), [("CastReLUAbsCast", "own")]),
        ((NARROW_PAIR, "r = Relu(a) f = Abs(r)"), ("O1", "CPU"), [("CastReLUAbsCast", "dtype")]),
        ((NARROW_RELU, NARROW_RELU), ("O1", "CPU"), []),
        ((NARROW_PAIR, NARROW_PAIR), ("CPU", "O1"), []),
    ],
)
def test_casts_inside_of_a_kernel(door, chains, levels, accused):
    """A kernel that computes in float16 inside is named, even if its tensors agree; its readers are not."""
    contexts = {"CPU": CPU, "O1": O1}
    generator = np.random.default_rng(3)
    weights = {name: generator.standard_normal((8, 8)).astype("f4") for name in ("w", "v")}
    feeds = {"x": generator.standard_normal((4, 8)).astype("f4")}
    mine, golden = (
        door.aside(name, parsed(KERNEL.replace("CHAIN", chain), **weights), feeds, context=contexts[level])
        for name, chain, level in zip(("mine", "golden"), chains, levels, strict=True)
    )

    _, told = document(mine, golden)

    assert accused == [*zip(faults(told, "op_type"), faults(told, "verdict"), strict=True)]


DRAW = np.random.default_rng(0)


def precision(mode):
    """Return the context of an Ascend that computes in a precision mode."""
    return O0 | {"ascend_config": {"precision_mode": mode}}


def pair(door, network, feeds, mine, golden):
    """Return the dumps of a network on two devices."""
    return door.aside("mine", network, feeds, context=mine), door.aside(
        "golden", network, feeds, context=golden
    )


def norm(variance):
    """Return a BatchNorm between two products."""
    weights = {
        "w": DRAW.standard_normal((4, 3, 3, 3)).astype("f4"),
        **{name: np.ones(4, "f4") for name in ("scale", "bias", "mean")},
        "var": np.full(4, variance, "f4"),
    }
    nodes = [node("Conv", "x w", "a"), node("BatchNormalization", "a scale bias mean var", "y")]
    return model(nodes, [value("x", [1, 3, 6, 6])], ["y"], weights)


def scaled(most):
    """Return a product, multiplied by a large number and divided again."""
    weights = {
        "w": DRAW.standard_normal((8, 8)).astype("f4"),
        "most": np.float32(most),
        "less": np.float32(1 / most),
    }
    nodes = [node("MatMul", "x w", "a"), node("Mul", "a most", "b"), node("Mul", "b less", "y")]
    return model(nodes, [value("x", [4, 8])], ["y"], weights)


OVERFLOWS = {
    "a variance of 1e7": (norm(1e7), [1, 3, 6, 6], "BatchNorm-op0"),
    "a product": (scaled(6e4), [4, 8], "Mul-op0"),
}


@pytest.mark.parametrize("options", [(), ("--model",)], ids=["files", "model"])
@pytest.mark.parametrize(("network", "shape", "name"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_what_float16_does_not_hold_is_named(door, network, shape, name, options):
    """An operator that overflows is named by files and by the model, which overflows again."""
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype("f4")}
    dumps = pair(door, network, feeds, precision("force_fp16"), CPU)
    arguments = (*options, str(door.folder / "mine.onnx")) if options else ()

    assert [("nonfinite", name)] == accused(*dumps, *arguments)


@pytest.mark.parametrize(("seed", "verdict", "code"), [(None, "unchecked", 1), (7, "equal", 0)])
def test_random_numbers_are_compared_with_equal_seeds_alone(door, seed, verdict, code):
    """Random results without a seed are not judged, nor is any operator behind them."""
    drop = node("Dropout", "x ratio trains", "n")
    if seed is not None:
        drop.attribute.append(helper.make_attribute("seed", seed))
    weights = {"ratio": np.float32(0.5), "trains": np.array(True)}
    network = model([drop, node("Abs", "n", "y")], [value("x", [64])], ["y"], weights)

    told = document(*pair(door, network, {"x": np.ones(64, "f4")}, CPU, CPU))

    assert (code, verdict) == (told[0], told[1]["verdict"])
    assert {"equal", verdict} == {"equal", *(each["verdict"] for each in told[1]["operators"])}


def test_shapes_that_follow_from_values_inherit(door):
    """An output is inherited if its shape depends on values that rounding moves across an edge."""
    text = """g (float[64] x) => (int64[1,N] y)
        <float edge = {0.0}> { a = Mul(x, x) b = Sub(a, x) c = Mul(b, b) d = Less(edge, b) y = NonZero(d) }"""
    chance = np.random.default_rng(2).uniform(-1, 1, 64).astype("f4")
    chance[:2] = 1.0001, 0.9999
    dumps = pair(door, parsed(text), {"x": chance}, precision("force_fp16"), CPU)

    assert [] == [each for each in accused(*dumps) if each[0] != "unchecked"]


def test_noise_in_masked_scores(door):
    """Noise of scores is accused: the rounding of a large mask of attention does not explain it."""
    mask = {"mask": np.where(np.tri(8, dtype=bool), 0, -1e9).astype("f4")}
    nodes = [node("Add", "x mask", "masked"), node("Softmax", "masked", "y")]
    feeds = {"x": np.random.default_rng(4).standard_normal((2, 8, 8)).astype("f4")}
    mine, golden = door.twice(model(nodes, [value("x", [2, 8, 8])], ["y"], mask), feeds)
    for path in (*mine.rglob("*.Default_Add-op0.*.output.0.*"), *mine.rglob("Softmax.*.input.0.*")):
        np.save(
            path,
            np.load(path) * (1 + 0.05 * np.random.default_rng(5).standard_normal((2, 8, 8)).astype("f4")),
        )

    assert ("own", "Add-op0") in accused(mine, golden)


@pytest.mark.parametrize("options", [(), ("--model",)], ids=["files", "model"])
def test_transposed_square_weight(door, options):
    """A reader of a weight that is golden's, transposed, is accused with that reason."""
    weight = np.random.default_rng(1).standard_normal((6, 6)).astype("f4")
    feeds = {"x": np.random.default_rng(2).standard_normal((4, 6)).astype("f4")}
    mine, golden = (
        door.aside(
            name, model([node("MatMul", "x w", "y")], [value("x", [4, 6])], ["y"], {"w": array}), feeds
        )
        for name, array in (("mine", weight.T), ("golden", weight))
    )

    _, told = document(mine, golden, *options, *([f"{golden}.onnx"] * bool(options)))

    (product,) = [each for each in told["operators"] if each["op_type"] == "MatMul"]
    assert ("own", True) == (product["verdict"], "input 1 w: golden is transposed" in product["note"])


def test_weight_that_saturates(door):
    """A weight beyond float16's range overflows in a device that saturates, too."""
    weight = np.random.default_rng(1).standard_normal((6, 6)).astype("f4") * np.float32(5e4)
    network = model([node("MatMul", "x w", "y")], [value("x", [4, 6])], ["y"], {"w": weight})
    feeds = {"x": np.full((4, 6), 1e-4, "f4")}
    golden, mine = door.aside("golden", network, feeds), door.aside("mine", network, feeds)
    for path in mine.rglob("MatMul.*.input.1.*"):
        np.save(path, np.clip(weight, -65504, 65504).astype("f2").astype("f4"))

    _, told = document(mine, golden)

    (product,) = [each for each in told["operators"] if each["op_type"] == "MatMul"]
    assert ("nonfinite", True) == (product["verdict"], "input 1 w overflows" in product["note"])
