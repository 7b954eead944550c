"""Which operators, tensors and iterations are dumped."""

import numpy as np
import pytest

import msdump
from tests.dump import nets, trees
from tests.world import CPU, O0, O1

CONV = "Default_conv1-Conv2d_Conv2D-op0"
RELU = "Default_relu-ReLU_ReLU-op0"
FLATTEN = "Default_flatten-Flatten_Flatten-op0"
MATMUL = "Default_fc-Dense_MatMul-op0"
BIAS = "Default_fc-Dense_BiasAdd-op0"
OPERATORS = {CONV, RELU, FLATTEN, MATMUL, BIAS}
PARAMETERS = ["conv1_weight", "fc_bias", "fc_weight", "x"]

KERNELS = {
    "none": ([], OPERATORS, PARAMETERS),
    "empty": ([""], OPERATORS, PARAMETERS),
    "type": (["Conv2D"], {CONV}, []),
    "type in any case": (["matmul"], {MATMUL}, []),
    "type with spaces": ([" Mat Mul "], {MATMUL}, []),
    "part of a type": (["add"], {BIAS}, []),
    "part of a type and of a parameter": (["conv"], {CONV}, ["conv1_weight"]),
    "type that parameters have": (["bias"], {BIAS}, ["fc_bias"]),
    "parameters of a scope": (["fc"], set(), ["fc_bias", "fc_weight"]),
    "graph input": (["x"], set(), ["x"]),
    "name of a parameter": (["conv1.weight"], set(), ["conv1_weight"]),
    "class is no type": (["dense"], set(), []),
    "number is no type": (["op"], set(), []),
    "full name": (["Default/fc-Dense/MatMul-op0"], {MATMUL}, []),
    "full name in another case": (["default/fc-Dense/MatMul-op0"], set(), []),
    "last component": (["Conv2D-op0"], set(), []),
    "scope": (["Default/conv1-Conv2d"], set(), []),
    "parameter in a scope": (["Default/conv1.weight"], set(), []),
    "expression": (["name-regex(Default/fc.+)"], {MATMUL, BIAS}, []),
    "expression with a choice": (["name-regex(Default/(relu|conv1).*)"], {CONV, RELU}, []),
    "expression for a part": (["name-regex(Dense)"], set(), []),
    "expression in another case": (["name-regex(default/.+)"], set(), []),
    "expression for a parameter": (["name-regex(fc.w.+)"], set(), ["fc_weight"]),
    "expression for all": (["name-regex(.+)"], OPERATORS, PARAMETERS),
    "several": (["Default/relu-ReLU/ReLU-op0", "Flatten", "name-regex(x)"], {RELU, FLATTEN}, ["x"]),
}


@pytest.mark.parametrize(("kernels", "operators", "parameters"), KERNELS.values(), ids=KERNELS)
def test_kernels(door, kernels, operators, parameters):
    """Under dump_mode 1 the items of ``kernels`` select operators, and parameters by their plain names."""
    door.dump(nets.mini(), nets.mini_feeds(), dump_mode=1, kernels=kernels)

    assert operators == trees.operators(door.rank)
    assert parameters == trees.parameters(door.rank)


def test_unused_kernels_are_named_once_at_the_end(door, caplog):
    """Items that matched nothing that ran are named in one warning when the process ends."""
    door.configure(dump_mode=1, kernels=["Conv2D", "Softmax", "Default/none-op0", "name-regex(fc.w.+)"])
    network = door.load(nets.mini())
    for _ in range(2):
        network.run(nets.mini_feeds())
    during = [record for record in caplog.records if "matched no operator" in record.getMessage()]

    door.process.close()
    door.process.close()

    assert during == []
    told = [record.getMessage() for record in caplog.records if "matched no operator" in record.getMessage()]
    unused = "Softmax, Default/none-op0 (did you mean 'Default/relu-ReLU/ReLU-op0'?)"
    assert [
        f"{door.folder}/data_dump.json: items of kernels that matched no operator that ran: {unused}"
    ] == told


@pytest.mark.parametrize(
    ("changes", "context"),
    [({"iteration": "7"}, {}), ({"input_output": 1, "kernels": ["x"]}, {}), ({"kernels": ["x"]}, O0)],
    ids=["iteration never ran", "no parameters among inputs", "no parameters on Ascend"],
)
def test_kernels_of_nothing_dumped_are_unused(door, caplog, changes, context):
    """An item is unused, too, where it names something that is never dumped."""
    door.dump(
        nets.mini(), nets.mini_feeds(), dump_mode=1, **({"kernels": ["MatMul"]} | changes), context=context
    )

    door.process.close()

    assert sum("matched no operator" in record.getMessage() for record in caplog.records) == 1


TARGETS = {
    "network": (lambda network: network, OPERATORS),
    "scope": (lambda network: network.scope("Default/fc-Dense"), {MATMUL, BIAS}),
    "module path": (lambda network: network.scope("conv1"), {CONV}),
    "whole tree": (lambda network: network.scope("Default"), OPERATORS),
    "operator by full name": (lambda network: network.operator("Default/fc-Dense/MatMul-op0"), {MATMUL}),
    "operator by ONNX name": (lambda network: network.operator("relu-ReLU/Relu"), {RELU}),
    "name of a scope": (lambda _: "Default/fc-Dense", {MATMUL, BIAS}),
    "name of a module": (lambda _: "fc", {MATMUL, BIAS}),
    "name of an operator": (lambda _: "Default/relu-ReLU/ReLU-op0", {RELU}),
    "name of nothing": (lambda _: "fc-Den", set()),
}
DEVICES = {"CPU": CPU, "O0": O0, "O1": O1}


@pytest.mark.parametrize("context", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize(("target", "expected"), TARGETS.values(), ids=TARGETS)
def test_set_dump(door, context, target, expected):
    """Under dump_mode 2 exactly the operators that ``set_dump`` marked are dumped, in every mode."""
    door.configure(dump_mode=2)
    network = door.load(nets.mini(), **context)
    msdump.set_dump(target(network))

    network.run(nets.mini_feeds())

    assert expected == trees.operators(door.rank)
    assert trees.parameters(door.rank) == []


@pytest.mark.parametrize("name", ["fc", "Default/fc-Dense", "fc-Dense/MatMul", "Default/fc-Dense/MatMul-op0"])
def test_set_dump_before_load(door, name):
    """A name given before the network is loaded marks its operators in the network."""
    door.configure(dump_mode=2)
    msdump.set_dump(name)

    door.load(nets.mini()).run(nets.mini_feeds())

    assert MATMUL in trees.operators(door.rank)
    assert {MATMUL, BIAS} >= trees.operators(door.rank)


def test_set_dump_off(door):
    """Marks can be taken away, of a part and between runs."""
    door.configure(dump_mode=2)
    network = door.load(nets.mini())
    msdump.set_dump(network)
    msdump.set_dump(network.scope("fc"), enabled=False)
    network.run(nets.mini_feeds())

    msdump.set_dump("relu", enabled=False)
    network.run(nets.mini_feeds())

    assert {CONV, RELU, FLATTEN} == {m["name"] for m, _ in trees.tensors(door.rank, iteration=0)}
    assert {CONV, FLATTEN} == {m["name"] for m, _ in trees.tensors(door.rank, iteration=1)}


@pytest.mark.parametrize("mode", [0, 1])
def test_set_dump_counts_only_under_dump_mode_2(door, mode):
    """Under the other modes marks change nothing."""
    door.configure(dump_mode=mode)
    network = door.load(nets.mini())
    msdump.set_dump(network.scope("fc"))

    network.run(nets.mini_feeds())

    assert trees.operators(door.rank) == OPERATORS


FC = "'Default/fc-Dense/MatMul-op0', 'Default/fc-Dense/BiasAdd-op0'"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cf", ""),
        ("FC", f" (did you mean {FC}?)"),
        ("Default/fc-Dens", f" (did you mean {FC}?)"),
        ("Default/relu-Relu", " (did you mean 'Default/relu-ReLU/ReLU-op0'?)"),
    ],
)
def test_set_dump_of_a_name_that_nothing_has(door, caplog, name, hint):
    """A name that no network has is logged at the end, with similar names."""
    door.configure(dump_mode=2)
    msdump.set_dump("fc")
    msdump.set_dump(name)
    door.load(nets.mini()).run(nets.mini_feeds())

    door.process.close()

    told = [record.getMessage() for record in caplog.records if "set_dump" in record.getMessage()]
    assert [f"{door.folder}/data_dump.json: set_dump found no operator or scope {name}{hint}"] == told


@pytest.mark.parametrize(
    ("target", "enabled", "message"),
    [
        (3, True, "The \"target\" parameter must be an instance of .*, but got an instance of <class 'int'>"),
        (np.ones(2), True, "but got an instance of <class 'numpy.ndarray'>"),
        ("fc", 1, 'The "enabled" parameter must be bool'),
        ("fc", None, 'The "enabled" parameter must be bool'),
    ],
    ids=["number", "array", "number for bool", "none for bool"],
)
def test_set_dump_of_what_it_cannot(door, target, enabled, message):
    """Wrong arguments are refused with MindSpore's words."""
    with pytest.raises(ValueError, match=message):
        msdump.set_dump(target, enabled)


@pytest.mark.parametrize(("find", "name"), [("scope", "Default/none"), ("operator", "fc")])
def test_part_that_a_network_has_not(door, find, name):
    """Asking a network for a part that it has not names the part."""
    network = door.load(nets.mini())

    with pytest.raises(KeyError, match=name):
        getattr(network, find)(name)


@pytest.mark.parametrize(("count", "end"), [(20, "K18, K19"), (21, "K19, ... and 1 more")])
def test_many_kernels_that_match_nothing(door, caplog, count, end):
    """Of kernels that matched nothing twenty are named, and the others counted."""
    items = [f"K{number}" for number in range(count)]
    door.dump(nets.cosine(), {"x": np.ones((2, 4), np.float32)}, dump_mode=1, kernels=items)
    door.process.close()

    (told,) = [
        record.getMessage() for record in caplog.records if "matched no operator" in record.getMessage()
    ]
    assert told.endswith(end)
    assert 20 == sum(f"{item}," in f"{told}," for item in items)
