"""Small models with collectives."""

import onnx
from onnx import TensorProto, helper

from tests.world import common_settings

MINDSPORE = "mindspore.ops"


def collective(op_type, inputs=("x",), outputs=("y",), domain=MINDSPORE, name="", **attributes):
    """Return a node that exchanges tensors."""
    return helper.make_node(
        op_type,
        list(inputs),
        list(outputs),
        name=name or f"{op_type}_{outputs[0]}",
        domain=domain,
        **attributes,
    )


def model(nodes, shape=(4, 6), dtype=TensorProto.FLOAT, outputs=("y",)):
    """Return a model of one input x."""
    return helper.make_model(
        helper.make_graph(
            list(nodes),
            "net",
            [helper.make_tensor_value_info("x", dtype, shape)],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
        ),
        opset_imports=[
            helper.make_opsetid("", 18),
            helper.make_opsetid(MINDSPORE, 1),
            helper.make_opsetid("com.microsoft", 1),
        ],
        ir_version=10,
    )


def one(op_type, *, x=(4, 6), of=TensorProto.FLOAT, domain=MINDSPORE, **attributes):
    """Return a model of one collective with an input of a shape and an element type."""
    return model([collective(op_type, domain=domain, **attributes)], x, of)


def configuration(path, *, enable=True, **changes):
    """Return a configuration by which two ranks dump everything below a path."""
    return {
        "common_dump_settings": common_settings(path, support_device=[0, 1], **changes),
        "e2e_dump_settings": {"enable": enable, "trans_flag": True},
    }


def saved(path, made):
    """Write a model; return its path."""
    onnx.save(made, path)
    return str(path)
