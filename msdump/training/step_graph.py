"""A training step as one ONNX graph: forward, loss, backward and update; from a model file, to a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

import onnx
from onnx import external_data_helper, version_converter

from msdump import env, reading
from msdump.errors import GraphError, InputError, name_hint
from msdump.graph import IN_MEMORY, Graph, functions, loader, names, validity
from msdump.graph.primitives import writing
from msdump.plan import DeviceTarget, OverflowMode
from msdump.store.write import write_file
from msdump.training import options
from msdump.training.forward import ForwardWriter, scales_and_shifts
from msdump.training.losses import Loss, loss_of
from msdump.training.mixed_precision import layers_of
from msdump.training.optimizers import GroupChoices, OptimizerChoice, optimizers_of
from msdump.training.rules import BackwardPass
from msdump.training.update import (
    ACCUMULATIONS,
    CLIPPINGS,
    LOSS_SCALES,
    Accumulation,
    Clipping,
    DataParallel,
    LossScale,
    OverflowCheck,
    Update,
    cast,
    data_parallel_of,
)
from msdump.training.writer import StepWriter

_log = logging.getLogger("msdump.training")

Model = str | os.PathLike[str] | onnx.ModelProto | bytes

OLDEST_OPSET: Final = 18
"""Axes of reductions are inputs from here on."""

OPSET: Final = 20
"""The opset that older models are converted to."""


def step_graph(
    model: Model,
    loss: str | Loss = "softmax_cross_entropy",
    optimizer: OptimizerChoice = "momentum:0.01,0.9",
    *,
    groups: GroupChoices = MappingProxyType({}),
    trainable: str | Sequence[str] | None = None,
    sizes: Mapping[str, int] = MappingProxyType({}),
    data_parallel: bool | int | DataParallel = False,
    seed: int = 0,
    batch_statistics: bool = True,
    precision: str | Mapping[str, str] | None = None,
    loss_scale: float | str | LossScale | None = None,
    accumulate: int | str | Accumulation | None = None,
    clip_gradients: str | Clipping | None = None,
    device_target: str = "CPU",
    overflow_mode: str | None = None,
) -> onnx.ModelProto:
    """Return the training step of a model, in MindSpore's operators.

    The inputs are the model's inputs and the labels, with MindSpore's names ``inputs0``, ``inputs1``, ... The
    first output is the loss. The other outputs are the new values of the variables, and ``training_info``
    binds them to the initializers.

    Args:
        model: A path, an ``onnx.ModelProto``, or its bytes.
        loss: Name and options of a loss, ``mse``, ``smooth_l1:sum,beta=0.5``, or a ``Loss``.
        optimizer: Name and numbers, ``momentum:0.01,0.9``, or an optimizer. Several by patterns of parameter
            names, ``{"wide*": "sgd:0.1", "*": Adam()}``; the first match counts.
        groups: Learning rates and weight decays that replace the optimizer's, by patterns of parameter
            names, ``{"*.bias": {"weight_decay": 0.0}, "embed*": "learning_rate=0.01"}``; the first match
            counts.
        trainable: Name or names of the trained initializers; None: all floating-point initializers that the
            loss depends on, except moving statistics.
        sizes: Sizes of dynamic dimensions by name.
        data_parallel: Average the gradients over all ranks: True (the ranks of this run), a number of ranks,
            or the kind of reduction.
        seed: Seed for the seeds of all Dropouts.
        batch_statistics: True: BatchNormalization uses the statistics of the batch and updates the moving
            statistics. False: it uses the moving statistics without an update.
        precision: "float16" or "bfloat16": type of the computation, as in MindSpore's amp level O2; or types
            by module path, ``{"fc1": "float16"}``, as with ``to_float``. None: the model's own types.
        loss_scale: Factor of the loss, ``dynamic:65536,factor=2,window=2000``, or a scale.
        accumulate: Number of steps to add gradients before an update, ``mean:4`` for the mean, or an
            ``Accumulation``; None: an update in each step.
        clip_gradients: ``global_norm:1.0`` limits the norm of all gradients together, ``value:-1,1`` limits
            each element; or a ``Clipping``. None: no limit. The limit applies to the accumulated sum.
        device_target: The device. On "CPU", casts precede half-type operators that have only float32 kernels.
            On "Ascend", one operator, AllFinite, checks all gradients for overflow; on other devices, each
            gradient has its own operators.
        overflow_mode: "INFNAN_MODE" or "SATURATION_MODE": float16 results beyond the range on Ascend; None:
            MS_ASCEND_CHECK_OVERFLOW_MODE. In SATURATION_MODE a dynamic loss scale reads the device's overflow
            status with NPUClearFloatStatusV2 before the first gradient and NPUGetFloatStatusV2 after the last
            one. These operators have no body, so only msdump runs such a step.

    Raises:
        GraphError: The model is not valid, or a gradient needs a size that is unknown.
        UnsupportedOpError: An operator has no gradient rule; the message has its scope and source line.
        InputError: An unknown loss, optimizer, clipping, accumulation, parameter, element type, layer, device
            or overflow mode.
    """
    graph = _loaded(model, sizes)
    device = _chosen(DeviceTarget, device_target, "device")
    configured = env.read(env.CHECK_OVERFLOW_MODE) if device is DeviceTarget.ASCEND else None
    # in upper or lower case, as the environment's
    wanted = (overflow_mode or configured or OverflowMode.INFNAN).upper()
    mode = _chosen(OverflowMode, wanted, "overflow mode")
    writer = StepWriter(
        _opset(graph),
        seed=seed,
        batch_statistics=batch_statistics,
        has_wide_kernels=device is DeviceTarget.CPU,
    )
    chosen = (trainable,) if isinstance(trainable, str) else trainable
    layers, parallel = layers_of(precision), data_parallel_of(data_parallel)
    *data, label = (f"inputs{number}" for number in range(len(graph.inputs) + 1))
    criterion, updaters = loss_of(loss), optimizers_of(optimizer, groups, scales_and_shifts(graph))
    check = OverflowCheck(device, mode, parallel)
    scale = options.parsed(
        1 if loss_scale is None else loss_scale, LOSS_SCALES, "loss scale", number="static"
    )
    accumulation = options.parsed(accumulate, ACCUMULATIONS, "accumulation", number="sum")
    clipping = options.parsed(clip_gradients, CLIPPINGS, "clipping")
    with writing(writer):
        forward = ForwardWriter(graph, chosen, data)
        update = Update(updaters, parallel, forward.state, check, accumulation, clipping)
        output, *_ = forward.network(layers)
        value = forward.loss(criterion, output, label)
        first = scale.seed(value, update)
        parameters = forward.parameters()
        backward = BackwardPass([item.name for item in parameters])
        backward.run(value, cast(first, value.dtype))
        pairs = [(item, backward.gradient(item)) for item in parameters]
        trained = update.optimizers.arranged([(item, dy) for item, dy in pairs if dy is not None])
        if not trained:
            _log.warning("%s: nothing is trained: the loss depends on no parameter", graph.source)
        return forward.assembled([value, *scale.write(trained, first, update)])


def eval_graph(
    model: Model,
    loss: str | Loss | None = "softmax_cross_entropy",
    *,
    sizes: Mapping[str, int] = MappingProxyType({}),
    precision: str | Mapping[str, str] | None = None,
    device_target: str = "CPU",
) -> onnx.ModelProto:
    """Return the graph that evaluates a model with the state of its training step.

    The graph has the operators, scopes and parameters of the step's forward pass, without dropout and with
    the moving statistics of normalisations. The inputs are ``data`` and ``label``, as in MindSpore (``data``,
    ``data1``, ... for several inputs), and the outputs are the loss and the outputs of the model. Without a
    loss, the inputs and outputs are the model's own. Load the graph with
    ``msdump.load(graph, state_of=network)`` or ``msdump.Model``.

    Args:
        model: A path, an ``onnx.ModelProto``, or its bytes.
        loss: As in ``step_graph``; None: no loss.
        sizes: Sizes of dynamic dimensions by name.
        precision: As in ``step_graph``.
        device_target: As in ``step_graph``.

    Raises:
        GraphError: The model is not valid.
        InputError: An unknown loss, element type or layer.
    """
    graph = _loaded(model, sizes)
    has_wide_kernels = _chosen(DeviceTarget, device_target, "device") is DeviceTarget.CPU
    writer = StepWriter(_opset(graph), batch_statistics=False, drops=False, has_wide_kernels=has_wide_kernels)
    layers = layers_of(precision)
    criterion = None if loss is None else loss_of(loss)
    data = [f"data{number or ''}" for number in range(len(graph.inputs))]
    with writing(writer):
        forward = ForwardWriter(graph, None, () if criterion is None else data)
        outputs = forward.network(layers)
        losses = [] if criterion is None else [forward.loss(criterion, outputs[0], "label")]
        return forward.assembled([*losses, *outputs])


def _opset(graph: Graph) -> int:
    return max(graph.opsets.get("", OPSET), OLDEST_OPSET)


_Choice = TypeVar("_Choice", bound=StrEnum)


def _chosen(choices: type[_Choice], name: str, title: str) -> _Choice:
    if name not in set(choices):
        raise InputError(
            f"unknown {title} {name!r}: must be one of {', '.join(choices)}{name_hint(name, choices)}"
        )
    return choices(name)


def _loaded(model: Model, sizes: Mapping[str, int]) -> Graph:
    """Return the graph of a model, converted to an opset that training supports; messages name the file."""
    if isinstance(model, (str, os.PathLike)) and loader.is_mindir(model):
        raise GraphError(
            f"{Path(model)}: gradients are derived of ONNX models alone; export the training step from"
            " MindSpore (nn.TrainOneStepCell) as a .mindir, which msdump run takes"
        )
    return loader.load(_converted(model), sizes=sizes, source=_source_name(model))


def _source_name(model: Model) -> str:
    return IN_MEMORY if isinstance(model, (onnx.ModelProto, bytes)) else str(Path(model))


def _converted(model: Model) -> Model:
    """Return a model, converted if its opset is older than training supports.

    An unreadable model is returned as it is: the loader raises the error.

    Raises:
        GraphError: ONNX cannot convert the model.
    """
    try:
        version = validity.opsets(_message(model, validity.skeleton)).get("", 1)
        if version >= OLDEST_OPSET:
            return model
        message = _inlined(_whole(model))
    except (OSError, GraphError, onnx.checker.ValidationError):  # ValidationError: faulty external data
        return model
    try:
        newer = version_converter.convert_version(message, OPSET)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(
            f"{_source_name(model)}: the model has opset {version} and cannot be converted to opset {OPSET},"
            f" which training needs: {reason}; export it with opset {OLDEST_OPSET} or newer"
        ) from error
    metadata = {node.name: node.metadata_props for node in message.graph.node if node.name}
    for node in newer.graph.node:  # the converter drops metadata of nodes
        if node.name in metadata and not node.metadata_props:
            node.metadata_props.extend(metadata[node.name])
    return newer


def _inlined(message: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its functions inlined, since the version converter drops functions."""
    if not message.functions:
        return message
    copy = onnx.ModelProto()
    copy.CopyFrom(message)
    names.name_nodes(copy.graph)  # nodes inside functions are named after calls
    return functions.inline(copy)


def _message(model: Model, parse: Callable[[memoryview], onnx.ModelProto]) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    return parse(memoryview(model if isinstance(model, bytes) else reading.map_file(Path(model))))


def _whole(model: Model) -> onnx.ModelProto:
    """Return a model as a message with all weights."""
    message = _message(model, lambda data: onnx.load_from_string(bytes(data)))
    if not isinstance(model, (onnx.ModelProto, bytes)):
        external_data_helper.load_external_data_for_model(message, str(Path(model).parent))
    return message


_MOST_BYTES: Final = 2**31 - 1
"""Of a protobuf message."""

_SMALL: Final = 1024  # bytes; smaller weights stay in the model

_ALIGNMENT: Final = 4096  # of each weight in the file of weights, for readers that map the file


def write_step(model: onnx.ModelProto, path: str, most_bytes: int = _MOST_BYTES) -> tuple[str, ...]:
    """Write a step graph; return the paths of its files.

    Args:
        model: The graph. Weights in a separate file are removed from the graph.
        path: The file, which must end in .onnx; a larger model has its weights in ``{path}.data``.
        most_bytes: Largest size of a single file, in bytes.

    Raises:
        InputError: The path does not end in .onnx.
        DumpWriteError: A file cannot be written.
    """
    file = Path(path)
    if file.suffix != ".onnx":
        raise InputError(f"step graph {path!r}: the name must end in .onnx")
    paths: tuple[str, ...] = (path,)
    graph = model.graph
    parts = (model.functions, graph.node, graph.value_info, graph.input, graph.output)
    weights = sum(len(tensor.raw_data) + _SMALL for tensor in graph.initializer)
    if (weights + sum(part.ByteSize() for repeated in parts for part in repeated)) > most_bytes:
        data = f"{file.name}.data"
        write_file(file.with_name(data), _taken_out(model, data))
        paths = (path, f"{path}.data")
    write_file(file, [model.SerializeToString()])
    return paths


def _taken_out(model: onnx.ModelProto, location: str) -> Iterator[bytes]:
    """Yield the bytes of a file of weights, and note in the model where each one stands in it."""
    offset = 0
    for tensor in model.graph.initializer:
        data = tensor.raw_data
        if len(data) < _SMALL:
            continue
        padding = -offset % _ALIGNMENT
        yield bytes(padding)
        offset += padding
        external_data_helper.set_external_data(tensor, location, offset=offset, length=len(data))
        tensor.ClearField("raw_data")
        offset += len(data)
        yield data
