"""The emulated device's arithmetic, written into the model of an operator as casts around it.

A float32 input is rounded to the type that the operator reads and widened again;
float16 and bfloat16 inputs are widened; results are rounded to the type
that is written. So every operator computes in float32 on rounded inputs, and the
runtime needs no kernels for the small types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.graph.graph import GE_DOMAIN, GE_PREFIX, MINDSPORE_DOMAIN, canonical_domain
from msdump.graph.operators import CONTROL_FLOW, moves

if TYPE_CHECKING:
    from msdump.graph.graph import Node

FLOAT32: Final = dtypes.from_name("float32")
FLOAT16: Final = dtypes.from_name("float16")
# types that are emulated: the runtime has few kernels for them
HALVES: Final = (FLOAT16, dtypes.BFLOAT16)
PREFIX: Final = "msdump"
"""Begins the names of the values that casts need."""

STATUS: Final = "status"
"""Name of the extra output, above 0 if a rounded value left float16's range."""

FLOAT16_MOST: Final = 65504.0
"""The largest number of float16."""

OVERFLOWS_FROM: Final = 65520.0  # from here on numbers round to infinity
_KNOWN_DOMAINS: Final = frozenset({"", GE_DOMAIN, MINDSPORE_DOMAIN})
_CLIP_INPUTS_SINCE: Final = 11
_IS_NAN_SINCE: Final = 9


@dataclass(frozen=True, slots=True)
class Rounding:
    """The arithmetic of one operator."""

    reads: DType = FLOAT32  # type that float32 inputs are rounded to
    writes: DType = FLOAT32  # type that float32 outputs are rounded to
    saturates: bool = False  # float16 results stay within the type's range, and NaN becomes 0
    reports: bool = False  # Add the ``STATUS`` output, 1 where saturation changed an input or a result

    def read_type(self, dtype: DType) -> DType:
        """Return the device type of an input of a host type."""
        return self.reads if dtype is FLOAT32 else dtype

    def write_type(self, dtype: DType) -> DType:
        """Return the device type of an output of a host type."""
        return self.writes if dtype is FLOAT32 else dtype


def has_foreign_domain(operator: Node | onnx.NodeProto) -> bool:
    """Return whether an operator is of another domain than ONNX's, GE's and MindSpore's."""
    return operator.domain not in _KNOWN_DOMAINS


def keeps_types(operator: Node | onnx.NodeProto) -> bool:
    """Return whether outputs keep the types of inputs: operators that move elements, foreign domains."""
    return has_foreign_domain(operator) or moves(operator.op_type.removeprefix(GE_PREFIX))


def is_cast(operator: Node | onnx.NodeProto, dtype: DType, rounding: Rounding) -> bool:
    """Return whether an operator reads inputs of a type through a Cast that rounds or widens them."""
    if dtype in HALVES:
        return not keeps_types(operator)
    return dtype is FLOAT32 and rounding.reads is not FLOAT32


def rounded_operators(
    protos: Sequence[onnx.NodeProto],
    types: Mapping[str, DType | None],
    roundings: Sequence[Rounding],
    opset: int,
    kept: Mapping[str, bool] = MappingProxyType({}),
    *,
    prefix: str = PREFIX,
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto], bool]:
    """Return the operators with casts around them, the casts' constants, and whether STATUS is an output.

    Operators are in order, with unique values, their types where known, and the arithmetic of each. ``kept``
    inputs are rounded before; with each, whether one of its values was beyond float16's range. ``prefix``
    begins the names of new values, and differs for each operator of a model.
    """
    writer = _Writer(dict(types), opset, kept, prefix)
    for proto, rounding in zip(protos, roundings, strict=True):
        writer.add(proto, rounding)
    return writer.finish()


@dataclass(slots=True)
class _Writer:
    """Collects operators with the casts around them."""

    types: dict[str, DType | None]
    opset: int
    kept: Mapping[str, bool]
    prefix: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, proto: onnx.NodeProto, rounding: Rounding) -> None:
        operator = deepcopy(proto)
        if not canonical_domain(operator.domain):
            operator.ClearField("domain")
        keeps = keeps_types(operator)
        # control flow moves tensors, but its bodies compute: results are rounded
        is_control = operator.op_type in CONTROL_FLOW and not operator.domain
        # widened inputs give float32 results, which are rounded where the model declares a smaller type
        had_half = not keeps and any(self.types.get(name) in HALVES for name in operator.input)
        for slot, name in enumerate(proto.input):
            operator.input[slot] = self._read(operator, name, rounding)
        before = self._before_conversion(operator, rounding)
        self.nodes.append(operator)
        for slot, name in enumerate(proto.output):
            declared = self.types.get(name)
            # infinities from bodies are bounded at the outputs of control flow
            if (had_half and declared in HALVES) or (
                declared is FLOAT16 and rounding.saturates and is_control
            ):
                wanted = declared
            elif declared is FLOAT32 and rounding.writes is not FLOAT32 and (is_control or not keeps):
                wanted = rounding.writes
            else:
                wanted = None
            if name and wanted is not None and before is None:
                operator.output[slot] = self._name()
                result = operator.output[slot]
                # control flow gives float16, which is widened: values are bounded in float32
                if keeps and wanted in HALVES and self.types.get(name) is wanted:
                    result = self._cast(result, FLOAT32)
                narrow = self._narrow(
                    result, wanted, rounding, name if self.types.get(name) is wanted else ""
                )
                # if the host's type is wider than the device's, the rounded value is widened
                if self.types.get(name) is not wanted:
                    self._cast(narrow, FLOAT32, name)

    def finish(self) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto], bool]:
        """Add STATUS, the maximum of flags, if any; return operators, constants, and whether it was added."""
        if self.flags:
            self._node("Max", self.flags, STATUS)
        return self.nodes, list(self.constants.values()), bool(self.flags)

    def _read(self, operator: onnx.NodeProto, name: str, rounding: Rounding) -> str:
        dtype = self.types.get(name)
        if not name or dtype is None or not is_cast(operator, dtype, rounding):
            return name
        # weights are rounded before: a weight beyond the range raises the status in every run
        if name in self.kept:
            if self.kept[name] and rounding.reports:
                self.flags.append(self._constant("raised", np.array(1, np.float32)))
            return name
        if dtype in HALVES:
            return self._cast(name, FLOAT32)
        return self._cast(self._narrow(name, rounding.reads, rounding), FLOAT32)

    def _before_conversion(self, cast: onnx.NodeProto, rounding: Rounding) -> str | None:
        """Bound the input of a Cast to float16; return the input of any Cast, None for other operators."""
        if cast.op_type != "Cast" or cast.domain:
            return None
        to = next((attribute.i for attribute in cast.attribute if attribute.name == "to"), 0)
        if to == FLOAT16.onnx and rounding.saturates and self.types.get(cast.input[0]) is FLOAT32:
            if rounding.reports:
                self._flag(cast.input[0])
            cast.input[0] = self._bounded(cast.input[0])
        return cast.input[0]

    def _narrow(self, name: str, dtype: DType, rounding: Rounding, result: str = "") -> str:
        """Return a float32 value rounded to a smaller type, bounded to float16's range if it saturates."""
        if dtype is not FLOAT16 or not rounding.saturates:
            return self._cast(name, dtype, result)
        if rounding.reports:
            self._flag(name)
        return self._cast(self._bounded(name), dtype, result)

    def _bounded(self, name: str) -> str:
        clean = name
        # Clip would keep NaN
        if self.opset >= _IS_NAN_SINCE:
            zero = self._constant("zero", np.array(0, np.float32))
            clean = self._node("Where", [self._node("IsNaN", [name]), zero, name])
        if self.opset < _CLIP_INPUTS_SINCE:
            return self._node("Clip", [clean], min=-FLOAT16_MOST, max=FLOAT16_MOST)
        least = self._constant("least", np.array(-FLOAT16_MOST, np.float32))
        most = self._constant("most", np.array(FLOAT16_MOST, np.float32))
        return self._node("Clip", [clean, least, most])

    def _flag(self, name: str) -> None:
        """Add a flag that is above 0 if any element is NaN or beyond float16's range."""
        edge = self._constant("edge", np.array(OVERFLOWS_FROM, np.float32))
        within = self._node("Less", [self._node("Abs", [name]), edge])  # False for NaN
        beyond = self._cast(self._node("Not", [within]), FLOAT32)
        self.flags.append(self._node("ReduceSum", [beyond], keepdims=0))  # 0 for an empty tensor

    def _cast(self, name: str, dtype: DType, result: str = "") -> str:
        return self._node("Cast", [name], result, to=dtype.onnx)

    def _constant(self, name: str, value: np.ndarray) -> str:
        full = f"{PREFIX}_{name}"  # shared by all operators of a model
        self.constants.setdefault(full, numpy_helper.from_array(value, full))
        return full

    def _node(self, op_type: str, inputs: Sequence[str], result: str = "", **attributes: Any) -> str:
        name = result or self._name()
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def _name(self) -> str:
        self.count += 1
        return f"{self.prefix}_{self.count}"
