"""``msdump explain``: which files a dump holds of an operator, and every reason for which it holds none."""

import json
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from msdump import env
from msdump.capture import Process
from msdump.config.acl import plan as acl_reader
from msdump.errors import ExecutionError
from msdump.graph import loader
from msdump.judge import inputs
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.reasons import Reason
from msdump.session import Network
from msdump.store import ORDER_HEADER
from tests.world import GRAPHS, cli, write_config

CPU: tuple[str, ...] = ()
GPU = ("--device-target", "GPU")
O0 = ("--device-target", "Ascend", "--jit-level", "O0")
O2 = ("--device-target", "Ascend", "--jit-level", "O2")
ACL = Context(DeviceTarget.ASCEND, JitLevel.O2, keeps_node_names=True)

CLIP = "g (float[2,3] x, float high) => (float[2,3] y) { y = Clip (x, , high) }"
FOLDED = """g (float[2] x) => (float[2] y) {
    one = Constant <value = float[2] {1, 1}> ()
    two = Add (one, one)
    y = Mul (x, two)
}"""
EMPTY = "g (float[2,0] x) => (float[2,0] y) { y = Relu (x) }"
USELESS = """g (float[2] x) => (float[2] y) { a, b, c, y = mindspore.ops.FlashAttentionScore (x) }
<domain: "mindspore.ops", opset_import: ["": 23]> FlashAttentionScore (x) => (a, b, c, y) {
    a = Exp (x)
    b = Tanh (x)
    c = Abs (x)
    y = Relu (x)
}"""
CONV = "Default/conv1-Conv2d/Conv2D-op0"


pytestmark = pytest.mark.usefixtures("fresh")


def model(folder, source):
    """Return the path of a model of the repository, or of ONNX's own syntax."""
    if "(" not in source:
        return GRAPHS / f"{source}.onnx"
    path = folder / "g.onnx"
    onnx.save(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23, "mindspore.ops": 1]> {source}'),
        path,
    )
    return path


def configured(folder, **changes):
    """Write a configuration and return its path."""
    return write_config(folder / "data_dump.json", folder / "dump", **{"iteration": "0|2"} | changes)


def slots(told):
    """Return the text on each input and output: the lines behind its title, joined."""
    found: dict[str, str] = {}
    title = ""
    for line in told.stdout.splitlines():
        title = line[:12].strip(" :") or title
        if title.startswith(("input", "output", "constants", "failed")):
            found[title] = f"{found.get(title, '')} {line[12:].strip()}".strip()
    return found


AT_ONCE = {"op_debug_mode": 0}
BY_KERNELS = {"dump_mode": 1, "kernels": ["MatMul"]}
REASONS = {
    Reason.OTHER_DEVICE: ("mini", GPU, {"support_device": [3]}, CONV, "output 0"),
    Reason.FOLDED: (FOLDED, O2, AT_ONCE, "Default/Add-op0", "inputs"),
    Reason.CONTROL_FLOW: ("if", CPU, {}, "If_0", "output 0"),
    Reason.NO_TASK: ("mini", O2, AT_ONCE, "Flatten-op0", "output 0"),
    Reason.NOT_IN_KERNELS: ("mini", O0, BY_KERNELS, "relu/Relu_node_1", "input 0"),
    Reason.NOT_MARKED: ("mini", CPU, {"dump_mode": 2}, CONV, "input 0"),
    Reason.PARAMETER: ("mini", O0, {}, "conv1.weight", "output 0"),
    Reason.SIDE_NOT_ASKED: ("mini", GPU, {"input_output": 2}, CONV, "input 1"),
    Reason.USELESS: (USELESS, O0, {}, "FlashAttentionScore-op0", "output 2"),
    Reason.ABSENT: (CLIP, CPU, {}, "ClipByValue-op0", "input 1"),
    Reason.NO_OVERFLOW: ("mini", O0, {"op_debug_mode": 3}, CONV, "output 0"),
    Reason.NO_HIT: ("mini", O0, {"own": {"watch": [{"condition": "tensor_overflow"}]}}, CONV, "output 0"),
    Reason.NOT_RELEASED: ("mini", GPU, {"own": {"history": 2}}, CONV, "output 0"),
    Reason.NO_FAILURE: ("mini", O0, {"op_debug_mode": 4}, CONV, "input 0"),
    Reason.NO_TENSOR: ("sequences", CPU, {}, "SequenceConstruct_0", "output 0"),
    Reason.TEXT: ("strings", CPU, {}, "{text}", "input 0"),
    Reason.NO_ELEMENTS: (EMPTY, CPU, {}, "ReLU-op0", "output 0"),
    Reason.STATISTICS_ONLY: ("mini", GPU, {"saved_data": "statistic"}, CONV, "output 0"),
    Reason.BRANCH_NOT_RUN: ("if", GPU, {}, "Neg-op0", "output 0"),
    Reason.ALREADY_WRITTEN: (FOLDED, CPU, {}, "data-0", "output 0"),
    Reason.OVER_LIMIT: ("mini", CPU, {"own": {"max_bytes": 1500}}, "BiasAdd-op0", "output 0"),
    Reason.ITERATION_NOT_ASKED: ("mini", CPU, {"iteration": "7"}, CONV, "output 0"),
}


@pytest.mark.parametrize(
    ("reason", "source", "mode", "changes", "operator", "slot"),
    [(reason, *case) for reason, case in REASONS.items()],
    ids=[reason.name for reason in REASONS],
)
def test_reason(tmp_path, reason, source, mode, changes, operator, slot):
    """Every reason is reported of an input or output that a configuration leaves without a file."""
    network = model(tmp_path, source)
    config = configured(tmp_path, **changes)
    ran = cli("run", network, "--config", config, "--steps", 3, *mode)
    if operator == "{text}":
        operator = next(node.name for node in loader.load(network).nodes)

    told = cli("explain", tmp_path / "dump", operator, "--model", network, "--config", config, *mode)

    assert 0 == ran.exit_code, ran.stderr
    assert 0 == told.exit_code, told.stderr
    assert reason.sentence in slots(told)[slot]


def dumped_by_acl(folder, network=GRAPHS / "mini.onnx", feeds=None, **section):
    """Run a model once under an acl.json and return the path of that."""
    path = folder / "acl.json"
    item = {"model_name": "mini", "layer": ["conv1/Conv_node_0", "fc/MatMul_node_3"]}
    settings = {"dump_path": str(folder / "dump"), "dump_mode": "all", "dump_list": [item], **section}
    if "blacklist" in json.dumps(section):
        settings["dump_level"] = "op"
    path.write_text(json.dumps({"dump": settings}), encoding="utf-8")
    (folder / "dump").mkdir()
    graph, process = loader.load(network), Process()
    try:
        feeds = feeds or inputs.made_up(graph, {}, 0, 0)
        Network(graph, acl_reader.read(str(path), ACL), process, ACL).run(feeds)
    finally:
        process.close()
    return path


WHOLE = "conv1/Conv_node_0relu/Relu_node_1"
ACL_REASONS = {
    Reason.MODEL_NOT_LISTED: ({"dump_list": [{"model_name": "other"}]}, "relu/Relu_node_1", "input 0"),
    Reason.NOT_IN_DUMP_LIST: ({}, "trans_Cast_0", "output 0"),
    Reason.KERNEL_LEVEL: (
        {"dump_op_switch": "on", "dump_list": [], "dump_level": "kernel"},
        WHOLE,
        "input 0",
    ),
    Reason.NO_TASK: ({"dump_list": [{"model_name": "mini"}]}, "Flatten_node_2", "input 0"),
    Reason.BLACKLISTED: (
        {"dump_list": [{"model_name": "mini", "optype_blacklist": [{"name": "Conv2D", "pos": ["input0"]}]}]},
        "Default/conv1-Conv2d/Conv2D-op0",
        "input 0",
    ),
    Reason.SIDE_NOT_ASKED: ({"dump_mode": "output"}, WHOLE, "input 0"),
    Reason.ITERATION_NOT_ASKED: ({"dump_step": "5"}, WHOLE, "input 0"),
    Reason.NO_FAILURE: ({"dump_scene": "aic_err_norm_dump"}, WHOLE, "input 0"),
    Reason.NO_OVERFLOW: ({"dump_debug": "on", "dump_list": []}, WHOLE, "input 0"),
    Reason.STATISTICS_ONLY: ({"dump_data": "stats"}, WHOLE, "output 0"),
    Reason.NOT_WATCHED: (
        {"dump_scene": "watcher", "dump_mode": "output", "dump_list": [{"watcher_nodes": [WHOLE]}]},
        "trans_Cast_0",
        "output 0",
    ),
}


@pytest.mark.parametrize(
    ("reason", "section", "operator", "slot"),
    [(reason, *case) for reason, case in ACL_REASONS.items()],
    ids=[reason.name for reason in ACL_REASONS],
)
def test_reason_of_acl(tmp_path, reason, section, operator, slot):
    """The reasons that acl.json gives are reported of a tree of a compiled model."""
    config = dumped_by_acl(tmp_path, **section)

    told = cli("explain", tmp_path / "dump", operator, "--model", GRAPHS / "mini.onnx", "--config", config)

    assert 0 == told.exit_code, told.stderr
    assert reason.sentence in slots(told)[slot]


def test_numbers_of_a_compiled_graph(tmp_path):
    """A blacklisted input has no number in the file: the next one is found under its own name."""
    item = {"model_name": "mini", "optype_blacklist": [{"name": "Conv2D", "pos": ["input0"]}]}
    config = dumped_by_acl(tmp_path, dump_list=[item])

    told = cli("explain", tmp_path / "dump", WHOLE, "--model", GRAPHS / "mini.onnx", "--config", config)

    assert "no file" in slots(told)["input 0"]
    assert slots(told)["input 1"].startswith("conv1.weight 2")
    assert "no file" not in slots(told)["input 1"]


@pytest.fixture
def dump(tmp_path):
    """Return a dump of three iterations of mini.onnx on CPU, of which two were configured."""
    config = configured(tmp_path)
    assert 0 == cli("run", GRAPHS / "mini.onnx", "--config", config, "--steps", 3).exit_code
    return tmp_path / "dump"


NAMES = {
    "full name": "Default/conv1-Conv2d/Conv2D-op0",
    "node": "conv1/Conv_node_0",
    "operator in file names": "Default_conv1-Conv2d_Conv2D-op0",
    "end": "Conv2D-op0",
    "file": "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.17.output.0.DefaultFormat.npy",
    "path": "a/Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.17.output.0.DefaultFormat.npy",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names(dump, name):
    """An operator is found by every name that users meet, and its files of all iterations are listed."""
    told = cli("explain", dump, name, "--model", GRAPHS / "mini.onnx")

    head = "operator:   Conv2D Default/conv1-Conv2d/Conv2D-op0, ONNX node 'conv1/Conv_node_0'\n"
    assert told.stdout.startswith(head)
    assert f"sources:    {dump}/rank_0/.dump_metadata/data_dump.json and {GRAPHS}/mini.onnx\n" in told.stdout
    assert "iterations: the dump holds 0|2, the configuration selects 0|2\n" in told.stdout
    value, *paths = slots(told)["output 0"].split()
    assert "v_conv1.Conv_0" == value
    assert [0, 2] == [int(Path(path).parent.name) for path in paths]
    assert all((dump / path).is_file() for path in paths)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("conv2/Conv", "no operator 'conv2/Conv' (did you mean 'conv1-Conv2d'?)\n"),
        ("op0", "5 operators match 'op0'; give a full name:\n  Default/conv1-Conv2d/Conv2D-op0\n  Default/"),
        (
            "dense",
            "2 operators match 'dense'; give a full name:\n  Default/fc-Dense/MatMul-op0\n  Default/fc-D",
        ),
        ("Conv2D-op1", "no operator 'Conv2D-op1' (did you mean 'Conv2D-op0'?)\n"),
        ("zzz", "no operator 'zzz'; there are:\n  Default/conv1-Conv2d/Conv2D-op0\n"),
    ],
    ids=["typo", "many ends", "part", "number", "nothing"],
)
def test_unknown_names(dump, name, message):
    """A name of no operator, or of several, ends with suggestions and exit code 1."""
    told = cli("explain", dump, name, "--model", GRAPHS / "mini.onnx")

    assert (1, "") == (told.exit_code, told.stdout)
    assert message in told.stderr


def test_names_without_a_model(tmp_path):
    """Operators with one last component are all known from the dump alone."""
    cli("run", GRAPHS / "lenet.onnx", "--config", configured(tmp_path))

    told = cli("explain", tmp_path / "dump", "Conv2D-op0")

    assert 1 == told.exit_code
    assert "2 operators match 'Conv2D-op0'" in told.stderr


def test_one_iteration(dump):
    """With --iteration only that one counts; one that the configuration does not ask for is reported so."""
    asked = cli("explain", dump, CONV, "--model", GRAPHS / "mini.onnx", "--iteration", 2)
    unasked = cli("explain", dump, CONV, "--model", GRAPHS / "mini.onnx", "--iteration", 1)

    assert 1 == slots(asked)["output 0"].count(".npy")
    assert f"v_conv1.Conv_0 no file: {Reason.ITERATION_NOT_ASKED.sentence}" == slots(unasked)["output 0"]


def test_lost_file(dump):
    """A file that was to be there and is not is reported for its iteration."""
    next(dump.glob("rank_0/Net/0/2/Conv2D.*.output.*")).unlink()

    told = cli("explain", dump, CONV, "--model", GRAPHS / "mini.onnx")

    assert slots(told)["output 0"].endswith(f"no file in iteration 2: {Reason.WRITE_ERROR.sentence}")


def test_overflow_limit(tmp_path):
    """Where overflow_number operators were dumped, the next one may have been left out for that."""
    text = "g (float[2] x) => (float[2] z) { y = Log (x) z = Exp (y) }"
    network = model(tmp_path, text)
    config = configured(tmp_path, op_debug_mode=3, overflow_number=1, iteration="all")
    (tmp_path / "zeros.npz").write_bytes(b"")
    np.savez(tmp_path / "zeros.npz", x=np.zeros(2, np.float32))
    cli("run", network, "--config", config, "--inputs", tmp_path / "zeros.npz", "--steps", 2, *O0)

    told = cli("explain", tmp_path / "dump", "Exp-op0", "--model", network, "--config", config, *O0)

    assert Reason.OVERFLOW_LIMIT.sentence in slots(told)["output 0"]


def test_fused_operator(tmp_path):
    """Of an operator inside a fused one the fused one is named, and its files are reported."""
    config = configured(tmp_path, op_debug_mode=0, iteration="0")
    cli("run", GRAPHS / "mini.onnx", "--config", config, *O2)

    told = cli("explain", tmp_path / "dump", "relu/Relu_node_1", "--model", GRAPHS / "mini.onnx", *O2)

    assert "fused:      into Default/conv1-Conv2d/Conv2D-op0ReLU-op0, described below\n" in told.stdout
    assert "Conv2D.Default_conv1-Conv2d_Conv2D-op0ReLU-op0.2.0." in slots(told)["output 0"]


def test_stand_in(tmp_path):
    """A file with too long a name is found under its stand-in, and the operator by that."""
    name = "n" * 240
    network = model(tmp_path, f"g (float[2] x) => (float[2] y) {{ [{name}] y = Relu (x) }}")
    config = dumped_by_acl(tmp_path, network, dump_list=[{"model_name": "g"}])

    by_name = cli("explain", tmp_path / "dump", name, "--model", network, "--config", config)
    files = slots(by_name)["output 0"].split()[1:]
    by_file = cli("explain", tmp_path / "dump", Path(files[0]).name)

    assert Path(files[0]).stem.isdecimal()
    assert (tmp_path / "dump" / files[0]).is_file()
    assert f"operator:   ReLU {name}\n" in by_file.stdout
    assert files[0] in slots(by_file)["output 0"]


def test_dump_alone(tmp_path):
    """Without model and configuration the files are reported, and which options would give more reasons."""
    config = configured(tmp_path, input_output=2)
    cli("run", GRAPHS / "mini.onnx", "--config", config, "--steps", 1, *O0)

    told = cli("explain", tmp_path / "dump", CONV)

    assert "sources:    only the dump\n" in told.stdout
    assert slots(told)["input 0"].endswith(") no file, for an unknown reason")
    assert ".output.0." in slots(told)["output 0"]
    assert told.stdout.endswith("add --config FILE.json and --model MODEL.onnx for more reasons\n")


def test_long_lists_are_cut(tmp_path):
    """Three files of an input or output are named and the others counted; -v names all."""
    config = configured(tmp_path, iteration="all")
    cli("run", GRAPHS / "mini.onnx", "--config", config, "--steps", 6)

    short = cli("explain", tmp_path / "dump", CONV)
    full = cli("explain", tmp_path / "dump", CONV, "-v")

    assert slots(short)["output 0"].endswith("... and 3 more; -v lists all")
    assert 6 == slots(full)["output 0"].count(".npy")


def test_no_dump_without_reasons(tmp_path):
    """Where there is no dump, and no configuration to tell why, that is the error."""
    told = cli("explain", tmp_path / "none", CONV)

    assert (2, "") == (told.exit_code, told.stdout)
    assert "no such directory" in told.stderr


def test_configuration_of_another_kind(dump, tmp_path):
    """A configuration that makes no dump of this kind is not used, which is said."""
    path = tmp_path / "acl.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_list": [{}]}}), encoding="utf-8")

    told = cli("explain", dump, CONV, "--config", path)

    assert f"warning: {path}: does not describe the dump {dump} and is not used" in told.stderr
    assert "sources:    only the dump\n" in told.stdout


GATHER = "g (float[2,3] x, int64[1] i) => (float[1,3] y) { [gather] y = Gather (x, i) }"


@pytest.mark.parametrize("scene", ["aic_err_norm_dump", "aic_err_brief_dump"])
def test_failed_operator_of_acl(tmp_path, scene):
    """The tensors that a failing operator left are reported as its files, under the names of each scene."""
    network = model(tmp_path, GATHER)
    feeds = {"x": np.zeros((2, 3), np.float32), "i": np.array([7])}
    with pytest.raises(ExecutionError):
        dumped_by_acl(tmp_path, network, feeds, dump_scene=scene, dump_list=[])

    told = cli("explain", tmp_path / "dump", "gather", "--model", network, "--config", tmp_path / "acl.json")

    assert ["x", "i", "y"] == [words.split()[0] for words in slots(told).values()]
    assert all("extra-info/data-dump/0/" in words for words in slots(told).values())


def test_failed_operator(tmp_path):
    """Of an operator that failed under op_debug_mode 4 the inputs are reported; its output it never made."""
    network = model(tmp_path, GATHER)
    np.savez(tmp_path / "far.npz", x=np.zeros((2, 3), np.float32), i=np.array([7]))
    config = configured(tmp_path, op_debug_mode=4)
    cli("run", network, "--config", config, "--inputs", tmp_path / "far.npz", *O0)

    told = cli("explain", tmp_path / "dump", "gather", "--model", network, "--config", config, *O0)

    assert slots(told)["input 1"].endswith(".npy")
    assert f"y no file: {Reason.NO_FAILURE.sentence}" == slots(told)["output 0"]


IR = {
    Reason.NO_ELEMENTS: (EMPTY, "ReLU-op0", "output 0"),
    Reason.TEXT: ("strings", "StringConcat-op0", "input 1"),
    Reason.BRANCH_NOT_RUN: ("if", "Neg-op0", "output 0"),
}


@pytest.mark.parametrize(
    ("reason", "source", "operator", "slot"),
    [(reason, *case) for reason, case in IR.items()],
    ids=[reason.name for reason in IR],
)
def test_graph_files_stand_in_for_the_model(tmp_path, reason, source, operator, slot):
    """Without a model the .ir files of the dump tell types, shapes and branches."""
    cli("run", model(tmp_path, source), "--config", configured(tmp_path), "--steps", 1)

    told = cli("explain", tmp_path / "dump", operator)

    assert reason.sentence in slots(told)[slot]


REAL = """\
subgraph @kernel_graph0() {
  %0(res) = PrimFunc_Split(%para1_x, I64(1)) primitive_attrs: {size_splits: (1, 1)}
      : (<Tensor[Float32], (2, 3)>, <Int64, NoShape>) -> (<Tuple[Tensor[Float32]*2], TupleShape((0, 3), ..)>)
      : (<Float32xDefaultFormat[const vector]{2, 3}>, <Int64xDefaultFormat[const vector]{}>) ->\
 (<Float32xDefaultFormat[const vector]{0, 3}>, <Float32xDefaultFormat[const vector]{2, 3}>)
      : (Tensor, Scalar) -> (TupleUnfold)
      # Fullname with scope: (Default/Split-op0)
"""


def test_dump_of_mindspore(tmp_path):
    """A dump of MindSpore itself is explained by its own graph files and its copy of the configuration."""
    rank, name = tmp_path / "rank_0", "Split.Default_Split-op0.0.0.17.{}.DefaultFormat.{}.npy"
    for path, text in {
        "graphs/ms_output_trace_code_graph_0.ir": REAL,
        "execution_order/ms_execution_order_graph_0.csv": f"{ORDER_HEADER}\nDefault/Split-op0\n",
        ".dump_metadata/data_dump.json": configured(tmp_path, dump_mode=1, kernels=["Split"]).read_text(),
        ".dump_metadata/config.json": '{"device_target": "CPU", "ms_version": "2.9.0"}',
        f"Net/0/0/{name.format('input.0', 'Float32')}": "",
        "Net/0/0/mapping.csv": f"12.npy,{name.format('output.1', 'Float32')}\n",
        "Net/0/0/12.npy": "",
    }.items():
        (rank / path).parent.mkdir(parents=True, exist_ok=True)
        (rank / path).write_text(text, encoding="utf-8")

    told = cli("explain", tmp_path, "12.npy")

    assert {
        "input 0": f"Float32 (2, 3) rank_0/Net/0/0/{name.format('input.0', 'Float32')}",
        "input 1": "Int64 () no file, for an unknown reason",
        "output 0": f"Float32 (0, 3) no file: {Reason.NO_ELEMENTS.sentence}",
        "output 1": "Float32 (2, 3) rank_0/Net/0/0/12.npy",
    } == slots(told)


def test_broken_file(tmp_path):
    """A file that cannot be read is an error of its operator alone."""
    config = dumped_by_acl(tmp_path)
    next((tmp_path / "dump").rglob("MatMul*")).write_bytes(b"1")

    told = cli("explain", tmp_path / "dump", "conv1/Conv_node_0relu/Relu_node_1", "--config", config)
    broken = cli("explain", tmp_path / "dump", "fc_MatMul_node_3fc_Add_node_4", "--config", config)

    assert 0 == told.exit_code, told.stderr
    assert (2, "") == (broken.exit_code, broken.stdout)
    assert "MatMul.fc_MatMul_node_3fc_Add_node_4" in broken.stderr


def test_place_of_the_dump_does_not_matter(tmp_path, monkeypatch):
    """A dump in a path of the environment, and one that was moved, are explained without the place."""
    monkeypatch.setenv(env.DIAGNOSTIC_DATA_PATH, str(tmp_path / "base"))
    cli("run", GRAPHS / "mini.onnx", "--config", configured(tmp_path, path=""), "--steps", 1)
    monkeypatch.delenv(env.DIAGNOSTIC_DATA_PATH)
    config = dumped_by_acl(tmp_path)
    (tmp_path / "dump").rename(tmp_path / "moved")

    by_rank = cli("explain", tmp_path / "base", CONV)
    by_acl = cli("explain", tmp_path / "moved", WHOLE, "--config", config)

    assert (0, 0) == (by_rank.exit_code, by_acl.exit_code), (by_rank.stderr, by_acl.stderr)
    assert f"sources:    {tmp_path}/base/debug_dump/rank_0/.dump_metadata/data_dump.json\n" in by_rank.stdout
    assert f"sources:    {config}\n" in by_acl.stdout
