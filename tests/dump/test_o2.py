"""Dumps of whole graphs that Ascend O2 compiles: tree, names, files, and every key of the configuration."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper

import msdump
from msdump import open_dump
from msdump.errors import ExecutionError
from msdump.judge.inputs import made_up
from tests.dump import nets, o2
from tests.dump.test_overflow import LARGE, MODES, sum_and_product
from tests.texts import parsed
from tests.world import GRAPHS, O2, compiled_config

FLOATS = {"x": np.array([[1, -2, 3, -4]], np.float32)}


def chain():
    """Return operators that neither change formats nor types: product, activation, sum."""
    return parsed(
        """graph (float[1,4] x) => (c) {
            ["first/Mul"] a = Mul(x, two)
            ["second/Relu"] b = Relu(a)
            ["third/Add"] c = Add(b, x)
        }""",
        two=np.array(2, np.float32),
    )


MUL, RELU, ADD = (
    ("Mul", "Default_first_Mul-op0"),
    ("ReLU", "Default_second_ReLU-op0"),
    ("Add", "Default_third_Add-op0"),
)


class TestTree:
    """Where the files stand, under which names and with which permissions."""

    @pytest.mark.parametrize(
        ("changes", "mode"), [({}, 0o600), ({"file_format": "npy", "saved_data": "full"}, 0o400)]
    )
    def test_permissions(self, door, changes, mode):
        """Directories are 0700, CANN's files 0600, MindSpore's own files 0400."""
        o2.dump(door, chain(), FLOATS, **changes)

        directories, names = o2.modes(door.path)
        assert {0o700} == directories
        assert 0o400 == names.pop("acl_dump_0.json")
        assert {mode} == set(names.values())

    def test_networks_have_numbers(self, door):
        """Models count from 1 in their process; each has its own executions."""
        first = o2.load(door, chain())
        second = door.load(chain(), **O2)

        for _ in range(2):
            first.run(FLOATS)
            second.run(FLOATS)

        assert [
            (0, 0, "graph", 1, 0),
            (1, 0, "graph", 1, 1),
            (1, 0, "graph", 2, 0),
            (2, 0, "graph", 2, 1),
        ] == (o2.places(door.path))

    def test_other_device(self, door):
        """The number of the device stands in the tree and in the name of acl's file."""
        door.configure(compiled_config(door.path, support_device=[3]))

        door.load(chain(), **O2, device_id=3).run(FLOATS)

        assert [(0, 3, "graph", 1, 0)] == o2.places(door.path)
        assert (door.path / "acl_dump_3.json").exists()

    @pytest.mark.parametrize(
        ("name", "directory"), [("ge default.1/x", "ge_default_1_x"), (300 * "g", 255 * "g")]
    )
    def test_model_is_named_after_its_graph(self, door, name, directory):
        """A graph's name becomes the directory, with the characters that tools accept, as far as it fits."""
        model = chain()
        model.graph.name = name

        o2.dump(door, model, FLOATS)

        assert [(0, 0, directory, 1, 0)] == o2.places(door.path)

    @pytest.mark.parametrize("file_format", ["bin", "npy"])
    def test_long_names(self, door, file_format):
        """A name over 255 bytes becomes digits; mapping.csv has the original."""
        o2.dump(door, nets.long_names(), {"x": np.ones((2, 4), np.float32)}, file_format=file_format)

        folder = o2.folder(door.path)
        lines = dict(line.split(",", 1) for line in (folder / "mapping.csv").read_text().splitlines())
        assert len(lines) >= 2
        assert all(name.removesuffix(".npy").isdigit() and (folder / name).exists() for name in lines)
        assert all(len(original) > 255 and o2.NAME.match(original) for original in lines.values())
        assert {"MatMul", "BiasAdd"} <= {record.op_type for record in open_dump(door.path).records}

    def test_classic_names(self, door):
        """Classic names hold the last component of an operator's name alone."""
        blocks = compiled_config(door.path)
        blocks["msdump"]["naming"] = "classic"
        door.configure(blocks)

        door.load(chain(), **O2).run(FLOATS)

        assert ("Mul", "Mul-op0") in o2.operators(o2.folder(door.path))


WHOLE = {"dump_list": [], "dump_mode": "all", "dump_op_switch": "on", "dump_path": "{path}/0"}
NAMED = ["Default/third/Add-op0", "name-regex(second/.+)", "Default/second/ReLU-op0"]
CONTENTS = {
    "everything": ({}, WHOLE),
    "inputs": ({"input_output": 1}, WHOLE | {"dump_mode": "input"}),
    "outputs": ({"input_output": 2}, WHOLE | {"dump_mode": "output"}),
    "kernels": ({"dump_mode": 1, "kernels": NAMED[1::-1]}, WHOLE | {"dump_list": [{"layer": NAMED}]}),
    "no kernels": ({"dump_mode": 1, "kernels": []}, WHOLE),
    "nothing marked": ({"dump_mode": 2}, WHOLE | {"dump_list": [{"layer": ["NoSetDumpTarget"]}]}),
    "out of range": ({"iteration": "7"}, WHOLE | {"dump_path": "{path}", "dump_step": "2147483647"}),
    "overflow": ({"op_debug_mode": 3}, {"dump_debug": "on", "dump_path": "{path}/0"}),
    "exception": ({"op_debug_mode": 4, "input_output": 1}, {"dump_scene": "lite_exception"}),
}


class TestAclJson:
    """``acl_dump_{device_id}.json``, which is written before every step."""

    @pytest.mark.parametrize(("changes", "expected"), CONTENTS.values(), ids=CONTENTS)
    def test_content(self, door, changes, expected):
        """The file is compact JSON with sorted keys, and holds acl's settings for the step."""
        o2.dump(door, chain(), FLOATS, **changes)

        whole = {"dump": expected}
        if "dump_path" in expected:
            whole["dump"] = expected | {"dump_path": expected["dump_path"].format(path=door.path)}
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        assert text == (door.path / "acl_dump_0.json").read_text()

    def test_each_step_writes_it_anew(self, door):
        """The file belongs to the step that ran last."""
        network = o2.load(door, chain(), iteration="0|2")
        paths = []

        for _ in range(4):
            network.run(FLOATS)
            paths.append(o2.told(door.path)["dump"]["dump_path"])

        root = str(door.path)
        assert [f"{root}/0", root, f"{root}/2", root] == paths


SIDES = {
    "both": (0, [("output", 0)], [("input", 0), ("input", 1), ("output", 0)]),
    "inputs": (1, None, [("input", 0), ("input", 1)]),
    "outputs": (2, [("output", 0)], [("output", 0)]),
}


KERNELS = {
    "name": (["Default/second/ReLU-op0"], [RELU]),
    "part of a name": (["name-regex(second)"], [RELU]),
    "pattern": (["name-regex(^Default/(first|third)/)"], [("Data", "x"), MUL, ADD]),
    "several": (["Default/second/ReLU-op0", "name-regex(third)"], [RELU, ("Data", "x"), ADD]),
    "everything": ([], [("Data", "x"), MUL, RELU, ADD]),
}


ORIGINALS = ("Default/second/ReLU-op0", "name-regex(second)", "name-regex(^Default/second/ReLU-op0$)")


class TestSelection:
    """Which steps, operators, tensors and devices are dumped."""

    def test_iterations(self, door):
        """Only the steps that iteration names are dumped; executions count every run."""
        o2.dump(door, chain(), FLOATS, steps=5, iteration="0|2-3")

        assert [(step, 0, "graph", 1, step) for step in (0, 2, 3)] == o2.places(door.path)

    def test_initial_iteration(self, door):
        """Steps count from initial_iteration, executions from 0."""
        o2.dump(door, chain(), FLOATS, steps=2, initial_iteration=5, iteration="6")

        assert [(6, 0, "graph", 1, 1)] == o2.places(door.path)

    @pytest.mark.parametrize("file_format", ["bin", "npy"])
    @pytest.mark.parametrize(("input_output", "of_data", "of_operator"), SIDES.values(), ids=SIDES)
    def test_sides(self, door, file_format, input_output, of_data, of_operator):
        """input_output chooses the tensors; a Data operator has only its output."""
        o2.dump(door, chain(), FLOATS, input_output=input_output, file_format=file_format)

        found = {}
        for record in open_dump(door.path).records:
            found.setdefault((record.op_type, record.timestamp), []).append((str(record.io), record.slot))
        sides = {op_type: sorted(tensors) for (op_type, _), tensors in found.items()}
        assert of_operator == sides["Mul"]
        assert of_data == sides.get("Data")

    @pytest.mark.parametrize(("kernels", "expected"), KERNELS.values(), ids=KERNELS)
    def test_kernels(self, door, kernels, expected):
        """Full names and patterns that match anywhere in a name choose operators; Data follows its reader."""
        o2.dump(door, chain(), FLOATS, dump_mode=1, kernels=kernels)

        assert expected == o2.operators(o2.folder(door.path))

    @pytest.mark.parametrize("kernel", ORIGINALS)
    def test_fused_operator_answers_to_its_originals(self, door, kernel):
        """A kernel is dumped where one of the operators in it is selected."""
        o2.dump(door, chain(), FLOATS, fuses=True, dump_mode=1, kernels=[kernel])

        (fused,) = [op_name for _, op_name in o2.operators(o2.folder(door.path)) if op_name != "x"]
        assert "ReLU-op0" in fused
        assert "Mul-op0" in fused

    def test_set_dump(self, door):
        """dump_mode 2 dumps the operators that set_dump marked, and writes their names for acl."""
        network = o2.load(door, chain(), dump_mode=2)

        msdump.set_dump(network.scope("second"))
        network.run(FLOATS)

        assert [RELU] == o2.operators(o2.folder(door.path))
        assert [{"layer": ["Default/second/ReLU-op0"]}] == o2.told(door.path)["dump"]["dump_list"]

    @pytest.mark.parametrize("target", ["operator", "scope", "module", "name"])
    def test_set_dump_of_a_part(self, door, target):
        """A fused operator is marked by each of the operators in it, and by their scopes."""
        network = o2.load(door, chain(), fuses=True, dump_mode=2)
        targets = {
            "operator": lambda: network.operator("Default/second/ReLU-op0"),
            "scope": lambda: network.scope("Default/third"),
            "module": lambda: network.scope("second"),
            "name": lambda: "Default/second/ReLU-op0",
        }

        msdump.set_dump(targets[target]())
        network.run(FLOATS)

        assert ["Mul"] == [op_type for op_type, _ in o2.operators(o2.folder(door.path)) if op_type != "Data"]

    def test_set_dump_without_target(self, door, caplog):
        """Without a mark nothing is dumped, and one warning says so."""
        o2.dump(door, chain(), FLOATS, dump_mode=2, steps=2)

        assert 1 == caplog.text.count("set_dump has marked no operator of graph")
        assert [] == o2.places(door.path)

    def test_device_that_is_not_supported(self, door, caplog):
        """A device that support_device leaves out dumps nothing."""
        o2.dump(door, chain(), FLOATS, support_device=[1])

        assert "device 0 is not in the list: nothing is dumped" in caplog.text
        assert not door.path.exists()


def run_made_up(door, name, **changes):
    """Run a small graph with inputs that are made up; return the network."""
    network = o2.load(door, f"{GRAPHS}/{name}.onnx", **changes)
    network.run(made_up(network.graph, {}, 0, 0))
    return network


NPY = {
    "image": ("Conv2D", "NCHW", {("input", 0): "float16", ("input", 1): "float16", ("output", 0): "float32"}),
    "matrix": ("MatMul", "ND", {("input", 0): "float16", ("input", 1): "float16", ("output", 0): "float32"}),
}


class TestContents:
    """Contents of the files."""

    @pytest.mark.parametrize(("op_type", "layout", "dtypes"), NPY.values(), ids=NPY)
    def test_npy_files_are_host_format(self, door, op_type, layout, dtypes):
        """.npy files have the host's layout, NCHW or ND in the name, and the device's element type."""
        o2.dump(door, nets.mini(), nets.mini_feeds(), file_format="npy")

        found = {
            (str(r.io), r.slot): (r.format, r.dtype, str(r.array.dtype))
            for r in open_dump(door.path).records
            if r.op_type == op_type
        }
        assert {key: (layout, dtype, dtype) for key, dtype in dtypes.items()} == found

    def test_statistics(self, door):
        """statistic.csv has a row for each tensor, with task, stream and the time of the operator's files."""
        o2.dump(
            door, chain(), FLOATS, file_format="npy", saved_data="full", statistic_category=["max", "count"]
        )

        (iteration,) = open_dump(door.path).iterations
        rows = [row for row in iteration.statistics if row["Op Type"] == "Add"]
        (stamp,) = {r.timestamp for r in iteration.records if r.op_type == "Add"}
        operator, tensor = ["Add", "Default_third_Add-op0", 2, 0, stamp], [16, "float32", "(1,4)"]
        assert [
            [*operator, "input", 0, *tensor, 6, 4],
            [*operator, "input", 1, *tensor, 3, 4],
            [*operator, "output", 0, *tensor, 9, 4],
        ] == [list(row.values()) for row in rows]

    def test_bfloat16(self, door):
        """bfloat16 stays two bytes in a dump file; .npy files and statistics have it as float32."""
        run_made_up(door, "bfloat16", file_format="npy", saved_data="full")

        (iteration,) = open_dump(door.path).iterations
        halves = [r for r in iteration.records if r.dtype == "bfloat16"]
        rows = [row for row in iteration.statistics if row["Data Type"] == "bfloat16"]
        assert halves
        assert {"float32"} == {str(r.array.dtype) for r in halves}
        assert {4 * r.array.size for r in halves} == {int(row["Data Size"]) for row in rows}

    def test_packed_elements(self, door):
        """Elements below a byte are packed in dump files and whole in .npy files."""
        model = nets.model(
            [helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.INT4, name="a/Cast")],
            [nets.value("x", [3])],
            ["y"],
        )

        o2.dump(door, model, {"x": np.array([1, -2, 3], np.float32)})

        (output,) = [r for r in open_dump(door.path).records if r.io == "output" and r.op_type == "Cast"]
        assert ("int4", (3,), b"\xe1\x03") == (output.dtype, output.shape, bytes(output.data))
        assert [1, -2, 3] == output.host.tolist()

    def test_empty_tensors(self, door):
        """A tensor without elements stands in a dump file; as a .npy file it is counted as skipped."""
        model = parsed('graph (float[n,3] x) => (y) { ["a/Relu"] y = Relu(x) }')
        feeds = {"x": np.zeros((0, 3), np.float32)}

        o2.dump(door, model, feeds)

        records = list(open_dump(door.path).records)
        assert [("Data", (0, 3), 0), ("ReLU", (0, 3), 0), ("ReLU", (0, 3), 0)] == [
            (r.op_type, r.array.shape, r.info.size) for r in records
        ]
        door.again()
        network = o2.dump(door, model, feeds, file_format="npy", path=str(door.folder / "npy"))
        assert {"no elements": 3} == dict(network.summary.skipped)

    @pytest.mark.parametrize("file_format", ["bin", "npy"])
    def test_absent_inputs(self, door, file_format):
        """Absent optional inputs have no number, in dump files and .npy files."""
        model = parsed("""graph (float[1,1,2,2] x, float[4] scales) => (y) {
            [up] y = Resize<mode = "nearest">(x, , scales)
        }""")
        feeds = {"x": np.ones((1, 1, 2, 2), np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}

        o2.dump(door, model, feeds, file_format=file_format)

        found = [r for r in open_dump(door.path).records if r.op_type == "ResizeNearestNeighborV2"]
        assert [("input", 0, 4), ("input", 1, 1), ("output", 0, 4)] == [
            (str(r.io), r.slot, r.host.ndim) for r in found
        ]

    def test_text(self, door, caplog):
        """A text tensor is left out with one warning; the operator's other tensors stay."""
        network = run_made_up(door, "strings")

        assert network.summary.skipped["text"] >= 2
        assert "the tensor is text, and dumps hold only numbers" in caplog.text


SMALL = np.array([1, 2], np.float32)
HUGE = {"x": np.full(2, 3e38, np.float32), "x2": np.full(2, 3e38, np.float32)}
KEEP = "must_keep_origin_dtype"
CARRIES_ON = {"Cast"}
"""Types of operators that only pass an infinity on."""


class TestOverflow:
    """op_debug_mode 3."""

    def run(self, door, feeds, mode=None, steps=1, precision="force_fp16", **changes):
        """Run the sum and the product; return the network."""
        if mode is not None:
            door.monkeypatch.setenv("MS_ASCEND_CHECK_OVERFLOW_MODE", mode)
        blocks = compiled_config(door.path, op_debug_mode=3, **changes)
        blocks["msdump"]["precision_mode"] = precision
        door.configure(blocks)
        network = door.load(sum_and_product(), **O2)
        for _ in range(steps):
            network.run(feeds)
        return network

    @pytest.mark.parametrize(("mode", "expected"), MODES.values(), ids=MODES)
    def test_operator_and_record(self, door, mode, expected):
        """The operator that overflows has its file, and an overflow record names its task and stream."""
        self.run(door, {"x": LARGE, "x2": LARGE}, mode)

        (iteration,) = open_dump(door.path).iterations
        file, told = iteration.files[0], iteration.overflows[0]
        details = told.fields["acc_list"]["data"]
        assert ("Add", "Default_add_Add-op0") == (file.name.op_type, file.name.op_name)
        assert expected == file.records[-1].host[0]
        assert 3 == len(file.records)
        assert (file.name.task_id, file.name.stream_id, 1) == (
            details["task_id"],
            details["stream_id"],
            details["model_id"],
        )
        assert told.name.timestamp < file.name.timestamp
        assert (told.name.task_id, told.name.stream_id) != (file.name.task_id, file.name.stream_id)

    @pytest.mark.parametrize(("mode", "expected"), MODES.values(), ids=MODES)
    def test_npy(self, door, mode, expected):
        """Under file_format npy the record is compact JSON with sorted keys, the tensors are .npy files."""
        self.run(door, {"x": LARGE, "x2": LARGE}, mode, file_format="npy")

        (iteration,) = open_dump(door.path).iterations
        told = iteration.overflows[0]
        text = open(told.path, encoding="utf-8").read()  # noqa: PTH123, SIM115 - read as it is
        *_, output = (record for record in iteration.records if record.op_type == "Add")
        assert json.dumps(told.fields, sort_keys=True, separators=(",", ":")) == text
        assert ["AI Core", "DHA Atomic Add", "L2 Atomic Add"] == list(told.fields)
        assert (output.name.task_id, output.name.stream_id) == (
            told.fields["AI Core"]["task_id"],
            told.fields["AI Core"]["stream_id"],
        )
        assert expected == output.array[0]
        assert {"Add"} == {record.op_type for record in iteration.records} - CARRIES_ON

    def test_number_of_overflows(self, door):
        """overflow_number counts overflowing operators over the whole process, where files are .npy."""
        self.run(door, HUGE, steps=3, precision=KEEP, file_format="npy", overflow_number=2)

        assert [(0, 0, "graph", 1, 0), (1, 0, "graph", 1, 1)] == o2.places(door.path)

    def test_number_of_overflows_of_dump_files(self, door, caplog):
        """overflow_number has no effect on dump files; a warning says so."""
        self.run(door, HUGE, steps=3, precision=KEEP, overflow_number=2)

        assert 3 == len(o2.places(door.path))
        assert "has an effect only with file_format 'npy'" in caplog.text


def failing():
    """Return a sum, and a look-up beyond the table's end."""
    return parsed(
        'graph (float[2] x) => (y) { ["abs/Abs"] a = Abs(x) ["look/Gather"] y = Gather(a, number) }',
        number=np.array([5], np.int64),
    )


class TestException:
    """op_debug_mode 4."""

    def test_inputs_of_the_failing_operator(self, door, monkeypatch):
        """The inputs of the operator that fails lie below the working directory, as bytes without types."""
        monkeypatch.chdir(door.folder)

        with pytest.raises(ExecutionError, match="Gather"):
            o2.dump(door, failing(), {"x": SMALL}, op_debug_mode=4, input_output=1)

        (file,) = open_dump(door.folder).failures
        place = door.folder / "extra-info/data-dump/0"
        assert str(place) in file.path
        assert "Default/look/Gather-op0" == file.header.op_name
        assert [0, 0] == [info.data_type for info in file.header.inputs]
        assert [SMALL.tobytes(), np.int64(5).tobytes()] == [bytes(record.data) for record in file.records]
        assert "Default/look/Gather-op0" in file.header.dfx_message
        assert 0o400 == (place / file.path.rsplit("/", 1)[1]).stat().st_mode & 0o777
        assert ["acl_dump_0.json"] == [path.name for path in door.path.iterdir()]

    def test_full_exception_dump_beside_a_dump(self, door, monkeypatch):
        """exception_dump "1" leaves the inputs and outputs of the failing operator, with their types."""
        monkeypatch.chdir(door.folder)
        msdump.set_context(ascend_config={"exception_dump": "1"})

        with pytest.raises(ExecutionError, match="Gather"):
            o2.dump(door, failing(), {"x": SMALL})

        (file,) = open_dump(door.folder).failures
        infos = (*file.header.inputs, *file.header.outputs)
        assert [(1, (2,)), (8, (1,)), (1, (1,))] == [(info.data_type, info.shape) for info in infos]
        assert {"Abs", "Data"} == {r.op_type for r in open_dump(door.path).records}

    def test_lite_exception_dump_beside_a_dump(self, door, monkeypatch, caplog):
        """exception_dump "2" is not possible beside a dump of O2, and a warning names the alternatives."""
        monkeypatch.chdir(door.folder)
        msdump.set_context(ascend_config={"exception_dump": "2"})

        with pytest.raises(ExecutionError, match="Gather"):
            o2.dump(door, failing(), {"x": SMALL})

        assert not (door.folder / "extra-info").exists()
        assert "'2' is not supported where Ascend O2 dumps; use '1', or op_debug_mode 4" in caplog.text

    def test_path_of_the_environment(self, door, monkeypatch, tmp_path):
        """ASCEND_WORK_PATH comes before the working directory."""
        monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path / "work"))

        with pytest.raises(ExecutionError):
            o2.dump(door, failing(), {"x": SMALL}, op_debug_mode=4, input_output=1)

        assert 1 == len(open_dump(tmp_path / "work").failures)

    def test_nothing_fails(self, door, monkeypatch):
        """A run without failures leaves nothing but acl's file."""
        monkeypatch.chdir(door.folder)

        o2.dump(door, chain(), FLOATS, op_debug_mode=4, input_output=1)

        assert ["acl_dump_0.json"] == [path.name for path in door.path.iterdir()]
        assert not (door.folder / "extra-info").exists()


class TestRuns:
    """How a run and its dump go together."""

    def test_inputs_may_change_after_a_step(self, door):
        """Changes of an input after a step do not reach its files."""
        array = np.ones(1 << 20, np.float32)
        model = parsed('graph (float[n] x) => (y) { ["a/Relu"] y = Relu(x) }')
        network = o2.load(door, model)

        network.run({"x": array})
        array[:] = 2

        assert {1.0} == {float(record.host.max()) for record in open_dump(door.path).records}


class TestDataSink:
    """MindSpore's data sink, which a dump of a compiled graph allows one step at a time."""

    def test_steps(self, door):
        """Each call runs and dumps a step on the next element, and starts again at the dataset's end."""
        network = o2.load(door, chain())
        images = [np.full((1, 4), number, np.float32) for number in range(2)]

        step = msdump.data_sink(network, images)
        results = [step()[0, 0] for _ in range(3)]

        assert [0, 3, 0] == results
        assert [(number, 0, "graph", 1, number) for number in range(3)] == o2.places(door.path)

    @pytest.mark.parametrize("variable", ["", "1"], ids=["O2", "GE"])
    def test_size(self, door, variable):
        """More than one step in a call is refused, with MindSpore's words."""
        door.monkeypatch.setenv("ENABLE_MS_GE_DUMP", variable)
        network = o2.load(door, chain())

        with pytest.raises(ValueError, match="sink size must be 1, but got 2"):
            msdump.data_sink(network, [FLOATS], sink_size=2)

    @pytest.mark.parametrize("level", ["O0", "O2"])
    def test_size_without_such_a_dump(self, door, level):
        """Without a dump a call may run several steps, and gives the last one's result."""
        network = door.load(chain(), device_target="Ascend", jit_level=level)

        step = msdump.data_sink(network, [FLOATS, (FLOATS["x"] * 2,)], sink_size=2)

        np.testing.assert_array_equal(network(FLOATS["x"] * 2), step())

    @pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
    def test_wrong_size(self, door, size):
        """A size is a number from 1."""
        network = door.load(chain(), **O2)

        with pytest.raises(ValueError, match="must be a number from 1"):
            msdump.data_sink(network, [FLOATS], sink_size=size)

    def test_dataset_that_is_used_up(self, door):
        """A dataset without further elements is an error when one is needed."""
        step = msdump.data_sink(door.load(chain(), **O2), iter([FLOATS]))
        step()

        with pytest.raises(ValueError, match="no elements left"):
            step()


@pytest.mark.parametrize("level", ["O2", None], ids=["explicit", "implied"])
def test_example_of_the_documents(door, level):
    """The configuration that MindSpore's document shows for O2 dumps a network into the tree it shows."""
    common = {
        "op_debug_mode": 0,
        "dump_mode": 0,
        "path": str(door.path),
        "net_name": "ResNet50",
        "iteration": "0|5-8|100-120",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": ["Default/Conv-op12"],
        "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
        "statistic_category": ["max", "min", "l2norm"],
        "file_format": "npy",
    }
    door.configure({"common_dump_settings": common})
    context = {"device_target": "Ascend"} | ({} if level is None else {"jit_level": level})
    network = door.load(f"{GRAPHS}/lenet.onnx", **context)
    feeds = made_up(network.graph, {}, 0, 0)

    for _ in range(7):
        outputs = network.run(feeds)

    assert [(step, 0, "lenet", 1, step) for step in (0, 5, 6)] == o2.places(door.path)
    for iteration in open_dump(door.path).iterations:
        assert not iteration.files
        assert {"Conv2D", "MaxPool", "MatMul", "Data"} <= {record.op_type for record in iteration.records}
        np.testing.assert_array_equal(outputs["output"], iteration.records[-1].array)


@pytest.mark.parametrize("file_format", ["bin", "npy"])
@pytest.mark.parametrize(
    "name", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "INT4", "UINT4"]
)
def test_narrow_types(door, name, file_format):
    """Tensors of less than 16 bits leave files under O2."""
    narrow = helper.make_node("Cast", ["x"], ["n"], to=getattr(onnx.TensorProto, name))
    wide = helper.make_node("Softmax", ["w"], ["y"])
    cast = helper.make_node("Cast", ["n"], ["w"], to=nets.FLOAT)
    model = nets.model([narrow, cast, wide], [nets.value("x", [1, 3])], ["y", "n"], opset=23)

    network = o2.dump(door, model, {"x": np.float32([[1, 2, 3]])}, file_format=file_format)

    assert {"Cast", "Softmax"} <= {path.name.partition(".")[0] for path in door.path.rglob("*.*")}
    assert ({}, {}) == (network.summary.lost, network.summary.skipped)
