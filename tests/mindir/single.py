"""MindIR files of one primitive, for tests of its results."""

import numpy as np

from msdump.graph.mindir.file import ELEMENTS, Kind, message_class


def single(op_type, operands, results, attributes):
    """Return a MindIR file of one primitive.

    Arrays are inputs of the graph, other operands constants; ``results`` are arrays of the results' types.
    """
    model = message_class("ModelProto")(
        ir_version="1.1", producer_name="MindSpore", model_version="2.10.0", mind_ir_version=3
    )
    graph = model.graph
    graph.name = "main"
    names = []
    for place, item in enumerate(operands):
        names.append(f"operand{place}")
        if isinstance(item, np.ndarray):
            _add_tensor(graph.input.add(name=names[-1]).tensor, item)
        else:
            node = graph.node.add(name=names[-1], op_type="Constant", output=[names[-1]])
            _fill(node.attribute.add(name="value"), item)
    primitive = model.primitives.add(name=f"{op_type}:1", op_type=op_type)
    for name, value in attributes.items():
        _fill(primitive.attribute.add(name=name), value)
    node = graph.node.add(
        name="whole", op_type=f"REF::{op_type}:1", domain=f"Default/{op_type}-op0", input=names
    )
    node.output.append("whole")
    _declare(node, results)
    returned = ["whole"]
    if len(results) > 1:
        model.primitives.add(name="TupleGetItem:2", op_type="TupleGetItem")
        returned = []
        for place, result in enumerate(results):
            index = graph.node.add(name=f"index{place}", op_type="Constant", output=[f"index{place}"])
            _fill(index.attribute.add(name="value"), place)
            item = graph.node.add(
                name=f"item{place}", op_type="REF::TupleGetItem:2", domain=f"Default/TupleGetItem-op{place}"
            )
            item.input.extend(["whole", index.name])
            item.output.append(item.name)
            _declare(item, [result])
            returned.append(item.name)
    for name in returned:
        graph.output.add(name=name)
    return model.SerializeToString()


def _declare(node, results):
    shape = node.attribute.add(name="shape", type=Kind.TENSORS)
    if len(results) == 1:
        _add_tensor(shape.tensors, results[0])
        return
    shape.type = Kind.TUPLE
    for result in results:
        _add_tensor(shape.values.add(type=Kind.TENSORS).tensors, result)


def _add_tensor(tensors, array):
    tensors.add(dims=array.shape, data_type=ELEMENTS.index(array.dtype.name))


def _fill(attribute, value):
    kinds = {bool: Kind.BOOL, int: Kind.INT64, float: Kind.FLOAT, str: Kind.STRING, tuple: Kind.TUPLE}
    attribute.type = Kind.NONE if value is None else kinds[type(value)]
    if isinstance(value, float):
        attribute.f = value
    elif isinstance(value, int):
        attribute.i = int(value)
    elif isinstance(value, str):
        attribute.s = value.encode()
    elif isinstance(value, tuple):
        for item in value:
            _fill(attribute.values.add(), item)
