"""``msdump check``: describes a configuration, and previews what it does to a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from msdump.capture.suggestions import operators
from msdump.cli import options
from msdump.cli.check import text
from msdump.cli.check.checked import ModelCheck, operators_like
from msdump.cli.documents import output
from msdump.config import mindspore as config_reader
from msdump.config import source
from msdump.execute.compilation import emulated
from msdump.frontends import settings
from msdump.graph import loader
from msdump.graph.graph import Node
from msdump.plan import DumpPlan
from msdump.tools.preview.describe import describe, subjects
from msdump.tools.preview.inputs import check_sizes


@click.command(name="check")
@click.argument("config", type=click.Path())
@click.option("--model", type=click.Path(), metavar="MODEL.onnx", help="Say what is dumped of this model.")
@click.option("--find", metavar="TEXT", help="List operators that TEXT may mean, and the item.")
@click.option("--train", is_flag=True, help="Say it of the model's training step.")
@options.dimensions
@output.option
@options.context
def command(
    *,
    config: str,
    model: str | None,
    find: str | None,
    train: bool,
    dimensions: dict[str, int],
    **context: Any,
) -> None:
    """Say in words what CONFIG, a MINDSPORE_DUMP_CONFIG file, does.

    With --model: which of its kernels match, how many files and bytes a
    dump writes, what is left out and why, and which operators nothing here
    can run. Nothing runs and nothing is written. Exit codes: 0 the
    configuration is good, 1 the model has an operator outside of branches
    and loops that nothing here can run, 2 the configuration has faults,
    which are all named.
    """
    if find is not None and model is None:
        raise click.UsageError("--find needs --model")
    where = settings.context_of(context)
    plan = config_reader.parse(source.read(config, "CONFIG"), config, where)
    _tell_plan(plan)
    if model is None:
        return
    graph = loader.load(model, keeps_classes=where.reserves_class_names)
    graph = graph.training_step() if train else graph
    check_sizes(graph, dimensions)
    device = emulated(graph, plan, plan.context)
    if find is not None:
        _tell_operators_like(find, operators(graph if device is None else device.graph), plan)
        return
    # Loaded again with sizes: without them it is the graph whose names of sizes graph files show.
    settled = loader.load(model, sizes=dimensions) if dimensions else graph
    checked = ModelCheck(plan, graph, settled.step if train else settled, device)
    _tell_model(checked)
    if not checked.may_succeed:
        raise SystemExit(1)


def _tell_plan(plan: DumpPlan) -> None:
    if output.wanted():
        from msdump.cli.documents.check import CheckDocument

        output.put(CheckDocument(plan=subjects(plan)))
    else:
        print(describe(plan))


def _tell_operators_like(find: str, nodes: Sequence[Node], plan: DumpPlan) -> None:
    if output.wanted():
        from msdump.cli.documents.check import CheckDocument, found_part

        hint, named = operators_like(find, nodes)
        output.put(CheckDocument(plan=subjects(plan), found=found_part(find, hint, named)))
    else:
        text.print_operators_like(find, nodes)


def _tell_model(checked: ModelCheck) -> None:
    if output.wanted():
        from msdump.cli.documents.check import CheckDocument, model_part

        output.put(CheckDocument(plan=subjects(checked.plan), model=model_part(checked)))
    else:
        text.print_model(checked)
