"""Element types that the emulated Ascend computes in, by precision mode.

Results are defined as float32 arithmetic on rounded inputs, rounded again:
an operator's float inputs are rounded to the type it reads, the operator runs
in float32, and its float outputs are rounded to the type it writes. Rounding is
to nearest, ties to even.

    mode                      float32 inputs read as            float32 outputs written as
    allow_fp32_to_fp16        float16 by cube operators         float32
    allow_fp32_to_bf16        bfloat16 by cube operators        float32
    force_fp16                float16 by every operator         float16
    force_fp32                float32                           float32
    must_keep_origin_dtype    float32                           float32
    allow_mix_precision[_fp16|_bf16]                            see below

The modes are CANN's ``precision_mode``; the first one is MindSpore's default on Ascend.
float16 and bfloat16 tensors of the model are read and written unchanged
in every mode. Cube operators are convolutions and matrix products.

How each operator of a graph rounds: by precision mode, lists of mixed precision, and rules of single ones.

Under allow_mix_precision an operator computes in the smaller type, float16 or bfloat16, or in float32: one on
the trustlist always does, one on the blocklist never, and any other does as the operator that computes its
first input; behind an input of the network it stays in float32. Matrix operators are trusted
(``CUBE_OPS``), ``BLOCKED`` ones blocked; ``modify_mixlist`` changes both.

keep_dtype and customize_dtypes name operators of the model, or types, which then read and write other types
than the mode says; customize_dtypes wins over keep_dtype, a name over a type.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device.operators import BLOCKED, CUBE_OPS
from msdump.dtypes import BFLOAT16, DType
from msdump.errors import InputError
from msdump.graph import CONVERTED_TYPES, GE_TYPES, Graph, Node
from msdump.graph.kernel import FLOAT16, FLOAT16_MOST, FLOAT32, HALVES, OVERFLOWS_FROM, Rounding
from msdump.plan import DtypeRule, MixLists, OperatorDtypes, OverflowMode, PrecisionMode

# modes that reduce cube operators only; force_fp16 reduces every operator, so it is not in the table
_NARROW: Final[Mapping[PrecisionMode, DType]] = {
    PrecisionMode.ALLOW_FP32_TO_FP16: FLOAT16,
    PrecisionMode.ALLOW_FP32_TO_BF16: BFLOAT16,
}

_CONVERTED: Final = (FLOAT32, *HALVES)


def rounding(
    primitive: str, mode: PrecisionMode, overflow: OverflowMode, *, reports: bool = False
) -> Rounding:
    """Return how an operator computes; with ``reports`` it reports saturation (``op_debug_mode`` 3)."""
    saturates = overflow is OverflowMode.SATURATION
    # without saturation the results themselves show the overflow: infinities and NaN
    reports = reports and saturates
    if mode is PrecisionMode.FORCE_FP16:
        return Rounding(FLOAT16, FLOAT16, saturates, reports)
    narrow = _NARROW.get(mode) if primitive in CUBE_OPS else None
    return Rounding(narrow or FLOAT32, FLOAT32, saturates, reports)


def numpy_cast(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Return a float array in another float type, rounded to nearest, ties to even."""
    with np.errstate(over="ignore", invalid="ignore"):  # an infinity is the documented result
        return array.astype(dtype.numpy)


cast: Callable[[np.ndarray, DType], np.ndarray] = numpy_cast
"""Converts between float types; replaced where something faster than numpy is at hand."""


def held_type(device: DType | None, host: DType) -> DType:
    """Return the element type in which the device holds a tensor of a host type.

    Only float types are converted between host and device; the others travel as they are.
    """
    if device is None or device is host or device not in _CONVERTED or host not in _CONVERTED:
        return host
    return device


def rounded(array: np.ndarray, dtype: DType, *, saturates: bool = False) -> np.ndarray:
    """Return a float array in a device type; ``saturates``: float16 keeps its range, NaN becomes 0.

    >>> rounded(np.array([1 / 3, 1e6], np.float32), FLOAT16).tolist()
    [0.333251953125, inf]
    >>> rounded(np.array([np.nan, 1e6], np.float32), FLOAT16, saturates=True).tolist()
    [0.0, 65504.0]
    """
    if array.dtype == dtype.numpy:
        return array
    if saturates and dtype is FLOAT16:
        # clip keeps NaN, which the device's saturation mode turns into 0
        array = np.nan_to_num(np.clip(array, -FLOAT16_MOST, FLOAT16_MOST), nan=0.0)
    return cast(array, dtype)


def overflows(array: np.ndarray) -> bool:
    """Return whether a float array has a value that float16 cannot hold: NaN, or one beyond its range."""
    if array.size == 0:
        return False
    # two reductions without a temporary array; a comparison with NaN is false, so NaN counts as beyond
    within = array.min() > -OVERFLOWS_FROM and array.max() < OVERFLOWS_FROM
    return not within


_log = logging.getLogger("msdump.device")

MIXED: Final[Mapping[PrecisionMode, DType]] = {
    PrecisionMode.ALLOW_MIX_PRECISION: FLOAT16,
    PrecisionMode.ALLOW_MIX_PRECISION_FP16: FLOAT16,
    PrecisionMode.ALLOW_MIX_PRECISION_BF16: BFLOAT16,
}
"""The modes of mixed precision, and the smaller type of each."""


def roundings(
    graph: Graph,
    mode: PrecisionMode,
    overflow: OverflowMode,
    operator_dtypes: OperatorDtypes,
    *,
    reports: bool = False,
) -> dict[str, tuple[Rounding, ...]]:
    """Return the rounding of each original operator of every node, by node name; bodies are not included."""
    mixture = _Mixture(MIXED[mode], operator_dtypes.lists) if mode in MIXED else None
    exceptions = _Exceptions(operator_dtypes)

    def rounding_of(part: Node) -> Rounding:
        usual = rounding(part.operator.op_type, mode, overflow, reports=reports)
        if mixture is not None:
            reduced = mixture.type_of(part)
            usual = Rounding(reduced, reduced, usual.saturates, usual.reports)
        rule = exceptions.rule(part)
        if rule is None or mode is PrecisionMode.MUST_KEEP_ORIGIN_DTYPE:
            return usual
        reads, writes = dtypes.from_name(rule.reads), dtypes.from_name(rule.writes)
        return Rounding(reads, writes, usual.saturates, usual.reports)

    return {node.name: tuple(rounding_of(part) for part in node.members) for node in graph.nodes}


class _Mixture:
    """The lists of mixed precision, and the types of the outputs of the operators so far."""

    def __init__(self, narrow: DType, lists: MixLists | None) -> None:
        lists = lists or MixLists("")
        self._narrow = narrow
        self._trusted = (CUBE_OPS | set(lists.trusted)) - {*lists.blocked, *lists.follows}
        self._blocked = (BLOCKED | set(lists.blocked)) - {*lists.trusted, *lists.follows}
        self._written: dict[str, DType] = {}

    def type_of(self, part: Node) -> DType:
        names = set(_type_names(part))
        if names & self._trusted:
            chosen = self._narrow
        elif names & self._blocked:
            chosen = FLOAT32
        else:
            chosen = next((self._written[name] for name in part.inputs if name in self._written), FLOAT32)
        self._written |= dict.fromkeys(part.outputs, chosen)
        return chosen


class _Exceptions:
    def __init__(self, operator_dtypes: OperatorDtypes) -> None:
        kinds = (operator_dtypes.customized, operator_dtypes.kept)
        self._tables = [{(rule.name, rule.is_type): rule for rule in rules} for rules in kinds if rules]

    def rule(self, part: Node) -> DtypeRule | None:
        keys = ((part.name, False), *((name, True) for name in _type_names(part)))
        return next((rules[key] for rules in self._tables for key in keys if key in rules), None)


def _type_names(part: Node) -> tuple[str, ...]:
    primitive = part.operator.op_type
    return (primitive, *(types.get(primitive, primitive) for types in (GE_TYPES, CONVERTED_TYPES)))


def check_operator_dtypes(graph: Graph, mode: PrecisionMode, operator_dtypes: OperatorDtypes) -> None:
    """Check operator_dtypes against a model: warn of operators that it lacks, and of files without effect.

    Raises:
        InputError: modify_mixlist without a mode of mixed precision, which CANN refuses, too.
    """
    lists = operator_dtypes.lists
    if lists is not None and mode not in MIXED:
        raise InputError(
            f"{lists.source}: modify_mixlist needs a precision_mode with mixed precision "
            f"({', '.join(MIXED)}); it is {mode}"
        )
    rules = (*operator_dtypes.kept, *operator_dtypes.customized)
    if rules and mode is PrecisionMode.MUST_KEEP_ORIGIN_DTYPE:
        _log.warning("%s has no effect: precision_mode is %s", rules[0].place.rpartition(":")[0], mode)
        return
    if rules or lists is not None:
        for message in _unknown(graph, rules, lists):
            _log.warning("%s: %s", graph.source, message)


def _unknown(graph: Graph, rules: Iterable[DtypeRule], lists: MixLists | None) -> Iterator[str]:
    nodes = [node for inner in graph.walk() for node in inner.nodes]
    names = {node.name for node in nodes}
    types = {name for node in nodes for name in _type_names(node)}
    for rule in rules:
        if rule.name not in (types if rule.is_type else names):
            kind = "operator of type" if rule.is_type else "operator"
            yield f"{rule.place}: there is no {kind} {rule.name!r}{_hint(rule, nodes, names, types)}"
    for name in lists.types if lists is not None else ():
        if name not in types:
            rule = DtypeRule(name, is_type=True, place="")
            hint = _hint(rule, nodes, names, types)
            yield f"{lists.source if lists else ''}: there is no operator of type {name!r}{hint}"


def _hint(rule: DtypeRule, nodes: Iterable[Node], names: set[str], types: set[str]) -> str:
    """Return a hint for an unknown name: ONNX type, full name, type without OpType::, typing error."""
    for node in nodes:
        if rule.is_type and rule.name == node.op_type:
            return f"; ONNX's {node.op_type} is {_type_names(node)[-1]!r} here"
        if not rule.is_type and rule.name == node.operator.full_name:
            return f"; its name in the model is {node.name!r}"
    if not rule.is_type and rule.name in types:
        return f" (did you mean 'OpType::{rule.name}'?)"
    close = get_close_matches(rule.name, types if rule.is_type else names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
