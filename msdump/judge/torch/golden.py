"""A PyTorch module as golden: the graph of its ONNX export, run value by value."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import itertools
import operator
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from msdump.errors import InputError, NotAvailableError
from msdump.graph import Graph
from msdump.judge.pair import trained

PREFIX: Final = "torch:"
"""Begins a golden side that is a module: ``torch:package.module:callable``, ``torch:file.py:name``."""


@dataclass(frozen=True, slots=True)
class Call:
    """The call of a function in a module."""

    target: str = ""  # the function, ``aten.linear.default``
    module: str = ""  # path of the module that calls it, "" for the outermost
    slot: int = 0  # number of the result, of functions with several
    is_random: bool = field(default=False, compare=False)  # whether it draws random numbers
    # name of the call in the graph, also of the tuple of which a value is an item
    maker: str = field(default="", compare=False)
    # its arguments in words, ``linear_1, 2``; equal calls may have different ones
    arguments: str = field(default="", compare=False)
    # line of the user's program, ``net.py:12: x = self.fc(x)``; "" if unknown
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return the call in words, ``aten.topk.default(linear_1, 2) of module gate``."""
        return f"{self.target}({self.arguments}){f' of module {self.module}' if self.module else ''}"


@dataclass(frozen=True, slots=True)
class Source:
    """A module, and the arguments of its call if the program gives them."""

    title: str  # the name that the user gave
    module: Any  # the module, a ``torch.nn.Module``
    args: tuple[Any, ...] | None = None  # arguments of its call, None: they come from files

    def named_inputs(self, graph: Graph) -> dict[str, np.ndarray] | None:
        """Return the tensors among the arguments by the names of a file's inputs, None without arguments."""
        if self.args is None:
            return None
        torch = require()
        leaves = _trees().tree_leaves(self.args)
        tensors = [as_array(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if len(tensors) != len(graph.inputs):
            raise InputError(
                f"{PREFIX}{self.title}: the module is called with {len(tensors)} tensors, and the model has"
                f" {len(graph.inputs)} inputs: {', '.join(value.name for value in graph.inputs)}"
            )
        return {value.name: array for value, array in zip(graph.inputs, tensors, strict=True)}


def load_source(text: str) -> Source:
    """Return the module that a callable makes.

    Args:
        text: ``package.module:callable`` or ``file.py:name``. The name is a module, or a callable without
            parameters that returns one, or one and its arguments.

    Raises:
        NotAvailableError: PyTorch is not installed.
        InputError: There is no such callable, or it returns something else.
    """
    torch = require()
    place, _, name = text.rpartition(":")
    if not place:
        raise InputError(f"{PREFIX}{text}: must be {PREFIX}package.module:callable or {PREFIX}file.py:name")
    with contextlib.redirect_stdout(sys.stderr):  # documents of --json are alone on stdout
        found = _named(place, name, text)
        if not isinstance(found, torch.nn.Module):
            if not callable(found):
                raise InputError(f"{PREFIX}{text}: {name} is neither a module nor a callable that makes one")
            try:
                found = found()
            except Exception as error:
                raise InputError(f"{PREFIX}{text}: {type(error).__name__}: {error}") from error
    module, args = (*found, None)[:2] if isinstance(found, tuple) else (found, None)
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"{PREFIX}{text}: {name} returns {type(module).__name__}; it must return a torch.nn.Module,"
            " or one and a tuple of its arguments"
        )
    return Source(text, module, args if args is None or isinstance(args, tuple) else (args,))


def _named(place: str, name: str, text: str) -> Any:
    """Return an object of the user's program, which may import modules beside it."""
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise InputError(f"{PREFIX}{text}: there is no file {place}")
    sys.path.insert(0, str(Path(place).resolve().parent if is_file else Path.cwd()))
    try:
        program = importlib.import_module(Path(place).stem if is_file else place)
    except Exception as error:  # any error of the user's program
        raise InputError(f"{PREFIX}{text}: cannot import {place}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if not hasattr(program, name):
        raise InputError(f"{PREFIX}{text}: {place} has no {name!r}")
    return getattr(program, name)


def require() -> Any:
    """Return PyTorch.

    Raises:
        NotAvailableError: It is not installed, or the exporter's library is not.
    """
    try:
        import onnxscript  # noqa: F401 - torch.onnx needs it
        import torch
    except ImportError as error:
        raise NotAvailableError(f"{error.name} is not installed; pip install 'msdump[torch]'") from error
    return torch


def export(source: Source, args: Any, **options: Any) -> Any:
    """Return the ``torch.onnx.ONNXProgram`` of a module.

    Raises:
        InputError: The exporter refuses the module.
    """
    torch = require()
    try:
        with _silent():
            return torch.onnx.export(source.module, args, dynamo=True, verbose=False, **options)
    except Exception as error:
        raise InputError(
            f"{PREFIX}{source.title}: torch.onnx.export refuses the module: {_first_line(error)}"
        ) from error


class Golden:
    """The values of golden by name, in the order in which they are computed.

    Functions between them have no values, unless a subclass finds them.
    """

    title = ""  # the name that the user gave
    names: tuple[str, ...] = ()  # names of the values, in the order of their calls
    varying: Collection[str] = ()  # names of the values that depend on the inputs
    state: frozenset[str] = frozenset()  # names of the parameters, buffers and constants that golden reads
    inputs: tuple[str, ...] = ()  # names of the values that stand for the file's inputs, in their order
    outputs: tuple[str, ...] = ()  # names of the values that golden returns, in their order
    calls: Sequence[Call] = ()  # the calls of functions
    # the calls as text, with the names of their inputs, by name
    texts: Mapping[str, str] = MappingProxyType({})
    partners: Mapping[str, str] | None = None  # golden's names by the file's, None: names and calls pair them
    values = "PyTorch's values"  # the values in words

    @functools.cached_property
    def training(self) -> dict[str, str]:
        """Values that train mode changes, by name, each with its call in words."""
        return {}

    def call(self, name: str) -> Call:
        """Return the call that computes a value."""
        raise NotImplementedError

    def described(self, name: str) -> str:
        """Return a value in words."""
        raise NotImplementedError

    def run(self, inputs: Sequence[Any], show: Callable[[str, np.ndarray], None]) -> None:
        """Compute the values once and show each value as soon as it is computed.

        Args:
            inputs: Arrays in the order of the file's inputs.
            show: Receives each value by its name. Values that it does not keep are dropped.

        Raises:
            InputError: Golden refuses the inputs.
        """
        raise NotImplementedError

    def parameters(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """Return the parameters, buffers and constants that some calls read, by name."""
        raise NotImplementedError

    def reads(self, name: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names of the values that a call reads, parameters too."""
        return ()

    def border(
        self,
        name: str,  # noqa: ARG002
        known: Collection[str],  # noqa: ARG002
    ) -> tuple[frozenset[str], frozenset[str], list[str]]:
        """Return the known values and the parameters that a value is computed of, and the values between."""
        return frozenset(), frozenset(), []

    def sources(self, name: str) -> frozenset[str]:
        """Return the parameters and buffers that a constant is computed of."""
        return self.border(name, ())[1] if name in self.names else frozenset()

    def folded(self, name: str, calls: Collection[str]) -> dict[str, np.ndarray]:  # noqa: ARG002
        """Return weight and bias of a convolution with a batch normalisation folded into it, else nothing."""
        return {}

    def again(self, name: str, given: Mapping[str, np.ndarray]) -> np.ndarray | None:  # noqa: ARG002
        """Compute a value again of others, None where its call refuses them or one is not given."""
        return None


class TorchModule(Golden):
    """A module, which runs on the arguments of its call."""

    def _begin(self, source: Source, graph: Graph, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Run the module once: its own errors are not the exporter's. Return its arguments."""
        torch = require()
        self.title, self._module = source.title, source.module
        devices = {each.device.type: each.device for each in source.module.parameters()}
        if "meta" in devices:
            raise InputError(
                f"{PREFIX}{self.title}: the module's parameters have no values on the device meta: load them"
            )
        self._devices, args = " and ".join(devices), source.args
        if args is None:
            device = next(iter(devices.values()), torch.device("cpu"))
            tensors = (torch.from_numpy(np.array(inputs[value.name])) for value in graph.inputs)
            args = tuple(tensor.to(device) for tensor in tensors)
        self._leaves, self._structure = _trees().tree_flatten(args)
        self._call(source.module, [as_array(each) for each in self._leaves if isinstance(each, torch.Tensor)])
        return args

    @contextlib.contextmanager
    def _restored(self) -> Iterator[None]:
        """Give the module its buffers back: running statistics change in training mode."""
        before = {name: buffer.clone() for name, buffer in self._module.named_buffers()}
        try:
            yield
        finally:
            for name, buffer in self._module.named_buffers():
                if name in before:
                    buffer.data.copy_(before[name])

    @functools.cached_property
    def training(self) -> dict[str, str]:
        """Values that train mode changes, by name, each with its call in words."""
        found = {}
        for name in self.names:
            call = self.call(name)
            kind = trained(call.target)
            if kind and self._module.get_submodule(call.module).training:
                found[name] = f"{kind} in {call.module or 'the network'}"
        return found

    def _call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Call the module, or a function in its place, on arrays in the place of its tensors."""
        torch, given = require(), iter(inputs)
        leaves = [
            torch.from_numpy(np.array(next(given))).to(leaf) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in self._leaves
        ]
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves if isinstance(leaf, torch.Tensor))
        try:
            with torch.no_grad(), self._restored(), contextlib.redirect_stdout(sys.stderr):
                return function(*_trees().tree_unflatten(leaves, self._structure))
        except _ReceiverError as error:
            raise error.__cause__ or error  # noqa: B904 - the error itself
        except Exception as error:
            device = f", parameters on {self._devices}" if self._devices not in ("", "cpu") else ""
            raise InputError(
                f"{PREFIX}{self.title}: the module fails on inputs {shapes}{device}: {_first_line(error)}"
            ) from error


class TorchGolden(TorchModule):
    """The graph of a module's export, which runs value by value."""

    def __init__(self, source: Source, graph: Graph, inputs: Mapping[str, Any]) -> None:
        """Export the module.

        Args:
            source: The module and its arguments.
            graph: The file's graph, with its dynamic dimensions.
            inputs: Arguments by the names of the file's inputs, where the source has none.

        Raises:
            InputError: The exporter refuses the module, or the module its arguments.
        """
        torch = require()
        args = self._begin(source, graph, inputs)
        exported = export(source, args, optimize=False, dynamic_shapes=self._dynamic(graph)).exported_program
        # PyTorch 2.9 has no checks of guards
        is_guarded = "check_guards" in inspect.signature(exported.module).parameters
        self._graph = exported.module(**({"check_guards": False} if is_guarded else {}))
        self.texts = {node.name: call_text(node.format_node() or "")[1] for node in exported.graph.nodes}
        signature = exported.graph_signature
        self.inputs = tuple(name for name in signature.user_inputs if isinstance(name, str))
        self.outputs = tuple(name for name in signature.user_outputs if isinstance(name, str))
        self._nodes = {node.name: node for node in self._graph.graph.nodes if node.op != "output"}
        tensors = (node for node in self._nodes.values() if isinstance(node.meta.get("val"), torch.Tensor))
        self.names = tuple(node.name for node in tensors if node.op != "get_attr")
        self.varying = varying = set[str]()
        for node in self._nodes.values():
            read = {each.name for each in node.all_input_nodes}
            if node.op == "placeholder" or (node.op == "call_function" and read & varying):
                varying.add(node.name)
        self.state = frozenset(str(node.target) for node in self._nodes.values() if _is_parameter(node))
        functions = (node for node in self._nodes.values() if node.op == "call_function")
        self.calls = [_call(node) for node in functions if node.target is not operator.getitem]
        self._arrays: dict[str, np.ndarray] = {}

    def _dynamic(self, graph: Graph) -> Any:
        """Return the dynamic dimensions of the file's inputs in the structure of the arguments."""
        torch = require()
        automatic = torch.export.Dim.AUTO
        shapes: list[dict[int, Any]] = []
        values = iter(graph.inputs)
        for leaf in self._leaves:
            value = next(values, None) if isinstance(leaf, torch.Tensor) else None
            sizes = value.type.shape if value is not None else None
            shapes.append(
                {axis: automatic for axis, size in enumerate(sizes or ()) if not isinstance(size, int)}
            )
        if not any(shapes):
            return None
        return _trees().tree_unflatten(shapes, self._structure)

    def call(self, name: str) -> Call:
        """Return the call that computes a value."""
        return _call(self._nodes[name])

    def described(self, name: str) -> str:
        """Return a value in words."""
        return f"{name} is {self.call(name)}"

    def reads(self, name: str) -> tuple[str, ...]:
        """Return the names of the values that a call reads, parameters too."""
        return tuple(node.name for node in _maker(self._nodes[name]).all_input_nodes)

    def border(self, name: str, known: Collection[str]) -> tuple[frozenset[str], frozenset[str], list[str]]:
        """Return the known values and the parameters that a value is computed of, and the values between."""
        found, between, waiting = set(), {}, [*self.reads(name)]
        parameters = set()
        while waiting:
            node = self._nodes[waiting.pop()]
            if node.op == "get_attr":
                parameters |= {str(node.target)} & self.state
            elif node.name in known or node.op == "placeholder":
                found.add(node.name)
            elif node.name not in between:
                between[node.name] = node
                waiting += self.reads(node.name)
        inner = [each for each in self._nodes if each in between and each in self.names]
        return frozenset(found), frozenset(parameters), inner

    def parameters(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """Return the parameters, buffers and constants that some calls read, by name."""
        read = (self._nodes[each] for name in names for each in self.reads(name))
        return {str(node.target): self._parameter(node) for node in read if _is_parameter(node)}

    def folded(self, name: str, calls: Collection[str]) -> dict[str, np.ndarray]:
        """Return weight and bias of a convolution with a batch normalisation folded into it, else nothing.

        The normalisation computes them itself: of the weight in the place of channels, and of zeros.
        """
        before = next((each for each in self.reads(name) if each in calls), "")
        if not before or "batch_norm" not in self.call(name).target or "conv" not in self.call(before).target:
            return {}
        weight, *bias = [*self.parameters([before]).values()][:2]
        [channels] = next(iter(self.parameters([name]).values())).shape
        is_first = weight.shape[0] == channels and "transpose" not in self.call(before).target
        turned = np.swapaxes(weight, 0, 1) if is_first else weight
        shift = self.again(name, {before: np.zeros_like(turned)})
        moved = self.again(name, {before: turned})
        offset = bias[0] if bias else np.zeros(channels, weight.dtype)
        shape = (1, channels, *(1 for _ in turned.shape[2:]))
        biased = self.again(name, {before: np.broadcast_to(offset.reshape(shape), (1, *turned.shape[1:]))})
        if shift is None or moved is None or biased is None:
            return {}
        scaled = moved - shift
        return {
            f"{before} with {name}": np.swapaxes(scaled, 0, 1) if is_first else scaled,
            f"bias of {before} with {name}": biased.reshape(channels, -1)[:, 0],
        }

    def again(self, name: str, given: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Compute a value again of others, None where its call refuses them or one is not given."""
        torch, known = require(), dict[str, Any]()

        def value(node: Any) -> Any:
            if node.name in given:
                tensor, declared = torch.from_numpy(np.array(given[node.name])), node.meta.get("val")
                return tensor.to(declared.dtype) if isinstance(declared, torch.Tensor) else tensor
            if node.op != "call_function":
                if node.op == "placeholder":
                    raise KeyError(node.name)
                return self._attribute(node)
            if node.name not in known:
                args, named = (torch.fx.node.map_arg(each, value) for each in (node.args, node.kwargs))
                known[node.name] = node.target(*args, **named)
            return known[node.name]

        try:
            with torch.no_grad():
                return as_array(value(self._nodes[name]))
        except (KeyError, RuntimeError, ValueError, TypeError, IndexError):  # an experiment that does not fit
            return None

    def run(self, inputs: Sequence[Any], show: Callable[[str, np.ndarray], None]) -> None:
        """Run the module once and show each value as soon as it is computed."""
        torch, show = require(), guarded(show)

        class Interpreter(torch.fx.Interpreter):  # type: ignore[name-defined]
            def run_node(self, n: Any) -> Any:
                result = super().run_node(n)
                if n.op not in ("output", "get_attr") and isinstance(result, torch.Tensor):
                    show(n.name, as_array(result))
                return result

        def interpret(*args: Any) -> None:
            flat, _ = _trees().tree_flatten(args)
            Interpreter(self._graph).run(*flat, enable_io_processing=False)

        self._call(interpret, inputs)

    def _parameter(self, node: Any) -> np.ndarray:
        if node.name not in self._arrays:
            self._arrays[node.name] = as_array(self._attribute(node))
        return self._arrays[node.name]

    def _attribute(self, node: Any) -> Any:
        return functools.reduce(getattr, str(node.target).split("."), self._graph)


class _ReceiverError(BaseException):
    """An error of a receiver of values: neither the module around nor PyTorch catches it as its own."""


def guarded(show: Callable[[str, np.ndarray], None]) -> Callable[[str, np.ndarray], None]:
    """Return a receiver of values with errors that are not taken for the module's."""

    def receive(name: str, array: np.ndarray) -> None:
        try:
            show(name, array)
        except Exception as error:
            raise _ReceiverError from error

    return receive


def call_text(text: str) -> tuple[str, str]:
    """Return the name and the call of a node in PyTorch's text of it.

    >>> call_text("%add : [num_users=2] = call_function[target=aten.add](args = (%x, 1), kwargs = {})")
    ('add', 'call_function[target=aten.add](args = (%x, 1), kwargs = {})')
    """
    head, _, call = text.partition(" = ")
    return head.partition(" ")[0].removeprefix("%"), call


def _is_parameter(node: Any) -> bool:
    """Return whether a node is a parameter, buffer or constant, and no branch of control flow."""
    return node.op == "get_attr" and isinstance(node.meta.get("val"), require().Tensor)


def _maker(node: Any) -> Any:
    """Return the call that computes a value: that of the tuple of which it is an item."""
    return node.args[0] if node.target is operator.getitem else node


def _call(node: Any) -> Call:
    maker = _maker(node)
    modules = [path for path, _ in maker.meta.get("nn_module_stack", {}).values()]
    named = (f"{key}={value}" for key, value in maker.kwargs.items())
    return Call(
        str(maker.target),
        modules[-1] if modules else "",
        0 if maker is node else node.args[1],
        require().Tag.nondeterministic_seeded in getattr(maker.target, "tags", ()),
        maker.name,
        ", ".join((*map(str, maker.args), *named)),
        _line(maker.meta.get("stack_trace") or ""),
    )


def as_array(tensor: Any) -> np.ndarray:
    """Return the elements of a tensor; bfloat16 as float32."""
    tensor = tensor.detach().cpu()
    return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)


def _trees() -> Any:
    """Return PyTorch's module that flattens nested arguments, as torch.export does."""
    return require().utils._pytree  # noqa: SLF001 - no public module has them in all supported versions


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _line(trace: str) -> str:
    """Return the user's line of a traceback: the innermost that is not PyTorch's."""
    found, lines = "", trace.splitlines()
    for line, code in itertools.pairwise((*lines, "")):
        head = line.strip()
        if not head.startswith('File "') or f"{SITE}torch/" in head or head.startswith('File "<'):
            continue
        path, _, rest = head[6:].partition('", line ')
        found = f"{Path(path).name}:{rest.partition(',')[0]}: {code.strip()}"
    return found


SITE: Final = "site-packages/"
"""Part of the paths of installed packages."""


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Drop the exporter's prints and warnings: its steps, and partial graphs on refusals."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            yield
