"""A model of one Identity with any IR version and opset, to find out which ones a runtime reads."""

from __future__ import annotations

from onnx import TensorProto, helper


def model(*, ir_version: int = 8, opset: int = 13) -> bytes:
    """Return the serialised model."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_empty_tensor_value_info("y")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    return bytes(proto.SerializeToString())
