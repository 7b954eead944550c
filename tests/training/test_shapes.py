"""Gradients of reductions, and of operators that change shape or order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.texts import parsed
from tests.training.differences import WEIGHTED, analytic, check, gradients_of, ints, normals, one_operator

_RNG = np.random.default_rng(13)


_normal = normals(_RNG)


_IMAGE, _BLOCKS = _normal(1, 2, 4, 4), _normal(1, 8, 2, 2)

CASES = {
    "Reshape_to_scalar": ("Reshape", [_normal(1), ints()], {}),
    "Expand_smaller": ("Expand", [_normal(2, 3), ints(1)], {}),
    "Concat_itself": ("Concat", [_normal(2, 3)], {"axis": 0}),
    "Split_uneven": ("Split", [_normal(5, 3)], {"num_outputs": 2}, 2),
    "Slice": ("Slice", [_normal(4, 5), ints(1, 0), ints(3, 4)], {}),
    "Slice_steps": ("Slice", [_normal(4, 5), ints(0), ints(5), ints(1), ints(2)], {}),
    "Slice_backwards": ("Slice", [_normal(4, 5), ints(3, -1), ints(-1000, 0), ints(0, 1), ints(-1, -2)], {}),
    "Pad_value": ("Pad", [_normal(2, 3), ints(1, 0, 2, 1), np.array(2, np.float32)], {}),
    "Pad_edge_axes": ("Pad", [_normal(3, 4), ints(2, 1), None, ints(1)], {"mode": "edge"}),
    "Pad_wrap": ("Pad", [_normal(3, 4), ints(1, 1, 2, 2)], {"mode": "wrap"}),
    "DepthToSpace_CRD": ("DepthToSpace", [_BLOCKS], {"blocksize": 2, "mode": "CRD"}),
    "Trilu_lower": ("Trilu", [_normal(2, 3, 4), np.array(-1)], {"upper": 0}),
}


def test_cut_off_by_pad_has_no_gradient():
    """Negative pads cut elements off: their gradient is zero, that of the others passes."""
    model = one_operator("Pad", [_normal(2, 3), ints(-1, 1, 0, -1)], {})

    gradients = analytic(model, np.array([[5, 1, 2]], np.float32))

    assert [[0, 0, 0], [1, 2, 0]] == gradients["p0"].tolist()


def test_value_of_pad():
    """The value of a Pad has the gradients of everything that was padded."""
    model = one_operator("Pad", [_normal(2), ints(1, 2), np.array(2, np.float32)], {})

    gradients = analytic(model, np.array([5, 1, 2, 3, 4], np.float32), trainable=["p0", "p2"])

    assert [1, 2] == gradients["p0"].tolist()
    assert 12 == gradients["p2"]


_COMPUTED = {"Tile": ([_normal(2, 3)], [2], "Tile: repeats"), "Pad": ([_normal(2)], [2], "PadV3: pads")}


@pytest.mark.parametrize("op_type", _COMPUTED)
def test_computed(op_type):
    """A value that a rule needs as a constant and a model computes is refused, with the operator's name."""
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
    """Operators of free sizes keep their gradients: a slice, a split and a sum of a sequence."""
    model = parsed(
        """net (float[batch,length,3] x) => (float[batch,1,rest,3] y) {
            h = Mul(x, w)
            tail = Slice(h, one, end, one)
            y = Unsqueeze(tail, one)
        }""",
        w=_normal(3),
        one=ints(1),
        end=ints(1000),
    )
    x, dy = _normal(2, 4, 3), _normal(2, 1, 3, 3)

    step = step_graph(model, WEIGHTED)
    gradient = gradients_of(step, {"inputs0": x, "inputs1": dy})["w"]

    np.testing.assert_allclose((x[:, 1:] * dy[:, 0]).sum((0, 1)), gradient, rtol=1e-5)


def test_equal_layouts_are_one_operator():
    """Both weights of an attention share one transposed input, and a reshaping of a reshaping is one."""
    model = parsed(
        """net (float[6,4] x) => (float[2,3,4] y) {
            h = Reshape(x, shape)
            a = MatMul(h, p)
            b = MatMul(h, q)
            y = Add(a, b)
        }""",
        p=_normal(4, 4),
        q=_normal(4, 4),
        shape=ints(2, 3, 4),
    )

    step = step_graph(model, WEIGHTED)

    assert [["inputs0"]] == [list(node.input) for node in step.graph.node if node.op_type == "Transpose"]
    assert 2 == sum(node.op_type == "Reshape" for node in step.graph.node)  # the model's, and that of dy


_RANDOM = np.random.default_rng(13)
_X = _RANDOM.uniform(0.5, 2.0, (2, 3, 4)).astype(np.float32)
_SIGNED = _RANDOM.standard_normal((2, 3, 4)).astype(np.float32)


_TYPES = ["ReduceLogSum", "ReduceLogSumExp"]
_FORMS = {
    "all": ([], {}),
    "all_dropped": ([], {"keepdims": 0}),
    "one": ([ints(1)], {}),
    "one_dropped": ([ints(1)], {"keepdims": 0}),
    "negative": ([ints(-1, 0)], {"keepdims": 0}),
    "every": ([ints(0, 1, 2)], {"keepdims": 0}),
    "empty": ([ints()], {"keepdims": 0}),
    "nothing": ([ints()], {"noop_with_empty_axes": 1}),
}

REDUCTIONS = {
    **{
        f"{op_type}_{form}": (op_type, [_X, *axes], attributes)
        for op_type in _TYPES
        for form, (axes, attributes) in _FORMS.items()
    },
    **{
        f"{op_type}_of_signed": (op_type, [_SIGNED, ints(1)], {})
        for op_type in _TYPES
        if op_type != "ReduceLogSum"
    },
    "ReduceMean_attribute": ("ReduceMean", [_X], {"axes": [0, -1]}, 1, 13),
    "ReduceMax_attribute": ("ReduceMax", [_X], {"axes": [1], "keepdims": 0}, 1, 13),
    "ReduceLogSumExp_attribute": ("ReduceLogSumExp", [_X], {"axes": [2]}, 1, 13),
    "ReduceMax_tied": ("ReduceMax", [np.array([[1, 3, 2], [0, 5, 4]], np.float32), ints(1)], {}),
}


@settings(max_examples=25)
@given(
    st.sampled_from(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceLogSumExp"]),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.data(),
    st.booleans(),
)
def test_any_axes_of_any_shape(op_type, shape, data, keep):
    """Whatever axes of whatever shape are reduced, the gradient is right."""
    rank = len(shape)
    chosen = data.draw(st.lists(st.integers(0, rank - 1), unique=True))
    axes = [axis - rank if data.draw(st.booleans()) else axis for axis in chosen]
    x = np.random.default_rng(sum(shape)).uniform(0.5, 2.0, shape).astype(np.float32)

    check(one_operator(op_type, [x, ints(*axes)], {"keepdims": int(keep)}))


def test_equal_largest_elements_share_the_gradient():
    """Where several elements are the largest, each has its share."""
    model = one_operator("ReduceMax", [np.array([1, 3, 3, 2], np.float32), ints(0)], {})

    assert [0.0, 0.5, 0.5, 0.0] == analytic(model, np.ones(1, np.float32))["p0"].tolist()


@pytest.mark.parametrize(("values", "expected"), [((2, 0, 3), (0, 6, 0)), ((0, 0, 3), (0, 0, 0))])
def test_product_with_zeros_has_a_gradient(values, expected):
    """The gradient of a product is the product of the other factors, zeros among them too."""
    model = one_operator("ReduceProd", [np.array(values, np.float32), ints(0)], {})

    assert expected == tuple(analytic(model, np.ones(1, np.float32))["p0"])
