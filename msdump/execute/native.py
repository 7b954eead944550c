"""onnxruntime's native (pybind11) classes: calls through the public wrapper take ten times as long.

They are no public interface. One table lists the symbols in use, which are checked when this module is
imported, so that a missing symbol is named, instead of an AttributeError in the middle of a network.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as native

from msdump.errors import NotAvailableError

__all__ = ["SYMBOLS", "TESTED", "check", "native"]

TESTED: Final = "1.31.1"
"""The newest onnxruntime that the tests have run with."""

SYMBOLS: Final = (
    "GraphOptimizationLevel.ORT_DISABLE_ALL",
    "GraphOptimizationLevel.ORT_ENABLE_ALL",
    "GraphOptimizationLevel.ORT_ENABLE_BASIC",
    "GraphOptimizationLevel.ORT_ENABLE_EXTENDED",
    "InferenceSession.initialize_session",
    "InferenceSession.run",
    "InferenceSession.run_with_ort_values",
    "OrtAllocatorType.ORT_ARENA_ALLOCATOR",
    "OrtArenaCfg",
    "OrtDevice.cpu",
    "OrtDevice.default_memory",
    "OrtMemType.DEFAULT",
    "OrtMemoryInfo",
    "OrtValue.data_ptr",
    "OrtValue.data_type",
    "OrtValue.has_value",
    "OrtValue.is_tensor",
    "OrtValue.numpy",
    "OrtValue.ortvalue_from_numpy",
    "OrtValue.ortvalue_from_shape_and_onnx_type",
    "OrtValue.shape",
    "SessionOptions.add_external_initializers_from_files_in_memory",
    "SessionOptions.add_session_config_entry",
    "SessionOptions.enable_mem_pattern",
    "SessionOptions.graph_optimization_level",
    "SessionOptions.intra_op_num_threads",
    "SessionOptions.log_severity_level",
    "SessionOptions.optimized_model_filepath",
    "SessionOptions.register_custom_ops_library",
    "SessionOptions.use_per_session_threads",
    "create_and_register_allocator",
    "get_available_providers",
)
"""Everything of the runtime's internals that this room uses."""


def check(internals: Any, version: str) -> None:
    """Check that the installed runtime has every symbol; NotAvailableError names all that are missing."""
    missing = [name for name in SYMBOLS if not _has(internals, name)]
    if missing:
        raise NotAvailableError(
            f"onnxruntime {version} has no {', '.join(missing)} among the internals that"
            f" msdump needs; install onnxruntime {TESTED}, the newest that msdump was tested with"
        )


def _has(internals: Any, name: str) -> bool:
    try:
        attrgetter(name)(internals)
    except AttributeError:
        return False
    return True


# at import, before any model is loaded: pip allows more versions than were tested
check(native, onnxruntime.__version__)
