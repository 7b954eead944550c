"""The operators that an .ir file lists, with types and shapes of their inputs and outputs.

%1(res) = PrimFunc_Split(%para1_x, I64(1)) ...
: (<Tensor[Float32], (0, 3)>, <Int64, NoShape>) -> ...
: (<Float32xDefaultFormat[const vector]{0, 3}>, <Int64xDefaultFormat[const vector]{}>) -> ...
# Fullname with scope: (Default/Split-op0)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from msdump.store.read import texts

_TENSOR: Final = re.compile(r"<(?P<dtype>\w+?)x\w+\[const vector\][\[{](?P<dims>[-0-9, ]*)[\]}]>")
_FULL_NAME: Final = re.compile(r"(?:Fullname with scope|full_name_with_scope): \((?P<name>.+)\)$")
_ARROW: Final = " -> "


@dataclass(frozen=True, slots=True)
class ListedTensor:
    """An input or output of an operator.

    Attributes:
        dtype: MindSpore's name of the element type, ``Float32``.
        shape: Its dimensions; negative where only the run tells them.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListedOperator:
    """An operator as an .ir file lists it.

    Attributes:
        inputs: Its inputs.
        outputs: Its outputs.
    """

    inputs: tuple[ListedTensor, ...]
    outputs: tuple[ListedTensor, ...]


def read_operators(path: str) -> dict[str, ListedOperator]:
    """Return the operators of a graph by full name.

    Raises:
        DumpReadError: The file cannot be read.
    """
    operators: dict[str, ListedOperator] = {}
    last: ListedOperator | None = None
    for line in texts.read_lines(path):
        name = _FULL_NAME.search(line)
        if name is not None and last is not None:
            operators[name["name"]] = last
            last = None
        elif line.lstrip().startswith(": (") and _ARROW in line:
            inputs, _, outputs = line.partition(_ARROW)
            listed = ListedOperator(_tensors(inputs), _tensors(outputs))
            last = listed if listed.inputs or listed.outputs else last
    return operators


def _tensors(text: str) -> tuple[ListedTensor, ...]:
    return tuple(
        ListedTensor(match["dtype"], tuple(int(size) for size in match["dims"].split(",") if size.strip()))
        for match in _TENSOR.finditer(text)
    )
