"""Collectives of ranks that are threads, against numpy."""

import functools
import operator
import re

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import msdump
from msdump import communication
from msdump.errors import GraphError, InputError, RankError
from tests.communication.models import collective, model, one, saved

OPS = {"sum": operator.add, "prod": operator.mul, "max": np.maximum, "min": np.minimum}


def fed(rank, shape=(4, 6), dtype=np.float32):
    """Return the input of a rank."""
    return np.random.default_rng(rank).normal(0, 30, shape).astype(dtype)


def run(made, ranks, feed=fed):
    """Run a model as several ranks; return the output of each."""
    return communication.spawn(ranks, lambda: msdump.load(made)(feed(communication.get_rank())))


def gathered(axis):
    """Return a function that joins all inputs."""
    return lambda inputs, _rank: np.concatenate(inputs, axis)


def exchanged(split, concat):
    """Return a function that gives a rank its part of each input."""
    return lambda inputs, rank: np.concatenate(
        [np.split(each, len(inputs), split)[rank] for each in inputs], concat
    )


def reduced(op="sum"):
    """Return a function that joins the elements of all inputs in rank order."""
    return lambda inputs, _rank: functools.reduce(OPS[op], inputs)


CASES = {
    "AllReduce": (one("AllReduce"), 3, reduced()),
    **{f"AllReduce {op}": (one("AllReduce", op=op), 3, reduced(op)) for op in OPS},
    "AllReduce of GE": (one("HcomAllReduce", domain="ge", reduction="max"), 3, reduced("max")),
    "AllReduce of onnxruntime": (one("AllReduce", domain="com.microsoft"), 3, reduced()),
    "AllGather": (one("AllGather"), 3, gathered(0)),
    "AllGather of onnxruntime": (
        one("AllGather", domain="com.microsoft", group_size=3, axis=1),
        3,
        gathered(1),
    ),
    "ReduceScatter": (
        one("ReduceScatter", rank_size=2),
        2,
        lambda inputs, rank: np.split(sum(inputs), 2)[rank],
    ),
    "Broadcast": (one("Broadcast", root_rank=2), 3, lambda inputs, _rank: inputs[2]),
    "AlltoAll": (one("AlltoAll", split_count=3, split_dim=1, concat_dim=0), 3, exchanged(1, 0)),
    "AlltoAll of onnxruntime": (one("AllToAll", domain="com.microsoft", group_size=2), 2, exchanged(0, 0)),
    "one rank": (one("AllReduce"), 1, reduced()),
}


@pytest.mark.parametrize(("made", "ranks", "expected"), CASES.values(), ids=CASES)
def test_results_are_those_of_numpy(made, ranks, expected):
    """Each rank gets the result of the definition, bit by bit."""
    inputs = [fed(rank) for rank in range(ranks)]

    for rank, result in enumerate(run(made, ranks)):
        np.testing.assert_array_equal(expected(inputs, rank), result, strict=True)


@pytest.mark.parametrize("size", [0, 1, 1000, 100_003, 5_000_000])
def test_sizes(size):
    """Tensors of every size are joined whole, of several blocks as well."""
    results = run(one("AllReduce", x=("n",)), 2, lambda rank: np.full(size, rank + 1, np.float32))

    assert [(size, 3.0 * size)] * 2 == [
        (result.size, float(result.sum(dtype=np.float64))) for result in results
    ]


HALVES = {
    "float16": (TensorProto.FLOAT16, np.float16),
    "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}


@pytest.mark.parametrize(("onnx_type", "dtype"), HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("shape", [(4, 6), (40_000,)], ids=["small", "large"])
def test_small_floats_are_joined_in_float32(onnx_type, dtype, shape):
    """Half types are added in float32 in rank order, and rounded once."""
    inputs = [fed(rank, shape, dtype) for rank in range(4)]
    total = functools.reduce(operator.add, (each.astype(np.float32) for each in inputs))

    results = run(one("AllReduce", x=shape, of=onnx_type), 4, inputs.__getitem__)

    for result in results:
        np.testing.assert_array_equal(total.astype(dtype), result, strict=True)


def test_order_is_that_of_the_ranks():
    """A large number that comes second swallows the first one, and no later one."""
    values = [1.0, 1e8, -1e8, 0.25]

    results = run(one("AllReduce", x=(1,)), 4, lambda rank: np.array([values[rank]], np.float32))

    assert [0.25] * 4 == [float(result[0]) for result in results]


def test_integers_wrap():
    """Integers are added in their own type."""
    results = run(one("AllReduce", x=(1,), of=TensorProto.INT8), 2, lambda _rank: np.array([100], np.int8))

    assert [-56] * 2 == [int(result[0]) for result in results]


def test_groups():
    """A collective of a group reaches its members alone, in the group's order."""
    made = one("AllGather", group="pair", x=(1,))

    def work():
        rank = communication.get_rank()
        communication.create_group("pair", [2, 0] if rank != 1 else [1])
        members = communication.get_group_size("pair"), communication.get_rank("pair")
        return members, msdump.load(made)(np.array([rank], np.float32)).tolist()

    assert [((2, 1), [2.0, 0.0]), ((1, 0), [1.0]), ((2, 0), [2.0, 0.0])] == communication.spawn(3, work)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: communication.create_group("", [0]), "group = '': must be a name"),
        (lambda: communication.create_group("hccl_world_group", [0]), "there is a group 'hccl_world_group'"),
        (lambda: communication.create_group("a", "0"), "rank_ids = '0': must be a list of ranks"),
        (lambda: communication.create_group("a", [1]), "rank 1: must be from 0 to 0"),
        (lambda: communication.create_group("a", [0, 0]), "rank_ids = [0, 0]: a rank is listed twice"),
        (lambda: communication.destroy_group("a"), "no group 'a', only 'hccl_world_group'; create it"),
        (
            lambda: communication.destroy_group("nccl_world_group"),
            "is the group of all ranks and cannot be destroyed",
        ),
        (
            lambda: communication.get_world_rank_from_group_rank("hccl_world_group", 1),
            "no rank 1, only 0 to 0",
        ),
    ],
)
def test_groups_that_cannot_be(call, expected):
    """A group that contradicts the ranks, or does not exist, is an error that shows it."""
    with pytest.raises(InputError, match=re.escape(expected)):
        call()


def test_tensors_go_from_rank_to_rank():
    """Send and Receive hand a tensor on; the tags tell two of them apart."""
    first = model(
        [
            collective("Send", outputs=("a",), dest_rank=1, sr_tag=5),
            helper.make_node("Neg", ["x"], ["n"]),
            collective("Send", ("n",), ("y",), dest_rank=1, sr_tag=6),
        ]
    )
    last = model(
        [
            collective("Receive", (), ("n",), src_rank=0, sr_tag=6, shape=[4, 6], dtype="float32"),
            collective("Receive", ("n",), ("y",), src_rank=0, sr_tag=5, shape=[4, 6], dtype=1),
        ],
        outputs=("y", "n"),
    )

    def work():
        return msdump.load([first, last][communication.get_rank()])(fed(0))

    sent, (received, negated) = communication.spawn(2, work)

    np.testing.assert_array_equal(-fed(0), sent)
    np.testing.assert_array_equal(fed(0), received)
    np.testing.assert_array_equal(-fed(0), negated)


def test_collectives_inside_branches():
    """A branch that every rank takes may exchange tensors, too."""
    branches = [
        helper.make_graph(
            [collective("AllReduce", ("x",), (name,))], name, [], [helper.make_empty_tensor_value_info(name)]
        )
        for name in ("then", "other")
    ]
    made = model(
        [
            helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
            helper.make_node("IsNaN", ["s"], ["c"]),
            helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
        ]
    )

    np.testing.assert_array_equal(fed(0) + fed(1), run(made, 2)[1])


def test_calls_of_many_tensors_and_long_names(tmp_path):
    """Ranks compare calls of paths, names and lists of tensors of any length."""
    names = [f"t{number}" for number in range(200)]
    nodes = [helper.make_node("Neg", ["x"], [f"{name}_in"]) for name in names]
    operator = "\u00e4" * 700
    nodes.append(
        collective("Broadcast", [f"{name}_in" for name in names], names, name=f"{operator}/bc", root_rank=1)
    )
    made = model(nodes, outputs=names)
    folders = [tmp_path / ("\u00f6" * 60 * (rank + 1)) for rank in range(2)]
    for folder in folders:
        folder.mkdir()
    paths = [saved(folder / "net.onnx", made) for folder in folders]

    def work():
        rank = communication.get_rank()
        return [float(each[0, 0]) for each in msdump.load(paths[rank])(np.full((4, 6), rank + 1, np.float32))]

    assert [[-2.0] * 200] * 2 == communication.spawn(2, work)


REFUSED = {
    "reduction": (one("AllReduce", op="mean"), "attribute 'op' = 'mean': must be one of sum, max, min, prod"),
    "no destination": (one("Send"), "attribute 'dest_rank' = None: must be a number from 0"),
    "negative root": (one("Broadcast", root_rank=-1), "attribute 'root_rank' = -1: must be a number from 0"),
    "no shape": (
        one("Receive", inputs=(), src_rank=0, dtype=1),
        "attribute 'shape' = None: must be a list of dimensions from 0",
    ),
    "no type": (
        one("Receive", inputs=(), src_rank=0, dtype="float", shape=[1]),
        "attribute 'dtype' = 'float': unknown dtype name 'float'",
    ),
    "inputs": (one("AllReduce", inputs=("x", "x")), "2 inputs and 1 outputs do not fit AllReduce"),
}


@pytest.mark.parametrize(("made", "expected"), REFUSED.values(), ids=REFUSED)
def test_faulty_nodes_are_refused_at_load(made, expected):
    """An attribute that a collective cannot have is an error that names the node."""
    with pytest.raises(GraphError, match=r"node '\w+_y' \(\w+\): ") as caught:
        msdump.load(made)

    assert str(caught.value).endswith(expected)


FAILING = {
    "count": (
        one("AllGather", rank_size=4),
        "the model is made for 4 ranks, but group 'hccl_world_group' has 2",
    ),
    "parts": (
        one("ReduceScatter", x=(5, 2)),
        "ReduceScatter of 2 ranks: axis 0 of shape (5, 2) cannot be split into 2 equal parts",
    ),
    "axis": (
        one("AllGather", domain="com.microsoft", axis=7, x=(5, 2)),
        "AllGather of 2 ranks: a tensor of shape (5, 2) has no axis 7",
    ),
    "root": (
        one("Broadcast", root_rank=2, x=(5, 2)),
        "Broadcast: group 'hccl_world_group' has no rank 2, only 0 to 1",
    ),
    "bool": (
        one("AllReduce", of=TensorProto.BOOL, x=(5, 2)),
        "AllReduce of 2 ranks: tensors of bool cannot be reduced",
    ),
}


@pytest.mark.parametrize(("made", "expected"), FAILING.values(), ids=FAILING)
def test_what_cannot_be_exchanged(made, expected):
    """Tensors that do not fit their collective are an error that names operator and reason."""
    dtype = np.bool_ if "bool" in expected else np.float32
    shape = (4, 6) if "made for" in expected else (5, 2)

    with pytest.raises(RankError) as caught:
        run(made, 2, lambda _rank: np.ones(shape, dtype))

    assert str(caught.value).endswith(expected)


@pytest.mark.parametrize("size", [0, 65, "4", True])
def test_number_of_ranks_is_checked(size):
    """No ranks, too many, and texts are refused."""
    with pytest.raises(InputError, match="must be a number from 1 to 64"):
        communication.spawn(size, print)


def test_ranks_have_no_ranks():
    """A rank of a process cannot be several ranks."""
    with pytest.raises(InputError, match="a rank of a process cannot have ranks of its own"):
        communication.spawn(2, communication.spawn, 2, print)


def test_alone_without_collectives():
    """A process alone is rank 0 of 1, and its AllReduce the identity."""
    assert (0, 1, 0) == (
        communication.get_rank(),
        communication.get_group_size(),
        communication.get_local_rank(),
    )

    np.testing.assert_array_equal(fed(0), msdump.load(one("AllReduce"))(fed(0)))
