"""``acl.mdl``: descriptions of a model's inputs and outputs: names, shapes, types, sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msdump.config.acl.codes import AclCode
from msdump.errors import AclError
from msdump.frontends.acl import answers, state
from msdump.frontends.acl.arguments import item_at
from msdump.frontends.acl.loaded import LoadedModel, acl_format, acl_type, declared_shape, nbytes
from msdump.frontends.acl.objects import ModelDesc
from msdump.graph.graph import Value


@answers.value(0)
def create_desc() -> int:
    """Return the handle of a new description."""
    return state.current().handles.add(ModelDesc())


@answers.code
def get_desc(model_desc: int, model_id: int) -> None:
    """Make a description that of a loaded model; 145003 for a number that no loaded model has."""
    acl = state.current()
    desc = acl.handles.get(model_desc, ModelDesc)
    desc.model_id = acl.model(model_id).model_id


@answers.code
def destroy_desc(model_desc: int) -> None:
    """Destroy a description."""
    state.current().handles.remove(model_desc, ModelDesc)


@answers.value(0)
def get_num_inputs(model_desc: int) -> int:
    """Return how many inputs a model has."""
    return len(_described(model_desc).inputs)


@answers.value(0)
def get_num_outputs(model_desc: int) -> int:
    """Return how many outputs a model has."""
    return len(_described(model_desc).outputs)


@answers.value(0)
def get_input_size_by_index(model_desc: int, index: int) -> int:
    """Return the bytes of an input, 0 where the model leaves its shape open."""
    value = item_at(_described(model_desc).inputs, index)
    return nbytes(value.type.dtype, declared_shape(value))


@answers.value(0)
def get_output_size_by_index(model_desc: int, index: int) -> int:
    """Return the bytes of an output, 0 where the model leaves its shape open and has not run yet."""
    model = _described(model_desc)
    value = item_at(model.outputs, index)
    return nbytes(value.type.dtype, model.output_shape(index))


@answers.value("")
def get_input_name_by_index(model_desc: int, index: int) -> str:
    """Return the name of an input."""
    return item_at(_described(model_desc).inputs, index).name


@answers.value("")
def get_output_name_by_index(model_desc: int, index: int) -> str:
    """Return the name of an output."""
    return item_at(_described(model_desc).outputs, index).name


@answers.value_and_code(0)
def get_input_index_by_name(model_desc: int, name: str) -> int:
    """Return the index of an input by its name."""
    return _index(_described(model_desc).inputs, name)


@answers.value_and_code(0)
def get_output_index_by_name(model_desc: int, name: str) -> int:
    """Return the index of an output by its name."""
    return _index(_described(model_desc).outputs, name)


@answers.value_and_code(None)
def get_input_dims(model_desc: int, index: int) -> dict[str, Any]:
    """Return name and dimensions of an input, -1 for one that is open, -2 alone where all are."""
    value = item_at(_described(model_desc).inputs, index)
    return _dims(value.name, declared_shape(value))


@answers.value_and_code(None)
def get_output_dims(model_desc: int, index: int) -> dict[str, Any]:
    """Return name and dimensions of an output, -1 for one that is open, -2 alone where all are."""
    value = item_at(_described(model_desc).outputs, index)
    return _dims(value.name, declared_shape(value))


@answers.value_and_code(None)
def get_cur_output_dims(model_desc: int, index: int) -> dict[str, Any]:
    """Return name and dimensions of an output as the last run gave it."""
    model = _described(model_desc)
    return _dims(item_at(model.outputs, index).name, model.output_shape(index))


@answers.value(-1)
def get_input_data_type(model_desc: int, index: int) -> int:
    """Return the aclDataType of an input."""
    return acl_type(item_at(_described(model_desc).inputs, index).type.dtype)


@answers.value(-1)
def get_output_data_type(model_desc: int, index: int) -> int:
    """Return the aclDataType of an output."""
    return acl_type(item_at(_described(model_desc).outputs, index).type.dtype)


@answers.value(-1)
def get_input_format(model_desc: int, index: int) -> int:
    """Return the aclFormat of an input."""
    return acl_format(declared_shape(item_at(_described(model_desc).inputs, index)))


@answers.value(-1)
def get_output_format(model_desc: int, index: int) -> int:
    """Return the aclFormat of an output."""
    model = _described(model_desc)
    item_at(model.outputs, index)
    return acl_format(model.output_shape(index))


def _described(model_desc: int) -> LoadedModel:
    acl = state.current()
    return acl.model(acl.handles.get(model_desc, ModelDesc).model_id)


def _index(values: Sequence[Value], name: str) -> int:
    """Return the index of the input or output of a name.

    Raises:
        AclError: None has it; the message names them all.
    """
    for index, value in enumerate(values):
        if value.name == name:
            return index
    names = ", ".join(value.name for value in values)
    raise AclError(AclCode.INVALID_PARAM, f"no input or output is named {name!r}; there are {names}")


def _dims(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"name": name, "dims": list(shape), "dimCount": len(shape)}
