"""``acl.mdl``: the buffers that a model reads and writes."""

from __future__ import annotations

from msdump.frontends.acl import answers, state
from msdump.frontends.acl.arguments import item_at
from msdump.frontends.acl.objects import DataBuffer, Dataset, TensorDesc


@answers.value(0)
def create_dataset() -> int:
    """Return the handle of a new, empty dataset."""
    return state.current().handles.add(Dataset())


@answers.code
def destroy_dataset(dataset: int) -> None:
    """Destroy a dataset; its buffers stay."""
    state.current().handles.remove(dataset, Dataset)


def add_dataset_buffer(dataset: int, buffer: int) -> tuple[int, int]:
    """Add a data buffer to a dataset; return the dataset and a code."""
    return dataset, _add_dataset_buffer(dataset, buffer)


@answers.code
def _add_dataset_buffer(dataset: int, buffer: int) -> None:
    handles = state.current().handles
    handles.get(buffer, DataBuffer)
    handles.get(dataset, Dataset).buffers.append(buffer)


@answers.value(0)
def get_dataset_num_buffers(dataset: int) -> int:
    """Return how many buffers a dataset has."""
    return len(state.current().handles.get(dataset, Dataset).buffers)


@answers.value(0)
def get_dataset_buffer(dataset: int, index: int) -> int:
    """Return the handle of a dataset's buffer, 0 for an index that it does not have."""
    return item_at(state.current().handles.get(dataset, Dataset).buffers, index)


def set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> tuple[int, int]:
    """Set the shape of an input whose shape the model leaves open; return the dataset and a code."""
    return dataset, _set_dataset_tensor_desc(dataset, tensor_desc, index)


@answers.code
def _set_dataset_tensor_desc(dataset: int, tensor_desc: int, index: int) -> None:
    handles = state.current().handles
    shape = handles.get(tensor_desc, TensorDesc).shape
    target = handles.get(dataset, Dataset)
    item_at(target.buffers, index)  # an index without a buffer is an error
    target.shapes[index] = shape
