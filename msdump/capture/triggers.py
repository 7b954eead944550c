"""Overflow: selects operators under ``op_debug_mode`` 3, and logs the cause.

An operator overflows where an output of float16, bfloat16 or float32 holds an infinity or a NaN, or where
the device reports that it clamped a result to float16's range (``precision.Rounding.saturates``), which
leaves neither. Inputs do not matter; the log says whether they had infinities or NaN already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.graph import Node
from msdump.observer import Arrays
from msdump.reasons import Reason
from msdump.record import OperatorRef
from msdump.threads import new_lock

_log = logging.getLogger("msdump.capture")

Read = Callable[[OperatorRef, int, np.ndarray], np.ndarray]
"""Returns an input of an operator, by its position, as the device reads it."""

_EXPONENTS: Final = {"float16": 0x7C00, "bfloat16": 0x7F80}
"""Bits that are all set in an infinity or a NaN, for the types whose reductions numpy does slowly."""

CHECKED: Final = frozenset({"float32", *_EXPONENTS})
"""Types of outputs that are looked at, as MindSpore's AllFinite kernel has them."""

_FLOATING: Final = ("float", "bfloat", "complex")


class OverflowLimit:
    """Counts the overflowing operators of the whole process; any thread may use it."""

    def __init__(self, most: int) -> None:
        """Allow ``most`` operators, 0: any number (``overflow_number``)."""
        self._most = most
        self._count = 0
        self._lock = new_lock()

    def take(self) -> bool:
        """Count one more operator; return False where the number is used up."""
        with self._lock:
            if self._most and self._count >= self._most:
                return False
            self._count += 1
            return True


class OverflowTrigger:
    """Finds the operators that overflow: any infinity or NaN in an output, or a saturated one."""

    def __init__(self, limit: OverflowLimit, read: Read | None = None) -> None:
        self._limit = limit
        self._read = read or (lambda _operator, _slot, array: array)
        self._warned: set[str] = set()

    def refusal(
        self, node: Node, step: int, inputs: Arrays, outputs: Arrays, *, saturated: bool
    ) -> Reason | None:
        """Return the reason why an operator is not dumped; None if it overflows, which is logged.

        Inputs that the operator writes in place show its results.
        """
        operator, written = node.operator, node.update.new_values
        overflows = self._nonfinite(operator, outputs)
        if saturated:
            overflows.append((0, "saturated"))  # the device's status does not name the output
        if not overflows:
            return Reason.NO_OVERFLOW
        if not self._limit.take():
            return Reason.OVERFLOW_LIMIT
        outputs_text = ", ".join(f"output.{slot} {kinds}" for slot, kinds in overflows)
        read = [None if slot in written else array for slot, array in enumerate(inputs)]
        read_names = ["" if slot in written else name for slot, name in enumerate(node.inputs)]
        cause = self._cause(operator, read, read_names)
        _log.warning("overflow: %s in step %d: %s; %s", operator.full_name, step, outputs_text, cause)
        return None

    def _cause(self, operator: OperatorRef, inputs: Arrays, names: Sequence[str]) -> str:
        """Return whether an operator's inputs were bad already, for the log."""
        bad = [f"input.{slot}" for slot, array in enumerate(inputs) if self._is_bad(operator, slot, array)]
        if bad:
            return f"its {', '.join(bad)} already held NaN or infinity"
        pairs = enumerate(zip(inputs, names, strict=False))
        unseen = [f"input.{slot}" for slot, (array, name) in pairs if array is None and name]
        if unseen:
            return f"its {', '.join(unseen)} is not a tensor and was not checked"
        return "its inputs were finite" if any(array is not None for array in inputs) else "it has no inputs"

    def _nonfinite(self, operator: OperatorRef, outputs: Arrays) -> list[tuple[int, str]]:
        """Return the outputs with infinities or NaN, each with how many it has, ``nan (1), inf (2)``."""
        overflows = []
        for slot, array in enumerate(outputs):
            if array is None or array.size == 0:
                continue
            name = dtypes.from_numpy(array.dtype).name
            if name not in CHECKED:
                if name.startswith(("float", "complex")) and name not in self._warned:
                    self._warned.add(name)
                    _log.warning("overflow detection does not support %s (%s)", name, operator.full_name)
            elif not is_finite(array):
                values = array.astype(np.float32, copy=False)
                kinds = (
                    ("nan", np.isnan(values)),
                    ("inf", np.isposinf(values)),
                    ("-inf", np.isneginf(values)),
                )
                overflows.append(
                    (slot, ", ".join(f"{name} ({int(flags.sum())})" for name, flags in kinds if flags.any()))
                )
        return overflows

    def _is_bad(self, operator: OperatorRef, slot: int, array: np.ndarray | None) -> bool:
        if array is None or array.size == 0 or not dtypes.from_numpy(array.dtype).name.startswith(_FLOATING):
            return False
        return not is_finite(self._read(operator, slot, array))


def overflows(array: np.ndarray) -> bool:
    """Return whether an output shows an overflow of its operator: an infinity or a NaN of a checked type."""
    return array.size > 0 and dtypes.from_numpy(array.dtype).name in CHECKED and not is_finite(array)


def is_finite(array: np.ndarray) -> bool:
    """Return whether an array of floating-point or complex numbers has neither infinities nor NaN.

    >>> is_finite(np.array([[1, 65504], [0, -1]], np.float16))
    True
    >>> is_finite(np.array([[1, np.inf], [0, -1]], np.float16))
    False
    >>> is_finite(np.array([[1, np.nan], [0, -1]], np.float32)), is_finite(np.array([1 + 2j]))
    (False, True)

    Args:
        array: At least one element.
    """
    name = dtypes.from_numpy(array.dtype).name
    exponent = _EXPONENTS.get(name)
    if exponent is not None:
        # numpy compares integers in vectors, but float16 and bfloat16 one by one
        return not ((array.view(np.uint16) & exponent) == exponent).any()
    if name != "float32":
        return bool(np.isfinite(array if array.dtype.isbuiltin else array.astype(np.float32)).all())
    # NaN wins in both reductions, and two reads cost less than one array of flags.
    return bool(np.isfinite(array.max()) and np.isfinite(array.min()))
