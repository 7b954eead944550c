"""A training step as one ONNX graph: forward, loss, backward and update of any model with gradient rules."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper, version_converter

from msdump import dtypes, reading
from msdump.errors import GraphError, InputError, name_hint
from msdump.graph import loader, validity
from msdump.graph.graph import Graph, Node
from msdump.graph.message import split_model
from msdump.plan import DeviceTarget
from msdump.training import gradients, lowerings, operators, roles  # noqa: F401 - they fill the tables
from msdump.training.backward import BackwardPass
from msdump.training.data_parallel import DataParallel, data_parallel_of
from msdump.training.losses import Loss, loss_of
from msdump.training.lowering import lower
from msdump.training.optimizers import Optimizer, Trained, TrainedParameter, optimizer_of, scales_and_shifts
from msdump.training.precision.loss_scale import LossScale, Rest, loss_scale_of
from msdump.training.precision.mixed import Layers, MixedPrecision, layers_of
from msdump.training.scopes import ROOT, WITH_LOSS, Place, backbone, place_of
from msdump.training.symbols import StepOperator, StepTensor, absent_slots, info
from msdump.training.writer import IR_VERSION, StepWriter

Model = str | os.PathLike[str] | onnx.ModelProto | bytes

_OLDEST_OPSET: Final = 18  # axes of reductions are inputs from here on
_OPSET: Final = 20


def step_graph(
    model: Model,
    loss: str | Loss = "softmax_cross_entropy",
    optimizer: str | Optimizer = "momentum:0.01,0.9",
    *,
    trainable: Sequence[str] | None = None,
    sizes: Mapping[str, int] = MappingProxyType({}),
    data_parallel: bool | int | DataParallel = False,
    seed: int = 0,
    batch_statistics: bool = True,
    precision: str | Mapping[str, str] | None = None,
    loss_scale: float | str | LossScale | None = None,
    device_target: str = "CPU",
) -> onnx.ModelProto:
    """Return the training step of a model, in MindSpore's operators.

    Its inputs are the model's and the labels, ``inputs0``, ``inputs1``, ... as in MindSpore; its first
    output is the loss, the others are the new values of its variables, which ``training_info`` binds to
    the initializers.

    Args:
        model: A path, an ``onnx.ModelProto``, or a serialised one.
        loss: Name of a loss, or one of one's own.
        optimizer: Name and numbers, ``momentum:0.01,0.9``, or an optimizer.
        trainable: Initializers that are trained; None: all floating-point ones that the loss depends on,
            but for moving statistics.
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

    Raises:
        GraphError: The model is faulty, or sizes that a gradient needs are not known.
        UnsupportedOpError: An operator without a gradient rule; it is named with scope and source line.
        InputError: An unknown loss, optimizer, parameter, element type or layer.
    """
    graph = loader.load(_converted(model), sizes=sizes)
    opset = max(graph.opsets.get("", _OPSET), _OLDEST_OPSET)
    device = _device(device_target)
    writer = StepWriter(
        opset, seed=seed, batch_statistics=batch_statistics, has_wide_kernels=device is DeviceTarget.CPU
    )
    choices = _Choices(trainable, data_parallel_of(data_parallel), layers_of(precision), device)
    step = _Step(graph, writer, choices)
    return step.model(loss_of(loss), optimizer_of(optimizer), loss_scale_of(loss_scale))


def _device(name: str) -> DeviceTarget:
    if name not in set(DeviceTarget):
        raise InputError(
            f"unknown device {name!r}: allowed are {', '.join(DeviceTarget)}{name_hint(name, DeviceTarget)}"
        )
    return DeviceTarget(name)


def _converted(model: Model) -> Model:
    """Return a model whose operators are of an opset that bodies and rules are written in."""
    version = validity.opsets(_message(model)).get("", 1)
    if version >= _OLDEST_OPSET:
        return model
    message = _whole(model)
    metadata = {node.name: node.metadata_props for node in message.graph.node if node.name}
    converted = version_converter.convert_version(message, _OPSET)
    for node in converted.graph.node:  # the converter forgets where nodes come from
        if node.name in metadata and not node.metadata_props:
            node.metadata_props.extend(metadata[node.name])
    return converted


def _message(model: Model) -> onnx.ModelProto:
    """Return a model as a message, without its large weights."""
    if isinstance(model, onnx.ModelProto):
        return model
    data = memoryview(model if isinstance(model, bytes) else reading.map_file(Path(model)))
    return validity.parsed(split_model.split(data).message)


def _whole(model: Model) -> onnx.ModelProto:
    """Return a model as a message with all weights."""
    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, bytes):
        return onnx.load_from_string(model)
    message = onnx.load_from_string(bytes(reading.map_file(Path(model))))
    external_data_helper.load_external_data_for_model(message, str(Path(model).parent))
    return message


@dataclass(frozen=True, slots=True)
class _Choices:
    """What the caller chose, besides loss and optimizer."""

    trainable: Sequence[str] | None
    parallel: DataParallel | None
    layers: Layers
    device_target: DeviceTarget


class _Step:
    """One step graph under construction."""

    def __init__(self, graph: Graph, writer: StepWriter, choices: _Choices) -> None:
        self._graph = graph
        self._op = writer
        self._weights: dict[str, np.ndarray] = {}
        self._inputs: list[StepTensor] = []
        self._renamed: dict[str, str] = {}
        self._trainable = choices.trainable
        self._parallel = choices.parallel
        self._layers = choices.layers
        self._device_target = choices.device_target

    def model(self, loss: Loss, optimizer: Optimizer, scale: LossScale) -> onnx.ModelProto:
        """Write the whole step."""
        self._declare()
        outputs = self._forward()
        label_type, label_shape = loss.label(outputs[0])
        label = self._input(StepTensor(f"inputs{len(self._inputs)}", label_type, label_shape))
        with self._op.at(WITH_LOSS.inside(("_loss_fn", loss.cell))):
            value = loss.write(self._op, outputs[0], label)
        trained = self._backward(value, scale.seed(self._op, value, self._state))
        others = scale.write(self._op, trained, self._rest(optimizer))
        return self._assembled([value, *others])

    def _backward(self, loss: StepTensor, seed: StepTensor) -> Trained:
        """Write the gradients; return the parameters that have one."""
        parameters = self._parameters()
        backward = BackwardPass(self._op, tuple(self._op.operators), [item.name for item in parameters])
        backward.run(loss, seed)
        pairs = [(item, backward.gradient(item)) for item in parameters]
        return [(item, gradient) for item, gradient in pairs if gradient is not None]

    def _rest(self, optimizer: Optimizer) -> Rest:
        """Return what follows the gradients."""
        place = ROOT.inside(("optimizer", optimizer.cell))
        normalizing = scales_and_shifts(self._graph)

        def reduce(trained: Trained) -> Trained:
            return trained if self._parallel is None else self._parallel.write(self._op, trained)

        def update(trained: Trained) -> None:
            parameters = [TrainedParameter(item, dy, item.name in normalizing) for item, dy in trained]
            with self._op.at(place):
                optimizer.write(self._op, parameters, self._state)

        return Rest(reduce, update, place, self._state, self._device_target is DeviceTarget.ASCEND)

    def _declare(self) -> None:
        """Take over inputs and weights, and keep the names of all values of the model."""
        self._op.reserve(name for node in self._graph.nodes for name in node.outputs)
        for number, value in enumerate(self._graph.inputs):
            self._renamed[value.name] = f"inputs{number}"
            self._input(self._typed(value.name))
        settings = roles.settings(self._graph)
        for name, array in self._graph.weights.items():
            is_constant = name in settings or self._is_constant(name, array)
            tensor = StepTensor(
                name, dtypes.from_numpy(array.dtype), array.shape, array if is_constant else None
            )
            self._op.declare(tensor)
            if not is_constant:
                self._weights[name] = array

    def _is_constant(self, name: str, array: np.ndarray) -> bool:
        """Tell whether a weight is a number of the program: axes, limits, exponents; no parameter."""
        if name in (self._trainable or ()):
            return False
        is_float = StepTensor(name, dtypes.from_numpy(array.dtype), array.shape).is_float
        return name in self._graph.constants or not is_float or array.ndim == 0

    def _input(self, tensor: StepTensor) -> StepTensor:
        self._inputs.append(self._op.declare(tensor))
        return tensor

    def _forward(self) -> tuple[StepTensor, ...]:
        """Write the forward operators; return the outputs of the network, as the loss takes them."""
        around = backbone(self._graph)
        inputs = [item.name for item in self._inputs]
        precision = MixedPrecision(self._layers, around, inputs, self._weights, lower)
        for node in self._graph.nodes:
            if node.bodies:
                raise GraphError(f"{node.operator.full_name}: a branch or loop has no gradient")
            operator = self._operator(node, place_of(node, around))
            if self._layers:
                precision.write(self._op, operator)
            else:
                with self._op.at(operator.place):
                    lower(self._op, operator)
        precision.check()
        outputs = tuple(self._tensor(value.name) for value in self._graph.outputs)
        return tuple(precision.loss_input(self._op, item) for item in outputs) if self._layers else outputs

    def _operator(self, node: Node, place: Place) -> StepOperator:
        return StepOperator(
            node.name,
            node.op_type,
            node.domain,
            node.operator.op_type,
            tuple(self._tensor(name) if name else None for name in node.inputs),
            tuple(self._typed(name) for name in node.outputs if name),
            node.attributes,
            place,
            absent_slots(node.outputs),
        )

    def _tensor(self, name: str) -> StepTensor:
        return self._op.types[self._renamed.get(name, name)]

    def _typed(self, name: str) -> StepTensor:
        kind = self._graph.type_of(name)
        if kind.dtype is None or kind.shape is None:
            raise GraphError(
                f"{self._graph.source}: type and rank of value {name!r} are not known, which gradients need"
            )
        return StepTensor(self._renamed.get(name, name), kind.dtype, kind.shape)

    def _parameters(self) -> list[StepTensor]:
        """Return what is trained, in the order of the model's initializers.

        Raises:
            InputError: A name that is no floating-point initializer.
        """
        state = roles.untrained(self._graph)
        candidates = {
            name: self._op.types[name]
            for name in self._weights
            if self._op.types[name].is_float and name not in state
        }
        if self._trainable is None:
            return list(candidates.values())
        unknown = [name for name in self._trainable if name not in candidates]
        if unknown:
            raise InputError(
                f"{self._graph.source}: no parameters to train: {', '.join(unknown)}; there are "
                f"{', '.join(candidates)}"
            )
        return [tensor for name, tensor in candidates.items() if name in self._trainable]

    def _state(self, name: str, array: np.ndarray, *, is_input: bool = False) -> StepTensor:
        self._weights[name] = array
        tensor = self._op.declare(StepTensor(name, dtypes.from_numpy(array.dtype), array.shape))
        # an initializer that is listed as an input, too, is that input's default
        return self._input(tensor) if is_input else tensor

    def _assembled(self, results: Sequence[StepTensor]) -> onnx.ModelProto:
        outputs = [*map(info, results), *(info(value) for value in self._op.bindings.values())]
        written = {value.name for value in outputs}
        graph = helper.make_graph(
            self._op.written(),
            self._graph.name or "step",
            [info(tensor) for tensor in self._inputs],
            outputs,
            [numpy_helper.from_array(array, name) for name, array in self._weights.items()],
            value_info=[
                info(tensor)
                for node in self._op.operators
                for tensor in node.outputs
                if tensor.name not in written
            ],
        )
        model = helper.make_model(
            graph,
            opset_imports=[*self._op.opsets(), *self._other_opsets()],
            functions=[*self._op.functions.values(), *self._graph.proto.functions],
            ir_version=max(self._graph.ir_version, IR_VERSION),
            producer_name="msdump",
        )
        training = model.training_info.add()
        for name, value in self._op.bindings.items():
            if name not in self._weights:
                raise GraphError(
                    f"{self._graph.source}: {name!r}, a moving statistic, is no initializer and cannot move; "
                    "batch_statistics=False uses it as it is"
                )
            training.update_binding.add(key=name, value=value.name)
        return model

    def _other_opsets(self) -> list[onnx.OperatorSetIdProto]:
        return [
            helper.make_opsetid(domain, version) for domain, version in self._graph.opsets.items() if domain
        ]
