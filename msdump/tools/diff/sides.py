"""One side of a comparison: a model as a variant runs it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from msdump.device.float_status import float_status_of
from msdump.device.precision import rounding
from msdump.errors import InputError
from msdump.execute.compilation import emulated
from msdump.execute.kernels import KernelFactory, RoundingsOf, as_the_model_says
from msdump.execute.operators.float64.conversions import doubled
from msdump.execute.program import Program
from msdump.execute.runtime import Runtime, cuda_runtime, runtime
from msdump.execute.training.runs import Runs
from msdump.execute.training.state import TrainingState
from msdump.execute.variants.optimisation import optimise
from msdump.execute.variants.wide_kernels import Float64Kernels
from msdump.execute.weights import WeightCopies
from msdump.graph import loader
from msdump.graph.graph import IN_MEMORY, Graph, Node
from msdump.graph.kernel.emulation import Rounding
from msdump.observer import Observer
from msdump.plan import DeviceTarget, PrecisionMode
from msdump.tools.diff.variants import Engine, Variant


@dataclass(slots=True)
class Side:
    """A network that one side runs.

    Attributes:
        variant: What it runs on.
        model: The graph of the model, or of its training step, before it is compiled.
        graph: The graph that runs.
        state: The variables.
        copies: What is made of the model's weights; sides of one model share it.
        runtime: What runs its operators.
    """

    variant: Variant
    model: Graph
    graph: Graph
    state: TrainingState
    copies: WeightCopies
    runtime: Runtime
    _runs: Runs = field(repr=False)

    def run(self, inputs: Mapping[str, Any], observer: Observer, *, trains: bool) -> list[Any]:
        """Run once; return the outputs.

        Args:
            inputs: Inputs by name, as ``feeds.bind`` returns them.
            observer: Sees the operators.
            trains: Whether the run is a step of training, after which the variables have new values.

        Raises:
            MsdumpError: As for ``Program.run``.
        """
        return (self._runs.train if trains else self._runs.infer)(inputs, observer)

    def forget_sessions(self) -> None:
        """Let each session end once it has run: no run comes after the next one."""
        self._runs.forget_sessions()

    def infer(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Run once without an observer; return the outputs."""
        return self._runs.infer(inputs, None)

    def variables(self) -> dict[str, np.ndarray]:
        """Return what the variables hold before the next run, as views."""
        return self.state.arrays()

    @property
    def arithmetic(self) -> RoundingsOf:
        """How it computes any operator, one of another side's graph as well."""
        context = self.variant.context
        if context.device_target is not DeviceTarget.ASCEND:
            return as_the_model_says
        mode = context.precision_mode or PrecisionMode.ALLOW_FP32_TO_FP16

        def roundings(node: Node) -> tuple[Rounding, ...]:
            types = (part.operator.op_type for part in node.members)
            return tuple(rounding(op_type, mode, context.overflow_mode) for op_type in types)

        return roundings


def make_side(graph: Graph, variant: Variant, copies: WeightCopies, *, trains: bool) -> Side:
    """Compile a model for a variant; no operator runs but those whose results are constants.

    Args:
        graph: The model.
        variant: What it runs on.
        copies: What is made of its weights.
        trains: Whether its training step is to run.

    Raises:
        InputError: The variant is none for this model, or for training.
        NotAvailableError: There is no such device, or the model describes no training.
        UnsupportedOpError: It describes one that cannot run.
    """
    if variant.engine is Engine.OPTIMISED:
        return _optimised_side(graph, variant, copies, trains=trains)
    is_wide = variant.engine is Engine.FLOAT64
    state = TrainingState(graph, doubled) if is_wide else TrainingState(graph)
    if trains:
        graph = graph.training_step()
        state.begin()
    device = emulated(graph, None, variant.context)
    compiled = graph if device is None else device.graph
    status = float_status_of(graph, variant.context)
    on = _runtime(variant)
    roundings = as_the_model_says if device is None else device.roundings
    kernels = Float64Kernels if is_wide else KernelFactory
    program = Program(compiled, roundings, copies, on=on, float_status=status, kernels=kernels)
    return Side(variant, graph, compiled, state, copies, on, Runs(program, state))


def _optimised_side(graph: Graph, variant: Variant, copies: WeightCopies, *, trains: bool) -> Side:
    if trains:
        raise InputError(f"variant {variant.text}: onnxruntime optimises no step of training")
    if graph.source == IN_MEMORY:
        raise InputError(f"variant {variant.text}: onnxruntime optimises the file of a model")
    with tempfile.TemporaryDirectory(prefix="msdump_") as folder:
        optimised = loader.load(optimise(graph.source, variant.optimisation, folder))
    state = TrainingState(optimised)
    # what the optimiser left as it was stays one array for both sides
    weights = {name: _kept(graph.weights.get(name), array) for name, array in optimised.weights.items()}
    optimised = replace(optimised, source=graph.source, weights=weights)
    runs = Runs(Program(optimised, copies=copies), state)
    return Side(variant, graph, optimised, state, copies, runtime(), runs)


def _kept(original: np.ndarray | None, array: np.ndarray) -> np.ndarray:
    if original is None or original.dtype != array.dtype or original.shape != array.shape:
        return array
    return original if original.tobytes() == array.tobytes() else array


def _runtime(variant: Variant) -> Runtime:
    return cuda_runtime() if variant.context.device_target is DeviceTarget.GPU else runtime()
