"""A training step as one ONNX graph: forward, loss, backward and update of any model with gradient rules."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

import onnx

from msdump import env
from msdump.errors import InputError, name_hint
from msdump.graph import Graph
from msdump.plan import DeviceTarget, OverflowMode
from msdump.training.data_parallel import DataParallel, data_parallel_of
from msdump.training.files import OLDEST_OPSET, OPSET, Model, loaded
from msdump.training.forward import ForwardWriter, scales_and_shifts
from msdump.training.loss_scale import LossScale, OverflowCheck, Rest, loss_scale_of, overflow_check
from msdump.training.losses import Loss, loss_of
from msdump.training.mixed_precision import Layers, layers_of
from msdump.training.optimizers import Optimizer, Trained, TrainedParameter, optimizer_of
from msdump.training.rules import BackwardPass
from msdump.training.symbols import ROOT, WITH_LOSS, StepTensor
from msdump.training.writer import StepWriter

_log = logging.getLogger("msdump.training")


def step_graph(
    model: Model,
    loss: str | Loss = "softmax_cross_entropy",
    optimizer: str | Optimizer = "momentum:0.01,0.9",
    *,
    trainable: str | Sequence[str] | None = None,
    sizes: Mapping[str, int] = MappingProxyType({}),
    data_parallel: bool | int | DataParallel = False,
    seed: int = 0,
    batch_statistics: bool = True,
    precision: str | Mapping[str, str] | None = None,
    loss_scale: float | str | LossScale | None = None,
    device_target: str = "CPU",
    overflow_mode: str | None = None,
) -> onnx.ModelProto:
    """Return the training step of a model, in MindSpore's operators.

    Its inputs are the model's and the labels, ``inputs0``, ``inputs1``, ... as in MindSpore; its first
    output is the loss, the others are the new values of its variables, which ``training_info`` binds to
    the initializers.

    Args:
        model: A path, an ``onnx.ModelProto``, or a serialised one.
        loss: Name of a loss, or one of one's own.
        optimizer: Name and numbers, ``momentum:0.01,0.9``, or an optimizer.
        trainable: Initializers that are trained, or the one; None: all floating-point ones that the loss
            depends on, but for moving statistics.
        sizes: Sizes of dynamic dimensions by name.
        data_parallel: Average the gradients over all ranks: True (those of this run), a number of ranks, or
            how they are reduced.
        seed: What the random numbers of Dropout come from: each has a seed of its own.
        batch_statistics: Whether BatchNormalization uses the statistics of the batch and moves the moving
            ones; False: it uses the moving ones, which stay as they are.
        precision: "float16" or "bfloat16": the network computes in this type, as in MindSpore's amp level O2;
            or such types of layers by module path, ``{"fc1": "float16"}``, as ``to_float`` gives them. None:
            in the model's own types.
        loss_scale: A number that the loss is scaled with, ``dynamic:65536,factor=2,window=2000``, or a scale.
        device_target: The device whose form the step has. On "CPU" operators of half types that have only
            float32 kernels there read casts; on "Ascend" one operator, AllFinite, checks all gradients for
            overflow, elsewhere operators for each one.
        overflow_mode: "INFNAN_MODE" or "SATURATION_MODE": what float16 results beyond the range become on
            Ascend; None: as MS_ASCEND_CHECK_OVERFLOW_MODE says. In SATURATION_MODE a dynamic loss scale asks
            the device's overflow status, by NPUClearFloatStatusV2 before the first gradient and
            NPUGetFloatStatusV2 behind the last one. These have no body: msdump alone runs such a step.

    Raises:
        GraphError: The model is faulty, or sizes that a gradient needs are not known.
        UnsupportedOpError: An operator without a gradient rule; it is named with scope and source line.
        InputError: An unknown loss, optimizer, parameter, element type, layer, device or overflow mode.
    """
    graph = loaded(model, sizes)
    device = _chosen(DeviceTarget, device_target, "device")
    mode = _overflow_mode(overflow_mode, device)
    writer = StepWriter(
        _opset(graph),
        seed=seed,
        batch_statistics=batch_statistics,
        has_wide_kernels=device is DeviceTarget.CPU,
    )
    trained = (trainable,) if isinstance(trainable, str) else trainable
    layers, parallel = layers_of(precision), data_parallel_of(data_parallel)
    names = [f"inputs{number}" for number in range(len(graph.inputs) + 1)]
    step = _Step(graph, writer, layers, names, trained)
    chosen_loss = loss_of(loss)
    rest = step.rest(optimizer_of(optimizer), parallel, overflow_check(device, mode, parallel))
    return step.model(chosen_loss, rest, loss_scale_of(loss_scale))


def eval_graph(
    model: Model,
    loss: str | Loss | None = "softmax_cross_entropy",
    *,
    sizes: Mapping[str, int] = MappingProxyType({}),
    precision: str | Mapping[str, str] | None = None,
    device_target: str = "CPU",
) -> onnx.ModelProto:
    """Return the graph that evaluates a model with the state of its training step.

    It has the operators, scopes and parameters of the step's forward pass, without dropout and with the
    moving statistics of normalisations. Its inputs are ``data`` and ``label``, as in MindSpore (``data``,
    ``data1``, ... where the model has several), its outputs the loss and the model's. Without a loss it is
    the network called alone, with inputs and outputs of its own. It is loaded by
    ``msdump.load(graph, state_of=network)``, or by ``msdump.Model``.

    Args:
        model: A path, an ``onnx.ModelProto``, or a serialised one.
        loss: Name of a loss, or one of one's own; None: no loss.
        sizes: Sizes of dynamic dimensions by name.
        precision: As for ``step_graph``.
        device_target: As for ``step_graph``.

    Raises:
        GraphError: The model is faulty.
        InputError: An unknown loss, element type or layer.
    """
    graph = loaded(model, sizes)
    has_wide_kernels = _chosen(DeviceTarget, device_target, "device") is DeviceTarget.CPU
    writer = StepWriter(_opset(graph), batch_statistics=False, drops=False, has_wide_kernels=has_wide_kernels)
    data = [
        value.name if loss is None else f"data{number or ''}" for number, value in enumerate(graph.inputs)
    ]
    step = _Step(graph, writer, layers_of(precision), [*data, "label"])
    return step.network() if loss is None else step.evaluation(loss_of(loss))


def _opset(graph: Graph) -> int:
    return max(graph.opsets.get("", OPSET), OLDEST_OPSET)


def _overflow_mode(name: str | None, device: DeviceTarget) -> OverflowMode:
    configured = env.read(env.CHECK_OVERFLOW_MODE) if device is DeviceTarget.ASCEND else None
    # in upper or lower case, as the environment's
    return _chosen(OverflowMode, (name or configured or OverflowMode.INFNAN).upper(), "overflow mode")


_Choice = TypeVar("_Choice", bound=StrEnum)


def _chosen(choices: type[_Choice], name: str, title: str) -> _Choice:
    if name not in set(choices):
        raise InputError(
            f"unknown {title} {name!r}: allowed are {', '.join(choices)}{name_hint(name, choices)}"
        )
    return choices(name)


class _Step:
    """One step graph under construction."""

    def __init__(
        self,
        graph: Graph,
        writer: StepWriter,
        layers: Layers,
        names: Sequence[str],
        trainable: Sequence[str] | None = None,
    ) -> None:
        *inputs, self._label_name = names
        self._graph = graph
        self._op = writer
        self._layers = layers
        renamed = {value.name: name for value, name in zip(graph.inputs, inputs, strict=True)}
        self._forward = ForwardWriter(graph, writer, trainable, renamed)

    def model(self, loss: Loss, rest: Rest, scale: LossScale) -> onnx.ModelProto:
        """Write the whole step."""
        value, _ = self._loss(loss)
        seed = scale.seed(self._op, value, rest)
        trained = self._backward(value, seed)
        others = scale.write(self._op, trained, replace(rest, seed=seed))
        return self._forward.assembled([value, *others])

    def evaluation(self, loss: Loss) -> onnx.ModelProto:
        """Write the forward pass and the loss."""
        value, outputs = self._loss(loss)
        return self._forward.assembled([value, *outputs])

    def network(self) -> onnx.ModelProto:
        """Write the forward pass alone."""
        return self._forward.assembled(self._forward.network(self._layers))

    def _loss(self, loss: Loss) -> tuple[StepTensor, tuple[StepTensor, ...]]:
        """Write the forward pass with the loss; return it and the network's outputs."""
        outputs = self._forward.network(self._layers)
        label = outputs[0]
        if loss.label is not None:
            dtype, shape = loss.label(label)
            label = self._forward.input(StepTensor(self._op.free_name(self._label_name), dtype, shape))
        with self._op.at(WITH_LOSS.inside(("_loss_fn", loss.cell))):
            return loss.write(self._op, outputs[0], label), outputs

    def _backward(self, loss: StepTensor, seed: StepTensor) -> Trained:
        """Write the gradients; return the parameters that have one."""
        parameters = self._forward.parameters()
        backward = BackwardPass(self._op, tuple(self._op.operators), [item.name for item in parameters])
        backward.run(loss, seed)
        pairs = [(item, backward.gradient(item)) for item in parameters]
        trained = [(item, gradient) for item, gradient in pairs if gradient is not None]
        if not trained:
            _log.warning("%s: nothing is trained: the loss depends on no parameter", self._graph.source)
        return trained

    def rest(self, optimizer: Optimizer, parallel: DataParallel | None, check: OverflowCheck) -> Rest:
        """Return what the step has beside loss and gradients."""
        place = ROOT.inside(("optimizer", optimizer.cell))
        normalizing, state = scales_and_shifts(self._graph), self._forward.state

        def reduce(trained: Trained) -> Trained:
            return trained if parallel is None else parallel.write(self._op, trained)

        def update(trained: Trained) -> None:
            parameters = [TrainedParameter(item, dy, item.name in normalizing) for item, dy in trained]
            with self._op.at(place):
                optimizer.write(self._op, parameters, state)

        return Rest(reduce, update, place, state, check)
