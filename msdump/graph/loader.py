"""Loads an .onnx or .mindir file as a Graph: reads, checks, inlines, names; the builder makes the graph."""

from __future__ import annotations

import logging
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from operator import mul
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import defs, shape_inference

from msdump import dtypes, reading
from msdump.errors import GraphError, passing_over
from msdump.graph import functions, mindir, names, training_info, validity, weights
from msdump.graph.bodies import rewritten
from msdump.graph.builder import Builder, Shared, value_type
from msdump.graph.collectives import COUNTS, HCOM_NAMES, NAMES, Collective
from msdump.graph.graph import (
    CLEAR_FLOAT_STATUS,
    GE_DOMAIN,
    GET_FLOAT_STATUS,
    IN_MEMORY,
    MINDSPORE_DOMAIN,
    Graph,
    Training,
    canonical_domain,
)
from msdump.graph.names import name_nodes
from msdump.graph.operators import CONTROL_FLOW, WITH_MEMORY, is_random
from msdump.graph.order import walk_nodes
from msdump.graph.training_info import TrainingMessage
from msdump.graph.weights import GRAPH_INITIALIZER, MODEL_GRAPH
from msdump.plan import Context
from msdump.record import Buffer
from msdump.threads import new_lock
from msdump.wire import fields, varint

_log: Final = logging.getLogger("msdump.graph")
_DEFAULT: Final = Context()


def load(
    model: str | os.PathLike[str] | onnx.ModelProto | bytes,
    *,
    context: Context = _DEFAULT,
    sizes: Mapping[str, int] = MappingProxyType({}),
    update_binding: Mapping[str, str] | None = None,
    variables: frozenset[str] = frozenset(),
    source: str = "",
    seed: int | None = None,
) -> Graph:
    """Return the graph of a model.

    Large weights are views of the mapped file; no copy of them is made.

    Args:
        model: Path of an .onnx or .mindir file, a ModelProto, or a serialised model.
        context: Where the network runs: whether scopes carry class names (``reserve_class_name_in_scope``),
            and whether composites of a .mindir file run as the kernels of MindSpore's CPU (else each is one
            operator, as on Ascend).
        sizes: Sizes of dynamic dimensions by name, from which the shapes of all values follow; a
            dimension without a name is ``input[axis]``.
        update_binding: The output that each initializer takes after a training step, for a model that
            has no ``training_info``.
        variables: Initializers that the training of another model changes, where this one describes none.
        source: Name in messages of a model that was made from another one; the path, or "<ModelProto>".
        seed: Decides the random numbers of operators without an own seed; None: each run draws others.

    Raises:
        GraphError: Not an ONNX file, truncated, missing external data, or a graph that
            cannot run, or bindings that do not fit; the message names the file and the node.
    """
    if isinstance(model, onnx.ModelProto):
        own_name, folder, data = IN_MEMORY, None, memoryview(model.SerializeToString())
    elif isinstance(model, bytes):
        own_name, folder, data = IN_MEMORY, None, memoryview(model)
    else:
        path = Path(model)
        own_name, folder, data = str(path), path.parent, _map_file(path)
    source = source or own_name
    try:
        loading = _Loading(source, folder, context, sizes, seed)
        if mindir.is_mindir(data, own_name):
            return loading.translated(data)
        return loading.graph(data, update_binding, variables)
    except GraphError as error:
        # called functions do not have the file name: it is added to each message here
        raise type(error)(f"{source}: {error}") from error.__cause__


def _map_file(path: Path) -> memoryview:
    try:
        data = reading.map_file(path)
    except OSError as error:
        raise GraphError(f"{path}: the model cannot be read: {error.strerror}") from error
    if not data:
        raise GraphError(f"{path}: the file is empty; give an ONNX model")
    return data


class _Loading:
    def __init__(
        self, source: str, folder: Path | None, context: Context, sizes: Mapping[str, int], seed: int | None
    ) -> None:
        self._source = source
        self._seed = seed
        self._files = weights.SideFiles(folder)
        self._context = context
        self._sizes = sizes

    def graph(
        self, data: memoryview, update_binding: Mapping[str, str] | None, variables: frozenset[str]
    ) -> Graph:
        # protobuf would copy every weight; shape inference needs the small ones only
        split = weights.split(data)
        model = validity.parsed(split.message)
        functions.restore_calls(model)
        facts = mindir.kept_facts(model)
        raw = np.frombuffer(data, np.uint8)
        parts = {position: raw[start:end] for position, (start, end) in split.raw_data.items()}
        initializers = self._initializers(model.graph, parts)
        training = training_info.take(model, update_binding)
        if training is None:
            return _with_facts(self._build(model, initializers, variables), facts)
        if training.obstacle:
            graph = self._build(model, initializers, variables)
            return replace(graph, training=Training(obstacle=training.obstacle))
        return _with_facts(self._trained(model, initializers, training, parts), facts)

    def translated(self, data: memoryview) -> Graph:
        """Return the graph of a .mindir file."""
        model = self.translation(data)
        variables = frozenset(model.bindings)
        graph = self._build(model.message, model.weights, variables, is_typed=True)
        graph = _with_facts(graph, mindir.facts_of(model))
        return replace(graph, bindings=model.bindings, training=Training()) if variables else graph

    def translation(self, data: memoryview) -> mindir.TranslatedModel:
        """Return a .mindir file as ONNX; parts that the reader passes over are logged."""
        model = mindir.TranslatedModel(mindir.read(data, self._files), self._context)
        for note in model.notes:
            _log.warning("%s: %s", self._source, note)
        return model

    def _trained(
        self,
        model: onnx.ModelProto,
        initializers: dict[str, np.ndarray],
        training: TrainingMessage,
        parts: Mapping[int, np.ndarray],
    ) -> Graph:
        step, initialization = None, None
        if training.step is not None:
            # initializers of the model are the same arrays in the step; the algorithm's come behind them
            own = {**self._initializers(training.step.graph, parts), **initializers}
            validity.check_names(training.step.graph)
            step = self._build(training.step, own, training.variables)
        if training.initialization is not None:
            own = self._initializers(training.initialization.graph)
            initialization = self._build(training.initialization, own)
        # the model comes last, since building renames and inlines its message in place
        graph = self._build(model, initializers, training.variables)
        whole = step or graph
        bindings = training_info.checked_bindings(training.bindings, whole, whole, "update_binding")
        initial_values = {}
        if initialization is not None:
            pairs = training.initial_values
            initial_values = training_info.checked_bindings(
                pairs, whole, initialization, "initialization_binding"
            )
        if step is None:
            graph = replace(graph, bindings=bindings)
        else:
            step = replace(step, bindings=bindings, training=Training())
        return replace(graph, training=Training(step, initialization, initial_values))

    def _initializers(
        self, graph: onnx.GraphProto, parts: Mapping[int, np.ndarray] = MappingProxyType({})
    ) -> dict[str, np.ndarray]:
        initializers = {
            tensor.name: weights.to_array(tensor, parts.get(position), self._files)
            for position, tensor in enumerate(graph.initializer)
        }
        for sparse in graph.sparse_initializer:
            initializers[sparse.values.name] = weights.sparse_to_array(sparse, self._files)
        return initializers

    def _build(
        self,
        model: onnx.ModelProto,
        initializers: dict[str, np.ndarray],
        variables: frozenset[str] = frozenset(),
        *,
        is_typed: bool = False,
    ) -> Graph:
        _settle(model.graph, self._sizes)
        # the runtime gets nodes as messages, so external tensors in attributes are embedded
        for tensor in validity.inner_tensors(model):
            weights.embed(tensor, self._files)
        # Named twice: calls have names before they are inlined, since inner nodes are named after them, and
        # nodes that the inliner adds get names after that.
        names.name_nodes(model.graph)
        model = functions.inline(model)
        functions.remove_identities(model.graph, variables)
        names.name_nodes(model.graph)
        if self._seed is not None:
            _add_seeds(model.graph, self._seed)
        is_export = names.is_mindspore_export(model)
        if is_export:
            _log.warning(
                "%s: MindSpore's ONNX files keep few names of operators; a .mindir of the network "
                '(mindspore.export(..., file_format="MINDIR")) keeps them all',
                self._source,
            )
        shared = Shared(self._source, model, self._context.reserves_class_names, is_export)
        known = {name: array for name, array in initializers.items() if name not in variables}
        typed = (model if is_typed else _inferred(model, known if self._sizes else None)).graph
        return Builder(shared, model.graph, typed, initializers, variables=variables).graph()


_MOST_SEEDS: Final = 1 << 24  # ONNX's seeds are float32, which has no larger odd numbers


def _add_seeds(graph: onnx.GraphProto, seed: int) -> None:
    """Give each operator that draws random numbers a seed of its own, unless it has one, in place.

    A seed follows from the operator's number among all of its type: the same in two models of one network.
    """
    counts = Counter[str]()
    for node in walk_nodes(graph.node):
        is_dropout = node.op_type == "Dropout"
        if canonical_domain(node.domain) or node.op_type not in WITH_MEMORY:
            continue
        if is_dropout and not is_random(node.op_type, len(node.input)):
            continue
        counts[node.op_type] += 1
        if all(attribute.name != "seed" for attribute in node.attribute):
            name = f"{node.op_type} {counts[node.op_type]}"
            own = (seed + zlib.crc32(name.encode())) % _MOST_SEEDS
            node.attribute.append(onnx.helper.make_attribute("seed", own if is_dropout else float(own)))


def _with_facts(graph: Graph, facts: Mapping[str, Any]) -> Graph:
    """Return a graph with facts that its message does not hold, also the declared types of inner values."""
    declared = facts["declared"]

    def with_declared(inner: Graph) -> Graph:
        known = declared.keys() & inner.types.keys()
        return replace(inner, declared={name: declared[name] for name in known})

    graph = rewritten(graph, with_declared) if declared else graph
    return replace(graph, **{name: value for name, value in facts.items() if name != "declared"})


_Inference = shape_inference.InferenceContext


def dimension_name(value: str, axis: int, name: str | None) -> str:
    """Return the name of a dynamic dimension of an input; one without a name is ``x[1]``.

    >>> dimension_name("x", 1, None), dimension_name("x", 0, "batch")
    ('x[1]', 'batch')
    """
    return name or f"{value}[{axis}]"


_SERIES_RANK: Final = 3


def fits_sizes(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Return whether shape inference accepts the sizes of a graph's dynamic dimensions, by name.

    No size may be negative; sizes of images and series (of vectors, too) may not be 0, unless a given one is.
    """
    model = onnx.ModelProto()
    model.CopyFrom(graph.proto)
    _settle(model.graph, sizes)
    del model.graph.value_info[:]
    for value in model.graph.output:  # a model may declare them wrongly
        value.type.tensor_type.ClearField("shape")
    try:
        found = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    except Exception:  # noqa: BLE001 - onnx raises errors of many kinds
        return False
    shapes = [value.type.tensor_type.shape.dim for value in (*found.value_info, *found.output)]
    return all(
        dimension.dim_value >= (len(shape) >= _SERIES_RANK and 0 not in sizes.values())
        for shape in shapes
        for dimension in shape
        if dimension.HasField("dim_value")
    )


def _settle(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> None:
    """Replace dynamic dimensions by their sizes in the types that a graph declares, in place."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            name = dimension_name(value.name, axis, dimension.dim_param)
            if name in sizes and not dimension.HasField("dim_value"):
                dimension.dim_value = sizes[name]


def _inferred(model: onnx.ModelProto, known: dict[str, np.ndarray] | None) -> onnx.ModelProto:
    """Return the model with inferred types of its values, also inside branches and loops.

    With ``known`` arrays, small values that follow from them and from shapes are constants of inference.
    """
    found = {(node.domain, node.op_type) for node in walk_nodes(model.graph.node)}
    collectives = [(domain, name) for domain, name in sorted(found) if name in _SCHEMAS.get(domain, ())]
    with _registered(collectives), passing_over(Exception):  # inference may fail: a model runs without types
        model = shape_inference.infer_shapes(model, data_prop=True)
        while known is not None and _fold(model, known):
            model = shape_inference.infer_shapes(model, data_prop=True)
        validity.open_dimensions(model)
    return model


_MOST_FOLDED: Final = 1024  # elements of a value that sizes may follow from


def _fold(model: onnx.ModelProto, known: dict[str, np.ndarray]) -> int:
    """Make constants of small values that follow from known ones and from shapes; return their number."""
    from onnx.reference import ReferenceEvaluator  # not above: only given sizes need it, and it loads slowly

    infos = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    sizes = {info.name: value_type(info.type).sizes for info in infos}
    opsets, count = validity.opsets(model), 0
    for node in model.graph.node:
        is_plain = not canonical_domain(node.domain) and node.op_type not in WITH_MEMORY | CONTROL_FLOW
        if not is_plain or len(node.output) != 1:
            continue
        given = {name: known.get(name) for name in node.input if name}
        if any(array is not None and array.size > _MOST_FOLDED for array in given.values()):
            continue
        shape, result = sizes.get(node.output[0]), None
        if node.op_type == "Shape" and (read := sizes.get(node.input[0])) is not None:
            given = {node.input[0]: np.broadcast_to(np.int8(0), read)}
        if not given or shape is None or math.prod(shape) > _MOST_FOLDED:
            continue
        if all(array is not None for array in given.values()):
            with passing_over(Exception):  # the reference lacks an operator, or the model is at fault
                (result,) = ReferenceEvaluator(node, opsets=opsets).run(None, given)
        if isinstance(result, np.ndarray):
            known[node.output[0]], count = result, count + 1
            value = onnx.numpy_helper.from_array(result)
            node.CopyFrom(onnx.helper.make_node("Constant", [], [node.output[0]], node.name, value=value))
    return count


_REGISTERING: Final = new_lock()  # ranks may be threads that load in parallel, and ONNX's schemas are global


@contextmanager
def _registered(collectives: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Register schemas of collectives with ONNX within a context, for type inference only."""
    with ExitStack() as stack:
        if collectives:
            stack.enter_context(_REGISTERING)
        for domain, name in collectives:
            if not defs.has(name, 1, domain):  # another library may have registered it
                schema, many = defs.OpSchema, defs.OpSchema.FormalParameterOption.Variadic
                inputs, outputs = (
                    schema.FormalParameter(side, "T", param_option=many, is_homogeneous=False, min_arity=0)
                    for side in ("inputs", "outputs")
                )
                types = [("T", ["tensor(float)"], "")]  # inference checks no types
                operator = schema(name, domain, 1, inputs=[inputs], outputs=[outputs], type_constraints=types)
                operator.set_type_and_shape_inference_function(partial(_infer, _SCHEMAS[domain][name]))
                defs.register_schema(operator)
                stack.callback(defs.deregister_schema, name, 1, domain)
        yield


def _infer(kind: Collective | None, context: _Inference) -> None:
    """Infer output types of a collective: input types with resized axes; of Receive, from attributes."""
    if kind is Collective.RECEIVE:
        dtype = _attribute(context, "dtype")
        name, number = dtype.s.decode(), dtype.i or onnx.TensorProto.FLOAT
        element = dtypes.from_name(name).onnx if name else number
        shape = _attribute(context, "shape").ints
        context.set_output_type(0, onnx.helper.make_tensor_type_proto(element, shape))
        return
    for slot in range(min(context.get_num_inputs(), context.get_num_outputs())):
        value_type = context.get_input_type(slot)
        for axis, resized in _RESIZED.get(kind, ()):
            place = _attribute(context, axis).i
            dimensions = value_type.tensor_type.shape.dim
            # the size becomes unknown if the number of ranks is
            if not -len(dimensions) <= place < len(dimensions):
                value_type.tensor_type.ClearField("shape")
            else:
                dimension, count = dimensions[place], _attribute(context, *COUNTS).i
                if count and dimension.HasField("dim_value"):
                    dimension.dim_value = resized(dimension.dim_value, count)
                else:
                    dimension.Clear()
        context.set_output_type(slot, value_type)


def _attribute(context: _Inference, *names: str) -> onnx.AttributeProto:
    """Return the first of some attributes that an operator has, an empty one if it has none of them."""
    return next(filter(None, map(context.get_attribute, names)), onnx.AttributeProto())


def _divided(size: int, count: int) -> int:
    return -(-size // count)


_RESIZED: Final[Mapping[Collective | None, tuple[tuple[str, Callable[[int, int], int]], ...]]] = {
    Collective.ALL_GATHER: (("axis", mul),),
    Collective.REDUCE_SCATTER: (("", _divided),),
    Collective.ALL_TO_ALL: (("split_dim", _divided), ("concat_dim", mul)),
}
"""Axes with other sizes in outputs: the attribute that names each ("": the first), and its size by ranks."""

_SCHEMAS: Final[dict[str, dict[str, Collective | None]]] = {
    domain: dict(kinds) for domain, kinds in {**NAMES, GE_DOMAIN: HCOM_NAMES}.items()
}
_SCHEMAS[MINDSPORE_DOMAIN] |= dict.fromkeys((CLEAR_FLOAT_STATUS, GET_FLOAT_STATUS))
"""Operators that ONNX lacks, by domain and name; None: no collective, outputs are like inputs."""


def is_mindir(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a .mindir; False for one that cannot be read."""
    try:
        return mindir.is_mindir(reading.map_file(Path(path)), str(path))
    except OSError:
        return False


def standard(path: str | os.PathLike[str], context: Context = _DEFAULT) -> onnx.ModelProto:
    """Return a .mindir file as an ONNX model for any runtime, weights included.

    The loader makes the same graph of it as of the file in this context.

    Raises:
        GraphError: As for ``load``; or the file is an ONNX model.
    """
    data = _map_file(Path(path))
    if not mindir.is_mindir(data, str(path)):
        raise GraphError(f"{path}: not a .mindir file of MindSpore; other models are not converted")
    try:
        return mindir.standard(_Loading(str(path), Path(path).parent, context, {}, None).translation(data))
    except GraphError as error:
        raise type(error)(f"{path}: {error}") from error.__cause__


def annotated(
    path: str, properties: Mapping[str, Mapping[str, str]], folder: str, context: Context
) -> tuple[bytes, int]:
    """Return a model with ``properties`` (by node name) in its nodes' metadata, and the number of such nodes.

    Nodes without a name get the one that the loader gives them. Texts of earlier annotations are replaced.
    A .mindir file is returned as ONNX, its operators as they are in the context.

    Raises:
        GraphError: The file cannot be read, or keeps weights in files that the folder lacks.
    """
    model = onnx.ModelProto()
    try:
        if is_mindir(path):
            model = standard(path, context)
        else:
            model.ParseFromString(bytes(reading.map_file(Path(path))))
    except OSError as error:
        raise GraphError(f"{path}: the model cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise GraphError(f"{path}: not an ONNX model") from error
    has_files = any(each.data_location == onnx.TensorProto.EXTERNAL for each in model.graph.initializer)
    if has_files and os.path.realpath(Path(path).parent) != os.path.realpath(folder):
        raise GraphError(
            f"{path}: its weights are in other files; write the annotated model into the same folder"
        )
    name_nodes(model.graph)
    count = 0
    for node in walk_nodes(model.graph.node):
        texts = properties.get(node.name, {})
        kept = [each for each in node.metadata_props if each.key not in texts]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.metadata_props.extend(
            onnx.StringStringEntryProto(key=key, value=text) for key, text in texts.items()
        )
        count += bool(texts)
    return model.SerializeToString(), count


def node_names(path: str) -> frozenset[str] | None:
    """Return the names of all nodes in a model's file; None for no file, or no valid model.

    Large weights are passed over: only pages with nodes are read.
    """
    try:
        model = validity.skeleton(reading.map_file(path))
    except (OSError, GraphError):
        return None
    return frozenset(node.name for node in walk_nodes(model.graph.node))


_BLOCK: Final = 64 << 20


def named_files(path: str) -> dict[str, Iterable[Buffer]]:
    """Return a model with nodes named after their operators: contents by the paths of its files.

    Functions are inlined, since an operator inside one has a name for each call. Weights are passed on as
    they lie in the file of the model, and in files beside it.

    Raises:
        GraphError: The model's file cannot be read.
    """
    data = _map_file(Path(path))
    model = validity.skeleton(data)
    name_nodes(model.graph)
    beside = {
        entry.value
        for tensor in (*model.graph.initializer, *validity.inner_tensors(model))
        for entry in tensor.external_data
        if entry.key == "location"
    }
    named = functions.inline(model)
    name_nodes(named.graph)
    ends = next((body, end) for tag, _, _, body, end in fields(data, 0, len(data)) if tag == MODEL_GRAPH)
    inside = fields(data, *ends)
    initializers = [data[start:end] for tag, _, start, _, end in inside if tag == GRAPH_INITIALIZER]
    del named.graph.initializer[:]
    graph: list[Buffer] = [named.graph.SerializeToString(), *initializers]
    named.ClearField("graph")
    parts: list[Buffer] = [
        named.SerializeToString(),
        varint(MODEL_GRAPH),
        varint(sum(map(len, graph))),
        *graph,
    ]
    folder = Path(path).parent.resolve()
    files = {(folder / name).resolve() for name in beside}
    written = {f"{Path(path).stem}.named.onnx": parts}
    return written | {str(file.relative_to(folder)): _blocks(_map_file(file)) for file in sorted(files)}


def _blocks(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), _BLOCK):
        yield data[start : start + _BLOCK]
        weights.forget_pages(np.frombuffer(data, np.uint8)[start : start + _BLOCK])
