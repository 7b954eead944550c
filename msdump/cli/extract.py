"""``msdump extract``: one operator of a dump, as a folder that reproduces it."""

from __future__ import annotations

import click

from msdump.cli import messages, options, sections
from msdump.cli.explain import context_of
from msdump.cli.program import mark_started
from msdump.errors import UnsupportedOpError, UntoldOperatorError
from msdump.graph import loader
from msdump.judge import find_run, reproduce, tensors_of, write_folder, write_tensors
from msdump.read import open_dump


@click.command(name="extract", cls=sections.Command)
@click.argument("dump", type=click.Path(), help="Dump directory.")
@click.argument("operator", help="Operator: full name, name in files, last component, or ONNX node name.")
@sections.selection("--iteration", type=click.IntRange(min=0), show_default="the last one", help="Iteration.")
@sections.selection("--rank", type=click.IntRange(min=0), show_default="the first one", help="Rank.")
@options.execution
@sections.selection(
    "--pass", "pass_number", type=click.IntRange(min=0), show_default="the first one", help="Pass of a loop."
)
@sections.selection(
    "--model",
    type=click.Path(),
    metavar="MODEL.onnx",
    show_default="the graph file of the dump",
    help="Model with the operator.",
)
@sections.output(
    "-o", "--output", required=True, type=click.Path(), metavar="DIR", help="Directory to write."
)
@messages.verbose
def command(
    *,
    dump: str,
    operator: str,
    output: str,
    model: str | None,
    iteration: int | None,
    rank: int | None,
    execution: int | None,
    pass_number: int | None,
) -> None:
    """Write one operator of a dump as a model.

    The directory gets model.onnx, inputs.npz, outputs.npz (the dumped outputs) and run.py. run.py
    runs the model on onnxruntime and prints the error of the dumped outputs. If the dump does not
    describe the operator in full (a fused kernel), only the tensors and operator.json are written;
    --model adds the rest.

    Examples:
        msdump extract dump Conv2D-op0 -o conv
        msdump extract dump Conv2D-op0 -o conv --model model.onnx

    Exit codes:
        0  The operator is written.
        1  A file could not be written, or another file of the dump could not be read.
        2  The dump, the operator or an option is wrong, or a tensor of the operator is missing or torn.
    """
    opened = open_dump(dump, execution)
    run = find_run(opened, operator, iteration=iteration, rank=rank, pass_number=pass_number)
    context = context_of(opened, {})
    try:
        repro = reproduce(run, opened, None if model is None else loader.load(model, context=context))
    except (UntoldOperatorError, UnsupportedOpError) as error:
        if model is not None:
            raise
        tensors = tensors_of(run)
        messages.say(f"warning: no model.onnx: {error}")
        mark_started()
        paths = write_tensors(run, tensors, str(error), output)
    else:
        mark_started()  # from here on only the writing of a file can fail
        paths = write_folder(run, repro, output)
    print(f"operator  {run.name} ({run.first.op_type}), {run.place}")
    if run.first.source:
        print(f"source    {run.first.source}")
    for path in paths:
        print(f"written   {path}")
