"""``msdump explain``: which files a dump holds of an operator, and why there are no others."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click

from msdump import env
from msdump.cli import messages, options
from msdump.cli.explain import configuration
from msdump.cli.explain import text as explain_text
from msdump.cli.program import FAILED
from msdump.errors import DumpReadError
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, DumpPlan, FilePlan, JitLevel, Tree
from msdump.store.read.reader import Dump, open_dump
from msdump.tools.explain.account import Situation
from msdump.tools.explain.explanation import Explainer


@click.command(name="explain")
@click.argument("dump", type=click.Path())
@click.argument("operator")
@click.option("--model", type=click.Path(), metavar="MODEL.onnx", help="The model that was dumped.")
@click.option(
    "--config",
    type=click.Path(),
    metavar="FILE.json",
    help="What the dump was made with (default: the copy in DUMP, else $MINDSPORE_DUMP_CONFIG).",
)
@click.option("--iteration", type=click.IntRange(min=0), help="Only this iteration (default: all).")
@options.context
def command(
    *, dump: str, operator: str, model: str | None, config: str | None, iteration: int | None, **context: Any
) -> None:
    """Tell which files the dump DUMP holds of OPERATOR, and why there are no others.

    OPERATOR is a full name, the name of an ONNX node, the name of a file or
    the operator's part of it, or the end of a full name. The more is known,
    the more is told: --model gives the operators that no file names, the
    configuration what it leaves out. Nothing runs. Exit codes: 0 it is told,
    1 nothing is known of the operator, 2 something given is wrong.
    """
    config_path = config or env.read(env.DUMP_CONFIG)
    opened = _opened(dump, is_explained_without=bool(config_path and model))
    dump_context = configuration.context_of(opened, context)
    path = config or configuration.kept(opened) or config_path
    plan = None if path is None else configuration.plan_of(path, dump_context, opened)
    situation = Situation(
        None if model is None else loader.load(model, keeps_classes=dump_context.reserves_class_names),
        plan or _everything(opened, dump_context),
        is_configured=plan is not None,
    )
    explainer = Explainer(opened, situation, iteration)
    subject = explainer.find(operator)
    if isinstance(subject, tuple):
        messages.say(
            f"error: {dump}: nothing is known of {operator!r}{explain_text.question(subject, model)}"
        )
        click.get_current_context().exit(FAILED)
    lines = explain_text.lines(
        explainer.explain(subject), situation, opened, is_full=messages.verbosity() > 0
    )
    print("\n".join(lines))


def _opened(path: str, *, is_explained_without: bool) -> Dump:
    """Open a dump, or return an empty one where model and configuration suffice for an explanation."""
    try:
        return open_dump(path)
    except DumpReadError as error:
        if not is_explained_without:
            raise
        messages.say(f"warning: {error}")
        return Dump(os.path.abspath(path), {}, (), (), ())  # noqa: PTH100 - as open_dump has it


def _everything(dump: Dump, context: Context) -> DumpPlan:
    """Return the plan that dumps everything, as far as a dump shows how it was made."""
    tree = Tree.RANKS if dump.ranks else Tree.MODELS
    if context.device_target is DeviceTarget.ASCEND and context.jit_level is None:
        context = replace(context, jit_level=JitLevel.O0 if dump.ranks else JitLevel.O2)
    return DumpPlan("", b"", context, FilePlan(dump.path, tree=tree))
