"""Advice as the files that tools take: CANN's, MindSpore's, onnxconverter-common's, and msdump's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msdump.graph.graph import Node
from msdump.graph.kernel.emulation import FLOAT32, Rounding
from msdump.graph.primitives import GE_TYPES
from msdump.plan import PrecisionMode
from msdump.tools import reports
from msdump.tools.advise.advice import KeepAdvice

KEEP_DTYPE: Final = "keep_dtype.cfg"
CUSTOMIZE_DTYPES: Final = "customize_dtypes.cfg"
MODIFY_MIXLIST: Final = "modify_mixlist.json"
MINDSPORE: Final = "ascend_config.json"
CONVERTER: Final = "onnxconverter_common.json"
FRAGMENT: Final = "data_dump_fragment.json"


@dataclass(frozen=True, slots=True)
class TypeSet:
    """What keeping whole operator types means.

    Attributes:
        types: The types, as a compiled graph calls them.
        narrow: Types of the network that stay narrow.
        kept: Positions of all operators of the types.
        size: Number of these operators.
        error: The largest error of any output of the inputs that were looked at.
    """

    types: tuple[str, ...]
    narrow: tuple[str, ...]
    kept: frozenset[int]
    size: int
    error: float


def by_types(advice: KeepAdvice) -> TypeSet:
    """Return what it means to keep all operators that share a type with an advised one."""
    types = sorted({ge_type(node) for node in advice.nodes})
    candidates = advice.variants.candidates
    kept = frozenset(
        position
        for position, candidate in candidates.items()
        if any(ge_type(node) in types for node in candidate.nodes)
    )
    narrow = sorted({ge_type(node) for each in candidates.values() for node in each.nodes} - set(types))
    nodes = advice.nodes_at(kept)
    return TypeSet(tuple(types), tuple(narrow), kept, len(nodes), advice.measured.worst(kept))


def ge_type(node: Node) -> str:
    """Return the type of an operator as CANN's lists have it."""
    primitive = node.operator.op_type
    return GE_TYPES.get(primitive, primitive)


def write(advice: KeepAdvice, mode: PrecisionMode, types: TypeSet, folder: str) -> list[str]:
    """Write the files of some advice and return their paths.

    Args:
        advice: The advice; a set was found.
        mode: The precision mode of the other operators.
        types: What keeping whole types means.
        folder: The folder; made if missing.

    Raises:
        ToolError: A file cannot be written.
    """
    texts = _texts(advice, mode, types, str(Path(folder).resolve()))
    return [reports.write(folder, name, (text,)) for name, text in texts.items()]


def _texts(advice: KeepAdvice, mode: PrecisionMode, types: TypeSet, folder: str) -> dict[str, str]:
    if advice.variants.to is FLOAT32:
        names, key = KEEP_DTYPE, "keep_dtype"
        lines = [node.name for node in advice.nodes]
    else:
        names, key = CUSTOMIZE_DTYPES, "customize_dtypes"
        lines = [_customized(node, advice.variants.kept(node)) for node in advice.nodes]
    path = f"{folder}/{names}"
    texts = {names: "".join(f"{line}\n" for line in lines)}
    ascend_config: dict[str, Any] = {"precision_mode": str(mode), key: path}
    if advice.variants.to is FLOAT32:
        lists = {"black-list": {"to-add": list(types.types)}, "white-list": {"to-add": list(types.narrow)}}
        texts[MODIFY_MIXLIST] = _json(lists)
        # MindSpore itself has no keep_dtype: types are the finest that it takes
        options = {"ge.exec.modify_mixlist": f"{folder}/{MODIFY_MIXLIST}"}
        ascend_config = {"precision_mode": _mixed(mode), "ge_options": {"global": options}}
    texts[MINDSPORE] = _json({"ascend_config": ascend_config})
    blocked = [node.name for node in advice.nodes]
    texts[CONVERTER] = _json({"node_block_list": blocked, "keep_io_types": True})
    texts[FRAGMENT] = _json({"msdump": {"precision_mode": str(mode), key: path}})
    return texts


def _customized(node: Node, roundings: Sequence[Rounding]) -> str:
    (rounding,) = roundings
    reads = ",".join([rounding.reads.name] * max(1, sum(map(bool, node.inputs))))
    writes = ",".join([rounding.writes.name] * max(1, sum(map(bool, node.outputs))))
    return f"{node.name}::InputDtype:{reads},OutputDtype:{writes}"


def _mixed(mode: PrecisionMode) -> str:
    if mode in {PrecisionMode.ALLOW_FP32_TO_BF16, PrecisionMode.ALLOW_MIX_PRECISION_BF16}:
        return str(PrecisionMode.ALLOW_MIX_PRECISION_BF16)
    return str(PrecisionMode.ALLOW_MIX_PRECISION_FP16)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
