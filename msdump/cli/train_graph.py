"""``msdump train-graph``: the training step of a model, as an ONNX file."""

from __future__ import annotations

from typing import Any

import click

from msdump.cli import messages, options
from msdump.cli.program import mark_started
from msdump.errors import InputError
from msdump.plan import DeviceTarget
from msdump.training import LOSSES, OPTIMIZERS, step_graph, write_step


@click.command(name="train-graph")
@click.argument("model", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), metavar="STEP.onnx", help="The file.")
@click.option(
    "--loss",
    metavar=f"[{'|'.join(LOSSES)}][:OPTIONS]",
    default="softmax_cross_entropy",
    show_default=True,
    help="What is made small; its options in order or by name, mse:sum, smooth_l1:none,beta=0.5.",
)
@click.option(
    "--optimizer",
    multiple=True,
    metavar=f"[PATTERN=][{'|'.join(OPTIMIZERS)}][:OPTIONS]",
    default=("momentum:0.01,0.9",),
    show_default=True,
    help="What updates the parameters; its options in order or by name, adam:0.001,weight_decay=0.02. "
    "Several with patterns of parameters' names: the first match counts; the one without takes the others.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="PATTERN=OPTIONS",
    help="Rate and decay of the parameters with such names: '*.bias=learning_rate=0.01,weight_decay=0'.",
)
@click.option("--trainable", multiple=True, metavar="NAME", help="A parameter to train; without it, all.")
@options.dimensions
@click.option(
    "--precision",
    multiple=True,
    metavar="[LAYER=]TYPE",
    help="float16 or bfloat16: what the network, or a layer (fc1=float16), computes in.",
)
@click.option(
    "--loss-scale",
    metavar="NUMBER|dynamic[:OPTIONS]",
    help="What the loss is multiplied with; dynamic:65536,factor=2,window=2000 adapts to overflows.",
)
@click.option(
    "--accumulate",
    metavar="STEPS|mean:STEPS",
    help="Update in each STEPS-th step, by the sum or the mean of the gradients.",
)
@click.option(
    "--clip-gradients",
    metavar="global_norm:LIMIT|value:MIN,MAX",
    help="Limit the norm of all gradients together, or each element.",
)
@click.option(
    "--data-parallel",
    type=click.IntRange(min=1),
    metavar="RANKS",
    help="Average the gradients over so many ranks.",
)
@click.option(
    "--device-target",
    metavar=f"[{'|'.join(DeviceTarget)}]",
    default="CPU",
    show_default=True,
    help="Whose operators check for overflow.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of random operators."
)
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
    """Derive the training step of MODEL, an .onnx file: forward, loss, backward and update.

    Any runtime runs the file: MindSpore's operators are functions of ONNX's.
    Variables are bound to outputs in its training_info;
    `msdump run STEP.onnx --train` and network.train_step() feed it back. Exit
    codes: 0 done, 1 the file could not be written, 2 something given is wrong.
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
    """Return values by the names in front of them, ``fc1=float16``, and by "" the one for the network.

    Raises:
        InputError: A name is given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or ":" in name:  # momentum:learning_rate=0.1 has the sign in an option
            name, value = "", text
        if name in values:
            raise InputError(f"{option}: {name or 'the network'} is given twice")
        values[name] = value
    return values
