"""A translated MindIR file as an ONNX model for other runtimes, and what the loader finds in such a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.errors import FormatError, GraphError
from msdump.graph import functions
from msdump.graph.mindir.model import TranslatedModel

_STATEFUL: Final = "msdump.stateful"
"""Metadata of a model: each run is a step."""

_RETURNS: Final = "msdump.returns"
"""Metadata of a model: names of the results of a call, one a line, if it returns a value several times."""

_DECLARED: Final = "msdump.declared:"
"""Metadata of a model: with the name of a value behind it, the element type that files show."""


def standard(translated: TranslatedModel) -> onnx.ModelProto:
    """Return a translated file as one model: weights inside, functions that onnxruntime can tell from ONNX's.

    The new values of weights are its ``training_info``; ``kept_facts`` finds the rest in its metadata.
    """
    model = onnx.ModelProto()
    model.CopyFrom(translated.message)
    model.producer_name = "msdump"
    del model.functions[:]
    model.functions.extend(functions.renamed_calls(model.graph.node, translated.message.functions))
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
    for key, value in _facts(translated):
        model.metadata_props.add(key=key, value=value)
    if translated.bindings:
        info = model.training_info.add()
        for key, value in translated.bindings.items():
            info.update_binding.add(key=key, value=value)
    return model


def _facts(translated: TranslatedModel) -> Iterator[tuple[str, str]]:
    for name, dtype in translated.declared.items():
        yield f"{_DECLARED}{name}", dtype.name
    if translated.bindings:
        yield _STATEFUL, "1"
    if len(set(translated.returns)) < len(translated.returns):
        yield _RETURNS, "\n".join(translated.returns)


def kept_facts(model: onnx.ModelProto) -> dict[str, Any]:
    """Return the fields of a Graph that a model of ``standard`` has in its metadata.

    Raises:
        GraphError: A type that is none, or a result that is no output.
    """
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
    return {"declared": declared, "is_stateful": _STATEFUL in texts, "returns": returns}
