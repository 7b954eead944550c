"""``msdump compile``: the graph that Ascend O2, GE and acl make of a model, as a file for other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import click

from msdump.capture import graph_files
from msdump.cli import messages, sections
from msdump.cli.options import applied
from msdump.cli.program import mark_started
from msdump.config import CUSTOMIZE_DTYPES, KEEP_DTYPE, MODIFY_MIXLIST, operator_dtypes
from msdump.encode import Message, ge
from msdump.errors import InputError
from msdump.execute import emulated
from msdump.graph import Graph, loader
from msdump.plan import Context, DeviceTarget, JitLevel, PrecisionMode
from msdump.store.write import write_file

_Form = Callable[[Message], Iterable[bytes]]

FORMS: Final[Mapping[str, _Form]] = {
    ".json": lambda message: (ge.json_text(message),),
    # GE's text holds the graph alone, without the model around it.
    ".txt": lambda message: ge.text([field for field in message if field[0] == "graph"]),
    ".pbtxt": lambda message: ge.text(ge.onnx_model(message)),
}
"""The form of the graph by the suffix of its file."""


def write_graph_file(graph: Graph, path: str, context: Context) -> None:
    """Compile a model for Ascend O2 and write its graph, which has the operator names that dumps use."""
    file = Path(path)
    if file.suffix not in FORMS:
        raise InputError(f"graph file {path!r}: its name must end in {', '.join(FORMS)}")
    device = emulated(graph, None, context)
    assert device is not None, "only an Ascend compiles graphs"
    write_file(file, FORMS[file.suffix](graph_files.model(device)))


_compilation: Final = sections.Section("Compilation")
_files_of_dtypes: Final = applied(
    *(
        _compilation(f"--{key.replace('_', '-')}", key, default="", type=click.Path(), help=text)
        for key, text in (
            (KEEP_DTYPE, "Text file of operators that keep the element types of the model."),
            (CUSTOMIZE_DTYPES, "Text file of operators and their element types."),
            (MODIFY_MIXLIST, "JSON file of operator types: black, white and gray list of mixed precision."),
        )
    )
)
"""The options of ATC that name files of operators' types."""


@click.command(name="compile", cls=sections.Command)
@click.argument("model", type=click.Path(), help="ONNX model.")
@sections.output(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    metavar=f"FILE[{'|'.join(FORMS)}]",
    help="Graph file: JSON for msaccucmp -f, text of ge_proto, or text of ge_onnx.",
)
@sections.output("--node-names", is_flag=True, help="Use the operator names of acl and torchair dumps.")
@_compilation("--fusion-switch", type=click.Choice(("on", "off")), default="on", help="Fusion of operators.")
@_compilation(
    "--precision-mode",
    type=click.Choice([str(mode) for mode in PrecisionMode]),
    default=str(PrecisionMode.ALLOW_FP32_TO_FP16),
    help="Precision mode of the device.",
)
@_files_of_dtypes
@messages.verbose
def command(
    *, model: str, output: str, node_names: bool, fusion_switch: str, precision_mode: str, **dtypes: str
) -> None:
    """Write the graph that Ascend O2 makes of a model.

    The graph maps each operator of a dump to operators of the model. A comparison with tensors
    of the model needs this file. The options must be the options of the dumped run.

    Examples:
        msdump compile model.onnx -o graph.json

    Exit codes:
        0  The graph is written.
        1  The file could not be written.
        2  The model or an option is wrong.
    """
    context = Context(
        DeviceTarget.ASCEND,
        JitLevel.O2,
        precision_mode=PrecisionMode(precision_mode),
        fuses=fusion_switch == "on",
        keeps_node_names=node_names,
        operator_dtypes=operator_dtypes(dtypes),
    )
    graph = loader.load(model, context=context)
    mark_started()  # from here on only the writing of the file can fail, not the model
    write_graph_file(graph, output, context)
