"""GE's graph JSON: the operators of the original network that each compiled operator stands for.

The file holds graphs, a graph operators, an operator its producers, attributes and outputs:

    {"graph": [{"op": [OPERATOR]}]}
    OPERATOR: {"name", "type", "id", "input": ["producer:0"], "attr": [ATTRIBUTE], "output_desc": [OUTPUT]}
    OUTPUT: {"attr": [ATTRIBUTE]}
    ATTRIBUTE: {"key": "_datadump_origin_name", "value": {"s": "conv1"}}

An operator without ``_datadump_original_op_names`` stands for the original of its own name; one with
an empty list was added by the compiler.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeVar, cast

from msdump.encode import ge
from msdump.errors import DumpReadError, ToolError
from msdump.graph import PASSING
from msdump.read import read_json
from msdump.return_codes import ReturnCode
from msdump.store import names

_CONTROL_EDGE: Final = ":-1"  # suffix of an input that only orders two operators and carries no tensor


GOLDEN_INPUT: Final = "input_"
"""Prefix of golden tensors that are graph inputs or weights of an operator.

msprobe's offline dump of onnxruntime writes them as ``input_{node}.{index}.{timestamp}.npy``.
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """An output of the original network; its format is the order of axes, "" where it is not known."""

    name: str
    index: int
    format: str = ""


@dataclass(frozen=True, slots=True)
class RuleOperator:
    """An operator of the compiled graph.

    Attributes:
        index: Number of its group: operators with the same originals share one.
        sequence: ``id``, its place in the execution.
        name: Full name.
        op_type: Operator type.
        inputs: Producer and output number of each input.
        originals: Its operators of the original network; empty if the compiler added it.
        outputs: By output: the original network's output that it holds, None for none.
        is_inner: Whether it is one of several operators for the same originals and gives no output of them.
        is_added: Whether the compiler has added it to change a tensor's element type or format.
    """

    index: int
    sequence: int
    name: str
    op_type: str
    inputs: tuple[tuple[str, int], ...]
    originals: tuple[str, ...]
    outputs: tuple[Origin | None, ...]
    is_inner: bool = False
    is_added: bool = False


_Default = TypeVar("_Default")

IsPassing = Callable[[RuleOperator], bool]
"""Returns whether an operator only passes its input on, in another element type or format."""


def _has_passing_type(operator: RuleOperator) -> bool:
    return operator.op_type in PASSING


@dataclass(frozen=True)
class FusionRules:
    """The operators of a compiled graph.

    Attributes:
        source: Path of the graph file.
        operators: The operators, in the order of execution.
    """

    source: str
    operators: tuple[RuleOperator, ...]

    @cached_property
    def by_name(self) -> Mapping[str, RuleOperator]:
        """Operators by their names."""
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def by_key(self) -> Mapping[str, RuleOperator]:
        """Operators by their names as files spell them."""
        return {names.sanitize(operator.name): operator for operator in self.operators}

    @cached_property
    def by_origin(self) -> Mapping[tuple[str, int], tuple[str, int]]:
        """Operator and number of its output, by original operator and number of the original output."""
        return {
            (output.name, output.index): (operator.name, number)
            for operator in self.operators
            for number, output in enumerate(operator.outputs)
            if output is not None
        }

    @cached_property
    def by_original(self) -> Mapping[str, str]:
        """Name of the operator that stands for each operator of the original network."""
        return {original: operator.name for operator in self.operators for original in operator.originals}

    @property
    def groups(self) -> Mapping[int, tuple[RuleOperator, ...]]:
        """Operators by group: operators with the same originals share a number."""
        by_index: dict[int, list[RuleOperator]] = {}
        for operator in self.operators:
            by_index.setdefault(operator.index, []).append(operator)
        return {index: tuple(members) for index, members in sorted(by_index.items())}

    @property
    def data_nodes(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""
        return tuple(operator.name for operator in self.operators if operator.op_type == ge.DATA)

    @property
    def last(self) -> int:
        """The largest place in the execution."""
        return max((operator.sequence for operator in self.operators), default=0)

    def output_origin(
        self, operator: RuleOperator, index: int, is_passing: IsPassing = _has_passing_type
    ) -> Origin | None:
        """Return the original network's output behind an output, skipping casts and changes of format.

        By default all casts are skipped, also the original network's, as by CANN's tool. None if unknown.
        """
        source, number = self._behind_casts(operator, index, is_passing)
        if source is None or not source.outputs:
            return None
        # An output that the file does not describe counts as the operator's first.
        return source.outputs[number if number < len(source.outputs) else 0]

    def input_origin(
        self, operator: RuleOperator, index: int, is_passing: IsPassing = _has_passing_type
    ) -> Origin | None:
        """Return the original output that an input reads, as ``output_origin`` does for its producer."""
        producer, output = self._producer(operator, index)
        return None if producer is None else self.output_origin(producer, output, is_passing)

    def _behind_casts(
        self, operator: RuleOperator, index: int, is_passing: IsPassing
    ) -> tuple[RuleOperator | None, int]:
        """Return the operator behind casts and changes of format, and the number of its output.

        None if the producer is not in the file, or such operators form a ring, as only a damaged file has it.
        """
        source: RuleOperator | None = operator
        seen: set[str] = set()
        while source is not None and is_passing(source):
            if source.name in seen:
                return None, 0
            seen.add(source.name)
            source, index = self._producer(source, index)
        return source, index

    def _producer(self, operator: RuleOperator, index: int) -> tuple[RuleOperator | None, int]:
        if index >= len(operator.inputs):
            return None, 0
        name, output = operator.inputs[index]
        return self.by_name.get(name), output


def read_rules(path: str) -> FusionRules:
    """Return the rules of a graph file.

    Raises:
        ToolError: The file cannot be read, or is not such a graph; the message names the place in it.
    """
    try:
        value = read_json(path)
    except DumpReadError as error:
        raise ToolError(ReturnCode.JSON, str(error)) from error
    return parse_rules(value, path)


def parse_rules(value: Any, source: str) -> FusionRules:
    """Return the rules of a decoded graph file, as ``read`` does.

    >>> operator = {"name": "conv1relu", "type": "Conv2D", "attr": [
    ...     {"key": "_datadump_original_op_names", "value": {"list": {"s": ["conv1", "relu"]}}}]}
    >>> rules = parse_rules({"graph": [{"op": [operator]}]}, "graph.json")
    >>> rules.operators[0].originals, rules.by_original["relu"]
    (('conv1', 'relu'), 'conv1relu')
    """
    groups: dict[tuple[str, ...], int] = {}
    operators: dict[str, RuleOperator] = {}
    for place in _operators(_Place(source, "$", value)):
        operator = _operator(place, groups)
        operators.setdefault(operator.name, operator)  # of operators of one name the first counts
    if not operators:
        raise ToolError(ReturnCode.JSON, f"{source}: the graph has no operators")
    # After the loop: only the complete list shows which operators are alone in their group.
    sizes = Counter(operator.index for operator in operators.values())
    operators_in_file = [_renamed(each) if sizes[each.index] == 1 else each for each in operators.values()]
    # GE lists operators in an order of its own; their ids are the order of execution.
    return FusionRules(source, tuple(sorted(operators_in_file, key=lambda operator: operator.sequence)))


def _renamed(operator: RuleOperator) -> RuleOperator:
    """Return an operator with its only original as the origin of outputs that lack one."""
    if len(operator.originals) != 1:
        return operator
    name = operator.originals[0]
    outputs = [origin or Origin(name, index) for index, origin in enumerate(operator.outputs)]
    return replace(operator, outputs=tuple(outputs or [Origin(name, 0)]))


@dataclass(frozen=True, slots=True)
class _Place:
    """A value of a JSON file and its path there, ``$.graph[0].op[3].attr``, for messages."""

    source: str
    path: str
    value: Any

    def member(self, key: str, kind: type, default: Any = None) -> _Place:
        """Return a member of an object, or its default where it is missing.

        Raises:
            ToolError: It is missing and has no default, or it is of another type.
        """
        value = self.value.get(key, default) if isinstance(self.value, dict) else None
        place = _Place(self.source, f"{self.path}.{key}", value)
        # bool is a subclass of int, but true is no number in JSON.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            fault = "is missing" if value is None else f"is {type(value).__name__} {value!r:.60}"
            raise ToolError(
                ReturnCode.JSON, f"{self.source}: {place.path} {fault}; it must be of type {kind.__name__}"
            )
        return place

    def items(self) -> Iterator[_Place]:
        """Yield the items of a list."""
        for number, item in enumerate(self.value):
            yield _Place(self.source, f"{self.path}[{number}]", item)


def _operators(root: _Place) -> Iterator[_Place]:
    for graph in root.member("graph", list).items():
        yield from graph.member("op", list).items()


def _operator(place: _Place, groups: dict[tuple[str, ...], int]) -> RuleOperator:
    name: str = place.member("name", str).value
    attributes = _Attributes(place)
    original_names = attributes.texts(ge.ORIGINAL_NAMES)
    originals = (name,) if original_names is None else tuple(filter(None, original_names))
    has_originals = original_names is not None
    outputs = tuple(_outputs(place, "" if has_originals else name)) or (
        () if has_originals else (Origin(name, 0),)
    )
    op_type: str = place.member("type", str).value
    return RuleOperator(
        # An operator without originals, which the compiler added, is a group of its own.
        groups.setdefault(originals or ("", name), len(groups)),
        place.member("id", int, 0).value,
        name,
        op_type,
        tuple(_inputs(place)),
        originals,
        outputs,
        attributes.member(ge.IS_PART_OF_SEVERAL, "b", default=False) and not any(outputs),
        # A cast that has originals is one of the model's own.
        op_type in PASSING and not (original_names and any(original_names)),
    )


def _inputs(place: _Place) -> Iterator[tuple[str, int]]:
    for item in place.member("input", list, []).items():
        edge = item.value
        if not isinstance(edge, str):
            raise ToolError(ReturnCode.JSON, f"{place.source}: {item.path} is no text: {edge!r:.60}")
        if not edge or edge.endswith(_CONTROL_EDGE):
            continue
        producer, colon, number = edge.rpartition(":")  # from the right: names may have colons
        if not (producer and colon and number.isascii() and number.isdigit()):
            raise ToolError(
                ReturnCode.JSON_CONTENT, f"{place.source}: {item.path} is {edge!r}, not producer:index"
            )
        yield producer, int(number)


def _outputs(place: _Place, default: str) -> Iterator[Origin | None]:
    """Yield the source of each output with attributes: operator (or ``default``), slot; None if unnamed."""
    for index, output in enumerate(place.member("output_desc", list, []).items()):
        if not isinstance(output.value, dict) or "attr" not in output.value:
            continue
        attributes = _Attributes(output)
        name = attributes.member(ge.ORIGIN_NAME, "s", "") or default
        number = attributes.member(ge.ORIGIN_INDEX, "i", index)
        layout = attributes.member(ge.ORIGIN_FORMAT, "s", "") or attributes.member(ge.HOST_FORMAT, "s", "")
        yield Origin(name, number, layout) if name else None


class _Attributes:
    def __init__(self, place: _Place) -> None:
        items = place.member("attr", list, []).items()
        self._places = {item.member("key", str).value: item for item in items}

    def member(self, key: str, name: str, default: _Default) -> _Default:
        """Return an attribute's text (s), number (i) or truth value (b), else the default."""
        value = self._value(key)
        return default if value is None else cast("_Default", value.member(name, type(default)).value)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts, None without it."""
        value = self._value(key)
        if value is None:
            return None
        items = value.member("list", dict).member("s", list, [])
        return tuple(str(item.value) for item in items.items())

    def _value(self, key: str) -> _Place | None:
        place = self._places.get(key)
        return None if place is None else place.member("value", dict)


_TO_THE_END: Final = "-1"
_log = logging.getLogger("msdump.judge")


def select_range(text: str, rules: FusionRules) -> frozenset[int]:
    """Return the places of a range ``start,end,step`` (``-r``).

    An empty start is 1, an empty end or -1 the last place, an empty step 1. The end belongs to the
    range whatever the step.

    >>> from types import SimpleNamespace
    >>> sorted(select_range("1,,3", SimpleNamespace(last=9)))
    [1, 4, 7, 9]

    Raises:
        ToolError: The text is malformed, or a number is out of range.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3:  # noqa: PLR2004 - start, end, step
        raise ToolError(ReturnCode.PARAMETER, f"-r {text!r} is not start,end,step, such as 1,-1,1")
    start, step = (_whole_number(part or "1", "-r", text) for part in (parts[0], parts[2]))
    end = rules.last if parts[1] in {"", _TO_THE_END} else _whole_number(parts[1], "-r", text)
    allowed = (
        ("start", start, 1, rules.last),
        ("end", end, start, rules.last),
        ("step", step, 1, max(rules.last - 1, 1)),
    )
    for name, value, low, high in allowed:
        if not low <= value <= high:
            raise ToolError(
                ReturnCode.INDEX, f"-r {text!r}: the {name} is {value}, it must be {low} to {high}"
            )
    return frozenset((*range(start, end + 1, step), end))


def select_places(text: str, rules: FusionRules) -> frozenset[int]:
    """Return the places of a list ``1,5,7`` (``-s``); places beyond the last are left out with a warning.

    Raises:
        ToolError: The text is malformed, or the graph has none of the places.
    """
    chosen = {_whole_number(part, "-s", text) for part in filter(None, map(str.strip, text.split(",")))}
    places = {number for number in chosen if number <= rules.last}
    if not places:
        raise ToolError(
            ReturnCode.PARAMETER, f"-s {text!r}: the places of the operators are 1 to {rules.last}"
        )
    if missing := sorted(chosen - places):
        _log.warning("-s: the places of the operators are 1 to %d; left out %s", rules.last, missing)
    return frozenset(places)


def _whole_number(part: str, option: str, text: str) -> int:
    if not (part.isascii() and part.isdigit()):
        raise ToolError(ReturnCode.PARAMETER, f"{option} {text!r}: {part!r} is no whole number")
    return int(part)


def groups_at(places: frozenset[int], rules: FusionRules) -> frozenset[int]:
    """Return the numbers of the groups with operators at these places."""
    return frozenset(each.index for each in rules.operators if each.sequence in places)
