"""``msdump compare --model``: operators run again, and what is said of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from msdump.cli import messages
from msdump.cli.counts import plural
from msdump.cli.documents import output as documents
from msdump.errors import InputError
from msdump.tools.compare.verdict import absences
from msdump.tools.compare.verdict.comparison import DumpComparison

if TYPE_CHECKING:
    from msdump.tools.compare.verdict.reruns import Rerunning

_Command = TypeVar("_Command", bound=Callable[..., Any])


def options(command: _Command) -> _Command:
    """Add the options of re-execution to a command."""
    for option in (
        click.option(
            "--patch",
            "patches",
            multiple=True,
            metavar="OPERATOR",
            help="Put GOLDEN's output in its place and run on; with --model. May be given several times.",
        ),
        click.option(
            "--arithmetic",
            default="float32",
            show_default=True,
            metavar="VARIANT",
            help="What GOLDEN computed in, such as Ascend:force_fp16; with --model.",
        ),
        click.option(
            "--model",
            type=click.Path(dir_okay=False),
            metavar="FILE.onnx",
            help="Run the operators of MINE again by the model: whose error is its own?",
        ),
    ):
        command = option(command)
    return command


def rerun(comparison: DumpComparison, model: str, arithmetic: str) -> Rerunning:
    """Run the operators of the examined side again, and let the comparison know.

    Args:
        comparison: The comparison, its directories measured.
        model: The model's file.
        arithmetic: What the golden side computed in.

    Raises:
        InputError: The arithmetic is none in which operators can run again.
        GraphError: The file is no model.
        ToolError: The model is not that of the dump.
    """
    # Not above: what runs operators takes longer to load than a comparison of few files takes.
    from msdump.tools.compare.verdict.reruns import Rerunning
    from msdump.tools.diff import variants
    from msdump.tools.diff.variants import Engine
    from msdump.tools.rerun.arithmetic import Arithmetic

    variant = variants.parse(arithmetic)
    if variant.engine is not Engine.DEVICE:
        raise InputError(f"--arithmetic {arithmetic!r}: operators run again on CPU, GPU or Ascend")
    rerunning = Rerunning(model, Arithmetic.of(variant.context))
    comparison.explain = rerunning.explain
    for folders in comparison.runs():
        count = sum(len(folder.matched.executions) for folder in folders)
        with messages.bar("operators again", count) as advance:
            rerunning.run(folders, advance)
    for folder in [each for each in comparison.folders if absences.missing(each)]:
        comparison.find_again(folder, rerunning.found_again(folder))
    _tell(rerunning)
    return rerunning


def cure(rerunning: Rerunning, patches: Sequence[str]) -> None:
    """Print what the network's outputs become when golden's outputs stand for those of some operators.

    Args:
        rerunning: What ran again.
        patches: The operators.

    Raises:
        InputError: An operator is not there.
        ToolError: It cannot be patched.
    """
    from msdump.tools.rerun import patch  # not above, as before

    tell = messages.say if documents.wanted() else print
    for run in rerunning.runs:
        iteration = run.values.operators[0].iteration
        place = f", iteration {iteration}" if len(rerunning.runs) > 1 else ""
        for each in patch.cures(run, patches):
            tell(
                f"patch     output {each.output}{place}: error {each.without:.3g} without,"
                f" {each.patched:.3g} with golden's {', '.join(patches)}"
            )


def _tell(rerunning: Rerunning) -> None:
    again = sum(bool(rerun.own) for run in rerunning.runs for rerun in run.reruns)
    mine = f", as MINE did in {rerunning.mine}" if rerunning.mine not in {None, rerunning.golden} else ""
    messages.say(f"{plural(again, 'operator')} ran again in {rerunning.golden}{mine}")
    left_out = rerunning.left_out()
    if left_out:
        operator, note = left_out[0]
        messages.say(f"warning: {plural(len(left_out), 'operator')} did not: {operator.name}: {note}")
