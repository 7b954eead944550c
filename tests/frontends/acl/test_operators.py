"""Operators that are called alone."""

import logging

import ml_dtypes
import numpy as np
import pytest

from msdump import acl
from tests.frontends.acl.script import sent
from tests.frontends.acl.single_calls import FLOAT, HALF, ND, attributes, call

A = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
B = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
KERNEL = np.ones((1, 1, 2, 2), np.float32)
WINDOWS = np.array([[[[10, 18], [42, 50]]]], np.float32)

OPERATORS = {
    "ONNX name": ("Mul", [A, B], {}, A * B),
    "MindSpore name": ("RealDiv", [A, B], {}, A / B),
    "MindSpore spelling": ("ReLU", [A], {}, np.maximum(A, 0)),
    "ONNX convolution": ("Conv", [IMAGE, KERNEL], {"strides": [2, 2], "pads": [0, 0, 0, 0]}, WINDOWS),
    "GE pooling": (
        "MaxPool",
        [IMAGE],
        {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "VALID"},
        np.array([[[[5, 7], [13, 15]]]], np.float32),
    ),
    "half": ("Add", [A.astype(np.float16), B.astype(np.float16)], {}, (A + B).astype(np.float16)),
    "bool": ("Equal", [A, A], {}, np.ones((2, 3), bool)),
    "bfloat16": ("Neg", [A.astype(ml_dtypes.bfloat16)], {}, -A.astype(ml_dtypes.bfloat16)),
}


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "expected"), OPERATORS.values(), ids=OPERATORS)
def test_operators_compute(started, op_type, inputs, attrs, expected):
    """Operators of ONNX, MindSpore and GE compute their results, with their attributes."""
    attr = attributes(**attrs) if attrs else 0

    ret, failure, result = call(op_type, inputs, (expected.dtype, expected.shape), attr)

    assert (0, 0) == (ret, failure)
    assert np.allclose(expected.astype(np.float32), result.astype(np.float32), atol=2e-3)


STRIDED = {"strides": [1], "pads": [0, 0, 0, 0]}
REFUSED = {
    "unknown operator": ("NoSuchOperator", [A], {}, 100024, ""),
    "number for a list": ("Conv2D", [IMAGE, KERNEL], {"strides": 2, "pads": 0}, 100023, ""),
    "list of another length": ("Conv2D", [IMAGE, KERNEL], STRIDED, 100023, ""),
    "axis that is not there": ("SoftmaxV2", [A], {"axes": [0, 2]}, 100023, ""),
    "too few inputs": ("MatMulV2", [A], {}, 100021, ""),
    "too many inputs": ("Muls", [A, A], {"value": 2.0}, 100021, ""),
    "text for a number": ("ArgMaxD", [A], {"dimension": "first"}, 100023, ""),
    **{
        op_type: (op_type, inputs, {}, 100023, f"operator '{op_type}': attribute '{name}' is missing")
        for op_type, inputs, name in (
            ("Cast", [A], "dst_type"),
            ("Muls", [A], "value"),
            ("Conv2D", [IMAGE, KERNEL], "strides"),
            ("ReduceSumD", [A], "axes"),
            ("GatherV2D", [A, A], "axis"),
            ("SliceD", [A], "offsets"),
        )
    },
}


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "code", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_operators_are_refused(started, op_type, inputs, attrs, code, message):
    """An operator that there is not is 100024, a missing or wrong attribute 100023, other inputs 100021."""
    attr = attributes(**attrs) if attrs else 0

    assert code == call(op_type, inputs, (np.float32, (2, 3)), attr)[0]
    assert message in acl.get_recent_err_msg()


def test_unknown_attributes_are_told(started, caplog):
    """An unknown attribute is ignored with a warning that names the known ones."""
    with caplog.at_level(logging.WARNING):
        assert (0, 0) == call("LeakyRelu", [A], (np.float32, (2, 3)), attributes(slope=1.0))[:2]
        assert (0, 0) == call("Elu", [A], (np.float32, (2, 3)), attributes(slope=1.0))[:2]

    assert [
        f"operator '{name}' has no attribute 'slope', which is ignored; it has {known}"
        for name, known in (("LeakyRelu", "negative_slope"), ("Elu", "alpha"))
    ] == caplog.messages


FAILING = {
    "wrong shape": ("Add", [A, np.ones((5, 7), np.float32)], {}, (np.float32, (2, 3)), 500002),
    "too few pads": ("Conv", [IMAGE, KERNEL], {"pads": [1, 1, 1]}, (np.float32, (1, 1, 4, 4)), 500002),
    "wrong output shape": ("Add", [A, B], {}, (np.float32, (3, 2)), 100022),
    "wrong output type": ("Add", [A, B], {}, (np.float16, (2, 3)), 100022),
}


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "output", "code"), FAILING.values(), ids=FAILING)
def test_failures_are_told_by_the_stream(started, op_type, inputs, attrs, output, code):
    """A failure of a running operator is returned when its stream is synchronised."""
    assert (0, code) == call(op_type, inputs, output, attributes(**attrs))[:2]


def test_calls_are_checked(started):
    """Handles, counts and sizes are checked before anything runs."""
    desc = acl.create_tensor_desc(FLOAT, [2, 3], ND)
    small = acl.create_data_buffer(sent(A[:1]), 12)
    lost = acl.create_data_buffer(64, 24)

    codes = [
        acl.op.execute_v2("Relu", [desc], [], [desc], [small], 0, 0),
        acl.op.execute_v2("Relu", [desc], [small], [desc], [], 0, 0),
        acl.op.execute_v2("Relu", [desc], [small], [desc], [small], 0, 0),
        acl.op.execute_v2("Relu", [desc], [lost], [desc], [small], 0, 0),
        acl.op.execute_v2("Relu", [7], [small], [desc], [small], 0, 0),
        acl.op.execute_v2("Relu", [desc], [small], [desc], [small], 7, 0),
        acl.op.execute_v2("Relu", [desc], [small], [desc], [small], 0, 7),
    ]

    assert [100021, 100022, 100021, 100000, 100000, 100000, 100000] == codes


def test_operators_need_init(script):
    """Before init they are 145001."""
    assert 145001 == acl.op.execute_v2("Relu", [], [], [], [], 0, 0)


def test_descriptions(started):
    """A description has its bytes; unknown types and shapes have none."""
    assert [24, 12, 0] == [
        acl.get_tensor_desc_size(acl.create_tensor_desc(number, shape, ND))
        for number, shape in ((FLOAT, [2, 3]), (HALF, [2, 3]), (FLOAT, [0]))
    ]
    assert [0, 0, 0] == [
        acl.create_tensor_desc(*given, ND) for given in ((99, [1]), (13, [1]), (FLOAT, [-1]))
    ]
    assert 0 == acl.get_tensor_desc_size(0)


def test_wrong_attributes_are_refused(started):
    """An attribute has the type of its setter."""
    attr = acl.op.create_attr()

    assert [100000, 100000, 100000, 0] == [
        acl.op.set_attr_int(attr, "axis", "x"),
        acl.op.set_attr_list_int(attr, "axes", 1),
        acl.op.set_attr_int(0, "axis", 1),
        acl.op.destroy_attr(attr),
    ]


def test_model_dir_must_exist(started):
    """Operators are built when they are called, but the directory must be there."""
    assert [0, 100003] == [acl.op.set_model_dir(str(started.folder)), acl.op.set_model_dir("missing")]


LEVELS = {
    "op": ["Add.Add.0.0"],
    "kernel": ["Add.aclnnAdd_0_AddAiCore.0.0"],
    "all": ["Add.Add.0.0", "Add.aclnnAdd_0_AddAiCore.0.0"],
}


@pytest.mark.parametrize(("level", "names"), LEVELS.items(), ids=LEVELS)
def test_dump_of_an_operator(script, level, names):
    """A call dumps beside the models, named as operator, as kernel of aclnn, or both, as dump_level says."""
    script.begin({"dump_op_switch": "on", "dump_list": [{}], "dump_mode": "all", "dump_level": level})

    assert (0, 0) == call("Add", [A, B], (np.float32, (2, 3)))[:2]

    assert [f"{{time}}/0/{name}" for name in names] == script.files()
    for name in names:
        header, tensors = script.read(f"{name}.*")
        assert name.split(".")[1] == header.op_name
        assert np.array_equal(A, tensors["input", 0])
        assert np.array_equal(B, tensors["input", 1])
        assert np.array_equal(A + B, tensors["output", 0])


@pytest.mark.parametrize(
    ("mode", "sections"),
    [("input", {("input", 0)}), ("output", {("output", 0)}), ("all", {("input", 0), ("output", 0)})],
)
def test_dump_mode_of_an_operator(script, mode, sections):
    """dump_mode says which tensors a call dumps."""
    script.begin({"dump_op_switch": "on", "dump_mode": mode, "dump_level": "op"})

    call("Neg", [A], (np.float32, (2, 3)))

    assert sections == set(script.read("Neg.*")[1])


SETTLED_IN_GRAPHS = {
    "ConcatD": ([A, B], {"concat_dim": 0}, (4, 3)),
    "SplitD": ([A], {"split_dim": 0, "num_split": 1}, (2, 3)),
    "Reshape": ([A, np.array([3, 2])], {}, (3, 2)),
    "Flatten": ([A], {}, (2, 3)),
    "Squeeze": ([A[:1]], {"axis": [0]}, (3,)),
    "Identity": ([A], {}, (2, 3)),
}


@pytest.mark.parametrize("op_type", SETTLED_IN_GRAPHS)
def test_operators_that_graphs_settle(script, op_type):
    """Operators that compiled graphs do without the device are like any other where they are called alone."""
    inputs, attrs, shape = SETTLED_IN_GRAPHS[op_type]
    script.begin({"dump_op_switch": "on", "dump_level": "op", "dump_mode": "all"})

    assert (0, 0) == call(op_type, inputs, (np.float32, shape), attributes(**attrs))[:2]
    assert (0, 0) == call("Neg", [A], (np.float32, (2, 3)))[:2]

    assert [f"{op_type}.{op_type}.0.0", "Neg.Neg.1.0"] == sorted(
        (name.rpartition("/")[2] for name in script.files()), key=lambda name: name.split(".")[2]
    )
    header, tensors = script.read(f"{op_type}.*")
    assert header.op_name == op_type
    for slot, array in enumerate(inputs):
        assert np.array_equal(array, tensors["input", slot])
    assert np.array_equal(
        np.concatenate(inputs).ravel() if op_type == "ConcatD" else inputs[0].ravel(),
        tensors["output", 0].ravel(),
    )


def test_tasks_count_on_each_stream(script):
    """Calls are tasks of their stream, counted from 0; steps do not matter to them."""
    script.begin({"dump_op_switch": "on", "dump_level": "op", "dump_step": "7"})
    stream, _ = acl.rt.create_stream()

    for number in (0, 0, stream, stream):
        call("Neg", [A], (np.float32, (2, 3)), stream=number)

    expected = ["Neg.Neg.0.0", "Neg.Neg.0.1", "Neg.Neg.1.0", "Neg.Neg.1.1"]
    assert expected == [name.rpartition("/")[2] for name in script.files()]


def test_statistics_of_an_operator(script):
    """dump_data stats writes a csv file in place of the tensors."""
    script.begin({"dump_op_switch": "on", "dump_level": "op", "dump_data": "stats", "dump_stats": ["Max"]})

    call("Neg", [A], (np.float32, (2, 3)))

    assert ["{time}/0/Neg.Neg.0.0.csv"] == script.files()
    (path,) = script.path.rglob("*.csv")
    assert [
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value",
        "Output,0,24,DT_FLOAT,ND,2x3,6,3",
    ] == path.read_text().splitlines()


@pytest.mark.parametrize("section", [{"dump_list": [{}]}, {"dump_debug": "on"}], ids=["models", "overflow"])
def test_switch_is_off_by_default(script, section):
    """Without dump_op_switch no call is dumped."""
    script.begin(section)

    call("Neg", [A], (np.float32, (2, 3)))

    assert [] == script.files()


def test_calls_after_the_dump_are_not_dumped(script):
    """finalize_dump ends the dump of calls; a new configuration begins another."""
    script.begin({"dump_op_switch": "on", "dump_level": "op"})
    acl.mdl.finalize_dump()

    call("Neg", [A], (np.float32, (2, 3)))
    assert [] == script.files()

    acl.mdl.init_dump()
    acl.mdl.set_dump(script.configure({"dump_op_switch": "on", "dump_level": "op"}))
    call("Neg", [A], (np.float32, (2, 3)))
    assert ["{time}/0/Neg.Neg.1.0"] == script.files()


@pytest.mark.parametrize(("op_type", "attrs"), [("Add", {}), ("ConcatD", {"concat_dim": 0})])
def test_failing_operator_leaves_its_inputs(script, caplog, op_type, attrs):
    """In an exception scene a call that fails leaves its inputs behind."""
    script.begin({"dump_scene": "aic_err_norm_dump"})

    with caplog.at_level(logging.ERROR):
        assert (0, 500002) == call(
            op_type, [A, np.ones((5, 7), np.float32)], (np.float32, (2, 3)), attributes(**attrs)
        )[:2]

    (path,) = (script.path / "extra-info" / "data-dump" / "0").iterdir()
    assert path.name.startswith(f"{op_type}.")
