"""Model-local functions: inlined, so that the operators inside them are seen.

onnx's inliner forgets which call a node came from. Each call therefore gets a
copy of its function first, whose nodes are named after the call.
"""

from __future__ import annotations

from typing import Final

import onnx
from onnx import inliner

from msdump.errors import GraphError

_MOST_CALLS: Final = 10_000  # recursion is forbidden by ONNX; a cycle must not hang the loader


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its local functions inlined, node names ``{call}/{node}__{number}``.

    Functions whose opset imports differ from the model's stay calls; onnxruntime
    runs them as one kernel.

    Raises:
        GraphError: A call that does not fit its function.
    """
    if not model.functions:
        return model
    copies = _Copies(model)
    for node in model.graph.node:
        copies.copy_call(node, node.name)
    model.functions.extend(copies.made)
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(f"the model's functions cannot be inlined: {reason}") from error


class _Copies:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.made: list[onnx.FunctionProto] = []

    def copy_call(self, call: onnx.NodeProto, path: str) -> None:
        """Point a call at a copy of its function whose nodes carry the call's name."""
        function = self._functions.get((call.domain, call.op_type, call.overload))
        if function is None or len(self.made) >= _MOST_CALLS:
            return
        own = onnx.FunctionProto()
        own.CopyFrom(function)
        own.name = f"{function.name}__call{len(self.made)}"
        call.op_type = own.name
        self.made.append(own)
        for position, node in enumerate(own.node):
            node.name = f"{path}/{node.name or f'{node.op_type}_{position}'}"
            self.copy_call(node, node.name)
