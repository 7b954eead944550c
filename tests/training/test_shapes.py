"""Gradients of operators that change shape or order against numerical differences."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED, analytic, check, one_operator, outputs_of

_RNG = np.random.default_rng(13)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


_IMAGE, _BLOCKS = _normal(1, 2, 4, 4), _normal(1, 8, 2, 2)

CASES = {
    "Reshape": (("Reshape", [_normal(2, 3, 4), _ints(4, 6)], {}), (4, 6)),
    "Reshape_copied_and_rest": (("Reshape", [_normal(2, 3, 4), _ints(0, -1)], {}), (2, 12)),
    "Reshape_to_scalar": (("Reshape", [_normal(1), _ints()], {}), ()),
    "Flatten": (("Flatten", [_normal(2, 3, 4)], {}), (2, 12)),
    "Flatten_axis": (("Flatten", [_normal(2, 3, 4)], {"axis": -1}), (6, 4)),
    "Squeeze": (("Squeeze", [_normal(1, 3, 1)], {}), (3,)),
    "Squeeze_axes": (("Squeeze", [_normal(1, 3, 1), _ints(-1)], {}), (1, 3)),
    "Unsqueeze": (("Unsqueeze", [_normal(3, 4), _ints(0, -1)], {}), (1, 3, 4, 1)),
    "Transpose": (("Transpose", [_normal(2, 3, 4)], {}), (4, 3, 2)),
    "Transpose_perm": (("Transpose", [_normal(2, 3, 4)], {"perm": [1, 2, 0]}), (3, 4, 2)),
    "Expand": (("Expand", [_normal(3, 1), _ints(2, 3, 4)], {}), (2, 3, 4)),
    "Expand_smaller": (("Expand", [_normal(2, 3), _ints(1)], {}), (2, 3)),
    "Tile": (("Tile", [_normal(2, 3), _ints(2, 3)], {}), (4, 9)),
    "Tile_one_axis": (("Tile", [_normal(2, 3), _ints(1, 2)], {}), (2, 6)),
    "Tile_once": (("Tile", [_normal(2, 3), _ints(1, 1)], {}), (2, 3)),
    "Concat": (("Concat", [_normal(2, 3), _normal(2, 1), _normal(2, 2)], {"axis": -1}), (2, 6)),
    "Concat_rows": (("Concat", [_normal(2, 3), _normal(1, 3)], {"axis": 0}), (3, 3)),
    "Concat_itself": (("Concat", [_normal(2, 3)], {"axis": 0}), (2, 3)),
    "Split_equal": (("Split", [_normal(4, 3)], {"num_outputs": 2}, 2), (2, 3)),
    "Split_uneven": (("Split", [_normal(5, 3)], {"num_outputs": 2}, 2), (3, 3)),
    "Split_sizes": (("Split", [_normal(2, 6), _ints(1, 2, 3)], {"axis": -1}, 3), (2, 1)),
    "Slice": (("Slice", [_normal(4, 5), _ints(1, 0), _ints(3, 4)], {}), (2, 4)),
    "Slice_axes": (("Slice", [_normal(4, 5), _ints(-3), _ints(1000), _ints(-1)], {}), (4, 3)),
    "Slice_steps": (("Slice", [_normal(4, 5), _ints(0), _ints(5), _ints(1), _ints(2)], {}), (4, 3)),
    "Slice_backwards": (
        ("Slice", [_normal(4, 5), _ints(3, -1), _ints(-1000, 0), _ints(0, 1), _ints(-1, -2)], {}),
        (4, 2),
    ),
    "Slice_nothing_left_out": (("Slice", [_normal(4), _ints(0), _ints(4)], {}), (4,)),
    "Pad": (("Pad", [_normal(2, 3), _ints(1, 0, 2, 1)], {}), (5, 4)),
    "Pad_value": (
        ("Pad", [_normal(2, 3), _ints(1, 0, 2, 1), np.array(2, np.float32)], {}),
        (5, 4),
    ),
    "Pad_axes": (("Pad", [_normal(2, 3), _ints(1, 2), None, _ints(-1)], {}), (2, 6)),
    "Pad_reflect": (("Pad", [_normal(3, 4), _ints(2, 1, 1, 2)], {"mode": "reflect"}), (6, 7)),
    "Pad_edge": (("Pad", [_normal(3, 4), _ints(2, 0, 1, 3)], {"mode": "edge"}), (6, 7)),
    "Pad_edge_axes": (("Pad", [_normal(3, 4), _ints(2, 1), None, _ints(1)], {"mode": "edge"}), (3, 7)),
    "Pad_wrap": (("Pad", [_normal(3, 4), _ints(1, 1, 2, 2)], {"mode": "wrap"}), (6, 7)),
    "DepthToSpace": (("DepthToSpace", [_BLOCKS], {"blocksize": 2}), (1, 2, 4, 4)),
    "DepthToSpace_CRD": (("DepthToSpace", [_BLOCKS], {"blocksize": 2, "mode": "CRD"}), (1, 2, 4, 4)),
    "SpaceToDepth": (("SpaceToDepth", [_IMAGE], {"blocksize": 2}), (1, 8, 2, 2)),
    "Trilu": (("Trilu", [_normal(3, 4)], {}), (3, 4)),
    "Trilu_lower": (("Trilu", [_normal(2, 3, 4), np.array(-1)], {"upper": 0}), (2, 3, 4)),
    "ReverseSequence": (
        ("ReverseSequence", [_normal(4, 3), _ints(2, 4, 1)], {"time_axis": 0, "batch_axis": 1}),
        (4, 3),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of an operator agrees with numerical differences."""
    arguments, shape = CASES[case]

    check(one_operator(*arguments), shape)


def test_cut_off_by_pad_has_no_gradient():
    """Negative pads cut elements off: their gradient is zero, that of the others passes."""
    model = one_operator("Pad", [_normal(2, 3), _ints(-1, 1, 0, -1)], {})

    gradients = analytic(model, np.array([[5, 1, 2]], np.float32))

    assert [[0, 0, 0], [1, 2, 0]] == gradients["p0"].tolist()


def test_value_of_pad():
    """The value of a Pad has the gradients of everything that was padded."""
    model = one_operator("Pad", [_normal(2), _ints(1, 2), np.array(2, np.float32)], {})

    gradients = analytic(model, np.array([5, 1, 2, 3, 4], np.float32), trainable=["p0", "p2"])

    assert [1, 2] == gradients["p0"].tolist()
    assert 12 == gradients["p2"]


_COMPUTED = {
    "Tile": ([_normal(2, 3)], [2], "Tile: repeats"),
    "Pad": ([_normal(2)], [2], "PadV3: pads"),
}


@pytest.mark.parametrize("op_type", _COMPUTED)
def test_computed(op_type):
    """What a rule must know and a model computes is refused, with the operator's name."""
    arrays, shape, title = _COMPUTED[op_type]
    model = one_operator(op_type, arrays, {})
    model.graph.node[0].input.append("fed")
    model.graph.input.append(helper.make_tensor_value_info("fed", TensorProto.INT64, shape))
    model.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("y0", TensorProto.FLOAT, ["n", "m"][: len(shape)])
    )

    with pytest.raises(GraphError, match=f"layer/{title} that are computed have no gradient"):
        step_graph(model, WEIGHTED)


def test_shapes_are_computed_where_sizes_are_free():
    """Operators whose sizes are free keep their gradients: a slice, a split and a sum of a sequence."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["h"], name="net/Mul"),
        helper.make_node("Slice", ["h", "one", "end", "one"], ["rest"], name="net/Slice"),
        helper.make_node("Unsqueeze", ["rest", "one"], ["y"], name="net/Unsqueeze"),
    ]
    initializers = {"w": _normal(3), "one": _ints(1), "end": _ints(1000)}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1, "rest", 3])],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    x, dy = _normal(2, 4, 3), _normal(2, 1, 3, 3)

    step = step_graph(model, WEIGHTED)
    (entry,) = [entry for entry in step.training_info[0].update_binding if entry.key == "moments.w"]
    (gradient,) = outputs_of(step, [entry.value], {"inputs0": x, "inputs1": dy})

    np.testing.assert_allclose((x[:, 1:] * dy[:, 0]).sum((0, 1)), gradient, rtol=1e-5)


def test_equal_layouts_are_one_operator():
    """Both weights of an attention share one transposed input, and a reshaping of a reshaping is one."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["h"], name="net/Reshape"),
        helper.make_node("MatMul", ["h", "p"], ["a"], name="net/MatMul"),
        helper.make_node("MatMul", ["h", "q"], ["b"], name="net/MatMul_1"),
        helper.make_node("Add", ["a", "b"], ["y"], name="net/Add"),
    ]
    initializers = {"p": _normal(4, 4), "q": _normal(4, 4), "shape": _ints(2, 3, 4)}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 4])],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    step = step_graph(model, WEIGHTED)

    assert [["inputs0"]] == [list(node.input) for node in step.graph.node if node.op_type == "Transpose"]
    assert 2 == sum(node.op_type == "Reshape" for node in step.graph.node)  # the model's, and that of dy
