"""Export of a graph that torch has captured to an ONNX model with names like GE's.

A captured graph may leave dimensions open. It is exported anew for every set of input shapes that it meets:
sizes become constants, so that each model is static.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx import traceback as fx_traceback

from msdump.errors import GraphError, InputError
from msdump.frontends.torchair.decompositions import DECOMPOSITIONS, REPLACEMENTS

_CARRIERS: Final[dict[torch.dtype, tuple[torch.dtype, Any]]] = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.int8, ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: (torch.int8, ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2: (torch.int8, ml_dtypes.float8_e5m2),
    torch.float8_e5m2fnuz: (torch.int8, ml_dtypes.float8_e5m2fnuz),
}
"""Types that torch does not hand to numpy: the integer that carries their bits, and numpy's type."""

_TORCH_TYPES: Final = {np.dtype(dtype): torch_dtype for torch_dtype, (_, dtype) in _CARRIERS.items()}


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's values as a contiguous array on the host; InputError for sparse or quantised ones."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise InputError(
            f"a tensor of layout {tensor.layout} and type {tensor.dtype} cannot be fed; "
            "dense tensors are allowed: convert it with .to_dense() or .dequantize()"
        )
    # a conjugate or negative may be a flag on the original's memory, which numpy does not know
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    carrier_and_dtype = _CARRIERS.get(plain.dtype)
    if carrier_and_dtype is None:
        array: np.ndarray = plain.numpy()
        return array
    carrier, dtype = carrier_and_dtype
    bits: np.ndarray = plain.view(carrier).numpy()
    return bits.view(dtype)


def from_array(array: np.ndarray, stride: Sequence[int], device: torch.device) -> torch.Tensor:
    """Return an array's values as a tensor of its own memory, with the strides of eager execution."""
    dtype = _TORCH_TYPES.get(array.dtype)
    contents = np.array(array, order="C", copy=True)
    if dtype is None:
        plain = torch.from_numpy(contents)
    else:
        plain = torch.from_numpy(contents.view(np.dtype(f"i{contents.itemsize}"))).view(dtype)
    plain = plain.to(device)
    if tuple(stride) == plain.stride():
        return plain
    # Along an expanded dimension, stride 0, all elements are one: it is written once.
    sizes = [size if step else min(size, 1) for size, step in zip(plain.shape, stride, strict=True)]
    distinct = plain[tuple(slice(size) for size in sizes)]
    laid_out = torch.empty_strided(sizes, tuple(stride), dtype=plain.dtype, device=device).copy_(distinct)
    return laid_out.expand(plain.shape)


ORIGIN: Final = "msdump_origin"
"""Key of a node's ``meta["custom"]``: name of the captured node that it was made from."""

_OPSET: Final = 20
_QUIET: Final = ("torch.onnx", "torch.onnx._internal.exporter._registration", "onnxscript")


Result = Callable[[Sequence[Any], Mapping[str, Any]], Any]
"""An output of a captured graph, from the graph's inputs and the model's outputs by name."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A captured graph as an ONNX model."""

    model: Any  # the ModelProto
    inputs: tuple[tuple[str, int], ...]  # the model's inputs: name, and position among the captured graph's
    results: tuple[Result, ...]  # the captured graph's outputs in order
    origins: dict[str, str]  # name of each operator -> names of the captured nodes that it was made from
    makes_tensors: bool  # whether the model computes any output, so that there is anything to run


def export(gm: GraphModule, arguments: Sequence[Any], name: str) -> Exported:
    """Export a captured graph of ATen operators, without mutation, for the shapes of one call.

    Raises:
        GraphError: An operator that ONNX has no form for, or an output that depends on data.
    """
    tensors = [item for item in arguments if isinstance(item, torch.Tensor)]
    values: Values = {}  # filled while the exporter traces the module
    concrete = _ConcreteModule(gm, arguments, values.update)
    try:
        with ThreadPoolExecutor(1) as new_thread:  # a new thread has torch's full dispatch
            detached = tuple(tensor.detach() for tensor in tensors)
            program = new_thread.submit(_translate, concrete, detached).result()
    except Exception as error:
        raise GraphError(
            f"{name}: torch.compile's graph cannot be translated to ONNX: {_reason(error)}; "
            "give an operator without translation a decomposition (custom_decompositions of"
            " get_npu_backend), or leave it out of the compiled function (torch.compiler.disable)"
        ) from error
    model = program.model
    model.graph.name = name
    captured = {
        node.name: (node.meta.get("custom") or {}).get(ORIGIN, "")
        for node in program.exported_program.graph.nodes
    }
    counts: Counter[str] = Counter()
    origins = {}
    for node in model.graph:
        number = counts[node.op_type]
        counts[node.op_type] += 1
        node.name = f"{node.op_type}_{number}" if number else node.op_type
        for index, value in enumerate(node.outputs):
            value.name = f"{node.name}:{index}"  # input names are identifiers: none has a colon
        text = node.metadata_props.get("pkg.torch.onnx.fx_node", "")
        origins[node.name] = captured.get(text.partition(" ")[0].removeprefix("%"), "")

    placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    slots = _tensor_positions(arguments)
    named = []
    for value in model.graph.inputs:
        # the exporter calls the arguments of ``forward`` tensors_0, tensors_1, ...
        position = slots[int(value.name.rpartition("_")[2])]
        value.name = placeholders[position]
        named.append((value.name, position))
    inputs = tuple(named)
    model_outputs = dict(
        zip(made_names(gm, values), [value.name for value in model.graph.outputs], strict=True)
    )
    placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    positions = {name: position for position, name in enumerate(placeholders)}
    results = tuple(_result(node, values, model_outputs, positions) for node in output_nodes(gm))
    return Exported(program.model_proto, inputs, results, origins, bool(model.graph.outputs))


Values = dict[str, Any]
"""Values of the nodes that a captured graph returns, as traced, by the nodes' names."""


class _ConcreteModule(torch.nn.Module):
    """The captured graph as a module of tensors alone.

    Inputs that are numbers are constants of the module. It returns only tensors that operators compute,
    each once, since an ONNX graph has neither numbers nor inputs among its outputs.
    """

    def __init__(self, gm: GraphModule, arguments: Sequence[Any], note: Callable[[Values], None]) -> None:
        super().__init__()
        self.gm = gm
        self.arguments = [None if isinstance(item, torch.Tensor) else item for item in arguments]
        self.slots = _tensor_positions(arguments)
        self.note = note

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        filled = list(self.arguments)
        for slot, tensor in zip(self.slots, tensors, strict=True):
            filled[slot] = tensor
        with fx_traceback.preserve_node_meta():
            values = _OriginInterpreter(self.gm).run(*filled)
        returned = {
            node.name: value
            for node, value in zip(output_nodes(self.gm), values, strict=True)
            if isinstance(node, Node)
        }
        self.note(returned)
        return tuple(returned[name] for name in made_names(self.gm, returned))


class _OriginInterpreter(Interpreter):
    """Runs a captured graph; every operator traced meanwhile carries the name of the node that called it."""

    def run_node(self, node: Node) -> Any:
        custom = node.meta.get("custom") or {}
        node.meta["custom"] = {**custom, ORIGIN: node.name}
        return super().run_node(node)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(REPLACEMENTS.get(target, target), args, kwargs)


def output_nodes(gm: GraphModule) -> tuple[Any, ...]:
    """Return the outputs of a captured graph: nodes, None and numbers."""
    returned = gm.graph.output_node().args[0]
    return tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)


def made_names(gm: GraphModule, values: Values) -> list[str]:
    """Return the names of the nodes, each once, of tensors that a captured graph computes and returns."""
    nodes = dict.fromkeys(node for node in output_nodes(gm) if isinstance(node, Node))
    return [
        node.name
        for node in nodes
        if node.op != "placeholder" and isinstance(values[node.name], torch.Tensor)
    ]


def _tensor_positions(arguments: Sequence[Any]) -> list[int]:
    """Return the positions of the tensors among a graph's inputs."""
    return [position for position, item in enumerate(arguments) if isinstance(item, torch.Tensor)]


def _translate(concrete: _ConcreteModule, tensors: tuple[torch.Tensor, ...]) -> Any:
    # non-strict: the module's own Python runs, which interprets the captured graph
    with _quiet(), torch.no_grad():
        exported = torch.export.export(concrete, tensors, strict=False)
        exported = exported.run_decompositions(dict(DECOMPOSITIONS))
        # without the optimizer: it would fold and fuse operators that the dump is to show
        return torch.onnx.export(exported, dynamo=True, optimize=False, verbose=False, opset_version=_OPSET)


def _reason(error: BaseException) -> str:
    """Return the innermost cause of a failed export, one line."""
    while error.__cause__ is not None:  # the exporter wraps it in pages about itself
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's warnings about itself out of the user's log."""
    loggers = [logging.getLogger(name) for name in _QUIET]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _result(node: Any, values: Values, model_outputs: dict[str, str], positions: dict[str, int]) -> Result:
    """Return the function for an output of the captured graph: an input, a model's output, or a constant."""
    if not isinstance(node, Node):
        return lambda _, __: node
    if node.name in positions:
        position = positions[node.name]
        return lambda arguments, _: arguments[position]
    value = values[node.name]
    if node.name in model_outputs:
        name, stride = model_outputs[node.name], tuple(int(step) for step in value.stride())
        device = value.device  # the lambda must not keep ``value`` alive
        return lambda _, arrays: from_array(arrays[name], stride, device)
    return lambda _, __: value
