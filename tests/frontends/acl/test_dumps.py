"""Files of models, as acl.json configures them."""

import logging
import shutil
import stat

import numpy as np
import pytest

from msdump import acl, env, open_dump
from msdump.frontends.acl import state
from msdump.store import CLOCK
from msdump.store.clock import local_time
from tests.frontends.acl.script import dataset, read
from tests.texts import parsed

PLAIN = {"msdump": {"precision_mode": "must_keep_origin_dtype"}}
RNG = np.random.default_rng(0)
WEIGHTS = {
    "w1": RNG.normal(size=(4, 1, 3, 3)).astype(np.float32),
    "w2": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32),
}


def chain(*op_types):
    """Return operators in a row, named after their types in lower case, from x to y."""
    names = ["x", *(f"v{index}" for index in range(1, len(op_types))), "y"]
    rows = zip(op_types, names, names[1:], strict=False)
    body = " ".join(f"[{op_type.lower()}] {after} = {op_type}({before})" for op_type, before, after in rows)
    return parsed(f"graph (float[2,3] x) => (y) {{ {body} }}")


def images():
    """Return a convolution, its activation, a pooling and another convolution, as ResNet begins."""
    return parsed(
        """graph (float[1,1,8,8] image) => (y) {
            [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(image, w1)
            [conv1_relu] r1 = Relu(c1)
            [pool1] p1 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r1)
            [conv2] y = Conv<pads = [1, 1, 1, 1]>(p1, w2)
        }""",
        **WEIGHTS,
    )


IMAGE = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
X = np.linspace(0.5, 2, 6, dtype=np.float32).reshape(2, 3)
THREE = chain("Softmax", "Transpose", "Softplus")
"""Operators that are not fused with each other."""


def operators(script, below=""):
    """Return ``{type}.{name}`` of the dump's operators in the order of their tasks."""
    names = [name.rpartition("/")[2].split(".") for name in script.files(below)]
    return [f"{kind}.{name}" for kind, name, *_ in sorted(names, key=lambda parts: int(parts[2]))]


def test_tree_and_names(script):
    """Files stand below time, device, model, number and execution; names hold type, name, task and stream."""
    script.begin({"dump_list": [{}], "dump_mode": "all"})
    model_id = script.load(THREE)

    for _ in range(2):
        assert 0 == script.run(model_id, X)[0]

    tree = "{time}/0/graph/1"
    assert [
        f"{tree}/{run}/{name}"
        for run in (0, 1)
        for name in ("Data.x.0.0", "Softmax.softmax.0.0", "Softplus.softplus.2.0", "Transpose.transpose.1.0")
    ] == script.files()


SECOND = 1_600_000_000_000_000


def test_programs_of_one_second(script, monkeypatch):
    """Each of two programs has a directory of its own, and each execution is an iteration in it."""
    monkeypatch.setattr(CLOCK, "_source", lambda: SECOND * 1000)
    for factor in (1, 3):
        script.begin({"dump_list": [{}], "dump_mode": "all"})
        model_id = script.load(THREE)
        for run in range(2):
            assert 0 == script.run(model_id, (factor + run) * X)[0]
        state.current().dumps.stop()
        state.replace_state(state.AclState())

    iterations = open_dump(script.path).all_iterations

    times = local_time(SECOND), local_time(SECOND + 1_000_000)
    assert [(time, run) for time in times for run in (0, 1)] == [
        (iteration.key.time, iteration.number) for iteration in iterations
    ]
    fed = [iteration.records[0].array.max() / X.max() for iteration in iterations]
    assert [1, 2, 3, 4] == pytest.approx(fed)
    assert {1} == {len(iteration.executions) for iteration in iterations}


def test_contents(script):
    """A file holds the operator's tensors as it read and made them, and its name."""
    script.begin({"dump_list": [{}], "dump_mode": "all"}, **PLAIN)

    script.run(script.load(THREE), X)

    header, tensors = script.read("Softmax.softmax.*")
    expected = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    assert ("softmax", "2.0") == (header.op_name, header.version)
    assert np.array_equal(X, tensors["input", 0])
    assert np.allclose(expected, tensors["output", 0], atol=1e-6)
    assert np.array_equal(X, script.read("Data.x.*")[1]["output", 0])


MODES = {
    "input": ({("input", 0)}, False),
    "output": ({("output", 0)}, True),
    "all": ({("input", 0), ("output", 0)}, True),
}


@pytest.mark.parametrize(("mode", "expected"), MODES.items(), ids=MODES)
def test_dump_mode(script, mode, expected):
    """dump_mode says which tensors a file holds; graph inputs are outputs of their Data operators."""
    script.begin({"dump_list": [{}], "dump_mode": mode})

    script.run(script.load(THREE), X)

    sections, has_data = expected
    assert sections == set(script.read("Softmax.*")[1])
    assert has_data == bool(list(script.path.rglob("Data.x.*")))


SELECTIONS = {
    "layers": ([{"layer": ["softmax", "softplus"]}], ["Data.x", "Softmax.softmax", "Softplus.softplus"]),
    "file": ([{"model_name": "net", "layer": ["transpose"]}], ["Transpose.transpose"]),
    "graph": ([{"model_name": "graph", "layer": ["transpose"]}], ["Transpose.transpose"]),
    "other": ([{"model_name": "other"}], []),
    "range": (
        [{"model_name": "net", "opname_range": [{"begin": "transpose", "end": "softplus"}]}],
        ["Transpose.transpose", "Softplus.softplus"],
    ),
    "unknown": ([{"layer": ["conv9"]}], []),
}


@pytest.mark.parametrize(("items", "expected"), SELECTIONS.values(), ids=SELECTIONS)
def test_dump_list(script, items, expected):
    """dump_list chooses models by file or graph name, and operators by name or range."""
    script.begin({"dump_list": items, "dump_level": "op"})

    script.run(script.load(THREE), X)

    assert expected == operators(script)


@pytest.mark.parametrize(
    ("listed", "file", "graph", "directory"),
    [
        ({"model_name": "net"}, "net", "graph", "net"),
        ({"model_name": "graph"}, "net", "graph", "graph"),
        ({}, "net", "graph", "graph"),
        ({}, "net", "", "net"),
        ({"model_name": "my net.v1+ü"}, "my net.v1+ü", "graph", "my_net_v1__"),
    ],
)
def test_directory_of_the_model(script, listed, file, graph, directory):
    """The file names the directory if dump_list has it or the graph no name; marks become underscores."""
    model = chain("Softmax")
    model.graph.name = graph
    script.begin({"dump_list": [listed]})

    script.run(script.load(model, file), X)

    assert {f"{{time}}/0/{directory}/1/0"} == {name.rpartition("/")[0] for name in script.files()}


FUSED = {
    "fused name": (["conv1conv1_relu"], "on", ["Data.image", "Conv2D.conv1conv1_relu"]),
    "original name": (["conv1"], "on", ["Data.image", "Conv2D.conv1conv1_relu"]),
    "last original name": (["conv1_relu"], "on", ["Data.image", "Conv2D.conv1conv1_relu"]),
    "not fused": (["conv1"], "off", ["Data.image", "Conv2D.conv1"]),
}


@pytest.mark.parametrize(("layers", "switch", "expected"), FUSED.values(), ids=FUSED)
def test_fused_operators(script, layers, switch, expected):
    """A fused operator is found by its own name and the names of its parts; fusion_switch turns it off."""
    script.begin({"dump_list": [{"layer": layers}]}, msdump={"fusion_switch": switch})

    script.run(script.load(images()), IMAGE)

    assert sorted(expected) == sorted(operators(script))


SELECTED = [{"layer": ["conv2"]}, {"layer": ["pool1"]}, {"layer": ["conv1", "conv2"]}]


def memory_of(script, item):
    """Dump two models; return file (task and stream in it), model number and address of each tensor."""
    state.replace_state(state.AclState())
    script.begin({"dump_list": [{"model_name": "images", **item}, {"model_name": "net"}], "dump_mode": "all"})
    script.run(script.load(images(), "images"), IMAGE)
    script.run(script.load(THREE), X)
    acl.finalize()
    found = {}
    for path in (path for path in script.path.rglob("*") if path.is_file()):
        header, _ = read(path)
        for section, infos in (("input", header.inputs), ("output", header.outputs)):
            places = {(section, slot): info.address for slot, info in enumerate(infos)}
            name = path.name.rpartition(".")[0]
            found |= {(path.parts[-3], name, *key): value for key, value in places.items()}
    shutil.rmtree(script.path)
    return found


@pytest.mark.parametrize("item", SELECTED, ids=str)
def test_addresses_and_numbers_depend_on_the_models_alone(script, item):
    """Tensors have the model number and the address that they have where everything is dumped."""
    everything = memory_of(script, {})

    chosen = memory_of(script, item)

    assert {"1", "2"} == {key[0] for key in chosen}
    assert len(chosen) < len(everything)
    assert chosen.items() <= everything.items()


def test_black_lists(script):
    """A black list takes tensors out of files, and files that have none left do not appear."""
    item = {
        "model_name": "net",
        "optype_blacklist": [{"name": "Softmax", "pos": ["input0"]}],
        "opname_blacklist": [{"name": "softplus", "pos": ["input0", "output0"]}],
    }
    script.begin({"dump_list": [item], "dump_level": "op", "dump_mode": "all"})

    script.run(script.load(THREE), X)

    assert ["Data.x", "Softmax.softmax", "Transpose.transpose"] == operators(script)
    assert {("output", 0)} == set(script.read("Softmax.*")[1])
    assert {("input", 0), ("output", 0)} == set(script.read("Transpose.*")[1])


def test_indices_close_up(script):
    """The tensors that are left of an operator count from 0 without gaps."""
    item = {"model_name": "net", "opname_blacklist": [{"name": "sum", "pos": ["input0"]}]}
    script.begin({"dump_list": [item], "dump_level": "op", "dump_mode": "input"}, **PLAIN)
    proto = parsed("graph (float[2] x, float[2] z) => (y) { [sum] y = Sub(x, z) }")

    script.run(script.load(proto), np.float32([1, 2]), np.float32([3, 4]))

    tensors = script.read("Sub.*")[1]
    assert {("input", 0)} == set(tensors)
    assert [3, 4] == tensors["input", 0].tolist()


@pytest.mark.parametrize(("step", "runs"), [("", {0, 1, 2, 3}), ("0|2-3", {0, 2, 3}), ("9", set())])
def test_dump_step(script, step, runs):
    """dump_step chooses executions of each model, counted from 0."""
    script.begin({"dump_list": [{"layer": ["softplus"]}], "dump_step": step})
    models = [script.load(THREE, name) for name in ("first", "second")]

    for _ in range(4):
        for model_id in models:
            script.run(model_id, X)

    found = {tuple(map(int, name.split("/")[3:5])) for name in script.files()}
    assert {(model_id, run) for model_id in models for run in runs} == found


STATISTICS = {
    "default": (
        None,
        "Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count",
        "inf,-2,nan,6,1,0,1",
    ),
    "all": (
        ["Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm"],
        "Count,Max Value,Min Value,Avg Value,Nan Count,Negative Inf Count,Positive Inf Count,l2norm",
        "6,inf,-2,nan,1,0,1,nan",
    ),
    "two": (["Min", "Max"], "Count,Max Value,Min Value", "6,inf,-2"),
    "the six by name": (
        ["Positive Inf", "Max", "Min", "Avg", "Nan", "Negative Inf"],
        "Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count",
        "inf,-2,nan,6,1,0,1",
    ),
}


@pytest.mark.parametrize(("chosen", "titles", "cells"), STATISTICS.values(), ids=STATISTICS)
def test_statistics(script, chosen, titles, cells):
    """dump_data stats writes a csv file with the statistics that dump_stats chooses."""
    asked = {"dump_stats": chosen} if chosen else {}
    script.begin({"dump_list": [{}], "dump_data": "stats", **asked}, **PLAIN)
    x = np.array([[1, np.inf, -2], [np.nan, 0.5, 1e-3]], np.float32)

    script.run(script.load(chain("Transpose")), x)

    (path,) = script.path.rglob("Transpose.*.csv")
    assert [
        f"Input/Output,Index,Data Size,Data Type,Format,Shape,{titles}",
        f"Output,0,24,DT_FLOAT,ND,3x2,{cells}",
    ] == path.read_text().splitlines()
    assert {".csv"} == {path.suffix for path in script.path.rglob("*") if path.is_file()}


def test_overflow(script, caplog):
    """dump_debug dumps inputs and outputs of the operators that overflow, and a record of each overflow."""
    script.begin({"dump_debug": "on"}, **PLAIN)
    model_id = script.load(chain("Transpose", "Exp", "Softmax"))

    script.run(model_id, X * 100)

    assert ["Exp.exp", "Opdebug.Node_OpDebug", "Softmax.softmax"] == sorted(set(operators(script)))
    _, tensors = script.read("Exp.exp.1.0.*")
    assert {("input", 0), ("output", 0)} == set(tensors)
    assert np.isinf(tensors["output", 0]).any()
    first = min(script.path.rglob("Opdebug.*"), key=lambda path: path.name)
    header, record = read(first)
    words = record["output", 0].view(np.uint32)
    fields = record["output", 0][24:112].view(np.uint64)
    assert ("Node_OpDebug", (2048,)) == (header.op_name, record["output", 0].shape)
    assert [0x5A5A5A5A, 0, 1, 0, 0, 88] == words[:6].tolist()
    assert [model_id, 0, 1] == fields[:3].tolist()
    assert fields[10] != 0


def failing(size="1"):
    """Return a model with a second operator that fails where the index, of a size, is out of range."""
    return parsed(
        f"graph (float[2,3] x, int64[{size}] i) => (y) {{ [neg] v1 = Neg(x) [gather] y = Gather(v1, i) }}"
    )


SCENES = {
    "lite_exception": "exception_info.0.1.",
    "aic_err_brief_dump": "exception_info.0.1.",
    "aic_err_norm_dump": "Gather.gather.1.",
    "aic_err_detail_dump": "exception_info.0.1.",
}


@pytest.mark.parametrize(("scene", "name"), SCENES.items(), ids=SCENES)
def test_exception(script, scene, name):
    """The operator that fails leaves a read-only file below extra-info, named as its scene names it."""
    script.begin({"dump_scene": scene})
    model_id = script.load(failing())

    assert 0 == script.run(model_id, X, np.array([1]))[0]
    assert [] == script.files()
    assert 500002 == script.run(model_id, X, np.array([7]))[0]

    (path,) = (script.path / "extra-info" / "data-dump" / "0").iterdir()
    assert path.name.startswith(name)
    assert path.name.removeprefix(name).isdecimal()
    assert 17 == len(path.name.removeprefix(name))
    assert 0o400 == stat.S_IMODE(path.stat().st_mode)


def test_normal_exception_tells_types_and_shapes(script):
    """The norm scene keeps types, shapes and formats, the others bytes and their number."""
    shapes = {}
    for scene in ("aic_err_norm_dump", "aic_err_brief_dump"):
        acl.state.replace_state(acl.state.AclState())
        script.begin({"dump_scene": scene}, **PLAIN)
        script.run(script.load(failing()), X, np.array([7]))
        newest = max(
            (script.path / "extra-info/data-dump/0").iterdir(), key=lambda path: path.stat().st_mtime_ns
        )
        header, tensors = read(newest)
        infos = (*header.inputs[:1], *header.outputs)
        shapes[scene] = [(info.data_type, info.shape, info.size) for info in infos]
        assert np.array_equal(-X, tensors["input", 0].view(np.float32).reshape(2, 3))
        assert not tensors["output", 0].any()
        assert "gather" in header.dfx_message

    assert {
        "aic_err_norm_dump": [(1, (2, 3), 24), (1, (1, 3), 12)],
        "aic_err_brief_dump": [(0, (), 24), (0, (), 12)],
    } == shapes


def test_outputs_of_unknown_size_are_left_out(script):
    """If only a run determines the shape of an output, the failing operator leaves its inputs alone."""
    script.begin({"dump_scene": "aic_err_brief_dump"})

    assert 500002 == script.run(script.load(failing("n")), X, np.array([7]))[0]

    header, _ = script.read("exception_info.*")
    assert (2, ()) == (len(header.inputs), header.outputs)


def test_exception_beside_a_model_dump(script, monkeypatch):
    """The environment's exception dump goes along with a model dump."""
    monkeypatch.setenv(env.ASCEND_DUMP_SCENE, "aic_err_brief_dump")
    monkeypatch.setenv(env.ASCEND_DUMP_PATH, str(script.folder / "failed"))
    script.begin({"dump_list": [{}]})

    script.run(script.load(failing()), X, np.array([7]))

    assert ["Data.x", "Neg.neg"] == sorted(operators(script))
    assert 1 == len(list((script.folder / "failed/extra-info/data-dump/0").iterdir()))


def test_second_exception_dump_is_ignored(script, monkeypatch, caplog):
    """An exception dump that is on stays as it is; asking for another is a warning and no error."""
    monkeypatch.setenv(env.NPU_COLLECT_PATH, str(script.folder / "collected"))

    with caplog.at_level(logging.WARNING):
        script.begin({"dump_scene": "aic_err_brief_dump"})
    script.run(script.load(failing()), X, np.array([7]))

    assert "exception dump aic_err_norm_dump is on already" in caplog.text
    assert [] == script.files()
    (path,) = (script.folder / "collected/extra-info/data-dump/0").iterdir()
    assert path.name.startswith("Gather.gather.")


@pytest.mark.parametrize(
    "section",
    [{"dump_list": [{}]}, {"dump_op_switch": "on"}, {"dump_debug": "on"}, {"dump_scene": "watcher"}],
    ids=["model", "single operator", "overflow", "watcher"],
)
def test_data_dump_with_collect_path_is_refused(script, monkeypatch, section):
    """Under NPU_COLLECT_PATH a data dump is an error, from set_dump and from init."""
    monkeypatch.setenv(env.NPU_COLLECT_PATH, str(script.folder / "collected"))

    assert [0, 0] == [acl.init(), acl.mdl.init_dump()]
    assert 500000 == acl.mdl.set_dump(script.configure(section))

    acl.finalize()
    assert 500000 == acl.init(script.configure(section))


def test_exception_dump_ends_with_the_dump(script):
    """finalize_dump turns an exception dump off, but not the detail scene."""
    for scene, files in (("aic_err_norm_dump", 0), ("aic_err_detail_dump", 1)):
        acl.state.replace_state(acl.state.AclState())
        script.begin({"dump_scene": scene})
        acl.mdl.finalize_dump()

        assert 500002 == script.run(script.load(failing()), X, np.array([7]))[0]

        assert files == len(script.files())


def test_device_of_the_thread(script):
    """The device directory is that of the device that the model was loaded on."""
    script.begin({"dump_list": [{}]})
    acl.rt.set_device(3)
    model_id = script.load(chain("Softmax"))
    acl.rt.set_device(0)

    script.run(model_id, X)

    assert {"{time}/3/graph/1/0"} == {name.rpartition("/")[0] for name in script.files()}


def test_asynchronous_run_is_dumped(script):
    """execute_async dumps as execute does; the stream returns failures."""
    script.begin({"dump_list": [{}]})
    stream, _ = acl.rt.create_stream()
    model_id = script.load(failing())
    outputs = dataset(X)
    codes = [
        acl.mdl.execute_async(model_id, dataset(X, np.array([index])), outputs, stream) for index in (1, 7)
    ]

    assert [0, 0, 500002, 0] == [*codes, acl.rt.synchronize_stream(stream), acl.rt.synchronize_stream(stream)]
    assert ["0", "1"] == sorted({name.split("/")[4] for name in script.files()})


@pytest.mark.parametrize(("setting", "code"), [("raise", 100004), ("warn", 0)])
def test_files_that_cannot_be_written(script, setting, code, caplog):
    """A dump that cannot be written is 100004, unless msdump's own setting says to go on with a line."""
    script.begin({"dump_list": [{}]}, msdump={"on_write_error": setting})
    model_id = script.load(THREE)
    script.path.rmdir()
    script.path.touch()

    with caplog.at_level(logging.ERROR):
        assert code == script.run(model_id, X)[0]

    assert "cannot write" in caplog.text


def test_run_that_fails_is_a_run(script):
    """The run after one that failed takes the next number: both have directories of their own."""
    script.begin({"dump_list": [{}], "dump_mode": "all"})
    model_id = script.load(failing())

    codes = [script.run(model_id, np.ones((2, 3), np.float32), np.array([row]))[0] for row in (0, 5, 1)]

    assert [True, False, True] == [code == 0 for code in codes]
    assert ["0", "1", "2"] == sorted(path.name for path in script.path.glob("*/0/*/1/*"))


UNMET = {
    "nothing": ({"dump_list": [{"model_name": "net"}], "dump_step": "1"}, None),
    "step": (
        {"dump_list": [{}], "dump_step": "7"},
        "dump_step 7 was not reached: no model ran beyond step 1",
    ),
    "model": (
        {"dump_list": [{"model_name": "nett"}, {"model_name": "net"}]},
        "model_name 'nett': no such model was loaded; the loaded models are 'net', 'graph'",
    ),
}


@pytest.mark.parametrize(("section", "message"), UNMET.values(), ids=UNMET)
def test_what_was_never_met_is_told_once(script, section, message, caplog):
    """Steps that no model reaches and models that are not loaded are one warning at the end."""
    script.begin(section)
    model_id = script.load(THREE)
    for _ in range(2):
        script.run(model_id, X)

    with caplog.at_level(logging.WARNING, "msdump.acl"):
        acl.mdl.finalize_dump()
        acl.finalize()

    said = [text.partition("acl.json: ")[2] for text in caplog.messages]
    assert (message is not None) == len(said)
    assert all(text.startswith(message) for text in said)
