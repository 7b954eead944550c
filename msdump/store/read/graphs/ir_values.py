"""Parts of lines of ``.ir`` files: operands of a statement, element types and shapes of values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final

from msdump.record import DEFAULT_FORMAT
from msdump.store.read.graphs.operator_graph import ValueForm

_MARKS: Final = re.compile(r'[()\[\]{}<>",]')
_OPENING: Final = frozenset("([{<")
_PARAMETER: Final = re.compile(r"%para(\d+)_")
_TENSOR: Final = re.compile(r"<(?:Ref\[)?Tensor\[(?P<dtype>\w+)\]\]?, \((?P<dims>[-0-9, ]*)\)")
_TUPLE: Final = re.compile(
    r"<(?:Tuple|List)\[(?P<types>.*?)\](?:, (?:Tuple|List)Shape\((?P<shapes>.*)\).*)?>$"
)
_TYPE: Final = re.compile(r"(?:Tensor\[(?P<tensor>\w+)\]|(?P<other>\w+))(?:\*(?P<count>\d+))?$")
_DEVICE: Final = re.compile(
    r"<(?P<dtype>[A-Z]\w*?)x(?P<format>[A-Z]\w*)(?:\[const vector\][\[{](?P<dims>[-0-9, ]*)[\]}])?>"
)
"""``<Float16xFRACTAL_NZ[const vector][4, 1, 16, 16]>``"""
_HELD: Final = re.compile(r".+[0-9]|Bool")
_UNKNOWN_RANK: Final = (-2,)


def operands(line: str, start: int, names: Mapping[int, str]) -> tuple[tuple[str, ...], int]:
    """Return the operands of a statement, and where the text behind them begins.

    >>> operands("%1(y) = Concat(%0, (I64(1), I64(2)), %para1_x) {}", 15, {1: "x"})
    (('%0', '(I64(1), I64(2))', '%para1_x'), 46)

    Args:
        line: The line of the statement.
        start: Where the first operand begins.
        names: Names of the graph's parameters by number: they may hold any sign.
    """
    texts = []
    place = start
    while True:
        end = _operand_end(line, place, names)
        if end > place:
            texts.append(line[place:end])
        if line[end : end + 1] != ",":
            return tuple(texts), min(end + 1, len(line))
        place = end + 1
        while line[place : place + 1] == " ":
            place += 1


def _operand_end(line: str, start: int, names: Mapping[int, str]) -> int:
    """Return where an operand ends: at the comma or bracket behind it, or at the end of the line."""
    parameter = _PARAMETER.match(line, start)
    if parameter is not None:
        end = parameter.end() + len(names.get(int(parameter[1]), ""))
        if line[end : end + 1] in {",", ")"}:
            return end
    return next(_top_level(line, start), len(line))


def _top_level(text: str, start: int) -> Iterator[int]:
    """Yield the places of the commas outside of brackets and quotes, and of a bracket that closes none."""
    depth, is_quoted = 0, False
    for match in _MARKS.finditer(text, start):
        mark = match[0]
        if mark == '"':
            is_quoted = not is_quoted
        elif is_quoted or text[match.start() - 1 : match.end() + 1].startswith("->"):
            continue
        elif mark in _OPENING:
            depth += 1
        elif mark == ",":
            if not depth:
                yield match.start()
        elif depth:
            depth -= 1
        else:
            yield match.start()
            return


def split(text: str) -> tuple[str, ...]:
    """Return the parts of a text between commas that stand in no brackets.

    >>> split("(1, 2), (), NoShape")
    ('(1, 2)', '()', 'NoShape')
    """
    places = [-1, *_top_level(text, 0), len(text)]
    parts = (text[before + 1 : after].strip() for before, after in itertools.pairwise(places))
    return tuple(part for part in parts if part)


def forms(text: str) -> tuple[ValueForm, ...]:
    """Return element types and shapes of the values whose types a text names, those of a tuple one by one.

    >>> forms("<Tensor[Float32], (2, 8)>")
    (ValueForm(dtype='float32', shape=(2, 8)),)
    >>> forms("<Tuple[Tensor[Bool]*2], TupleShape((), (-1))>")
    (ValueForm(dtype='bool', shape=()), ValueForm(dtype='bool', shape=(-1,)))
    """
    tensor = _TENSOR.match(text)
    if tensor is not None:
        return (ValueForm(tensor["dtype"].lower(), _shape(tensor["dims"])),)
    items = _TUPLE.match(text)
    if items is None:
        return (ValueForm(),)
    dtypes = [dtype for part in split(items["types"]) for dtype in _repeated(part)]
    shapes = [_shape(part[1:-1]) if part.startswith("(") else None for part in split(items["shapes"] or "")]
    shapes += [None] * (len(dtypes) - len(shapes))
    return tuple(ValueForm(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=False))


def device_forms(text: str) -> tuple[ValueForm, ...]:
    """Return element types and shapes that a device holds values in, by a line of its memory formats.

    >>> device_forms("<Float16xFRACTAL_NZ[const vector][4, 1, 16, 16]>, <BoolxDefaultFormat[const vector]{}>")
    (ValueForm(dtype='float16', shape=None), ValueForm(dtype='bool', shape=()))
    """
    return tuple(
        ValueForm(
            each["dtype"].lower() if _HELD.fullmatch(each["dtype"]) else "",
            _shape(each["dims"]) if each["format"] == DEFAULT_FORMAT and each["dims"] is not None else None,
        )
        for each in _DEVICE.finditer(text)
    )


def _repeated(text: str) -> list[str]:
    match = _TYPE.match(text)
    if match is None:
        return [""]
    return [(match["tensor"] or match["other"]).lower()] * int(match["count"] or 1)


def _shape(dims: str) -> tuple[int, ...] | None:
    shape = tuple(int(size) for size in dims.split(",") if size.strip())
    return None if shape == _UNKNOWN_RANK else shape
