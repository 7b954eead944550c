"""The arguments of an operator as a graph file shows them, ``pad_mode: "valid", stride: (1, 1)``."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

_TYPED: Final = re.compile(r"(?P<type>Bool|U?I\d+|UInt\d+|Int\d+|F\d+|BF16|Float\d+)\((?P<text>[^()]*)\)")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan)")
_TENSOR: Final = re.compile(r"Tensor\(.*value=\s*(?P<elements>.*)\)", re.DOTALL)
_WORDS: Final = {"true": True, "false": False, "none": "none"}
_OPENING, _CLOSING = "([{", ")]}"


def attributes(text: str) -> dict[str, Any]:
    """Return attributes by name.

    >>> attributes('pad: (0, 1), group: I64(2), pad_mode: "valid", keep: Bool(0), axis: (-1)')
    {'pad': [0, 1], 'group': 2, 'pad_mode': 'valid', 'keep': False, 'axis': [-1]}
    """
    pairs = (part.partition(":") for part in _split(text))
    return {name.strip(): value(rest) for name, _, rest in pairs if rest.strip()}


def value(text: str) -> Any:
    """Return the value of one argument: a number, a truth value, a text, or a list of these.

    >>> value("(I64(4), I64(5))"), value("Tensor(shape=[2], dtype=Int64, value=[5 4])"), value("F32(1e-05)")
    ([4, 5], [5, 4], 1e-05)
    """
    text = text.strip()
    tensor = _TENSOR.fullmatch(text)
    if tensor is not None:
        return _elements(tensor["elements"])
    typed = _TYPED.fullmatch(text)
    if typed is not None:
        number = value(typed["text"])
        return bool(number) if typed["type"] == "Bool" else number
    if text[:1] in {"(", "["} and text[-1:] in {")", "]"}:
        return [value(part) for part in _split(text[1:-1])]
    if _NUMBER.fullmatch(text):
        return float(text) if re.search(r"[.einfa]", text) else int(text)
    return _WORDS.get(text.lower(), text.strip('"'))


def _elements(text: str) -> Any:
    numbers = [value(part) for part in re.findall(r"[^\s\[\],]+", text)]
    return numbers if text.strip().startswith("[") else np.asarray(numbers).reshape(()).item()


def _split(text: str) -> list[str]:
    """Return the parts between the commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part for part in (*parts, text[start:]) if part.strip()]
