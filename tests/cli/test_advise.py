"""``msdump diff --advise``: text and files, exit codes, and files that msdump takes back."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import load, numpy_helper, parser, save

import msdump
from msdump.cli import advise as advise_command
from msdump.cli import documents
from msdump.judge.advise.search import SetSearch
from tests.world import cli

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
net (float[N] x) => (float[N] y) <float k = {300.0}, float tiny = {0.001}>
{ big = Mul(x, k) square = Mul(big, big) root = Sqrt(square) more = Div(root, k) y = Mul(more, tiny) }
"""
RANDOM = np.random.default_rng(0).standard_normal((64, 64))
NAMES = ["first", "second", "third", "fourth", "last"]
FILES = {
    *("keep_dtype.cfg", "modify_mixlist.json", "ascend_config.json"),
    *("float16.onnx", "data_dump_fragment.json"),
}


@pytest.fixture
def advise(fresh, tmp_path, monkeypatch):
    """Return a function that runs the command in a folder with a model and inputs."""
    monkeypatch.chdir(tmp_path)
    model = parser.parse_model(MODEL)
    for node, name in zip(model.graph.node, NAMES, strict=True):
        node.name = name
    save(model, tmp_path / "net.onnx")
    for name, scale in (("small", 0.5), ("large", 3.0), ("huge", 5.0)):
        np.savez(tmp_path / f"{name}.npz", x=np.linspace(0.1, scale, 7, dtype=np.float32))
    np.savez(tmp_path / "nan.npz", x=np.array([np.nan, 1], np.float32))

    def run(bound, *arguments, mine="Ascend:force_fp16"):
        command = ["diff", "net.onnx", "--mine", mine, "--advise", str(bound), *arguments]
        return cli(*command)

    return run


def relative(result, golden):
    """Return the relative distance of two arrays."""
    return float(np.linalg.norm(result - golden) / np.linalg.norm(golden))


def line_of(result, start):
    """Return the first line of standard output that starts with a text."""
    return next(line for line in result.stdout.splitlines() if line.startswith(start))


LEGENDS = {
    "seed 0.0 ": (["--dim", "N=3"], "seed S.N: made-up input of step N of msdump run --seed S"),
    "like huge.npz 0.0 ": (
        ["--inputs", "huge.npz"],
        "like FILE S.N: made-up input N of seed S, similar to FILE",
    ),
}


@pytest.mark.parametrize(("name", "arguments", "legend"), [(key, *each) for key, each in LEGENDS.items()])
def test_names_of_made_up_inputs_are_explained(advise, name, arguments, legend):
    """A line before the errors explains the names of made-up inputs."""
    lines = advise(1e-2, *arguments).stdout.splitlines()

    places = [number for number, line in enumerate(lines) if line.startswith(name)]
    assert lines.index(legend) < min(places)


def test_a_bound_near_the_errors_is_no_confirmation(advise):
    """A bound just above the largest error keeps more operators, so that other inputs stay below it, too."""
    document = json.loads(advise(1, "--dim", "N=64", "--json").stdout)
    bound = max(each["after"] for each in document["errors"]) * 1.001
    near = json.loads(advise(bound, "--dim", "N=64", "--json").stdout)

    assert "confirmed" == near["outcome"]
    assert len(near["kept"]) > len(document["kept"])
    assert max(each["after"] for each in near["errors"]) < 0.9 * bound


def test_a_long_list_names_the_file_that_is_complete(advise, monkeypatch):
    """A cut list names the written file with all operators, or --output."""
    monkeypatch.setattr(advise_command, "_SHOWN", 1)
    written, printed = (advise(1e-2, "--inputs", "huge.npz", *more) for more in (["-o", "advice"], []))

    assert line_of(written, "  ... and 1 more (-v); keep_dtype.cfg has all 2")
    assert line_of(printed, "  ... and 1 more (-v), or --output DIR")


def test_each_written_file_names_its_reader(advise):
    """The lines of the written files name the tool that reads each."""
    lines = advise(1e-2, "--inputs", "huge.npz", "-o", "advice").stdout.splitlines()

    readers = [line.partition(" (")[2] for line in lines if line.startswith("written: ")]
    assert [
        "for ATC --keep_dtype)",
        "for ATC --modify_mixlist)",
        "for MindSpore set_context)",
        "for msdump configurations)",
        "for onnxruntime and other runtimes)",
    ] == readers


def test_it_writes_files_that_msdump_takes(advise, tmp_path):
    """The bound holds when a network runs with the written files, by name and by type."""
    result = advise(1e-2, "--inputs", "large.npz", "--inputs", "huge.npz", "-o", "advice")

    assert result.exit_code == 0, result.output
    assert "keep 2 of them in float32:" in result.stdout
    assert "(held out)" in line_of(result, "huge.npz ")
    assert "minimal: without any one of them an output exceeds 0.01" in result.stdout
    assert "confirmed: errors stay below 0.01 on 9 inputs held out" in result.stdout
    assert FILES == {path.name for path in Path("advice").iterdir()}
    assert ["second", "third"] == Path("advice/keep_dtype.cfg").read_text().split()

    x = np.load("huge.npz")["x"]
    golden = msdump.load("net.onnx")(x)
    others = [node for node in load("advice/float16.onnx").graph.node if node.op_type != "Cast"]
    assert ["second", "third"] == [
        node.name for node in others if not any(name.endswith(":float16") for name in node.input)
    ]
    (mixed,) = onnxruntime.InferenceSession("advice/float16.onnx").run(None, {"x": x})
    assert relative(mixed, golden) <= 1e-2
    fragment = json.loads(Path("advice/data_dump_fragment.json").read_text())["msdump"]
    mindspore = json.loads(Path("advice/ascend_config.json").read_text())
    msdump.set_context(device_target="Ascend", jit_level="O0")
    for settings in ({"ascend_config": fragment}, mindspore):
        msdump.set_context(**settings)
        assert relative(msdump.load("net.onnx")(x), golden) <= 1e-2


def test_bfloat16(advise):
    """Operators that move to bfloat16 stand in a file of types, which msdump takes, too."""
    result = advise(2e-2, "--to", "bfloat16", "--inputs", "huge.npz", "-o", "advice")

    assert result.exit_code == 0, result.output
    lines = Path("advice/customize_dtypes.cfg").read_text().splitlines()
    assert "second::InputDtype:bfloat16,bfloat16,OutputDtype:bfloat16" in lines
    fragment = json.loads(Path("advice/data_dump_fragment.json").read_text())["msdump"]
    x = np.load("huge.npz")["x"]
    golden = msdump.load("net.onnx")(x)
    msdump.set_context(device_target="Ascend", jit_level="O0", ascend_config=fragment)
    assert relative(msdump.load("net.onnx")(x), golden) <= 2e-2


def test_a_file_that_is_held_back_refutes(advise):
    """Without an overflow in the file that is looked at, the one that is held back joins the search."""
    result = advise(1e-2, "--inputs", "small.npz", "--inputs", "huge.npz")

    assert result.exit_code == 0, result.output
    assert line_of(result, "huge.npz ").endswith("(held out, exceeded 0.01, joined the search)")
    assert "errors stay below 0.01 on 8 inputs held out" in result.stdout


def test_nothing_to_keep(advise):
    """A bound that holds already needs no set and writes no file."""
    result = advise(0.5, "--inputs", "small.npz", "--seed", "0", "-o", "advice")
    assert result.exit_code == 2  # as for diff without advice
    result = advise(10.0, "--inputs", "small.npz", "-o", "advice")

    assert result.exit_code == 0, result.output
    assert "no operator needs to be kept" in result.stdout
    assert not Path("advice").exists()


def test_no_set_is_found(advise):
    """Where even everything in the wider type is too far from the truth, that is said."""
    result = advise(1e-5, "--to", "bfloat16", "--inputs", "huge.npz")

    assert 1 == result.exit_code
    assert "no set of operators kept in bfloat16 brings" in result.stdout
    assert "the bound is smaller than the error of bfloat16 itself" in result.stdout


def test_a_bound_below_float32(advise):
    """Against float64 the float32 operators have an error of their own."""
    result = advise(1e-12, "--golden", "float64", "--inputs", "huge.npz")

    assert 1 == result.exit_code
    assert "the bound is smaller than the error of float32 itself" in result.stdout


def test_an_interrupted_search_tells_what_it_knows(advise, monkeypatch):
    """Ctrl-C ends with 130, behind the smallest set that held until then."""

    def interrupt(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(SetSearch, "smallest", interrupt)
    result = advise(0.01, "--inputs", "huge.npz", "-o", "advice")

    assert result.exit_code == 130
    assert "no set was found before the interruption" in result.stdout
    assert not Path("advice").exists()


def test_ctrl_c_prints_the_best_set_so_far(tmp_path):
    """A real interrupt ends with 130, and standard output has the smallest set that has held until then."""
    steps = "".join(f"h{each} = MatMul(h{each - 1}, w) " for each in range(1, 100))
    save(
        parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : 20]> net (float[64, 64] h0) => (float[64, 64] y)
            <float[64, 64] w> {{ {steps} y = Relu(h99) }}"""
        ),
        tmp_path / "long.onnx",
    )
    model = load(tmp_path / "long.onnx")
    model.graph.initializer.append(numpy_helper.from_array(np.linalg.qr(RANDOM)[0].astype(np.float32), "w"))
    save(model, tmp_path / "long.onnx")
    command = ["diff", "long.onnx", "--mine", "Ascend:force_fp16", "--advise", "5e-4", "-v"]
    with subprocess.Popen(
        [sys.executable, "-m", "msdump", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("measuring"):
                process.send_signal(signal.SIGINT)
                break
        output, errors = process.communicate(timeout=60)

    assert 130 == process.returncode
    assert "keep 100 of them in float32:" in output
    assert "perhaps not minimal: the search ended early" in output
    assert "interrupted" in errors


def test_names_that_are_made_up(advise):
    """Operators without a name in the file have one in the model that is written beside the lists."""
    model = parser.parse_model(MODEL)
    model.graph.node[1].name = "square"
    save(model, "net.onnx")
    told = advise(1e-2, "--inputs", "huge.npz")
    advise(1e-2, "--inputs", "huge.npz", "-o", "advice")

    assert "1 name not in the model file" in told.stdout
    named = load("advice/net.named.onnx")
    assert ["Mul_0", "square", "Sqrt_2", "Div_3", "Mul_4"] == [node.name for node in named.graph.node]
    assert ["square", "Sqrt_2"] == Path("advice/keep_dtype.cfg").read_text().split()
    for node in named.graph.node:
        node.ClearField("name")
    model.graph.node[1].ClearField("name")
    assert model == named


def test_names_of_operators_in_functions(advise):
    """An operator in a function has a name for each call; the model with names has it, without functions."""
    text = """<ir_version: 10, opset_import: ["" : 20, "f" : 1]>
    net (float[N] x) => (float[N] y) <float k = {300.0}> { [a] n = f.norm(x, k) [b] y = f.norm(n, k) }
    <domain: "f", opset_import: ["" : 20]> norm (x, k) => (y) {
      big = Mul(x, k) square = Mul(big, big) root = Sqrt(square) y = Div(root, k) }"""
    save(parser.parse_model(text), "net.onnx")
    result = advise(1e-2, "--inputs", "huge.npz", "-o", "advice")

    assert result.exit_code == 0, result.output
    kept = Path("advice/keep_dtype.cfg").read_text().split()
    named = load("advice/net.named.onnx")
    assert {"a", "b"} == {name.partition("/")[0] for name in kept}
    assert {*kept} <= {node.name for node in named.graph.node}
    x = np.load("huge.npz")["x"]
    assert np.array_equal(msdump.load("net.onnx")(x), msdump.load("advice/net.named.onnx")(x))


def test_names_of_a_model_with_weights_in_a_file(advise):
    """The weights beside a model are written beside the one with names."""
    weight = numpy_helper.from_array(np.full(4096, 300, np.float32), "k")
    model = parser.parse_model(MODEL.replace("float k = {300.0}, ", "").replace("float[N]", "float[4096]"))
    model.graph.initializer.append(weight)
    save(model, "net.onnx", save_as_external_data=True, location="net.data")
    np.savez("huge.npz", x=np.linspace(0.1, 5, 4096, dtype=np.float32))
    result = advise(1e-2, "--inputs", "huge.npz", "-o", "advice")

    assert result.exit_code == 0, result.output
    x = np.load("huge.npz")["x"]
    assert np.array_equal(msdump.load("net.onnx")(x), msdump.load("advice/net.named.onnx")(x))


REFUSED = {
    "not finite": (["--inputs", "nan.npz"], {}, "golden's output 'y' has NaN or infinities"),
    "no device": ([], {"mine": "CPU"}, "--advise needs a variant of the emulated device, not --mine CPU"),
    "no narrow operator": ([], {"mine": "Ascend:force_fp32"}, "rounds no operator"),
    "steps": (["--steps", "2"], {}, "excludes OTHER, --train and --steps"),
    "bfloat16 already": (
        ["--to", "bfloat16"],
        {"mine": "Ascend:allow_fp32_to_bf16"},
        "operators compute in bfloat16 already",
    ),
}


@pytest.mark.parametrize(("arguments", "others", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(advise, arguments, others, message):
    """A question without an advice ends with 2 and a reason."""
    result = advise(0.01, *arguments, **others)

    assert result.exit_code == 2
    assert message in result.stderr


def test_options_without_advice(fresh):
    """--to means nothing to a plain comparison."""
    result = cli("diff", "net.onnx", "--to", "bfloat16")

    assert result.exit_code == 2
    assert "--to needs --advise" in result.stderr


def test_json_holds_the_advice(advise):
    """--json prints the operators to keep, the errors of every input and the files, as the schema has it."""
    result = advise(1e-2, "--inputs", "large.npz", "--inputs", "huge.npz", "-o", "advice", "--json")

    document = json.loads(result.stdout)
    documents.model(advise_command.DOCUMENT).model_validate_json(result.stdout)
    assert 0 == result.exit_code
    assert (["second", "third"], "confirmed") == (
        [each["name"] for each in document["kept"]],
        document["outcome"],
    )
    errors = {each["input"]: (each["before"], each["is_unseen"], each["use"]) for each in document["errors"]}
    assert ("Infinity", True, "held out") == errors["huge.npz"]
    assert document["is_smallest"]
    assert FILES == {Path(path).name for path in document["files"]}
    assert all(each["after"] <= 1e-2 for each in document["errors"])


def test_json_without_a_set(advise):
    """Where no set keeps the bound there is none in the document, and the exit code is 1."""
    result = advise(1e-12, "--inputs", "small.npz", "--to", "bfloat16", "--json")

    document = json.loads(result.stdout)
    assert (1, None, "none", []) == (
        result.exit_code,
        document["kept"],
        document["outcome"],
        document["files"],
    )
