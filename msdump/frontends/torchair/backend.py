"""The backend for torch.compile: captured graphs run operator by operator, and are dumped."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel

from msdump.capture import PROCESS, HostView
from msdump.communication import current
from msdump.config import torchair as options
from msdump.counters import ModelIdentity, RunCounter
from msdump.frontends.acl import state
from msdump.frontends.torchair import dumps, scope
from msdump.frontends.torchair.compiler_config import CompilerConfig
from msdump.frontends.torchair.export import Exported, export, to_array
from msdump.graph import compile_graph, loader
from msdump.plan import Context, DumpPlan, PrecisionMode
from msdump.session import Network
from msdump.store import CLOCK, layouts
from msdump.threads import new_lock

_MOST_SHAPES: Final = 64  # models of one captured graph that are kept


class Device:
    """The state that the graphs of one backend share: plan (None: no dump), context, debug mode, files."""

    def __init__(self, plan: DumpPlan | None, where: Context, settings: Any) -> None:
        """Start without graphs; when the device is collected as garbage, its files are completed."""
        self.plan = plan
        self.context = where
        self.settings = settings
        self.process = PROCESS.beside()
        self.time = CLOCK.seconds()  # when the dump was configured, the name of its directory
        self.lock = new_lock()  # held by the graph that runs; backward graphs run on a thread of their own
        weakref.finalize(self, self.process.close)

    def complete(self) -> None:
        """Return when the files of all graphs are on disk; DumpWriteError if one could not be written."""
        if self.plan is not None:
            self.process.sink(self.plan).flush()


@dataclass(frozen=True, slots=True)
class ShapeModel:
    """A captured graph, exported and compiled for one set of shapes."""

    exported: Exported
    network: Network | None

    def run(self, arguments: Sequence[Any]) -> Mapping[str, Any]:
        """Run once on the captured graph's inputs; return the model's outputs by name."""
        if self.network is None:
            return {}
        return self.network.run({name: to_array(arguments[at]) for name, at in self.exported.inputs})


class CapturedGraph:
    """One graph that torch.compile has captured: called with tensors, it returns tensors."""

    def __init__(self, gm: GraphModule, device: Device, part: str = "") -> None:
        """Give a graph, or the part forward or backward of a step, its number; its first call exports it."""
        self.model_id = next(device.process.counters.captured_graphs)  # its number in the dump
        # ``graph_{n}``, counted from 1 in the process, in training ``graph_{n}_forward`` and
        # ``graph_{n}_backward``; also its directory in the dump
        self.name = layouts.captured_graph(self.model_id, part)
        # counts its calls, the ``data_index`` of its dump; calls that failed included
        self.runs = RunCounter()
        self._gm = gm
        self._device = device
        # by types, shapes and devices of a call's tensors, and its numbers
        self._models: dict[tuple[Any, ...], ShapeModel] = {}

    def __call__(self, *arguments: Any) -> list[Any]:
        """Run once on tensors and numbers; return the captured graph's outputs in order.

        Raises:
            MsdumpError: The graph cannot be exported, an operator failed, or a file was not written.
        """
        with self._device.lock:
            # a tensor's type, shape and device; a number itself
            signature = tuple(
                (item.dtype, tuple(item.shape), item.device) if isinstance(item, torch.Tensor) else item
                for item in arguments
            )
            if signature not in self._models:
                if len(self._models) >= _MOST_SHAPES:  # drop the oldest
                    del self._models[next(iter(self._models))]
                self._models[signature] = self._compile(arguments)
            model = self._models[signature]
            run = self.runs.next
            try:
                results = model.run(arguments)
            finally:  # a call that fails, or that runs no operator, is a call
                self.runs.ended(run)
            self._device.complete()
        return [result(arguments, results) for result in model.exported.results]

    def _compile(self, arguments: Sequence[Any]) -> ShapeModel:
        exported = export(self._gm, arguments, self.name)
        if not exported.makes_tensors:
            return ShapeModel(exported, None)
        graph = loader.load(exported.model)
        device, shown = self._device, self._device.settings.graph_dump
        write = device.process.stream(device.plan)
        if shown.type.value:
            named = compile_graph(graph, fuses=False, keeps_node_names=True)
            nodes = dumps.origin_nodes(self._gm, named, exported.origins)
            dumps.write_graph("original", self.model_id, HostView(named), nodes, shown, write)
        plan = device.plan and scope.with_marked(device.plan, self._gm, exported.origins)
        identity = ModelIdentity(self.name, self.model_id, device.time, self.runs)
        network = Network(graph, plan, device.process, device.context, model=identity)
        if network.device is not None and shown.type.value:
            dumps.write_graph("optimized", self.model_id, network.device, {}, shown, write)
        return ShapeModel(exported, network)


def context() -> Context:
    """Return the context of captured graphs: an Ascend as for acl that keeps the types of the graph."""
    device = current().identity.local_rank
    return replace(state.context(device), precision_mode=PrecisionMode.MUST_KEEP_ORIGIN_DTYPE)


def get_npu_backend(
    *, compiler_config: CompilerConfig | None = None, custom_decompositions: Mapping[Any, Any] | None = None
) -> Callable[..., Any]:
    """Return a backend for ``torch.compile``.

    Args:
        compiler_config: Settings of the dump; None: no dump.
        custom_decompositions: Function by ATen operator; it computes the operator with other operators.

    Raises:
        ConfigValueError: Options are wrong, missing or contradicting.
        AclError: The file of ``dump_config_path`` is not valid.
        NotAvailableError: The mode has no dump.
    """
    config = compiler_config or CompilerConfig()
    local, shared = config.as_dict(config.mode.value)
    where = context()
    device = Device(options.plan(shared | local, where), where, config.debug)
    return partial(compile_captured, device=device, decompositions=custom_decompositions or {})


def compile_captured(
    gm: GraphModule, example_inputs: Sequence[Any], *, device: Device, decompositions: Mapping[Any, Any]
) -> Callable[..., Any]:
    """Compile a captured graph: forward, and backward where gradients are needed."""
    compiler = aot_autograd(
        fw_compiler=partial(_compiled, device, part="forward"),
        bw_compiler=partial(_compiled, device, part="backward"),
        inference_compiler=partial(_compiled, device),
        decompositions=dict(decompositions),
    )
    with sdpa_kernel(SDPBackend.MATH):  # fused attention kernels have no ONNX counterpart
        compiled: Callable[..., Any] = compiler(gm, list(example_inputs))
    return compiled


def _compiled(device: Device, gm: GraphModule, _: Sequence[Any], *, part: str = "") -> Callable[..., Any]:
    """Return a function that runs one graph: on the device, or in torch itself where the settings say so."""
    settings = device.settings
    if settings.data_dump.type.value:
        return _Boxed(dumps.wrap(gm, settings.data_dump, next(device.process.counters.captured_graphs)))
    return _Boxed(gm if settings.run_eagerly else CapturedGraph(gm, device, part))


class _Boxed:
    """A graph as AOTAutograd calls it: with one list, emptied to free its tensors."""

    def __init__(self, graph: Callable[..., Any]) -> None:
        self._boxed_call = True  # torch wraps the object, and takes over its own attributes
        self._graph = graph

    def __call__(self, arguments: list[Any]) -> Any:
        inputs = tuple(arguments)
        arguments.clear()
        return self._graph(*inputs)
