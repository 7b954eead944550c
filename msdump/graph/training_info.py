"""The training that a model describes: its ``training_info``, and the bindings of initializers to outputs.

A training step is the model's graph followed by the algorithm, one graph as ONNX defines it, after which each
bound initializer takes the value of an output. Where the algorithm is empty, the model's graph is the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import onnx

from msdump.errors import GraphError, name_hint
from msdump.graph.graph import Graph, ValueType

Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TrainingMessage:
    """The training of a model as ONNX messages, separated from the model."""

    # (initializer, output with the new value) in the model's order, not yet checked
    bindings: tuple[tuple[str, str], ...]
    # the model's graph followed by the algorithm; None: the model's graph is the step
    step: onnx.ModelProto | None = None
    # a model of the graph that gives variables their initial values, None without one
    initialization: onnx.ModelProto | None = None
    # (initializer, output of ``initialization``), not yet checked
    initial_values: tuple[tuple[str, str], ...] = ()
    obstacle: str = ""  # why the step cannot run, though the model may be run for inference; "" where it can

    @property
    def variables(self) -> frozenset[str]:
        """Names of the initializers that training changes."""
        return frozenset(name for name, _ in (*self.bindings, *self.initial_values))


_REQUESTS: Final = {
    "GraphCall": "run the model's graph again, which is not supported",
    "Gradient": "derive gradients; msdump.training.step_graph writes them as operators",
}
"""Operators of an algorithm that no runtime has."""


def take(model: onnx.ModelProto, update_binding: Mapping[str, str] | None) -> TrainingMessage | None:
    """Remove and return ``training_info`` or ``update_binding``, None without; GraphError for both."""
    infos = [info for info in model.training_info if info.ByteSize()]
    model.ClearField("training_info")
    if update_binding is not None and infos:
        raise GraphError("update_binding is given, but the model has bindings of its own (training_info)")
    if update_binding is not None:
        return TrainingMessage(tuple(update_binding.items()))
    if not infos:
        return None
    info = infos[0]
    asking = {node.op_type: node for node in reversed(info.algorithm.node)}  # of each type the first node
    if len(infos) > 1:
        text = (
            f"training_info describes {len(infos)} steps, but only one is supported; keep one "
            "entry in the model"
        )
        return TrainingMessage((), obstacle=text)
    for op_type, request in _REQUESTS.items():
        if op_type in asking:
            text = (
                f"training_info: node {asking[op_type].name!r}: {op_type} requires the runtime to {request}"
            )
            return TrainingMessage((), obstacle=text)
    has_algorithm = bool(info.algorithm.node or info.algorithm.initializer or info.algorithm.input)
    return TrainingMessage(
        bindings=tuple((entry.key, entry.value) for entry in info.update_binding),
        step=_step_message(model, info.algorithm) if has_algorithm else None,
        initialization=_beside(model, info.initialization) if info.initialization_binding else None,
        initial_values=tuple((entry.key, entry.value) for entry in info.initialization_binding),
    )


def _beside(model: onnx.ModelProto, graph: onnx.GraphProto) -> onnx.ModelProto:
    other = onnx.ModelProto(ir_version=model.ir_version)
    other.opset_import.extend(model.opset_import)
    other.functions.extend(model.functions)
    other.graph.CopyFrom(graph)
    return other


def _step_message(model: onnx.ModelProto, algorithm: onnx.GraphProto) -> onnx.ModelProto:
    """Return a model of the step: nodes, initializers, ... of its graph, each followed by the algorithm's."""
    step = _beside(model, model.graph)
    for name in ("node", "initializer", "sparse_initializer", "input", "output", "value_info"):
        getattr(step.graph, name).extend(getattr(algorithm, name))
    return step


def checked_bindings(pairs: Pairs, graph: Graph, outputs: Graph, title: str) -> dict[str, str]:
    """Return bindings (``title`` in messages) as a mapping from an initializer of a graph to an output.

    Raises:
        GraphError: An initializer or output that is not there, an initializer that is bound twice, another
            element type or shape; the message holds every fault.
    """
    pairs = tuple(pairs)
    faults = [
        f"initializer {name!r} is bound {count} times"
        for name, count in Counter(name for name, _ in pairs).items()
        if count > 1
    ]
    faults += [fault for pair in pairs for fault in _faults(*pair, graph, outputs)]
    if faults:
        raise GraphError(f"{title}: {'; '.join(faults)}")
    return dict(pairs)


def _faults(name: str, value: str, graph: Graph, outputs: Graph) -> Iterator[str]:
    initializers = graph.weights.keys() - set(graph.constants)
    results = [output.name for output in outputs.outputs]
    if name not in initializers:
        yield f"there is no initializer {name!r}{name_hint(name, initializers)}"
    if value not in results:
        yield f"there is no output {value!r} for {name!r}{name_hint(value, results)}"
    if name in initializers and value in results:
        fault = misfit(graph.type_of(name), outputs.type_of(value))
        if fault:
            yield f"initializer {name!r} cannot have output {value!r} as its new value: {fault}"


def misfit(variable: ValueType, value: ValueType) -> str:
    """Return why a variable cannot take a value of a type, "" where it can as far as is known."""
    if value.kind not in {"tensor", ""}:
        return f"must be a tensor, is a {value.kind}"
    if value.dtype is not None and value.dtype is not variable.dtype:
        return f"the one is {_title(variable)}, the other {_title(value)}"
    wanted = variable.shape or ()
    if value.shape is None:
        return ""
    pairs = zip(wanted, value.shape, strict=False)
    if len(wanted) == len(value.shape) and all(
        not isinstance(size, int) or size == old for old, size in pairs
    ):
        return ""
    return f"the one has shape {list(wanted)}, the other {list(value.shape)}"


def _title(value_type: ValueType) -> str:
    return value_type.dtype.name if value_type.dtype else "of an unknown type"
