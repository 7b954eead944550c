"""The backend for torch.compile: captured graphs run operator by operator, and are dumped."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel

from msdump.capture.compiled_dump import ModelIdentity
from msdump.capture.process import Process
from msdump.frontends.torchair import tensors
from msdump.frontends.torchair.export import Exported, Fixed, Given, Result, export
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, PrecisionMode
from msdump.session import Network
from msdump.store.clock import CLOCK

_MOST_SHAPES: Final = 64  # models of one captured graph that are kept

_graph_numbers = itertools.count(1)

Signature = tuple[Any, ...]
"""Types and shapes of one call's tensors, and its numbers."""


@dataclass(slots=True)
class Device:
    """What the graphs of one backend share.

    Attributes:
        plan: What is dumped, None: nothing.
        context: Where graphs run.
        process: The sink and the iteration.
        time: When the dump was configured, the name of its directory.
        lock: Held by the graph that runs; backward graphs run on a thread of their own.
    """

    plan: DumpPlan | None
    context: Context
    process: Process = field(default_factory=Process)
    time: str = field(default_factory=CLOCK.seconds)
    lock: threading.RLock = field(default_factory=threading.RLock)


@dataclass(frozen=True, slots=True)
class Model:
    """A captured graph, exported and compiled for one set of shapes."""

    exported: Exported
    network: Network | None


class CapturedGraph:
    """One graph that torch.compile has captured: called with tensors, it returns tensors.

    Attributes:
        name: ``graph_{n}``, counted from 1 in the process; also its directory in the dump.
        model_id: Its number in the dump.
        calls: How often it has run, the next ``data_index``.
    """

    def __init__(self, gm: GraphModule, device: Device) -> None:
        """Take a graph; it is exported when its first call tells the shapes."""
        self.model_id = next(_graph_numbers)
        self.name = f"graph_{self.model_id}"
        self.calls = 0
        self._gm = gm
        self._device = device
        self._models: dict[Signature, Model] = {}

    def __call__(self, *arguments: Any) -> list[Any]:
        """Run once.

        Args:
            arguments: Tensors and numbers, as torch hands them over.

        Returns:
            The captured graph's outputs in order.

        Raises:
            MsdumpError: The graph cannot be exported, an operator failed, or a file was not written.
        """
        with self._device.lock:
            model = self._model(arguments)
            self._device.process.step_to(self.calls)
            made = _run(model, arguments)
            self.calls += 1
        return [_value(result, arguments, made) for result in model.exported.results]

    def _model(self, arguments: Sequence[Any]) -> Model:
        signature = tuple(_signature(item) for item in arguments)
        if signature not in self._models:
            if len(self._models) >= _MOST_SHAPES:
                del self._models[next(iter(self._models))]
            self._models[signature] = self._compile(arguments)
        return self._models[signature]

    def _compile(self, arguments: Sequence[Any]) -> Model:
        exported = export(self._gm, arguments, self.name)
        if not exported.makes_tensors:
            return Model(exported, None)
        device = self._device
        identity = ModelIdentity(self.name, self.model_id, device.time)
        graph = loader.load(exported.model)
        return Model(exported, Network(graph, device.plan, device.process, device.context, model=identity))


def _signature(item: Any) -> Any:
    return (item.dtype, tuple(item.shape), item.device) if isinstance(item, torch.Tensor) else item


def _run(model: Model, arguments: Sequence[Any]) -> Mapping[str, Any]:
    if model.network is None:
        return {}
    fed = {name: tensors.to_array(arguments[position]) for name, position in model.exported.inputs}
    return model.network.run(fed)


def _value(result: Result, arguments: Sequence[Any], made: Mapping[str, Any]) -> Any:
    if isinstance(result, Fixed):
        return result.value
    if isinstance(result, Given):
        return arguments[result.position]
    return tensors.from_array(made[result.name], result.stride, result.device)


def context(device_id: int = 0) -> Context:
    """Return where captured graphs run: an Ascend that compiles whole graphs and keeps types and names."""
    return Context(
        DeviceTarget.ASCEND,
        JitLevel.O2,
        device_id,
        precision_mode=PrecisionMode.MUST_KEEP_ORIGIN_DTYPE,
        keeps_node_names=True,
    )


def compile_graph(
    gm: GraphModule, example_inputs: Sequence[Any], *, device: Device, decompositions: Mapping[Any, Any]
) -> Callable[..., Any]:
    """Compile what torch.compile has captured: forward, and backward where gradients are needed.

    Args:
        gm: The captured graph.
        example_inputs: Its inputs.
        device: Where it runs and what is dumped.
        decompositions: ATen operator -> function that does the same with others.
    """

    def captured(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(CapturedGraph(graph, device))

    compiler = aot_autograd(
        fw_compiler=captured,
        bw_compiler=captured,
        inference_compiler=captured,
        decompositions=dict(decompositions),
    )
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of torch have no counterpart
        compiled: Callable[..., Any] = compiler(gm, list(example_inputs))
    return compiled


def _boxed(graph: CapturedGraph) -> Callable[[list[Any]], list[Any]]:
    """Return a graph as AOTAutograd calls it: with one list, emptied to free what it held."""

    def call(arguments: list[Any]) -> list[Any]:
        given = tuple(arguments)
        arguments.clear()
        return graph(*given)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def get_npu_backend(
    *, compiler_config: Any = None, custom_decompositions: Mapping[Any, Any] | None = None
) -> Callable[..., Any]:
    """Return a backend for ``torch.compile``.

    Args:
        compiler_config: A CompilerConfig, None: its defaults, that is no dump.
        custom_decompositions: ATen operator -> function that does the same with other operators.

    Raises:
        ConfigError: The configuration cannot be used.
    """
    where = context()
    plan = None
    device = Device(plan, where)
    return partial(compile_graph, device=device, decompositions=custom_decompositions or {})
