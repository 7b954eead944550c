"""Graphs in Graphviz's language."""

from msdump.graph import loader
from msdump.graph.files import ir_text
from tests.texts import parsed


def test_picture():
    """Boxes for parameters and operators, arrows for values that are read, in the order of the inputs."""
    graph = loader.load(parsed("g (float[2] x, float[2] b) => (y) { s = Exp(x) y = Sub(b, s) }"))

    picture = ir_text.dot_text(graph, 'a "g"')

    assert (
        'digraph "a \\"g\\"" {\n'
        '  para1 [label="x", shape=octagon];\n'
        '  para2 [label="b", shape=octagon];\n'
        '  node0 [label="Exp\\nDefault/Exp-op0", shape=box];\n'
        '  node1 [label="Sub\\nDefault/Sub-op0", shape=box];\n'
        '  node2 [label="MakeTuple\\nDefault/MakeTuple-op0", shape=box];\n'
        "  para1 -> node0 [label=0];\n"
        "  para2 -> node1 [label=0];\n"
        "  node0 -> node1 [label=1];\n"
        "  node1 -> node2 [label=0];\n"
        "}\n"
    ) == picture
