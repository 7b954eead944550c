"""Operators by the names that users write; operators that give the same in every run."""

import pytest

from msdump.read import GraphOperator, OperatorGraph, SourceKind, ValueSource, describe_miss, find_operators

GATES = [
    f"Default/layers-CellList/{number}-Block/gate_proj-Dense/BatchMatMul-op{number}" for number in (0, 1)
]
SHARED = "Default/layers-CellList/0-Block/norm-RMSNorm/BatchMatMul-op0"
OPERATORS = {
    GATES[0]: ("/layers.0/gate_proj/MatMul",),
    GATES[1]: ("Default_layers-CellList_1-Block_gate_proj-Dense_BatchMatMul-op1",),
    SHARED: (),
}
READINGS = {
    "full name": (GATES[0], GATES[:1]),
    "alias": ("/layers.0/gate_proj/MatMul", GATES[:1]),
    "name in files": (GATES[1].replace("/", "_"), GATES[1:]),
    "last component": ("BatchMatMul-op1", GATES[1:]),
    "last component of several": ("BatchMatMul-op0", [GATES[0], SHARED]),
    "last components": ("norm-RMSNorm/BatchMatMul-op0", [SHARED]),
    "end in files": ("norm-RMSNorm_BatchMatMul-op0", [SHARED]),
    "pattern": ("*gate_proj*", GATES),
    "part in another case": ("rmsnorm", [SHARED]),
    "nothing": ("gate_prog", []),
    "no text": ("", []),
}


@pytest.mark.parametrize(("asked", "found"), READINGS.values(), ids=READINGS)
def test_readings(asked, found):
    """The strictest reading of a name that fits an operator counts."""
    assert found == find_operators(asked, OPERATORS)


MISSES = {
    "near a component": ("gate_prog", OPERATORS, "no operator 'gate_prog' (did you mean 'gate_proj'?)"),
    "near nothing": ("zzz", {"Add": ()}, "no operator 'zzz'; there are:\n  Add"),
    "many": ("zzz", {f"A{n}": () for n in range(10)}, "\n  A7\n  ... and 2 more"),
    "none at all": ("zzz", {}, "no operator 'zzz'"),
}


@pytest.mark.parametrize(("asked", "operators", "end"), MISSES.values(), ids=MISSES)
def test_misses(asked, operators, end):
    """The message about an unknown name has the closest name, or else the names of operators."""
    assert describe_miss(asked, operators).endswith(end)


def test_several():
    """The message about an ambiguous name has a line for each operator."""
    assert f"2 operators match 'gate'; give a full name:\n  {GATES[0]}\n  {GATES[1]}" == describe_miss(
        "gate", OPERATORS, GATES
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("Fill", True), ("Add", True), ("Neg", False), ("Shape", True)]
)
def test_what_follows_from_shapes_is_fixed(name, expected):
    """An operator that reads weights, or shapes of anything, gives the same in every run."""
    x, weight = ValueSource(SourceKind.INPUT, "x"), ValueSource(SourceKind.WEIGHT, "w")
    operators = {
        "Neg": ("Neg", (x,)),
        "Shape": ("TensorShape", (ValueSource(SourceKind.OPERATOR, "Neg"),)),
        "Fill": ("FillV2", (ValueSource(SourceKind.OPERATOR, "Shape"),)),
        "Add": ("Add", (ValueSource(SourceKind.OPERATOR, "Fill"), weight)),
    }
    graph = OperatorGraph({each: GraphOperator(each, *rest) for each, rest in operators.items()})

    assert expected == graph.is_fixed(name)
