"""Turn a network of onnxscript modules into an ONNX model with its own source lines."""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from onnxscript import GraphBuilder, OpBuilder, nn

IR_VERSION: Final = 10
OPSET: Final = 20
STACK_TRACE: Final = "pkg.onnxscript.stack_trace"

_HERE = Path(__file__).resolve().parent
_REPOSITORY = _HERE.parent

Initializer = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""Makes the values of one parameter from a seeded generator and a shape."""


class TracedOps(OpBuilder):
    """An operator builder that adds the Python source lines to onnxscript's scopes."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        """Return the function that adds one operator of this type to the graph."""
        add = super().__getattr__(op_type)

        def add_traced(*inputs: Any, **attributes: Any) -> Any:
            outputs = add(*inputs, **attributes)
            first = outputs if isinstance(outputs, ir.Value) else outputs[0]
            first.producer().metadata_props[STACK_TRACE] = _stack_trace()
            return outputs

        return add_traced


def parameter(shape: Sequence[int], initializer: Initializer) -> nn.Parameter:
    """Return a float32 parameter; ``trace`` makes its values."""
    value = nn.Parameter(shape)
    value.meta["initializer"] = initializer
    return value


def trace(
    net: nn.Module,
    inputs: Sequence[ir.Value],
    *,
    name: str,
    outputs: Sequence[str] = ("output",),
    seed: int = 0,
) -> ir.Model:
    """Return the model of a network; equal seeds give equal weights.

    Args:
        net: The network; it returns one value or a tuple.
        inputs: Fresh values with name, type and shape.
        name: Name of the ONNX graph.
        outputs: Names of the values that the network returns.
        seed: Seed of the weights; each one also depends on its own name.
    """
    graph = ir.Graph(list(inputs), [], nodes=[], opset_imports={"": OPSET}, name=name)
    builder = GraphBuilder(graph)
    result = net(TracedOps(builder, "", OPSET), *inputs)
    graph.opset_imports.update({node.domain: 1 for node in graph if node.domain})
    values = (result,) if isinstance(result, ir.Value) else result
    for value, output in zip(values, outputs, strict=True):
        builder.add_output(value, output)
    for weight in net.parameters():
        weight.const_value = ir.tensor(_values(weight, seed), name=weight.name)
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="msdump sample_nets")


def _values(weight: nn.Parameter, seed: int) -> np.ndarray:
    # A generator of its own: a new layer does not change the weights of the others.
    generator = np.random.default_rng([seed, zlib.crc32(weight.name.encode())])
    values: np.ndarray = weight.meta["initializer"](generator, tuple(weight.shape.numpy()))
    return values.astype(np.float32, copy=False)


def _stack_trace() -> str:
    """Return the network's own frames as PyTorch's exporter writes them, outermost first."""
    frames = [frame for frame in traceback.extract_stack() if _is_network(frame)]
    return "\n  ".join(
        f'File "{Path(frame.filename).relative_to(_REPOSITORY).as_posix()}", line {frame.lineno}, '
        f"in {frame.name}\n    {frame.line}"
        for frame in frames
    )


def _is_network(frame: traceback.FrameSummary) -> bool:
    file = Path(frame.filename)
    return frame.name == "forward" and file.is_relative_to(_HERE)
