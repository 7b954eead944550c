"""Answers to texts that select no operator."""

import re

import pytest

from msdump.capture import operators, suggest, unmatched
from msdump.config.grammar import parse_kernel
from msdump.graph import loader
from msdump.selector import DumpMode, Selector, used_patterns
from tests.texts import parsed

BLOCK = "transformer/h.0-Block/attn-Attention"


def _nodes():
    """Return the operators of a small transformer: two projections and an activation."""
    text = f"""g (float[1,1] x) => (float[1,1] y) <float[1,1] w = {{1}}, float[1] b = {{1}}> {{
        ["{BLOCK}/q-Linear/Gemm"] q = Gemm(x, w, b)
        ["{BLOCK}/k-Linear/node_Gemm_7"] k = Gemm(q, w, b)
        ["transformer/act-ReLU/node_act"] y = Relu(k) }}"""
    return operators(loader.load(parsed(text)))


SCOPE = f"Default/{BLOCK}".replace(".", "[.]")
CASES = [
    ("attn", "2 operators contain 'attn'; write name-regex(.*attn.*)", 2),
    ("ATTN", "2 operators contain 'ATTN'; write name-regex(.*attn.*)", 2),
    ("attention", "2 operators contain 'attention'; write name-regex(.*Attention.*)", 2),
    ("Gemm", "the type of ONNX's Gemm is 'Dense' here", 2),
    (f"{BLOCK}/q-Linear/Gemm", f"the full name of this ONNX node is 'Default/{BLOCK}/q-Linear/Dense-op0'", 1),
    (
        f"/{BLOCK}/q-Linear/Gemm",
        f"the full name of this ONNX node is 'Default/{BLOCK}/q-Linear/Dense-op0'",
        1,
    ),
    ("transformer.h.0.attn", f"a module of 2 operators; write name-regex({SCOPE}/.+)", 2),
    ("transformer.h.0.attn.q", f"a module of 1 operator; write name-regex({SCOPE}/q-Linear/.+)", 1),
    (f"Default/{BLOCK}", f"a scope of 2 operators; write name-regex({SCOPE}/.+)", 2),
    (f"{BLOCK}/", f"a scope of 2 operators; write name-regex({SCOPE}/.+)", 2),
    (
        "Default_transformer_act-ReLU_ReLU-op0",
        "the full name for this file name is 'Default/transformer/act-ReLU/ReLU-op0'",
        1,
    ),
    (
        "ReLU.Default_transformer_act-ReLU_ReLU-op0.0.0.1795223329689102.output.0.DefaultFormat.npy",
        "the full name for this file name is 'Default/transformer/act-ReLU/ReLU-op0'",
        1,
    ),
    ("ReLUs", "did you mean 'ReLU'?", 1),
    ("Default/transformer/act-ReLU/ReLU-op1", "did you mean 'Default/transformer/act-ReLU/ReLU-op0'?", 1),
    (
        "name-regex(attn|Dense)",
        (
            "the expression must match a whole name, but matches parts of 2 operators only; write "
            "name-regex(.*(?:attn|Dense).*)"
        ),
        2,
    ),
    (
        "name-regex(h.0)",
        (
            "the expression must match a whole name, but matches parts of 2 operators only; write "
            "name-regex(.*h.0.*)"
        ),
        2,
    ),
    ("name-regex(bert.*)", "", None),
    ("zzzzzz", "", None),
]


@pytest.mark.parametrize(("item", "hint", "count"), CASES, ids=[case[0] for case in CASES])
def test_what_selects_nothing_is_answered_with_what_does(item, hint, count):
    """A part, a type, a node, a module, a scope or a file name is answered, and the answer selects it."""
    nodes = _nodes()
    pattern = parse_kernel(item, searches=False)
    names = [node.operator.full_name for node in nodes]

    assert not any(pattern.matches(name) for name in names)
    assert [(pattern, hint)] == list(unmatched([pattern], frozenset(), nodes))
    if count is not None:
        answer = re.search(r"'([^' ]+)'(?![:;])|(name-regex\(.*\))", hint.partition("contain")[2] or hint)
        found = parse_kernel(answer[1] or answer[2], searches=False)
        assert count == sum(found.matches(name) for name in names)


@pytest.mark.parametrize("text", ["", " ", "/"])
def test_nothing_is_answered_with_nothing(text):
    """A text without a character is no question."""
    assert "" == suggest(text, _nodes())


def test_many_items_take_linear_time():
    """The items of a long list select as each does alone; only the first unused ones get suggestions."""
    nodes = _nodes()
    names = [node.operator.full_name for node in nodes]
    texts = ["RELU", names[0], "name-regex(.*act.*)", *(f"Relux{n}" for n in range(100_000))]
    patterns = tuple(parse_kernel(text, searches=False) for text in texts)
    selector = Selector(DumpMode.KERNELS, patterns)

    used = {pattern.item for pattern in used_patterns(patterns, names)}
    hints = [hint for _, hint in unmatched(patterns, used, nodes)]

    assert set(texts[:3]) == used
    assert [any(each.matches(name) for each in patterns[:3]) for name in names] == [
        selector.selects(name) for name in names
    ]
    assert (100_000, 100, "did you mean 'ReLU'?") == (len(hints), len(list(filter(None, hints))), hints[0])
