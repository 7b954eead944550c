"""A MindIR file as an ONNX model: each kernel one operator, under its name, with its inputs by slot."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError, UnsupportedOpError
from msdump.graph import names, primitives
from msdump.graph.graph import MINDSPORE_DOMAIN, ValueType
from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.mindir.backend import KernelGraph, Loop, file_graphs, functions_from, loop_of, targets
from msdump.graph.mindir.expansions import composite
from msdump.graph.mindir.file import MindIR
from msdump.graph.mindir.kernels import (
    ITEMS,
    PASSING,
    PICKING,
    TUPLES,
    Constant,
    Kernel,
    Operand,
    Variable,
    is_monad,
    plain_name,
    source,
)
from msdump.graph.operators import update_of
from msdump.graph.primitives import COMPUTED, SLOTS, Call, OperatorBody, function
from msdump.plan import Context

OPSET: Final = 21
_FLAG: Final = ValueType(dtypes.from_name("bool"), ())
_NUMBER: Final = ValueType(dtypes.from_name("int64"), ())
_MOST_CALLS: Final = 4096  # each is written at its place, so branches behind each other double them
IR_VERSION: Final = 10
"""The first one with overloads of functions."""


Tree = str | list["Tree"]
"""The name of a value, "" for no tensor; names of a tuple's members. A weight is its newest value."""


@dataclass(slots=True)
class _Scope:
    """An ONNX graph that is written: the main one, a branch, or the body of a loop."""

    # by weight that operators have written, its newest value
    current: dict[str, str] = field(default_factory=dict)
    # the condition that is true, or false, in the whole graph
    truths: Mapping[bool, str] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)  # its operators


_Key = int | tuple[str, int] | str
"""A value of a pass: an argument of the header, an argument of an exit, or whether the loop ends there."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """The body of a loop that is written, and the values of one pass."""

    loop: Loop
    values: Mapping[_Key, str]


class TranslatedModel:
    """An ONNX model of a MindIR file, and facts that the message does not hold.

    Attributes:
        message: The model without weights.
        weights: Arrays of its initializers by name.
        bindings: By weight that operators write, the value that it has after a run.
        returns: Names of the results in order; a value may be returned several times.
        declared: By value, the element type that files show, where the kernel holds another one.
        kernel_graphs: Number of the kernel graphs into which functions cut the file; 0: it has no functions.
        notes: Sentences on parts that the reader passed over.
    """

    def __init__(self, file: MindIR, context: Context) -> None:
        """Translate a file.

        Raises:
            GraphError: A file that does not fit together.
            UnsupportedOpError: An operator that cannot run here.
        """
        self._functions: dict[tuple[str, str], onnx.FunctionProto] = {}
        self._calls: dict[tuple[Any, ...], tuple[onnx.NodeProto, int]] = {}
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], onnx.NodeProto] = {}
        self._scope = _Scope()
        self._trees: dict[Operand, Tree] = {}
        self._types: dict[str, ValueType] = {}
        self._taken = Counter[str]()
        self._around: list[str] = []
        self._count = 0
        self.weights = {plain_name(name): array for name, array in file.weights.items()}
        self.declared: dict[str, DType] = {}
        self.notes = file.notes
        try:
            self._graphs = file_graphs(file, context)
            parts = [
                step
                for graph in self._graphs.values()
                for step in graph.steps
                if isinstance(step, KernelGraph)
            ]
            self.kernel_graphs = len(parts) if file.functions else 0
            _check_known(kernel for part in parts for kernel in part.kernels)
            main = self._graphs[file.graph.name].nodes
            self._types |= {each.name: each.type for each in main.inputs if each.type is not None}
            self._types |= {
                weight: ValueType(dtypes.from_numpy(array.dtype), array.shape)
                for weight, array in self.weights.items()
            }
            self._taken.update(dict.fromkeys(self._types, 1))
            self._run(main.name)
            self.returns = tuple(value for item in main.results for value in self._returned(item))
        except RecursionError as error:
            raise GraphError("tuples or functions are nested too deeply in each other") from error
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise GraphError(
                f"the parts of the file do not fit together ({error}); export the network again"
            ) from error
        self.bindings = {each: value for each, value in self._scope.current.items() if each in self.weights}
        outputs = dict.fromkeys((*self.returns, *self.bindings.values()))
        infos = [each for each in self._infos(self._scope.nodes) if each.name not in outputs]
        graph = helper.make_graph(
            [*self._constants.values(), *self._scope.nodes],
            "main",
            [_info(each.name, each.type) for each in main.inputs],
            [*map(self._output, outputs)],
            value_info=infos,
        )
        self.message = helper.make_model(
            graph,
            producer_name="msdump",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MINDSPORE_DOMAIN, 1)],
            functions=list(self._functions.values()),
        )

    def _returned(self, operand: Operand) -> list[str]:
        """Return the names of the values of a result; each number of a constant tuple is one of its own."""
        members = operand.value if isinstance(operand, Constant) else None
        if isinstance(operand, Kernel) and operand.op_type in TUPLES:
            return [name for item in operand.inputs for name in self._returned(item)]
        if isinstance(members, tuple):
            return [name for item in members for name in self._returned(Constant(item))]
        return self._values(operand)

    def _infos(self, nodes: Sequence[onnx.NodeProto]) -> list[onnx.ValueInfoProto]:
        outputs = (name for node in nodes for name in node.output)
        return [_info(name, self._types[name]) for name in outputs if name in self._types]

    def _run(self, name: str, body: _Pass | None = None) -> Tree:
        """Write the kernels of a graph and of the functions that it calls; return its result.

        ``body``: the loop that goes on or ends with the graph's last step.
        """
        graph = self._graphs[name]
        tail = graph.tail
        for step in graph.steps:
            if isinstance(step, KernelGraph):
                for kernel in step.kernels:
                    self._add_kernel(kernel, step.number)
                continue
            calls = [
                partial(self._call, function, [*map(self._tree, arguments)], body if step is tail else None)
                for function, arguments in targets(step)
            ]
            if len(calls) == 1:
                self._trees[step] = calls[0]()
            else:
                (condition,) = self._values(source(step.inputs[0]).inputs[0])  # type: ignore[union-attr]
                self._trees[step] = self._choose(condition, *calls)
        return self._tree(graph.nodes.results[0])

    def _call(self, name: str, given: Sequence[Tree], body: _Pass | None) -> Tree:
        """Write a function with its arguments in the place of its call; return its result."""
        self._count += 1
        if self._count > _MOST_CALLS:
            raise UnsupportedOpError(
                f"function {name!r}: functions call each other in more than {_MOST_CALLS} ways; export a"
                " network with fewer branches behind each other"
            )
        if body is not None and name == body.loop.header:
            others = [given[key] if isinstance(key, int) else value for key, value in body.values.items()]
            return [self._truth(True), *others]
        if body is not None and name not in body.loop.members:
            exits: dict[_Key, Tree] = {(name, place): tree for place, tree in enumerate(given)}
            last = [
                exits.get(key, self._truth(key == name) if isinstance(key, str) else value)
                for key, value in body.values.items()
            ]
            return [self._truth(False), *last]
        if name in self._around:
            raise UnsupportedOpError(f"function {name!r} calls itself, but is no loop, which cannot run here")
        loop = loop_of(self._graphs, name, self._around)
        if loop is not None:
            return self._leave(self._repeat(loop, given), body)
        self._bind(name, given)
        return self._run(name, body)

    def _leave(self, ends: Sequence[tuple[str, str, Sequence[Tree]]], body: _Pass | None) -> Tree:
        """Write the operators behind a loop, given its exits with their flags and arguments."""
        (flag, name, given), *others = ends
        if not others:
            return self._call(name, given, body)
        return self._choose(flag, partial(self._call, name, given, body), partial(self._leave, others, body))

    def _bind(self, name: str, given: Sequence[Tree]) -> None:
        inputs = self._graphs[name].nodes.inputs
        if len(inputs) != len(given):
            raise GraphError(f"function {name!r} takes {len(inputs)} arguments, a call gives {len(given)}")
        self._trees.update(zip(inputs, given, strict=True))

    def _truth(self, truth: bool) -> str:  # noqa: FBT001 - it is the value
        return self._scope.truths.get(truth) or self._constant(np.array(truth))

    @contextmanager
    def _inside(self, truths: Mapping[bool, str]) -> Iterator[_Scope]:
        """Write into a graph inside the present one within a context."""
        outer = self._scope
        self._scope = _Scope(dict(outer.current), {**outer.truths, **truths})
        try:
            yield self._scope
        finally:
            self._scope = outer

    def _choose(self, condition: str, *calls: Callable[[], Tree]) -> Tree:
        """Write an If; return its result. A result that no branch computes is returned without the If."""
        sides: list[tuple[_Scope, Tree, list[str]]] = []
        for truth, call in zip((True, False), calls, strict=True):
            with self._inside({truth: condition}) as scope:
                tree = call()
                sides.append((scope, tree, self._newest(tree)))
        (yes, tree, first), (no, _, second) = sides
        written = [
            (each, yes.current.get(each, each), no.current.get(each, each))
            for each in {**yes.current, **no.current}
        ]
        written = [row for row in written if row[1] != row[2]]
        pairs = [*zip(first, second, strict=False), *(row[1:] for row in written)]
        if len(first) != len(second) or any(("" in pair) and any(pair) for pair in pairs):
            raise GraphError(f"the branches by {condition!r} return other numbers of values")
        made = [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
        inner = {}
        for place, attribute in enumerate(("then_branch", "else_branch")):
            nodes, outputs = sides[place][0].nodes, [self._output(pair[place]) for pair in made]
            inner[attribute] = helper.make_graph(nodes, attribute, [], outputs, value_info=self._infos(nodes))
        names = self._add_control("If", [condition], [self._joined(pair) for pair in made], inner)
        results = {pair: pair[0] for pair in pairs} | dict(zip(made, names, strict=True))
        self._scope.current.update({row[0]: results[row[1:]] for row in written})
        return _replaced(tree, (results[pair] for pair in pairs))

    def _repeat(self, loop: Loop, given: Sequence[Tree]) -> list[tuple[str, str, Sequence[Tree]]]:
        """Write a Loop; return its exits with their flags and arguments.

        A pass decides first, and may then run the body.
        """
        inputs = self._graphs[loop.header].nodes.inputs
        variables: dict[_Key, Variable] = {
            place: each for place, each in enumerate(inputs) if each.is_local and given[place] != ""
        }
        initial = [value for place in variables for value in self._newest(given[place])]  # type: ignore[index]
        if len(initial) != len(variables):
            raise UnsupportedOpError(f"the loop of function {loop.header!r} changes a tuple")
        # values that exits read besides the header's arguments: a pass hands them on
        variables |= {
            (name, place): each
            for name, arguments in loop.exits.items()
            for place, each in enumerate(self._graphs[name].nodes.inputs)
            if each.is_local and each.type is not None
            if arguments is None or isinstance(source(arguments[place]), Kernel)
        }
        variables |= {name: Variable("left", _FLAG) for name in [*loop.exits][:-1]}
        members = loop.members | functions_from(self._graphs, loop.header, {*loop.exits, *self._around})
        written = list(dict.fromkeys(weight for name in sorted(members) for weight in self._written(name)))
        kinds = [each.type for each in variables.values()] + [self._types[each] for each in written]
        for kind in kinds[len(initial) : len(variables)]:
            same = (name for name, other in zip(initial, kinds, strict=False) if other == kind)
            initial.append(next(same, "") or self._constant(_zeros(kind)))
        initial += [self._scope.current.get(each, each) for each in written]
        own = [self._unique(name) for name in (*(each.name for each in variables.values()), *written)]
        self._types |= {name: kind for name, kind in zip(own, kinds, strict=True) if kind is not None}
        body = _Pass(loop, dict(zip(variables, own, strict=False)))
        current = dict(zip(written, own[len(variables) :], strict=True))
        with self._inside({}) as scope:
            scope.current.update(current)
            self._bind(loop.header, [body.values.get(place, tree) for place, tree in enumerate(given)])
            self._around.append(loop.header)
            outputs = self._newest(self._run(loop.header, body))
            self._around.pop()
            outputs += [scope.current[each] for each in written]
        head = [_info(self._unique("pass"), _NUMBER), _info(self._unique("goes_on"), _FLAG)]
        graph = helper.make_graph(
            scope.nodes,
            "body",
            [*head, *map(self._output, own)],
            [*map(self._output, outputs)],
            value_info=self._infos(scope.nodes),
        )
        results = self._add_control("Loop", ["", "", *initial], kinds, {"body": graph})
        last: dict[_Key, str] = dict(zip(variables, results, strict=False))
        for each, value in zip(written, results[len(variables) :], strict=True):
            if scope.current[each] != current[each]:
                self._scope.current[each] = value
        self._bind(loop.header, [last.get(place, tree) for place, tree in enumerate(given)])
        return [
            (
                last.get(name, ""),
                name,
                [
                    last.get((name, place)) or ("" if arguments is None else self._tree(arguments[place]))
                    for place in range(len(self._graphs[name].nodes.inputs))
                ],
            )
            for name, arguments in loop.exits.items()
        ]

    def _written(self, name: str) -> Iterator[str]:
        """Yield the weights that the kernels of a function write."""
        for kernel in self._graphs[name].nodes.kernels:
            operands = kernel.operands()
            for slot in update_of(kernel.op_type, MINDSPORE_DOMAIN).new_values:
                variable = source(operands[slot], PICKING) if slot < len(operands) else None
                if isinstance(variable, Variable) and variable.name in self.weights:
                    yield variable.name

    def _output(self, name: str) -> onnx.ValueInfoProto:
        return _info(name, self._types.get(name))

    def _joined(self, pair: tuple[str, str]) -> ValueType | None:
        first, second = (self._types.get(name) for name in pair)
        if first == second or first is None or second is None:
            return first
        return ValueType(first.dtype) if first.dtype is second.dtype else None

    def _add_control(
        self,
        op_type: str,
        inputs: Sequence[str],
        kinds: Sequence[ValueType | None],
        bodies: Mapping[str, Any],
    ) -> list[str]:
        """Write a control flow node; return the names of its outputs."""
        name = self._unique(op_type)
        outputs = [f"{name}:{slot}" for slot in range(len(kinds))]
        self._types |= {each: kind for each, kind in zip(outputs, kinds, strict=True) if kind is not None}
        self._scope.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, **bodies))
        return outputs

    def _unique(self, name: str) -> str:
        """Return a name, with a number where it is taken: a function may be called in several places."""
        self._taken[name] += 1
        number = self._taken[name]
        return name if number == 1 else self._unique(f"{name}__{number}")

    def _add_kernel(self, kernel: Kernel, number: int) -> None:
        operands = kernel.operands()
        slots = SLOTS.get(kernel.op_type, ())
        inputs: list[str] = []
        unlisted: list[str] = []
        for slot, item in enumerate(operands):
            is_read = kernel.shows_all or slot >= len(slots) or slots[slot].is_read or slots[0].is_repeated
            unlisted += [] if is_read else [str(slot)]
            inputs += self._values(item) if is_read or not isinstance(item, Constant) else [""]
        while inputs and not inputs[-1]:
            inputs.pop()
        name = self._unique(kernel.name)
        outputs = [f"{name}:{slot}" if slot else name for slot in range(len(kernel.outputs))]
        self._trees[kernel] = outputs[0] if len(outputs) == 1 else [*outputs]
        values = [item.value if isinstance(item, Constant) else COMPUTED for item in operands]
        types = [_on_device(item.type, source(item, PICKING)) for item in operands]
        results = [_on_device(kind, kernel) for kind in kernel.outputs]
        node = self._node(kernel, Call(kernel.op_type, inputs, values, types, results, kernel.attributes))
        node.name = name
        count_outputs = len(node.output)
        node.output[:] = [*outputs, *(f"{name}:{slot}" for slot in range(len(outputs), count_outputs))]
        del node.output[count_outputs:]
        shown = {key: value for key, value in kernel.attributes.items() if not isinstance(value, np.ndarray)}
        texts = {
            names.FULL_NAME: kernel.name,
            names.LISTED_NAME: kernel.listed_name,
            names.ARGUMENTS: shown and json.dumps(shown, default=str),
            names.UNLISTED_INPUTS: " ".join(unlisted),
            names.KERNEL_GRAPH: self.kernel_graphs and str(number),
        }
        for key, text in texts.items():
            if text or key in {names.FULL_NAME, names.LISTED_NAME}:
                node.metadata_props.add(key=key, value=text)
        self._scope.nodes.append(node)
        for value, kind, held in zip(node.output, kernel.outputs, results, strict=False):
            if kind is not None and held is not None:
                self._types[value] = held
                if held.dtype is not kind.dtype and kind.dtype is not None:
                    self.declared[value] = kind.dtype
        # later readers of a written variable read the new value; an inference keeps its moving statistics
        if not any(each.name == "is_training" and not each.i for each in node.attribute):
            for slot, output in update_of(node.op_type, node.domain).new_values.items():
                variable = source(operands[slot], PICKING) if slot < len(operands) else None
                if isinstance(variable, Variable) and output < len(node.output):
                    written = self._tree(variable)
                    assert isinstance(written, str)
                    self._scope.current[written] = node.output[output]

    def _node(self, kernel: Kernel, call: Call) -> onnx.NodeProto:
        """Return the operator of a kernel, with as many outputs as it has, but without their names."""
        plain = primitives.PLAIN.get(kernel.op_type)
        entry = primitives.OPERATORS.get(kernel.op_type) or composite(kernel)
        try:
            written = plain(call) if plain is not None else None
            if written is not None:
                op_type, attributes = written
                return helper.make_node(op_type, call.names, [""] * len(call.outputs), **attributes)
            assert entry is not None, f"{kernel.op_type} needs a body beside its ONNX operator"
            known, count_outputs = self._template(call, entry)
        except (TypeError, ValueError, LookupError, AttributeError, NotImplementedError) as error:
            raise UnsupportedOpError(
                f"{kernel.name}: primitive {kernel.op_type} cannot run with these arguments: {error}"
            ) from error
        node = onnx.NodeProto(input=call.names, output=[""] * count_outputs)
        node.MergeFrom(known)
        return node

    def _template(self, call: Call, entry: OperatorBody) -> tuple[onnx.NodeProto, int]:
        """Return a node without its values, which equal calls share, and the number of its outputs."""
        kinds = tuple(kind and kind.dtype for kind in (*call.types, None, *call.outputs))
        structure, computed = call.keywords(entry)
        key = entry.name, entry.build, len(call.names), str(structure), str(computed), kinds
        if key not in self._calls:
            wide = call.in_float32(entry)
            element = FLOAT32 if wide else call.element(entry)
            body = function(wide or entry, len(call.names), structure, element, OPSET, computed)
            overload = body.overload
            for number in count(1):  # functions that differ have other overloads
                known = self._functions.setdefault((body.name, body.overload), body)
                if known is body or _bytes(known) == _bytes(body):
                    break
                body.overload = f"{overload}_{number}"
            node = onnx.NodeProto(op_type=body.name, domain=MINDSPORE_DOMAIN, overload=body.overload)
            for name, value in structure.items():
                kind = onnx.AttributeProto.INTS if value == () else None
                node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
            self._calls[key] = node, len(body.output)
        return self._calls[key]

    def _values(self, operand: Operand) -> list[str]:
        """Return the names of the values that an operand is: several for a tuple, "" for no tensor."""
        return self._newest(self._tree(operand))

    def _newest(self, tree: Tree) -> list[str]:
        if isinstance(tree, str):
            return [self._scope.current.get(tree, tree)]
        return [name for item in tree for name in self._newest(item)]

    def _tree(self, operand: Operand) -> Tree:  # noqa: PLR0911 - one for each kind of operand
        if is_monad(operand):
            return ""
        if isinstance(operand, Constant):
            array = operand.array()
            return "" if array is None else self._constant(array)
        if isinstance(operand, Variable) and not operand.is_local:
            return operand.name
        if operand in self._trees:
            return self._trees[operand]
        if isinstance(operand, Variable):
            raise GraphError(f"argument {operand.name!r} of a function has no value")
        if operand.op_type in PASSING:
            return self._tree(operand.inputs[0])
        if operand.op_type in TUPLES:
            return [*map(self._tree, operand.inputs)]
        if operand.op_type not in ITEMS:
            raise UnsupportedOpError(f"{operand.front_name}: {operand.op_type} is read as a tensor")
        place, members = operand.inputs[1], self._tree(operand.inputs[0])
        members = [members] if isinstance(members, str) else members
        if not isinstance(place, Constant) or not isinstance(place.value, int):
            raise UnsupportedOpError(f"{operand.front_name}: the index of a tuple is computed")
        if not -len(members) <= place.value < len(members):
            raise GraphError(f"{operand.front_name}: a tuple of {len(members)} has no item {place.value}")
        return members[place.value]

    def _constant(self, array: np.ndarray) -> str:
        key = (array.tobytes(), array.dtype.str, array.shape)
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            tensor = numpy_helper.from_array(array, name)
            self._constants[key] = helper.make_node("Constant", [], [name], name=name, value=tensor)
            self._types[name] = ValueType(dtypes.from_numpy(array.dtype), array.shape)
        return self._constants[key].output[0]


def _bytes(body: onnx.FunctionProto) -> bytes:
    return body.SerializeToString(deterministic=True)


def _replaced(tree: Tree, names: Iterator[str]) -> Tree:
    """Return a tree with other names, in order."""
    return next(names) if isinstance(tree, str) else [_replaced(item, names) for item in tree]


def _check_known(kernels: Iterable[Kernel]) -> None:
    """Refuse a graph with primitives that cannot run; the message lists all of them."""
    known = primitives.PLAIN.keys() | primitives.OPERATORS.keys()
    unknown: dict[str, str] = {}
    for kernel in kernels:
        if kernel.op_type not in known and composite(kernel) is None:
            unknown.setdefault(kernel.op_type, kernel.listed_name or kernel.name)
    if unknown:
        found = ", ".join(f"{op_type} ({name})" for op_type, name in unknown.items())
        found += "; the code of a Custom is not in the file" * ("Custom" in unknown)
        raise UnsupportedOpError(
            f"primitives that cannot run here: {found}; docs/reference/primitives.md lists those that run"
        )


def _zeros(kind: ValueType | None) -> np.ndarray:
    if kind is None or kind.dtype is None:
        raise UnsupportedOpError("a loop hands on a value of an unknown type, which cannot run here")
    return np.zeros([size if isinstance(size, int) else 0 for size in kind.shape or ()], kind.dtype.numpy)


def _on_device(kind: ValueType | None, maker: Operand) -> ValueType | None:
    """Return the type in which a kernel holds an output of a declared type."""
    device = maker.device if isinstance(maker, Kernel) else None
    if kind is None or device is None or kind.dtype is not dtypes.from_name("float16"):
        return kind
    return replace(kind, dtype=device)


def _info(name: str, kind: ValueType | None) -> onnx.ValueInfoProto:
    if kind is None or kind.dtype is None:
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, kind.dtype.onnx, kind.shape)
