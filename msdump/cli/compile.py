"""``msdump compile``: the graph that Ascend O2, GE and acl make of a model, as a file for other tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from msdump.cli import messages
from msdump.cli.program import mark_started
from msdump.config.dtypes.files import CUSTOMIZE_DTYPES, KEEP_DTYPE, MODIFY_MIXLIST, operator_dtypes
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, JitLevel, PrecisionMode
from msdump.tools.compare.pairing.graph_file import FORMS, write_graph_file

_Command = TypeVar("_Command", bound=Callable[..., None])


def _files_of_dtypes(command: _Command) -> _Command:
    """Add the options of ATC that name files of operators' types."""
    for key, text in (
        (MODIFY_MIXLIST, "JSON file of operator types that mixed precision narrows or not."),
        (CUSTOMIZE_DTYPES, "File of operators with types of their own."),
        (KEEP_DTYPE, "File of operators that keep the types of the model."),
    ):
        command = click.option(f"--{key.replace('_', '-')}", key, default="", type=click.Path(), help=text)(
            command
        )
    return command


@click.command(name="compile")
@click.argument("model", type=click.Path())
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    metavar=f"FILE[{'|'.join(FORMS)}]",
    help="JSON for msaccucmp's -f, ge_proto's text, or ge_onnx's.",
)
@click.option(
    "--node-names", is_flag=True, help="Operators are called as acl and torchair do, not as MindSpore."
)
@click.option(
    "--fusion-switch",
    type=click.Choice(("on", "off")),
    default="on",
    show_default=True,
    help="Whether operators are fused.",
)
@click.option(
    "--precision-mode",
    type=click.Choice([str(mode) for mode in PrecisionMode]),
    default=str(PrecisionMode.ALLOW_FP32_TO_FP16),
    show_default=True,
    help="How the device computes.",
)
@_files_of_dtypes
@messages.verbose
def command(
    *,
    model: str,
    output: str,
    node_names: bool,
    fusion_switch: str,
    precision_mode: str,
    **dtypes: str,
) -> None:
    """Compile MODEL, an .onnx file, as Ascend O2 does and write the graph.

    The file tells of each operator of a dump which operators of the model it
    stands for: a comparison with the model's own tensors needs it. The choices
    must be those of the run that dumped. Exit codes: 0 done, 1 the file could
    not be written, 2 something given is wrong.
    """
    graph = loader.load(model)
    mark_started()  # what fails from here on is the writing of the file, not the model
    context = Context(
        DeviceTarget.ASCEND,
        JitLevel.O2,
        precision_mode=PrecisionMode(precision_mode),
        fuses=fusion_switch == "on",
        keeps_node_names=node_names,
        operator_dtypes=operator_dtypes(dtypes),
    )
    write_graph_file(graph, output, context)
