"""The graph that onnxruntime's optimiser makes of a model, as a model of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msdump.errors import UnsupportedOpError
from msdump.execute.native import native
from msdump.execute.runtime import short
from msdump.execute.shortage import shortage

LEVELS: Final = {
    "none": native.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": native.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": native.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": native.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
"""How far onnxruntime optimises, by name."""

_FILE: Final = "optimised.onnx"
_WEIGHTS: Final = "optimised.data"
_EXTERNAL_FROM: Final = 1 << 20  # bytes of a weight
_FATAL_ONLY: Final = 4


def optimise(path: str, level: str, folder: str) -> str:
    """Write what onnxruntime makes of a model on the CPU; return the path of the file.

    Args:
        path: The model.
        level: A name of ``LEVELS``.
        folder: Where the file goes, and another one with large weights.

    Raises:
        UnsupportedOpError: onnxruntime cannot load the model.
    """
    options = native.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    written = str(Path(folder) / _FILE)
    options.optimized_model_filepath = written
    options.log_severity_level = _FATAL_ONLY
    entries = {
        "session.optimized_model_external_initializers_file_name": _WEIGHTS,
        "session.optimized_model_external_initializers_min_size_in_bytes": str(_EXTERNAL_FROM),
    }
    for key, text in entries.items():
        options.add_session_config_entry(key, text)
    try:
        session = native.InferenceSession(options, path, True, True)
        session.initialize_session(["CPUExecutionProvider"], [{}], set())
    except Exception as error:
        if shortage(error):
            raise
        raise UnsupportedOpError(f"{path}: onnxruntime cannot load it as a whole: {short(error)}") from error
    return written
