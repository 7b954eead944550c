"""``acl.mdl``: running a loaded model, at once or on a stream."""

from __future__ import annotations

from msdump.config.acl.codes import AclCode
from msdump.errors import AclError
from msdump.frontends.acl import answers, state
from msdump.frontends.acl.buffers import device_view, write_result
from msdump.frontends.acl.objects import Dataset


@answers.code
def execute(model_id: int, input_dataset: int, output_dataset: int) -> None:
    """Run a model; its outputs are in their buffers afterwards, its dump on disk.

    Codes: 145003 for a number that no loaded model has, 100000 for handles and memory that are not
    there, 100017 and 100018 for inputs and outputs that do not fit, 100004 for a dump that could not
    be written, 500002 for an operator that failed.
    """
    _execute(model_id, input_dataset, output_dataset)


@answers.code
def execute_async(model_id: int, input_dataset: int, output_dataset: int, stream: int) -> None:
    """Run a model on a stream; ``synchronize_stream`` tells whether it failed.

    Arguments are checked at once, as for ``execute``.
    """
    acl = state.current()
    acl.model(model_id)
    for dataset in (input_dataset, output_dataset):
        acl.handles.get(dataset, Dataset)
    answers.on_stream(acl.stream(stream), lambda: _execute(model_id, input_dataset, output_dataset))


def _execute(model_id: int, input_dataset: int, output_dataset: int) -> None:
    acl = state.current()
    model = acl.model(model_id)
    inputs = acl.handles.get(input_dataset, Dataset)
    outputs = acl.handles.get(output_dataset, Dataset)
    if len(outputs.buffers) != len(model.outputs):
        raise AclError(
            AclCode.MODEL_OUTPUT_NOT_MATCH,
            f"model {model_id} has {len(model.outputs)} outputs, the dataset has {len(outputs.buffers)}",
        )
    with acl.lock:  # one call at a time: another one may write the buffers that this one reads
        views = [device_view(acl, handle) for handle in inputs.buffers]
        for handle in outputs.buffers:  # refused before the model runs and dumps
            device_view(acl, handle, writes=True)
        results = model.execute(views, inputs.shapes)
        for handle, array in zip(outputs.buffers, results, strict=True):
            write_result(acl, handle, array)
