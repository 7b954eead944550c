"""A graph of operators from files of a dump: names, types, source lines, sources of the inputs."""

from __future__ import annotations

import enum
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from msdump.errors import name_hint
from msdump.store import names, sanitize

if TYPE_CHECKING:
    from msdump.graph import SourceLine


_FRAMEWORKS: Final = re.compile(
    r"/(?:site|dist)-packages/(?:torch|onnxscript|mindspore)/|/lib/python3\.\d+/\w+\.py$"
    r"|(?:^|/)torch/(?:nn|fx|_\w+)/|(?:^|/)mindspore/(?:nn|ops)/"
)
"""Files of PyTorch, MindSpore and Python; exporters shorten paths to ``torch/nn/modules/conv.py``."""
_DEFINITION: Final = re.compile(r"\s*(?:async def|def|class) .*:\s*$")


class SourceKind(enum.StrEnum):
    """Kinds of sources of an operator's inputs."""

    OPERATOR = "operator"
    WEIGHT = "weight"
    INPUT = "input"
    CONSTANT = "constant"
    ABSENT = "absent"


FIXED: Final = frozenset({SourceKind.WEIGHT, SourceKind.CONSTANT})
"""Sources of values that only training changes."""

SHAPE_READERS: Final = frozenset({"TensorShape", "Shape", "Size"})
"""Operators that read the shape of a tensor, which a compiler knows, and no elements."""


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where an input of an operator, or an output of a graph, comes from."""

    kind: SourceKind
    # full name of the operator; plain name of the weight or graph input; a constant as the file shows it;
    # "" for an optional input that is not there
    name: str = ""
    slot: int = 0  # number of the operator's output, 0 for everything else
    # whether other passes of a loop read another source: this is the source in the first pass, or, for
    # operators behind the loop, in the last pass
    varies: bool = field(default=False, compare=False, repr=False)


ABSENT: Final = ValueSource(SourceKind.ABSENT)


@dataclass(frozen=True, slots=True)
class ValueForm:
    """Element type and shape of a value."""

    dtype: str = ""  # MindSpore's lower-case name of the element type, "" where it is not known
    # its dimensions; -1 where only the run shows one, None where even their number is unknown
    shape: tuple[int, ...] | None = None


UNKNOWN_FORM: Final = ValueForm()


@dataclass(frozen=True, slots=True)
class GraphOperator:
    """An operator of a graph."""

    full_name: str  # scoped name, ``Default/conv1-Conv2d/Conv2D-op0``
    op_type: str
    inputs: tuple[ValueSource, ...] = ()  # sources by the number of the input
    outputs: tuple[ValueForm, ...] = ()
    # names of the ONNX nodes that it was made of, in order; empty if the file lacks them. One name for an
    # operator that is not fused
    onnx_names: tuple[str, ...] = ()
    label: str = field(default="", repr=False)  # name of its first output in the program of the file
    attributes: str = field(default="", repr=False)
    # element types and shapes in which a device holds its inputs; empty if the file lacks them. In a memory
    # format other than the host's the shape is None
    device_inputs: tuple[ValueForm, ...] = field(default=(), repr=False)
    # element types and shapes in which a device holds its outputs, likewise
    device_outputs: tuple[ValueForm, ...] = field(default=(), repr=False)
    # the lines of the program that made it, outermost call first; of a gradient operator the lines of its
    # forward operator
    source: tuple[SourceLine, ...] = field(default=(), repr=False)
    # numbers of the graphs that a control flow operator runs, by attribute; it has no tensor files
    bodies: Mapping[str, int] = field(default_factory=dict, repr=False)
    place: int = field(default=0, compare=False, repr=False)  # its place in the file
    # full name of its files where msdump's own graph file has another one; "" for the same
    dumped_as: str = field(default="", compare=False, repr=False)

    @property
    def element_inputs(self) -> tuple[ValueSource, ...]:
        """Inputs of which it reads the elements, not the shape or type alone, as ONNX's CastLike does."""
        return () if self.op_type in SHAPE_READERS else self.inputs[: 1 if self.op_type == "Cast" else None]

    @property
    def held(self) -> frozenset[str]:
        """Element types in which a device holds its inputs and outputs; empty if the file lacks them."""
        return frozenset(form.dtype for form in (*self.device_inputs, *self.device_outputs) if form.dtype)

    @property
    def scope(self) -> str:
        """Full name without its last component."""
        return self.full_name.rpartition("/")[0]

    @property
    def file_name(self) -> str:
        """The full name as the names of files hold it."""
        return names.sanitize(self.full_name)

    @property
    def onnx_name(self) -> str:
        """Name of the ONNX node, or of all nodes of a fused operator joined by ``+``; "" if unknown."""
        return "+".join(self.onnx_names)

    @property
    def own_line(self) -> SourceLine | None:
        """The line of the model's source that made it, None where it is not known.

        The innermost call outside of PyTorch and MindSpore, or else the innermost one. Other installed
        packages count: transformers and torchvision hold models.
        """
        calls = [line for line in self.source if not _DEFINITION.match(line.code)] or self.source
        own = [line for line in calls if not _FRAMEWORKS.search(line.file)]
        return next(reversed(own or calls), None)

    @property
    def source_line(self) -> str:
        """The line of the model's source, ``net.py:12: x = self.fc(x)``, "" where it is not known."""
        line = self.own_line
        if line is None:
            return ""
        file = line.file.rpartition("/")[2] or line.file
        return f"{file}:{line.line}: {line.code.strip()}".removesuffix(": ")


@dataclass(frozen=True)
class OperatorGraph:
    """The operators of one graph, and the values between them."""

    # operators and control flow by full name, in the order of execution where it is known
    operators: Mapping[str, GraphOperator] = field(repr=False)
    # the graph inputs by name; of a branch or a body also the values of outer graphs that it reads
    inputs: Mapping[str, ValueForm] = field(default_factory=dict, repr=False)
    weights: Mapping[str, ValueForm] = field(default_factory=dict, repr=False)
    # sources of the values that the graph returns
    outputs: tuple[ValueSource, ...] = field(default=(), repr=False)
    number: int = 0
    # full name of the control flow operator that has it as branch or body, "" for a main graph
    caller: str = ""
    branch: str = ""  # attribute of the caller that holds it, ``then_branch``; "" for a main graph
    name: str = ""  # name of the graph in the file, "" if the file has none
    is_whole: bool = True  # whether its file is complete; else it has only the operators before the break
    # whether its file separates weights from inputs of the graph; else all are inputs
    separates_weights: bool = True
    is_ours: bool = False  # whether msdump wrote its file, with names of ONNX nodes and of files

    def in_order(self, order: Iterable[str] | None) -> OperatorGraph:
        """Return the graph with operators in an order of execution, unlisted ones last; None: unchanged."""
        if order is None:
            return self
        listed = {name: self.operators[name] for name in order if name in self.operators}
        return replace(self, operators={**listed, **self.operators})

    def with_sources(self, change: Callable[[ValueSource], ValueSource]) -> OperatorGraph:
        """Return the graph with other sources of operators' inputs and of its own outputs."""
        operators = {
            name: replace(each, inputs=tuple(map(change, each.inputs)))
            for name, each in self.operators.items()
        }
        return replace(self, operators=operators, outputs=tuple(map(change, self.outputs)))

    def find(self, name: str) -> GraphOperator | None:
        """Return an operator by its full name, or by its name as files spell it; None where there is none.

        Files of the ``classic`` generation hold the last component of the full name alone: it finds the
        operator where no other operator of the graph has the same.
        """
        return self.operators.get(name) or self._by_file_name.get(name)

    def is_fixed(self, name: str) -> bool:
        """Return whether an operator gives the same outputs in every run with the same input shapes.

        An operator that only reads a shape does: a network is compiled for the shapes of its inputs.
        """
        operator = self.find(name)
        return operator is not None and operator.full_name not in self._varying

    @cached_property
    def _varying(self) -> Collection[str]:
        """Full names of the operators that read elements of an input, or of each other."""
        varying: set[str] = set()

        def varies(source: ValueSource) -> bool:
            if source.kind is SourceKind.OPERATOR:
                return source.name in varying or source.name not in self.operators
            return source.kind not in {*FIXED, SourceKind.ABSENT}

        ahead = [*self.operators]
        while ahead:
            name = ahead.pop()
            if name not in varying and any(map(varies, self.operators[name].element_inputs)):
                varying.add(name)
                ahead += (reader for reader, _ in self._readers.get(name, ()))
        return varying

    def inputs_from(self, full_name: str) -> tuple[GraphOperator, ...]:
        """Return the operators that an operator reads, in the order of its inputs."""
        operator = self.operators.get(full_name)
        sources = () if operator is None else operator.inputs
        producers = (each.name for each in sources if each.kind is SourceKind.OPERATOR)
        return tuple(self.operators[name] for name in dict.fromkeys(producers) if name in self.operators)

    def used_by(self, full_name: str, slot: int | None = None) -> tuple[GraphOperator, ...]:
        """Return the operators that read an output of an operator, None: any, in the graph's order."""
        readers = self._readers.get(full_name, ())
        chosen = dict.fromkeys(name for name, output in readers if slot in {None, output})
        return tuple(self.operators[name] for name in chosen)

    def readers_of(self, name: str) -> tuple[GraphOperator, ...]:
        """Return the operators that read a weight or a graph input, by its plain name."""
        return tuple(
            operator
            for operator in self.operators.values()
            if any(
                each.name == name and each.kind in {SourceKind.WEIGHT, SourceKind.INPUT}
                for each in operator.inputs
            )
        )

    def form_of(self, source: ValueSource) -> ValueForm:
        """Return element type and shape of a source."""
        if source.kind is SourceKind.OPERATOR:
            operator = self.operators.get(source.name)
            outputs = () if operator is None else operator.outputs
            return outputs[source.slot] if source.slot < len(outputs) else ValueForm()
        return self.weights.get(source.name) or self.inputs.get(source.name) or ValueForm()

    def is_output(self, full_name: str) -> bool:
        """Return whether an output of an operator is an output of the graph."""
        return any(each.kind is SourceKind.OPERATOR and each.name == full_name for each in self.outputs)

    def is_read(self, full_name: str, slot: int) -> bool:
        """Return whether another operator reads an output of an operator, or the graph returns it."""
        read = any(output == slot for _, output in self._readers.get(full_name, ()))
        return read or ValueSource(SourceKind.OPERATOR, full_name, slot) in self.outputs

    @cached_property
    def _readers(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        """Readers of each operator, by its full name: pairs of reader's full name and output's number."""
        readers: dict[str, list[tuple[str, int]]] = {}
        for operator in self.operators.values():
            for source in operator.inputs:
                if source.kind is SourceKind.OPERATOR:
                    readers.setdefault(source.name, []).append((operator.full_name, source.slot))
        return {name: tuple(each) for name, each in readers.items()}

    @cached_property
    def _by_file_name(self) -> Mapping[str, GraphOperator]:
        pairs = [*self._file_names()]
        counts = Counter(name for name, _ in pairs)
        return {name: operator for name, operator in pairs if counts[name] == 1}

    def _file_names(self) -> Iterator[tuple[str, GraphOperator]]:
        for operator in self.operators.values():
            last_component = names.sanitize(operator.full_name.rpartition("/")[2])
            for name in {operator.file_name, last_component}:
                yield name, operator


_NUMBER_MARK: Final = "-op"


def named_as_files(graphs: Iterable[OperatorGraph]) -> Iterator[OperatorGraph]:
    """Yield the graphs of a process with each operator under the name of its files.

    vendor: MindSpore numbers kernels afresh for their files, from 0 for each scope and type, in the order of
    the graph file (depth first) and through all graphs in the order of their numbers. Graph file and list of
    the execution keep the front end's numbers: ``Cast-op3`` may be two different operators.
    """
    counts: Counter[str] = Counter()
    for graph in graphs:
        renamed = {name: each.dumped_as for name, each in graph.operators.items() if each.dumped_as}
        for each in sorted(graph.operators.values(), key=attrgetter("place")) if not graph.is_ours else ():
            stem, mark, number = each.full_name.rpartition(_NUMBER_MARK)
            if mark and number.isdecimal():
                renamed[each.full_name] = f"{stem}{mark}{counts[stem]}"
                counts[stem] += 1
        if all(name == own for name, own in renamed.items()):
            yield graph
            continue
        named = graph.with_sources(partial(_renamed, renamed))
        operators = {renamed.get(name, name): each for name, each in named.operators.items()}
        yield replace(
            named, operators={name: replace(each, full_name=name) for name, each in operators.items()}
        )


def _renamed(renamed: Mapping[str, str], source: ValueSource) -> ValueSource:
    if source.kind is not SourceKind.OPERATOR:
        return source
    return replace(source, name=renamed.get(source.name, source.name))


def connected(graphs: Iterable[OperatorGraph]) -> dict[int, OperatorGraph]:
    """Return graphs by number; branches and bodies get ``caller`` and ``branch`` of the operator around."""
    by_number = {graph.number: graph for graph in graphs}
    callers = {
        number: (operator.full_name, attribute)
        for graph in by_number.values()
        for operator in graph.operators.values()
        for attribute, number in operator.bodies.items()
    }
    for number, (caller, branch) in callers.items():
        if number in by_number:
            by_number[number] = replace(by_number[number], caller=caller, branch=branch)
    return by_number


_TYPED: Final = re.compile(r"(?P<type>Bool|U?I\d+|UInt\d+|Int\d+|F\d+|BF16|Float\d+)\((?P<text>[^()]*)\)")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan)")
_TENSOR: Final = re.compile(r"Tensor\(.*value=\s*(?P<elements>.*)\)", re.DOTALL)
_WORDS: Final = {"true": True, "false": False, "none": "none"}
_MARKS: Final = re.compile(r'[()\[\]{}<>",]')
_OPENING: Final = frozenset("([{<")


def top_level_places(text: str, start: int) -> Iterator[int]:
    """Yield the indices of commas outside of brackets and quotes, and of an unmatched closing bracket."""
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
    places = [-1, *top_level_places(text, 0), len(text)]
    parts = (text[before + 1 : after].strip() for before, after in itertools.pairwise(places))
    return tuple(part for part in parts if part)


def parse_attributes(text: str) -> dict[str, Any]:
    """Return attributes by name.

    >>> parse_attributes('pad: (0, 1), group: I64(2), pad_mode: "valid", keep: Bool(0), axis: (-1)')
    {'pad': [0, 1], 'group': 2, 'pad_mode': 'valid', 'keep': False, 'axis': [-1]}
    """
    pairs = (part.partition(":") for part in split(text))
    return {name.strip(): parse_value(rest) for name, _, rest in pairs if rest.strip()}


def parse_value(text: str) -> Any:
    """Return the value of one argument: a number, a truth value, a text, or a list of these.

    >>> parse_value("(I64(4), I64(5))"), parse_value("Tensor(shape=[2], dtype=Int64, value=[5 4])")
    ([4, 5], [5, 4])
    """
    text = text.strip()
    tensor = _TENSOR.fullmatch(text)
    if tensor is not None:
        numbers = [parse_value(part) for part in re.findall(r"[^\s\[\],]+", tensor["elements"])]
        return (
            numbers if tensor["elements"].strip().startswith("[") else np.asarray(numbers).reshape(()).item()
        )
    typed = _TYPED.fullmatch(text)
    if typed is not None:
        number = parse_value(typed["text"])
        return bool(number) if typed["type"] == "Bool" else number
    if text[:1] in {"(", "["} and text[-1:] in {")", "]"}:
        return [parse_value(part) for part in split(text[1:-1])]
    if _NUMBER.fullmatch(text):
        return float(text) if re.search(r"[.einfa]", text) else int(text)
    return _WORDS.get(text.lower(), text.strip('"'))


_NAMES: Final = ("groups", "group")
"""Names of the attribute: ``group`` of the user's operators, ``groups`` of the device's kernels."""

_WEIGHT: Final = slice(1, 2)


def convolution_groups(graph: OperatorGraph) -> Mapping[str, int]:
    """Return the number of groups of operators that hold weights laid out in groups, by full name.

    The name of a file has the memory format of a weight, FRACTAL_Z, but not its groups. A convolution has
    them as an attribute. Other readers of the weight, such as an optimizer, hold the weight and their other
    tensors in the same layout.
    """
    own = {
        name: groups
        for name, each in graph.operators.items()
        if (groups := _declared_groups(each)) is not None
    }
    weights: dict[ValueSource, int] = {}
    for name, groups in own.items():
        if groups > 1:
            weights |= dict.fromkeys(graph.operators[name].inputs[_WEIGHT], groups)
    others = {
        name: max((weights.get(source, 1) for source in each.inputs), default=1)
        for name, each in graph.operators.items()
        if weights and name not in own
    }
    return {name: groups for name, groups in {**own, **others}.items() if groups > 1}


def _declared_groups(operator: GraphOperator) -> int | None:
    if not any(name in operator.attributes for name in _NAMES):  # most operators: nothing is parsed
        return None
    attributes = parse_attributes(operator.attributes)
    values = (attributes.get(name) for name in _NAMES)
    return next((groups for groups in values if isinstance(groups, int) and groups > 0), None)


_LISTED: Final = 8  # most names in a message


def find_operators(text: str, operators: Mapping[str, Collection[str]]) -> list[str]:
    """Return the full names of the operators that a text names, given the aliases of each by full name.

    The first reading of the text that fits an operator counts: a full name or an alias; the last components
    of a full name, or a pattern with ``*`` and ``?``; the end of a name as files spell it; a part of a full
    name in any case.
    """
    spelled, part = sanitize(text), text.strip("*?").lower()
    matches = re.compile(translate(text)).match
    readings: tuple[Callable[[str], bool], ...] = (
        lambda name: text in (name, *operators[name]) or spelled in (sanitize(name), *operators[name]),
        lambda name: (
            name.endswith(f"/{text}") or any(map(matches, (name, name.rpartition("/")[2], *operators[name])))
        ),
        lambda name: bool(text) and sanitize(name).endswith(f"_{spelled}"),
        lambda name: bool(part) and part in name.lower(),
    )
    found = ([name for name in operators if fits(name)] for fits in readings)
    return next(filter(None, found), [])


def add_onnx_names(operators: Mapping[str, set[str]], graph: OperatorGraph | None) -> None:
    """Add the names of ONNX nodes to the aliases of operators, as a graph file has them."""
    for each in graph.operators.values() if graph is not None else ():
        if each.full_name in operators:
            operators[each.full_name].update({each.onnx_name, *each.onnx_names} - {""})


def describe_miss(text: str, operators: Mapping[str, Collection[str]], found: Sequence[str] = ()) -> str:
    """Return the message about a text that names no operator, or several: ``found``."""
    if found:
        return f"{len(found)} operators match {text!r}; give a full name:{_name_lines(found)}"
    words = [word for name in operators for word in name.split("/")]
    aliases = [alias for others in operators.values() for alias in others if alias]
    hint = name_hint(text, dict.fromkeys([*operators, *words, *(w.split("-")[0] for w in words), *aliases]))
    there = f"; there are:{_name_lines([*operators])}" if operators and not hint else ""
    return f"no operator {text!r}{hint}{there}"


def _name_lines(names: Sequence[str]) -> str:
    more = [f"... and {len(names) - _LISTED} more"] if len(names) > _LISTED else []
    return "".join(f"\n  {name}" for name in [*names[:_LISTED], *more])
