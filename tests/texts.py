"""Models for tests, from graphs in ONNX's own syntax."""

from onnx import numpy_helper, parser


def parsed(text, *, opset=20, **arrays):
    """Return the model of a graph, with arrays as its initializers; nodes are named by texts in brackets.

    Operators of the unknown domain ``own`` may be in it.
    """
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "own": 1]> {text}')
    if '"own"' not in text and "own." not in text:
        del model.opset_import[1]
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model
