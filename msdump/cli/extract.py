"""``msdump extract``: one operator of a dump, as a folder that reproduces it."""

from __future__ import annotations

import click

from msdump.analysis import find_run, reproduce, tensors_of, write_folder, write_tensors
from msdump.cli import messages, options
from msdump.cli.program import mark_started
from msdump.errors import UnsupportedOpError, UntoldOperatorError
from msdump.frontends import mindspore
from msdump.read import open_dump


@click.command(name="extract")
@click.argument("dump", type=click.Path())
@click.argument("operator")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="DIR", help="The folder.")
@click.option(
    "--model",
    type=click.Path(),
    metavar="MODEL.onnx",
    help="The model; without it the operator is rebuilt from the graph file of the dump.",
)
@click.option("--iteration", type=click.IntRange(min=0), help="Iteration (default: the last one).")
@click.option("--rank", type=click.IntRange(min=0), help="Rank (default: the first one).")
@options.execution
@click.option(
    "--pass", "pass_number", type=click.IntRange(min=0), help="Pass of a loop (default: the first one)."
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
    """Write OPERATOR of DUMP as a model of its own, its inputs and outputs, and a script that runs it.

    OPERATOR is its full name, the name that files have, its last component, or the name
    of its node in the model. The folder gets model.onnx, inputs.npz, outputs.npz (as
    dumped) and run.py, which runs the model in onnxruntime and prints how far the dumped
    outputs are off. Of an operator that the dump does not describe in full, such as a
    fused kernel, it gets the tensors and operator.json alone, unless the model
    is given. Exit codes: 0 done, 1 a file could not be written, 2 something given is
    wrong, or the dump lacks an input or output of the operator.
    """
    opened = open_dump(dump, execution)
    run = find_run(opened, operator, iteration=iteration, rank=rank, pass_number=pass_number)
    try:
        repro = reproduce(run, opened, None if model is None else mindspore.load_graph(model))
    except (UntoldOperatorError, UnsupportedOpError) as error:
        if model is not None:
            raise
        tensors = tensors_of(run)
        messages.say(f"warning: no model.onnx: {error}")
        mark_started()
        paths = write_tensors(run, tensors, str(error), output)
    else:
        mark_started()  # from here on only the writing of a file can fail
        paths = write_folder(repro, output)
    print(f"operator  {run.name} ({run.first.op_type}), {run.place}")
    if run.first.source:
        print(f"source    {run.first.source}")
    for path in paths:
        print(f"written   {path}")
