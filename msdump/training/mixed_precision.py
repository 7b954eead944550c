"""Mixed precision: operators of the forward pass in a half type, with casts around them, as MindSpore's amp.

Parameters stay float32; each is cast in the scope of the operator that reads it. The whole network in half
precision is amp's level O2: its inputs are cast in the network's scope, normalisations stay in float32 (the
layer is ``_OutputTo16``), the loss takes float32. Single layers in half precision
are ``to_float`` of MindSpore's cells: inputs are cast in the layer's scope, and operators behind the layer
continue in the type of its outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import replace
from typing import Final

from onnx import defs

from msdump.dtypes import DType
from msdump.errors import InputError, name_hint
from msdump.graph.kernel import FLOAT32, HALVES, type_text
from msdump.graph.primitives import op
from msdump.training.rules import lower
from msdump.training.writer import WITH_LOSS, Place, StepOperator, StepTensor

Layers = Mapping[str, DType]
"""The element type of layers by module path, ``{"fc1": FLOAT16}``; "" is the whole network."""

_KEPT: Final = frozenset({"BatchNormalization", "LayerNormalization"})
"""Operators of the layers that amp's O2 keeps in float32, its AMP_BLACK_LIST."""

_TYPES: Final = {dtype.name: dtype for dtype in (FLOAT32, *HALVES)}

_OF_ANY_TYPE: Final = frozenset({"Cast", "CastLike", "Shape", "Size"})
"""Operators that take any type, and state that of their outputs."""


class MixedPrecision:
    """Writes the operators of a network, each with the element type that its layer prescribes."""

    def __init__(
        self, layers: Layers, network: Place, inputs: Collection[str], weights: Collection[str]
    ) -> None:
        """Begin with a network in float32."""
        self._layers = layers
        self._network = network
        self._inputs = inputs
        self._weights = weights
        self._met: set[str] = set()
        self._casts: dict[tuple[str, DType, str], StepTensor] = {}

    def write(self, node: StepOperator) -> None:
        """Write a forward operator in its type, behind casts of its inputs."""
        path, element = self._layer(node.place)
        if not node.domain and node.op_type in _KEPT:
            half = None if path else element
            if half is None:
                self._write_in(node, FLOAT32)
            else:
                outer, inner = _output_to_16(node.place, len(self._network.cells))
                result, *others = node.outputs
                single = replace(result, name=op.free_name(result.name))
                self._write_in(replace(node, outputs=(single, *others), place=inner), FLOAT32)
                with op.at(outer):
                    op.Cast(single, to=half.onnx, outputs=[replace(result, dtype=half)])
        elif not node.domain and node.op_type in _OF_ANY_TYPE:
            if node.op_type == "CastLike":
                node = replace(node, outputs=(replace(node.y, dtype=node.input(1).dtype),))
            with op.at(node.place):
                lower(node)
        else:
            self._write_in(node, element or self._flowing(node))

    def loss_input(self, output: StepTensor) -> StepTensor:
        """Return the network's output in float32, which the loss reads."""
        return self._cast(output, FLOAT32, WITH_LOSS)

    def check(self) -> None:
        """Raise InputError for a layer without operators."""
        for path in self._layers:
            if path and path not in self._met:
                raise InputError(f"precision: layer {path!r} has no operators{name_hint(path, self._met)}")

    def _layer(self, place: Place) -> tuple[str, DType | None]:
        """Return path and element type of the innermost layer around a place with a type in ``layers``."""
        names = [name for name, _ in place.cells[len(self._network.cells) :]]
        paths = [".".join(names[:end]) for end in range(len(names), -1, -1)]
        self._met.update(paths)
        path = next((path for path in paths if path in self._layers), "")
        return path, self._layers.get(path)

    def _flowing(self, node: StepOperator) -> DType:
        """Return the common type of the activations that an operator reads; float32 if types differ."""
        types = {
            item.dtype
            for item in node.inputs
            if item is not None and item.is_float and item.value is None and item.name not in self._weights
        }
        return types.pop() if len(types) == 1 else FLOAT32

    def _write_in(self, node: StepOperator, element: DType) -> None:
        """Write an operator with floating-point tensors of one element type, where ONNX allows it."""
        reads, writes = _type_variables(node, op.opset, element)
        inputs = tuple(
            item
            if item is None or not _is_changeable(item)
            else self._cast(item, element if variable else FLOAT32, self._cast_place(item, node.place))
            for item, variable in zip(node.inputs, reads, strict=True)
        )
        changed = {
            variable
            for item, variable in zip(inputs, reads, strict=True)
            if variable and item is not None and _is_changeable(item)
        }
        outputs = tuple(
            replace(item, dtype=_written(item, element, variable, changed)) if _is_changeable(item) else item
            for item, variable in zip(node.outputs, writes, strict=True)
        )
        with op.at(node.place):
            lower(replace(node, inputs=inputs, outputs=outputs))

    def _cast_place(self, item: StepTensor, place: Place) -> Place:
        """Return the scope of a tensor's cast: the network's for inputs under amp O2, else the reader's."""
        if item.name in self._inputs and "" in self._layers:
            return replace(place, cells=self._network.cells)
        return place

    def _cast(self, item: StepTensor, element: DType, place: Place) -> StepTensor:
        """Return a tensor in an element type; several readers in one place share the cast."""
        if item.dtype is element:
            return item
        if item.value is not None:
            return op.constant(item.value.astype(element.numpy))
        key = (item.name, element, place.path)
        if key not in self._casts:
            with op.at(place):
                self._casts[key] = op.Cast(item, to=element.onnx)
        return self._casts[key]


def _is_changeable(item: StepTensor) -> bool:
    """Return whether mixed precision changes the type of a tensor."""
    return item.dtype is FLOAT32 or item.dtype in HALVES


def _written(item: StepTensor, element: DType, variable: str, changed: Container[str]) -> DType:
    """Return the type of an output; variable "": ONNX does not allow the element type for the output."""
    if variable in changed:
        return element
    # the output's type was inferred from inputs before their casts
    return item.dtype if variable or item.dtype is not element else FLOAT32


def _type_variables(node: StepOperator, opset: int, element: DType) -> tuple[Sequence[str], Sequence[str]]:
    """Return ONNX's type variable of each input and output, "" if it does not allow the element type."""
    # no schema describes onnxruntime's operators in ONNX's domain, such as SimplifiedLayerNormalization
    if node.domain or not defs.has(node.op_type, opset, ""):
        return [""] * len(node.inputs), [""] * len(node.outputs)
    schema = defs.get_schema(node.op_type, opset)
    text = type_text(element)

    def variable(parameters: Sequence[defs.OpSchema.FormalParameter], slot: int) -> str:
        parameter = parameters[min(slot, len(parameters) - 1)]  # the last parameter may be variadic
        return parameter.type_str if text in parameter.types else ""

    count = len(node.outputs) + len(node.absent)
    return (
        [variable(schema.inputs, slot) for slot in range(len(node.inputs))],
        [variable(schema.outputs, slot) for slot in range(count) if slot not in node.absent],
    )


def _output_to_16(place: Place, depth: int) -> tuple[Place, Place]:
    """Return the scope of amp's ``_OutputTo16`` around a layer, and the scope of the layer inside.

    ``depth``: number of cells around the layers of the network.
    """
    if len(place.cells) == depth:  # an operator of the network itself: there is no layer to wrap
        return place, place
    *around, (name, kind) = place.cells
    outer = replace(place, cells=(*around, (name, "_OutputTo16")))
    return outer, outer.inside(("_backbone", kind))


def layers_of(choice: str | Mapping[str, str] | None) -> Layers:
    """Return the types of layers by module path, "" for the network; InputError for an unknown type."""
    texts = {"": choice} if isinstance(choice, str) else dict(choice or {})
    for text in texts.values():
        if text not in _TYPES:
            raise InputError(
                f"unknown precision {text!r}: must be one of {', '.join(_TYPES)}{name_hint(text, _TYPES)}"
            )
    return {path: _TYPES[text] for path, text in texts.items() if path or text != FLOAT32.name}
