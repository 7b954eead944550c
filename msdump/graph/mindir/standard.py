"""A translated MindIR file as an ONNX model for other runtimes, and the marks of such a model."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.errors import FormatError, GraphError
from msdump.graph import functions, names
from msdump.graph.order import walk_graphs, walk_nodes

if TYPE_CHECKING:
    from msdump.graph.mindir.model import TranslatedModel

# metadata of a model
_STATEFUL: Final = "msdump.stateful"  # each run is a step
_RETURNS: Final = "msdump.returns"  # a call's results, one a line, if it returns a value several times
_KERNEL_GRAPHS: Final = "msdump.kernel_graphs"  # number of the kernel graphs into which calls cut it
_DECLARED: Final = "msdump.declared:"  # and the name of a value: the element type that files show
_MOST_DIGITS: Final = 7


def standard(translated: TranslatedModel) -> onnx.ModelProto:
    """Return a translated file as one model: weights inside, functions that onnxruntime can tell from ONNX's.

    The new values of weights are its ``training_info``; ``kept_facts`` finds the rest in its metadata.
    """
    model = onnx.ModelProto()
    model.CopyFrom(translated.message)
    del model.functions[:]
    model.functions.extend(functions.renamed_calls(model.graph.node, translated.message.functions))
    _add_identities(model.graph)
    typed = [info for info in model.graph.value_info if info.HasField("type")]
    types = {info.name: info.type for info in (*typed, *model.graph.input)}
    del model.graph.value_info[:]
    model.graph.value_info.extend(typed)
    for name, array in translated.weights.items():
        model.graph.initializer.append(
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        )
        if name in translated.bindings:
            element = dtypes.from_numpy(array.dtype).onnx
            types[translated.bindings[name]] = helper.make_tensor_type_proto(element, array.shape)
    for output in model.graph.output:
        if output.name in types:
            output.type.CopyFrom(types[output.name])
    facts = facts_of(translated)
    texts = {
        **{f"{_DECLARED}{name}": dtype.name for name, dtype in facts["declared"].items()},
        _STATEFUL: "1" if facts["is_stateful"] else "",
        _KERNEL_GRAPHS: str(facts["kernel_graphs"] or ""),
        _RETURNS: "\n".join(facts["returns"]),
    }
    for key, value in texts.items():
        if value:
            model.metadata_props.add(key=key, value=value)
    if translated.bindings:
        info = model.training_info.add()
        for key, value in translated.bindings.items():
            info.update_binding.add(key=key, value=value)
    return model


def _add_identities(main: onnx.GraphProto) -> None:
    """Add an Identity for each value that a branch or body returns without making it, as ONNX demands."""
    numbers = count()
    for graph in [*walk_graphs(main)][1:]:
        made = {name for node in graph.node for name in node.output}
        for output in graph.output:
            if output.name in made:
                made.remove(output.name)  # a second output of this name needs one, too
                continue
            name = f"returned_{next(numbers)}"
            node = graph.node.add(op_type="Identity", name=name, input=[output.name], output=[name])
            node.metadata_props.add(key=names.RETURNED, value="1")
            output.name = name


def facts_of(translated: TranslatedModel) -> dict[str, Any]:
    """Return the fields of the Graph that the message does not hold."""
    returns, written = translated.returns, {*translated.bindings.values()}
    is_odd = len(set(returns)) < len(returns) or not written.isdisjoint(returns)
    return {
        "declared": translated.declared,
        "is_stateful": bool(translated.bindings),
        "returns": returns if is_odd else (),
        "kernel_graphs": translated.kernel_graphs,
    }


def kept_facts(model: onnx.ModelProto) -> dict[str, Any]:
    """Return the fields of ``facts_of`` in a model's metadata; GraphError for values that are none."""
    texts = {entry.key: entry.value for entry in model.metadata_props}
    try:
        declared = {
            key.removeprefix(_DECLARED): dtypes.from_name(text)
            for key, text in texts.items()
            if key.startswith(_DECLARED)
        }
    except FormatError as error:
        raise GraphError(f"metadata of the model: {error}") from error
    returns = tuple(filter(None, texts.get(_RETURNS, "").split("\n")))
    strangers = set(returns) - {output.name for output in model.graph.output}
    if strangers:
        raise GraphError(f"metadata of the model: there is no output {min(strangers)!r} to return")
    text = texts.get(_KERNEL_GRAPHS, "0")
    kernel_graphs = int(text) if text.isdecimal() and len(text) < _MOST_DIGITS else 0
    found = {
        names.kernel_graph_of(metadata)
        for node in walk_nodes(model.graph.node)
        for metadata in [names.metadata_of(node)]
        if node.op_type not in {"Constant", "If", "Loop"} and names.RETURNED not in metadata
    }
    allowed: Collection[int | None] = range(kernel_graphs) if kernel_graphs else (None,)
    if any(number not in allowed for number in found):
        raise GraphError(
            f"metadata of the model: an operator is in none of its {kernel_graphs} kernel graphs"
        )
    return {
        "declared": declared,
        "is_stateful": _STATEFUL in texts,
        "returns": returns,
        "kernel_graphs": kernel_graphs,
    }
