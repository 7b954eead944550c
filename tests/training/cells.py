"""Networks of tests with MindSpore's cells, written as text."""

from onnx import numpy_helper

from tests.texts import parsed


def in_cells(text, kind, **arrays):
    """Return the model of a network of a class; texts in brackets are cells, ``fc2-Dense/activation-Tanh``.

    A node without one is in the network itself. Of the arrays, initializers are the ones that nodes read.
    """
    model = parsed(text)
    for number, node in enumerate(model.graph.node):
        cells = [cell.partition("-")[::2] for cell in node.name.split("/") if cell]
        names, kinds = ["", *(name for name, _ in cells)], [kind, *(kind for _, kind in cells)]
        node.name = "/".join([*names[1:], f"{node.op_type}_node_{number}"])
        node.metadata_props.add(key="pkg.onnxscript.name_scopes", value=repr(names))
        node.metadata_props.add(key="pkg.onnxscript.class_hierarchy", value=repr(kinds))
    read = dict.fromkeys(name for node in model.graph.node for name in node.input)
    model.graph.initializer.extend(
        numpy_helper.from_array(arrays[name], name) for name in read if name in arrays
    )
    return model
