"""``msdump train-graph``: the training step of a model, as an ONNX file."""

from __future__ import annotations

from typing import Any, Final

import click

from msdump.cli import messages, options, sections
from msdump.cli.program import mark_started
from msdump.errors import InputError
from msdump.plan import DeviceTarget
from msdump.training import LOSSES, OPTIMIZERS, step_graph, write_step

_precision: Final = sections.Section("Precision")


@click.command(name="train-graph", cls=sections.Command)
@click.argument("model", type=click.Path(), help="ONNX model of the forward network.")
@sections.output(
    "-o", "--output", required=True, type=click.Path(), metavar="STEP.onnx", help="File to write."
)
@sections.training(
    "--loss",
    metavar=f"[{'|'.join(LOSSES)}][:OPTIONS]",
    default="softmax_cross_entropy",
    help="Loss function. Options are positional or named: mse:sum, smooth_l1:none,beta=0.5.",
)
@sections.training(
    "--optimizer",
    multiple=True,
    metavar=f"[PATTERN=][{'|'.join(OPTIMIZERS)}][:OPTIONS]",
    default=("momentum:0.01,0.9",),
    help="Optimizer. Options are positional or named: adam:0.001,weight_decay=0.02. With PATTERN the "
    "optimizer updates the parameters with matching names; the first match counts; equal ones are one, "
    "unless name=NAME differs. (repeatable)",
)
@sections.training(
    "--group",
    "groups",
    multiple=True,
    metavar="PATTERN=OPTIONS",
    help="Optimizer options of the parameters with matching names: "
    "'*.bias=learning_rate=0.01,weight_decay=0'. 'order_params=NAME NAME ...' is the order of the updates, "
    "names or patterns; '*' is the model's order. (repeatable)",
)
@sections.training(
    "--trainable", multiple=True, metavar="NAME", show_default="all", help="Parameter to train. (repeatable)"
)
@sections.training(
    "--accumulate",
    metavar="STEPS|mean:STEPS",
    help="Update in each STEPS-th step by the sum or the mean of the gradients.",
)
@sections.training(
    "--clip-gradients",
    metavar="global_norm:LIMIT|value:MIN,MAX",
    help="Limit the global norm of all gradients, or the value of each element.",
)
@sections.training(
    "--data-parallel",
    type=click.IntRange(min=1),
    metavar="RANKS",
    help="Average the gradients over this number of ranks.",
)
@_precision(
    "--precision",
    multiple=True,
    metavar="[LAYER=]TYPE",
    help="Element type of the network or of a layer: float16, fc1=bfloat16. (repeatable)",
)
@_precision(
    "--loss-scale",
    metavar="NUMBER|dynamic[:OPTIONS]",
    help="Factor of the loss. dynamic:65536,factor=2,window=2000 adapts to overflows.",
)
@_precision(
    "--device-target",
    metavar=f"[{'|'.join(DeviceTarget)}]",
    default="CPU",
    help="Device of the overflow check.",
)
@options.dimensions
@sections.inputs("--seed", type=click.IntRange(min=0), default=0, help="Seed of random operators.")
@messages.verbose
def command(
    *,
    model: str,
    output: str,
    optimizer: tuple[str, ...],
    groups: tuple[str, ...],
    trainable: tuple[str, ...],
    dimensions: dict[str, int],
    precision: tuple[str, ...],
    data_parallel: int | None,
    **choices: Any,
) -> None:
    """Write the training step of a model as an ONNX model.

    The step has the forward network, the loss, the backward network and the update. The
    operators of MindSpore are ONNX functions, so that any runtime runs the file. The
    training_info of the file binds variables to outputs. `msdump run STEP.onnx --train` and
    network.train_step() feed the variables back.

    Examples:
        msdump train-graph model.onnx -o step.onnx
        msdump train-graph model.onnx -o step.onnx --loss mse --optimizer adam:0.001

    Exit codes:
        0  The training step is written.
        1  The file could not be written.
        2  The model or an option is wrong.
    """
    step = step_graph(
        model,
        optimizer=_by_name("--optimizer", optimizer),
        groups=_by_name("--group", groups),
        trainable=trainable or None,
        sizes=dimensions,
        precision=_by_name("--precision", precision) or None,
        data_parallel=data_parallel or False,
        **choices,
    )
    mark_started()  # from here on only the writing of the file can fail, not the model
    for path in write_step(step, output):
        print(path)


def _by_name(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Return values by the names in front of them, ``fc1=float16``, and by "" the one for the network."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or ":" in name:  # momentum:learning_rate=0.1 has the sign in an option
            name, value = "", text
        if name in values:
            raise InputError(f"{option}: {name or 'the network'} is given twice")
        values[name] = value
    return values
