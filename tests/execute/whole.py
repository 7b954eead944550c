"""The same network in one session of the runtime, for comparison with runs operator by operator."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime

from msdump.execute import values
from msdump.graph import loader
from msdump.session import Network

HEAD = '<ir_version: 10, opset_import: ["" : 20, "ai.onnx.ml" : 3, "own" : 1]>'


def model_of(text: str, head: str = HEAD, **initializers: np.ndarray) -> onnx.ModelProto:
    """Return a model of ONNX's text form, with further weights."""
    model = onnx.parser.parse_model(head + text)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in initializers.items()
    )
    return model


def network_of(text: str, **initializers: np.ndarray) -> Network:
    """Return a network of ONNX's text form."""
    return Network(loader.load(model_of(text, **initializers)))


def run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of one session without optimisations, other settings untouched."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    if not _has_types_unknown_to_numpy(session):
        return list(session.run(names, dict(feeds)))
    ort_feeds = {name: onnxruntime.OrtValue(values.from_python(item)) for name, item in feeds.items()}
    return [values.to_python(value._ortvalue) for value in session.run_with_ort_values(names, ort_feeds)]


def _has_types_unknown_to_numpy(session: onnxruntime.InferenceSession) -> bool:
    kinds = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    return any(text in kind for kind in kinds for text in ("bfloat16", "float8", "int4", "float4", "int2"))


def every_value(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return every value that the graph's nodes make, by name."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, run(shown, feeds), strict=True))


def same(expected: Any, actual: Any) -> bool:
    """Tell whether two values are equal in type, shape and every bit; lists and maps item by item."""
    if isinstance(expected, list):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    if expected is None or isinstance(expected, dict):
        return expected == actual
    expected, actual = np.asarray(expected), np.asarray(actual)
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return False
    if expected.dtype == object:
        return expected.tolist() == actual.tolist()
    return expected.tobytes() == actual.tobytes()
