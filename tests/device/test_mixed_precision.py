"""Roundings of single operators: mixed precision, its lists, and exceptions from the mode."""

import numpy as np
import pytest

from msdump.device import check_operator_dtypes
from msdump.device.precision import roundings
from msdump.errors import InputError
from msdump.execute import Program, bind_inputs, emulated
from msdump.graph import loader
from msdump.plan import (
    Context,
    DeviceTarget,
    DtypeRule,
    JitLevel,
    MixLists,
    OperatorDtypes,
    OverflowMode,
    PrecisionMode,
)
from tests.texts import parsed

NAMES = ("early", "product", "bias", "power", "late")


def model():
    """Return a chain of an Abs, a MatMul, an Add, an Exp and a Neg."""
    text = """g (float[2,4] x) => (float[2,4] y) { [early] a = Abs(x) [product] m = MatMul(a, w)
        [bias] s = Add(m, b) [power] e = Exp(s) [late] y = Neg(e) }"""
    w, b = np.full((4, 4), 1 / 3, np.float32), np.full(4, 1 / 7, np.float32)
    return parsed(text, opset=17, w=w, b=b)


def kept(*names):
    """Return a rule for each name, or type behind OpType::."""
    return OperatorDtypes(
        tuple(
            DtypeRule(name.removeprefix("OpType::"), "::" in name, f"/f:{i}") for i, name in enumerate(names)
        )
    )


def custom(name, dtype, **others):
    """Return a rule that gives an operator a type."""
    return OperatorDtypes(
        customized=(DtypeRule(name, is_type=False, place="/f:1", reads=dtype, writes=dtype),), **others
    )


F, H, B = "float32", "float16", "bfloat16"
CASES = {
    "kept by name": ("force_fp16", kept("product"), (H, F, H, H, H)),
    "kept by type": ("force_fp16", kept("OpType::MatMul", "OpType::Exp"), (H, F, H, F, H)),
    "types of its own": ("force_fp16", custom("bias", B), (H, H, B, H, H)),
    "its own types win": ("force_fp16", custom("bias", B, kept=kept("bias", "late").kept), (H, H, B, H, F)),
    "nothing to keep": ("must_keep_origin_dtype", custom("bias", H), (F, F, F, F, F)),
    "mixed": ("allow_mix_precision", OperatorDtypes(), (F, H, H, F, F)),
    "mixed in bfloat16": ("allow_mix_precision_bf16", OperatorDtypes(), (F, B, B, F, F)),
    "blocked": (
        "allow_mix_precision_fp16",
        OperatorDtypes(lists=MixLists("/f", blocked=("MatMul",))),
        (F, F, F, F, F),
    ),
    "trusted": (
        "allow_mix_precision_fp16",
        OperatorDtypes(lists=MixLists("/f", trusted=("Exp", "Abs"), follows=("MatMul",))),
        (H, H, H, H, H),
    ),
    "kept in mixed precision": ("allow_mix_precision", kept("product"), (F, F, H, F, F)),
}


@pytest.mark.parametrize(("mode", "dtypes", "expected"), CASES.values(), ids=CASES)
def test_types(mode, dtypes, expected):
    """A rule of an operator, or of its type, wins over the mode and its lists."""
    found = roundings(loader.load(model()), PrecisionMode(mode), OverflowMode.INFNAN, dtypes)

    assert expected == tuple(found[name][0].writes.name for name in NAMES)


@pytest.mark.parametrize("level", JitLevel)
@pytest.mark.parametrize("dtype", [F, B])
def test_values(level, dtype):
    """At every level an operator with types of its own computes in float32 and rounds to them alone."""
    x = np.linspace(0.1, 3, 8, dtype=np.float32).reshape(2, 4)
    context = Context(
        DeviceTarget.ASCEND,
        level,
        precision_mode=PrecisionMode.FORCE_FP16,
        operator_dtypes=custom("late", dtype, kept=kept("power").kept),
    )
    device = emulated(loader.load(model()), None, context)

    result = Program(device.graph, device.roundings).run(feeds(device.graph, x))[0]

    w, b = (np.asarray(value, np.float32) for value in (np.float16(1 / 3), np.float16(1 / 7)))
    product = (np.float16(x).astype(np.float32) @ np.full((4, 4), w)).astype(np.float16).astype(np.float32)
    power = np.exp((product + b).astype(np.float16).astype(np.float32))
    expected = -power
    if dtype == B:
        expected = (expected.view(np.uint32) + 0x7FFF + ((expected.view(np.uint32) >> 16) & 1)) & 0xFFFF0000
        expected = expected.view(np.float32)
    np.testing.assert_allclose(expected, result, rtol=3e-7 if dtype == F else 0.01)
    assert (dtype == B) == bool((result.view(np.uint32) & 0xFFFF == 0).all())


def feeds(graph, x):
    """Return the values that a program is fed."""
    return bind_inputs(graph, (x,), {})


def test_unknown_operators(caplog):
    """A warning names an operator that the model lacks, and a likely correction."""
    graph = loader.load(model())
    full = graph.nodes[3].operator.full_name

    check_operator_dtypes(graph, PrecisionMode.FORCE_FP16, kept("prduct", "MatMul", full, "OpType::MatMull"))

    assert [
        "/f:0: there is no operator 'prduct' (did you mean 'product'?)",
        "/f:1: there is no operator 'MatMul' (did you mean 'OpType::MatMul'?)",
        f"/f:2: there is no operator {full!r}; its name in the model is 'power'",
        "/f:3: there is no operator of type 'MatMull' (did you mean 'MatMul'?)",
    ] == [record.getMessage().partition(": ")[2] for record in caplog.records]


def test_files_without_effect(caplog):
    """Lists are refused outside mixed precision, as by CANN; a warning names a mode that keeps all types."""
    graph = loader.load(model())

    with pytest.raises(InputError, match="needs a precision_mode with mixed"):
        check_operator_dtypes(graph, PrecisionMode.FORCE_FP16, OperatorDtypes(lists=MixLists("/f.json")))
    check_operator_dtypes(graph, PrecisionMode.MUST_KEEP_ORIGIN_DTYPE, kept("product"))

    assert ["/f has no effect: precision_mode is must_keep_origin_dtype"] == caplog.messages
