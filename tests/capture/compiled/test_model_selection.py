"""Which operators and tensors of a model ``dump_list`` of acl.json dumps."""

import logging
from dataclasses import replace

import pytest

from msdump.capture.compiled.model_selection import select_model, within
from msdump.graph import Graph, Node, Value, ValueType
from msdump.plan import Blocked, ModelItem
from msdump.record import IO, OperatorRef
from tests import plans

A, B, C, D, E = "A", "B", "C", "D", "E"


def operator(name, inputs=("x",), *, op_type="Relu", parts=()):
    """Return a node with an ONNX name, a full name and one output."""
    ref = OperatorRef(op_type, f"Default/{name}/{op_type}-op0")
    return Node(name, op_type, "", tuple(inputs), (f"{name}.out",), {}, ref, (), None, tuple(parts))


def model(*nodes, inputs=("x",), name="inner"):
    """Return a graph of nodes."""
    values = tuple(Value(item, ValueType()) for item in inputs)
    return Graph("m.onnx", name, nodes, values, (), {}, (), frozenset(), {}, {}, 10, None)


def plan(*items):
    """Return a plan with items of ``dump_list``."""
    return plans.made("acl.json", models=items)


def selected(graph, *items, file_name="file", runs=None):
    """Return the names of the selected operators."""
    found = select_model(graph, plan(*items), file_name, runs)
    return [node.name for node, is_watched in zip(graph.nodes, found.watched, strict=True) if is_watched]


CHAIN = model(*(operator(name) for name in (A, B, C, D, E)))
FUSED = model(
    operator("conv1conv1_relu", parts=(operator("conv1", op_type="Conv"), operator("conv1_relu"))),
    operator("pool1", ("conv1conv1_relu.out",)),
)

ITEMS = {
    "nothing listed": ((), []),
    "everything": ((ModelItem(),), [A, B, C, D, E]),
    "layers of any model": ((ModelItem(layers=(B, D)),), [B, D]),
    "file name": ((ModelItem("file"),), [A, B, C, D, E]),
    "inner name": ((ModelItem("inner"),), [A, B, C, D, E]),
    "other model": ((ModelItem("other"),), []),
    "layers of the file": ((ModelItem("file", layers=(A,)),), [A]),
    "file before inner name": ((ModelItem("inner"), ModelItem("file", layers=(E,))), [E]),
    "no model name wins": ((ModelItem("file"), ModelItem(layers=(B,))), [B]),
    "no model name and no layers wins": ((ModelItem("file", layers=(B,)), ModelItem()), [A, B, C, D, E]),
    "last without model name": ((ModelItem(), ModelItem(layers=(B,)), ModelItem(layers=(C,))), [C]),
    "last of a model": ((ModelItem("file", layers=(A,)), ModelItem("file", layers=(B,))), [B]),
    "range only": ((ModelItem("file", ranges=((B, C),)),), [B, C]),
    "range and layers": ((ModelItem("file", layers=(E,), ranges=((B, C),)),), [B, C, E]),
    "range beside any model": ((ModelItem(layers=(E,)), ModelItem("file", ranges=((A, B),))), [A, B, E]),
    "range of another model": ((ModelItem("other", ranges=((A, B),)),), []),
}


@pytest.mark.parametrize(("items", "expected"), ITEMS.values(), ids=ITEMS)
def test_items_decide(items, expected):
    """An item without a model name wins, then the file's name, then the graph's; the last one counts."""
    assert expected == selected(CHAIN, *items)


RANGES = {
    "inside": ([(B, D)], "ABCDE", "BCD"),
    "whole": ([(A, E)], "ABCDE", "ABCDE"),
    "one operator": ([(C, C)], "ABCDE", "C"),
    "begin without end": ([(D, "Z")], "ABCDE", "DE"),
    "end without begin": ([("Z", B)], "ABCDE", ""),
    "end before begin": ([(D, B)], "ABCDE", ""),
    "broken for good": ([(C, A)], "ABCAB", ""),
    "begin again inside": ([(A, C)], "AABC", "AABC"),
    "begins again later": ([(A, B)], "ABCABC", "ABAB"),
    "begins right behind the end": ([(A, B)], "ABABC", "AB"),
    "end again": ([(A, B)], "ABBC", "ABB"),
    "one operator again later": ([(A, A)], "ABA", "AA"),
    "one operator again at once": ([(A, A)], "AAB", "A"),
    "two ranges": ([(A, B), (D, E)], "ABCDE", "ABDE"),
    "overlapping ranges": ([(A, C), (B, D)], "ABCDE", "ABCD"),
    "one broken, one not": ([(E, A), (B, C)], "ABCDE", "BC"),
}


@pytest.mark.parametrize(("ranges", "order", "expected"), RANGES.values(), ids=RANGES)
def test_range_is_a_state_machine(ranges, order, expected):
    """Both ends belong to a range; an early end or a begin right behind an end breaks it for good."""
    nodes = [operator(name) for name in order]

    found = within(ranges, nodes, [True] * len(nodes))

    assert expected == "".join(name for name, is_in in zip(order, found, strict=True) if is_in)


def test_operators_that_do_not_run_are_passed_over():
    """An operator without a task is neither dumped nor the end of a range."""
    runs = [True, True, False, True, True]

    assert [A, B, D, E] == selected(CHAIN, ModelItem(), runs=runs)
    assert [B, D, E] == selected(CHAIN, ModelItem("file", ranges=((B, C),)), runs=runs)


def test_range_takes_compiled_names_only(caplog):
    """A range that names an original operator selects nothing and says which operator holds it."""
    assert [] == selected(FUSED, ModelItem("file", ranges=(("conv1", "pool1"),)))
    assert "'conv1': is fused into 'Default/conv1conv1_relu/Relu-op0'" in caplog.text


def test_unknown_names_are_told(caplog):
    """Layers and ends of ranges that no operator has are warnings, the rest counts."""
    item = ModelItem("file", layers=(A, "conv9"), ranges=((B, "pool9"),))

    with caplog.at_level(logging.WARNING):
        found = selected(CHAIN, item)

    has = "; it has 'A', 'Default/A/Relu-op0', 'B', ..."
    assert [A, B, C, D, E] == found
    assert [
        f"acl.json: layer 'conv9': model inner has no such operator{has}",
        f"acl.json: opname_range 'pool9': model inner has no such operator{has}",
    ] == caplog.messages


def test_transfers_do_not_part_data_from_its_reader():
    """A graph input is dumped with the operator behind the Cast and the TransData that the device inserts."""
    nodes = (
        operator("trans_Cast_0", ("x",), op_type="Cast"),
        operator("trans_TransData_1", ("trans_Cast_0.out",), op_type="TransData"),
        operator(A, ("trans_TransData_1.out",)),
    )

    assert {2: ("x",)} == select_model(model(*nodes), plan(ModelItem(layers=(A,)))).data
    assert {0: ("x",)} == select_model(model(*nodes), plan(ModelItem())).data


BLACK_LISTS = {
    "name": (ModelItem(blocked_names=(Blocked(A, ("input0",)),)), {0: {(IO.INPUT, 0)}}),
    "full name": (
        ModelItem(blocked_names=(Blocked("Default/A/Conv-op0", ("output1",)),)),
        {0: {(IO.OUTPUT, 1)}},
    ),
    "type": (
        ModelItem(blocked_types=(Blocked("Conv", ("input0", "input1")),)),
        {0: {(IO.INPUT, 0), (IO.INPUT, 1)}, 2: {(IO.INPUT, 0), (IO.INPUT, 1)}},
    ),
    "type is exact": (ModelItem(blocked_types=(Blocked("conv", ("input0",)),)), {}),
    "no positions": (ModelItem(blocked_types=(Blocked("Conv"),)), {}),
    "empty name": (ModelItem(blocked_names=(Blocked("", ("input0",)),)), {}),
    "entries add up": (
        ModelItem(blocked_names=(Blocked(B, ("input0",)), Blocked(B, ("output0",)))),
        {1: {(IO.INPUT, 0), (IO.OUTPUT, 0)}},
    ),
    "type and name add up": (
        ModelItem(blocked_types=(Blocked("Relu", ("input0",)),), blocked_names=(Blocked(B, ("input7",)),)),
        {1: {(IO.INPUT, 0), (IO.INPUT, 7)}},
    ),
    "wrong position": (ModelItem(blocked_names=(Blocked(B, ("input_0", "input1")),)), {1: {(IO.INPUT, 1)}}),
}


@pytest.mark.parametrize(("item", "expected"), BLACK_LISTS.values(), ids=BLACK_LISTS)
def test_black_lists_leave_tensors_out(item, expected):
    """A black list takes inputs and outputs by index from operators by type or name."""
    graph = model(operator(A, op_type="Conv"), operator(B), operator(C, op_type="Conv"))

    assert expected == select_model(graph, plan(item)).blocked


def test_black_lists_of_every_item_for_the_model_count():
    """Items for any model, the file and the graph leave out tensors together, others none."""
    items = [
        ModelItem(name, blocked_names=(Blocked(A, (f"input{index}",)),))
        for index, name in enumerate((None, "file", "inner", "other"))
    ]

    found = select_model(CHAIN, plan(*items), "file")

    assert {0: {(IO.INPUT, 0), (IO.INPUT, 1), (IO.INPUT, 2)}} == found.blocked


def test_wrong_position_is_told(caplog):
    """A position that is no input or output with an index is ignored with a warning."""
    select_model(CHAIN, plan(ModelItem(blocked_names=(Blocked(A, ("inputs",)),))))

    assert "pos 'inputs' of 'A' is ignored" in caplog.text


USELESS = {
    "name": (
        ModelItem(blocked_names=(Blocked("conv", ("input0",)),)),
        (
            "opname_blacklist 'conv': model inner has no such operator;"
            " it has 'conv2', 'conv1', 'Default/conv1/Conv-op0', ..."
        ),
    ),
    "type": (
        ModelItem(blocked_types=(Blocked("Conv2", ("input0",)),)),
        "optype_blacklist 'Conv2': model inner has no such operator; it has 'Conv'",
    ),
    "position": (
        ModelItem(blocked_types=(Blocked("Conv", ("input0", "output3")),)),
        "optype_blacklist 'Conv': pos 'output3': there are 1, counted from 0 in model inner",
    ),
    "no position": (
        ModelItem(blocked_names=(Blocked("conv1"),)),
        "the black list entry 'conv1' has no pos and has no effect; add a pos such as 'input0'",
    ),
    "no task": (
        ModelItem(layers=("conv2",)),
        "layer 'conv2': the device runs no task for the operator, so no file is written of model inner",
    ),
}


@pytest.mark.parametrize(("item", "message"), USELESS.values(), ids=USELESS)
def test_selections_that_meet_nothing_are_told_once(item, message, caplog):
    """A name of an item that the model lacks is one warning, with similar names of the model."""
    graph = model(operator("conv1", op_type="Conv"), operator("conv2", op_type="Conv"))

    with caplog.at_level(logging.WARNING):
        select_model(graph, plan(item), runs=(True, False))

    assert [f"acl.json: {message}"] == caplog.messages


def test_fused_name_is_joined_from_its_parts():
    """A fused operator answers to the joined names of its parts, whatever its own name is."""
    graph = replace(FUSED, nodes=(replace(FUSED.nodes[0], name="kernel0"), FUSED.nodes[1]))

    assert ["kernel0"] == selected(graph, ModelItem(layers=("conv1conv1_relu",)))
