"""Kernels of MindSpore's CPU that compute in float32 where the graph has a half type.

Its graphs have a Cast in front of each half input of such a kernel. The output stays float32 as well: the
next such kernel reads it as it is, and any other operator reads it behind a Cast, in its own place, that
rounds it. (MindSpore's files call that output by the half type and hold the first half of its bytes.)
"""

from __future__ import annotations

from typing import Final

WIDE_KERNELS: Final = frozenset({"MatMul", "BatchMatMul", "BiasAdd", "BiasAddGrad"})
"""By MindSpore's name."""
