"""Kernels of MindSpore's CPU that read float32 where the graph has a half type, and write that type.

Its graphs have a Cast before each such input; the kernel's output needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import onnx
from onnx import helper

from msdump.dtypes import DType
from msdump.graph.kernel.emulation import FLOAT32

WIDE_KERNELS: Final[Mapping[str, tuple[int, ...]]] = {
    "MatMul": (0, 1),
    "BatchMatMul": (0, 1),
    "BiasAdd": (1,),
    "BiasAddGrad": (0,),
}
"""Slots that are float32, by operator."""

WIDE: Final = "wide"
"""The end of the overload of such a function."""


def wide(
    function: onnx.FunctionProto, half: DType, narrow: Collection[int], overload: str
) -> onnx.FunctionProto:
    """Return a float32 function as one that writes a half type.

    Args:
        function: It computes in float32.
        half: The type of its outputs.
        narrow: Slots of the inputs that are half, too.
        overload: What tells it from others of the operator.
    """
    inputs, outputs = list(function.input), list(function.output)
    casts = {inputs[slot]: f"{inputs[slot]}_wide" for slot in narrow}
    results = {name: f"{name}_wide" for name in outputs}
    names = casts | results
    for node in function.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    before = [helper.make_node("Cast", [name], [new], to=FLOAT32.onnx) for name, new in casts.items()]
    after = [helper.make_node("Cast", [new], [name], to=half.onnx) for name, new in results.items()]
    nodes = [*before, *function.node, *after]
    del function.node[:]
    function.node.extend(nodes)
    function.overload = overload
    return function
