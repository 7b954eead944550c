"""Graph files of a training step: weights written in place, forward operators of gradients."""

import re

import pytest

from msdump.graph import loader
from msdump.graph.files import ir_proto, ir_text
from tests import steps

STACK = 'File "net.py", line 3, in forward\n    y = self.fc(x)\n'


@pytest.fixture
def graph():
    """Return a step with a gradient of a named forward operator, and the source line of both."""
    model = steps.message(steps.PLAIN)
    for node in model.graph.node:
        if node.name in {"fc", "grad"}:
            node.metadata_props.add(key="pkg.onnxscript.stack_trace", value=STACK)
        if node.name == "grad":
            node.metadata_props.add(key="msdump.forward", value="fc")
    return loader.load(model, update_binding=steps.BINDING)


def statement(text, full_name):
    """Return the lines of an operator."""
    blocks = re.split(r"\n(?=  %\d+\()", text)
    return next(block for block in blocks if f"({full_name})" in block).splitlines()


def test_a_gradient_names_its_forward_operator(graph):
    """Forward operators bear a number, gradients name it, the optimizer bears neither."""
    text = ir_text.text(graph, 0)

    first = {name: statement(text, f"Default/{name}")[0] for name in ("MatMul-op0", "MatMul-op1", "Sub-op0")}
    assert first["MatMul-op0"].endswith('cnode_primal_attrs: {unique_id: "0"}')
    assert first["Sub-op0"].endswith('cnode_primal_attrs: {unique_id: "1"}')
    assert first["MatMul-op1"].endswith(
        'cnode_primal_attrs: {forward_node_name: "MatMul_0", forward_unique_id: "0"}'
    )
    assert "cnode_primal_attrs" not in statement(text, "Default/ApplyMomentum-op0")[0]


def test_source_lines_of_a_gradient_are_the_forward_operators(graph):
    """They stand below a line that says so, in the .ir and in the .pb."""
    text = ir_text.text(graph, 0)
    source = "      # In file net.py(3)/        y = self.fc(x)/"

    assert [source] == statement(text, "Default/MatMul-op0")[4:]
    candidate = "      # Corresponding forward node candidate:"
    assert [candidate, source] == statement(text, "Default/MatMul-op1")[4:]
    proto = ir_proto.encode(graph, 0)
    assert 1 == proto.count(candidate.encode())


def test_parameters_that_the_step_writes_are_in_place(graph):
    """Weights and states are in place, values that are only read are not."""
    parameters = [line for line in ir_text.text(graph, 0).splitlines() if line.startswith("%para")]

    assert ["w", "m", "step"] == [
        re.match(r"%para\d+_(\w+)", line)[1] for line in parameters if "is_parameter, is_inplace>" in line
    ]


def test_updating_operators_have_a_side_effect(graph):
    """The attribute stands in both files; the outputs that the primitive does not declare in none."""
    text = ir_text.text(graph, 0)

    lines = statement(text, "Default/ApplyMomentum-op0")
    assert ", %para6_mu, UMonad[U]) {" in lines[0]
    assert "primitive_attrs: {side_effect_mem: Bool(1)}" in lines[0]
    assert lines[1].endswith("<Tensor[Float32], ()>, <UMonad, NoShape>) -> (<Tensor[Float32], (3, 2)>)")
    assert "UMonad" not in lines[2]
    assert 2 == text.count("side_effect_mem")
    assert 2 == ir_proto.encode(graph, 0).count(b"side_effect_mem")
    assert "m_new" not in text + ir_text.dot_text(graph, "step")


def test_the_step_returns_what_is_not_bound(graph):
    """The tuple of outputs holds the loss alone."""
    assert ": (<Tensor[Float32], ()>) -> (<Tuple[Tensor[Float32]], TupleShape(())>)" in ir_text.text(graph, 0)


def test_a_reader_of_a_new_value_reads_the_parameter():
    """Readers of a new value without a declared output read the written input."""
    text = steps.PLAIN.replace("(float loss,", "(float loss, float[3,2] doubled,")
    text = text.replace("g, mu)\n}", "g, mu)\n doubled = Add(m_new, m_new)\n}")
    graph = loader.load(steps.message(text), update_binding=steps.BINDING)

    assert "= Add(%para4_m, %para4_m)" in ir_text.text(graph, 0)


def test_inference_has_none_of_it():
    """The graph of inference is written as if the model knew of no training."""
    trained = loader.load(steps.with_training_info())
    model = steps.with_training_info()
    model.ClearField("training_info")
    plain = loader.load(model)

    assert ir_text.text(plain, 0) == ir_text.text(trained, 0)
    assert ir_proto.encode(plain, 0) == ir_proto.encode(trained, 0)
