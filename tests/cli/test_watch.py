"""``msdump watch``: rules on finished dumps of every mode, hits, undecided rules, exit codes."""

import contextlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from msdump.capture import Process
from msdump.cli import documents
from msdump.cli import watch as watch_command
from msdump.config.acl import plan
from msdump.frontends import mindspore
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.session import Network
from tests.world import cli, common_settings

pytestmark = pytest.mark.usefixtures("fresh")

MODEL = """
<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y)
<float[3] w = {1.0, 2.0, 3.0}, float[3,3] m = {1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0}> {
    a = Mul(x, w)
    b = Relu(a)
    c = MatMul(b, m)
    y = Reciprocal(c)
}
"""
INPUT = np.array([[-1, 2, 3], [-4, 5, 6]], np.float32)
MODES = {
    "CPU": ("CPU", None, {}),
    "O0": ("Ascend", "O0", {"e2e_dump_settings": {"enable": True}}),
    "O0 asynchronous": ("Ascend", "O0", {"e2e_dump_settings": {"enable": False}}),
    "O1": ("Ascend", "O1", {"e2e_dump_settings": {"enable": True}}),
    "O2 npy": ("Ascend", "O2", {"common_dump_settings": {"file_format": "npy"}}),
    "O2 bin": ("Ascend", "O2", {"common_dump_settings": {"file_format": "bin"}}),
}
OVERFLOW = {"condition": "tensor_overflow"}


@pytest.fixture
def dumped(tmp_path):
    """Return a function that dumps some steps of the model and returns the path of the dump."""

    def dump(mode="CPU", *options, steps=1, **common):
        target, level, blocks = MODES[mode]
        onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
        np.savez(tmp_path / "x.npz", x=INPUT)
        changes = {"support_device": [0, 1], **blocks.get("common_dump_settings", {}), **common}
        everything = common_settings(tmp_path / "dump", **changes)
        (tmp_path / "c.json").write_text(json.dumps({**blocks, "common_dump_settings": everything}))
        arguments = ["run", f"{tmp_path}/m.onnx", "--config", f"{tmp_path}/c.json", "--steps", str(steps)]
        arguments += ["--inputs", f"{tmp_path}/x.npz", "--device-target", target, *options]
        done = cli(*(arguments + (["--jit-level", level] if level else [])))
        assert done.exit_code == 0, done.output
        return everything["path"]

    return dump


@pytest.fixture
def watched(tmp_path):
    """Return a function that watches a dump and returns exit code and output."""

    def watch(path, *rules, json_too=False, options=()):
        (tmp_path / "rules.json").write_text(json.dumps(rules))
        arguments = ["watch", path, "--rules", f"{tmp_path}/rules.json", *options]
        done = cli(*(arguments + (["--json"] if json_too else [])))
        if not json_too:
            return done.exit_code, done.output
        documents.model(watch_command.DOCUMENT).model_validate_json(done.stdout)
        return done.exit_code, json.loads(done.stdout)

    return watch


@pytest.mark.parametrize("mode", MODES)
def test_hit_is_told_in_every_mode(mode, dumped, watched):
    """The operator that makes the first infinity is named in the dump of every mode, with its value."""
    path = dumped(mode, steps=2)

    code, document = watched(path, OVERFLOW, json_too=True)

    first = document["hits"][0]
    assert (1, 0, "output:0", 2.0) == (code, first["iteration"], first["tensor"], first["measured"])
    assert first["op_type"] == "Reciprocal"
    assert {0, 1} == {hit["iteration"] for hit in document["hits"]}


@pytest.mark.parametrize("mode", ["O0", "O2 npy"])
def test_statistics_alone_do(mode, dumped, watched):
    """A dump of statistics decides by its columns; rules that need elements stay undecided."""
    path = dumped(mode, saved_data="statistic")

    code, document = watched(
        path, OVERFLOW, {"condition": "dead_relu", "role": "any", "types": []}, json_too=True
    )

    assert code == 1
    assert "Reciprocal" == document["hits"][0]["op_type"]
    assert ["the share of the units that are zero throughout, in percent needs the elements"] == [
        each["reason"] for each in document["undecided"]
    ]


def test_nan_that_acl_counted_hits(watched, tmp_path):
    """The column "Nan Count" of acl's csv files decides as "NaN Count" of ``statistic.csv`` does."""
    (tmp_path / "dump").mkdir()
    section = {
        "dump_path": f"{tmp_path}/dump",
        "dump_mode": "output",
        "dump_data": "stats",
        "dump_list": [{}],
    }
    (tmp_path / "acl.json").write_text(json.dumps({"dump": section}))
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    context, process = Context(DeviceTarget.ASCEND, JitLevel.O2), Process()
    configuration = plan.read(f"{tmp_path}/acl.json", context)
    with contextlib.closing(process):
        network = Network(loader.load(f"{tmp_path}/m.onnx"), configuration, process, context)
        network.run({"x": np.array([[np.nan, 2, 3], [-4, 5, 6]], np.float32)})

    code, document = watched(f"{tmp_path}/dump", OVERFLOW, json_too=True)

    assert (1, []) == (code, document["undecided"])
    assert 1 == document["hits"][0]["measured"]


def test_files_count_before_rows(dumped, watched):
    """Where files and rows tell of one tensor, it is looked at once."""
    path = dumped("O0", saved_data="full")

    _, document = watched(path, OVERFLOW, json_too=True)

    assert 1 == document["count"]
    assert 10 == document["rules"][0]["tensors"]


def test_hits_stand_in_the_order_of_execution(dumped, watched):
    """Hits come by iteration, then in the order in which the operators ran."""
    path = dumped(steps=2)

    _, document = watched(path, {"condition": "tensor_too_large", "max_gt": 0}, json_too=True)

    places = [(hit["iteration"], hit["timestamp"]) for hit in document["hits"]]
    assert sorted(places) == places
    assert 12 <= len(places)


def test_weights_are_those_of_the_graph(dumped, watched):
    """A rule on weights looks at weights of the graph's file, not at inputs of the graph."""
    path = dumped("O0")
    rule = {"condition": "weight_too_large", "max_gt": 2}

    _, document = watched(path, rule, json_too=True)

    assert [("Mul", "input:1", 3.0)] == [
        (hit["op_type"], hit["tensor"], hit["measured"]) for hit in document["hits"]
    ]


def test_weights_of_a_cpu_dump_are_parameters(dumped, watched):
    """On CPU a weight has a file of its own, which is looked at once."""
    _, document = watched(dumped(), {"condition": "weight_too_large", "max_gt": 2}, json_too=True)

    assert [("Parameter", "w")] == [(hit["op_type"], hit["operator"]) for hit in document["hits"]]


def test_ranks_that_agree_and_do_not(dumped, watched):
    """Ranks with the same bits agree; one with a changed file is named."""
    path = dumped("CPU", "--ranks", "2")
    rule = {"condition": "ranks_disagree"}
    assert 0 == watched(path, rule)[0]
    (file,) = Path(path, "rank_1").rglob("Parameter.w.*.npy")
    array = np.load(file)
    file.chmod(0o600)
    np.save(file, np.nextafter(array, 9).astype(np.float32))

    code, document = watched(path, rule, json_too=True)

    assert (1, ["rank 1 differs from rank 0"]) == (code, [hit["note"] for hit in document["hits"]])


def test_unchanged_weight_is_told_from_the_second_step_on(dumped, watched):
    """Weights that no step changes hit in every step but the first."""
    _, document = watched(dumped(steps=3), {"condition": "weight_not_changed"}, json_too=True)

    assert [1, 1, 2, 2] == [hit["iteration"] for hit in document["hits"]]


def test_unreadable_file_is_told_and_the_rest_is_checked(dumped, watched):
    """A torn file makes exit code 2 where nothing hits, and the other tensors are looked at."""
    path = dumped()
    file = next(Path(path).rglob("Mul.*.output.0*.npy"))
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:20])

    code, document = watched(path, {"condition": "tensor_all_zero"}, json_too=True)

    assert (2, 0) == (code, document["count"])
    assert str(file) in document["unreadable"][0]
    assert str(file) in document["error"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"condition": "tensor_overflow", "types": ["Conv2D"]}, "no rule could be checked on any tensor"),
        ({"condition": "tensor_overflw"}, "did you mean 'tensor_overflow'?"),
    ],
)
def test_nothing_checked_is_bad_input(rule, expected, dumped, watched):
    """Rules that look at nothing, or that are faulty, are exit code 2."""
    code, output = watched(dumped(), rule)

    assert 2 == code
    assert expected in output


def test_text_names_operator_value_and_limit(dumped, watched):
    """A line names rule, iteration, tensor, measured value and limit; --top cuts the list."""
    code, output = watched(dumped(steps=2), OVERFLOW, options=("--top", "1"))

    assert 1 == code
    assert (
        "tensor_overflow: iteration 0, rank 0: Reciprocal Default/Reciprocal-op0 output.0: "
        "the number of elements that are NaN or infinite is 2 (> 0)\n"
        "... and 1 more\n"
        "2 hits of 1 rule on up to 26 tensors\n" == output
    )


def test_no_dump_is_bad_input(watched, tmp_path):
    """A directory without a dump is exit code 2."""
    code, output = watched(str(tmp_path / "gone"), OVERFLOW)

    assert 2 == code
    assert "no such directory" in output


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (
            1e9,
            ["dumped   0 iterations: ", "dropped  3 iterations (0-2): no watch rule hit, and nothing failed"],
        ),
        (0, ["dumped   3 iterations (0-2): "]),
    ],
)
def test_run_tells_what_the_history_dropped(limit, expected, dumped, tmp_path, monkeypatch):
    """The summary of a run counts the iterations on disk, and the dropped ones."""
    dumped()
    config = json.loads((tmp_path / "c.json").read_text())
    config["common_dump_settings"]["path"] = f"{tmp_path}/again"
    watch = [{"condition": "tensor_range", "max_min_gt": limit, "operators": ["name-regex(.*Mul-op0)"]}]
    config["msdump"] = {"watch": watch, "history": 2}
    (tmp_path / "w.json").write_text(json.dumps(config))

    monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))
    arguments = ["run", f"{tmp_path}/m.onnx", "--config", f"{tmp_path}/w.json", "--steps", "3"]
    done = cli(*arguments, "--inputs", f"{tmp_path}/x.npz")

    told = [line for line in done.output.splitlines() if line.startswith(("dumped", "dropped"))]
    assert len(expected) == len(told), done.output
    assert all(line.startswith(start) for line, start in zip(told, expected, strict=True)), told


@pytest.mark.parametrize("mode", ["O2 npy", "O2 bin"])
def test_weights_of_a_compiled_graph_are_those_of_its_graph_file(
    mode, dumped, watched, tmp_path, monkeypatch
):
    """Where GE's graph files lie in the dump, rules on weights look at them; else they look at nothing."""
    rule = {"condition": "weight_too_large", "max_gt": 2}
    (_, document) = watched(dumped(mode), rule, OVERFLOW, json_too=True)
    assert 0 == document["rules"][0]["tensors"]

    monkeypatch.setenv("DUMP_GE_GRAPH", "1")
    monkeypatch.setenv("DUMP_GRAPH_PATH", f"{tmp_path}/dump")
    (_, document) = watched(dumped(mode), rule, json_too=True)

    assert {("Mul", "input:1", 3.0)} == {
        (hit["op_type"], hit["tensor"], hit["measured"]) for hit in document["hits"]
    }


def test_captured_graphs_are_watched(watched, tmp_path):
    """Graphs that torch.compile captured are checked like a model, step by step."""
    folder = tmp_path / "worldsize2_global_rank1" / "graph_1" / "2"
    folder.mkdir(parents=True)
    np.save(folder / "relu-aten.relu.default.OUTPUT.0.20261121000000000042.npy", np.float32([1, np.inf]))

    code, document = watched(str(tmp_path), OVERFLOW, json_too=True)

    (hit,) = document["hits"]
    assert (1, 2, 1, "aten.relu.default") == (code, hit["iteration"], hit["rank"], hit["op_type"])


@pytest.mark.parametrize("mode", ["O2 bin", "O2 npy"])
def test_operators_that_the_device_says_overflowed(mode, dumped, watched, tmp_path, monkeypatch):
    """Overflow records name the operators that overflowed; without records the rule is undecided."""
    rule = {"condition": "operator_overflow"}
    code, document = watched(dumped(mode), rule, json_too=True)
    assert (2, []) == (code, document["hits"])
    reasons = [each["reason"] for each in document["undecided"]]
    assert ["the device's overflow records, which op_debug_mode writes"] == [
        each.partition(" needs ")[2] for each in reasons
    ]

    monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))
    code, document = watched(dumped(mode, op_debug_mode=3, path=f"{tmp_path}/overflows"), rule, json_too=True)

    # the operator behind it passes the infinity on, of which the device has a record as well
    assert (1, ["Reciprocal", "TransData"]) == (code, [hit["op_type"] for hit in document["hits"]])
