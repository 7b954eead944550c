"""Domains of operators, and the operators of the device's overflow status."""

from __future__ import annotations

from typing import Final

MINDSPORE_DOMAIN: Final = "mindspore.ops"
"""Domain of MindSpore's operators that ONNX lacks, under their primitive names.

A model defines each as a function of standard operators, so that any runtime runs it. Here such a function
is one operator with one kernel; functions of one name that differ in structure differ in their overloads.
"""

GE_DOMAIN: Final = "ge"
"""Domain of functions that stand for operators of GE; they compute as ONNX's own do."""

GE_PREFIX: Final = "GE_"
"""Begins their names: onnxruntime takes a function for ONNX's operator of the same name, and crashes."""

WORLD_GROUP: Final = "hccl_world_group"
"""HCCL's name of the group of all ranks, in which collectives take part that name none."""

CLEAR_FLOAT_STATUS: Final = "NPUClearFloatStatusV2"
"""Lowers the device's overflow status."""

GET_FLOAT_STATUS: Final = "NPUGetFloatStatusV2"
"""Tells the device's overflow status: whether an operator has saturated since it was lowered."""


def uses_float_status(domain: str, op_type: str) -> bool:
    """Return whether an operator lowers or reads the device's overflow status.

    No function of ONNX's operators can describe it: what it does depends on the operators that ran before.

    >>> uses_float_status("mindspore.ops", "NPUGetFloatStatusV2"), uses_float_status("", "Relu")
    (True, False)
    """
    return domain == MINDSPORE_DOMAIN and op_type in {CLEAR_FLOAT_STATUS, GET_FLOAT_STATUS}


def canonical_domain(domain: str) -> str:
    """Return a domain by the name that it has in a ``Graph``: models write ONNX's own as "" or "ai.onnx".

    >>> canonical_domain("ai.onnx"), canonical_domain("ai.onnx.ml")
    ('', 'ai.onnx.ml')
    """
    return "" if domain == "ai.onnx" else domain
