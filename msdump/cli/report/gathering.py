"""What the command line asks for becomes a report."""

from __future__ import annotations

from msdump.cli import messages
from msdump.cli.compare import again
from msdump.cli.report.options import ReportOptions
from msdump.errors import ConfigError
from msdump.plan import DumpPlan
from msdump.store.read.reader import Dump, open_dump
from msdump.tools.compare.verdict.comparison import DumpComparison
from msdump.tools.report import collecting, comparing, redaction
from msdump.tools.report.collecting import DumpReport, ReportQuestion
from msdump.tools.report.measured import KnownDirectories
from msdump.watch.rules import WatchRule


def gather(
    dump: str, golden: str | None, asked: ReportOptions, known: KnownDirectories | None = None
) -> DumpReport:
    """Return the report that the command line asks for.

    Args:
        dump: The dump.
        golden: The dump that it is compared with, None for no comparison.
        asked: The options.
        known: What directories held before; one that has not changed since is not read again.

    Raises:
        DumpReadError: A dump cannot be opened, or the trace cannot be read.
        ToolError: The two dumps cannot be compared.
        ConfigError: The configuration or a file of rules is faulty.
    """
    opened = open_dump(dump, asked.execution)
    plan = _plan(opened, asked)
    compared = None
    if golden is not None:
        compared = comparing.compare(
            *(dump, golden, asked.limits, (asked.execution, asked.golden_execution)),
            graph=asked.graph,
            executor=asked.executor,
            explain=_explain(asked),
        )
    with messages.bar("directories", len(opened.iterations)) as advance:
        question = ReportQuestion(
            None if golden is None else open_dump(golden, asked.golden_execution),
            compared,
            plan,
            _rules(asked, plan),
            asked.histograms,
            asked.trace,
            known,
            asked.executor,
            advance,
        )
        report = collecting.collect(opened, question)
    return report if asked.has_source else redaction.redacted(report)


def _explain(asked: ReportOptions) -> comparing.Explain | None:
    if asked.model is None:
        return None
    model = asked.model

    def explain(comparison: DumpComparison) -> None:
        again.rerun(comparison, model, asked.arithmetic)

    return explain


def _plan(dump: Dump, asked: ReportOptions) -> DumpPlan | None:
    """Return the configuration as it was compiled, None where it is not known."""
    path = asked.config or next((path for rank in dump.ranks.values() if (path := rank.config_file)), None)
    if path is None:
        return None
    from msdump.cli.explain import configuration  # not above: most dumps of an Ascend keep none

    try:
        return configuration.plan_of(path, configuration.context_of(dump, {}), dump)
    except ConfigError as error:
        if asked.config is not None:
            raise
        # the copy in a dump of another version may have keys that are not known here
        messages.say(f"warning: the configuration in the dump is not understood: {error}")
        return None


def _rules(asked: ReportOptions, plan: DumpPlan | None) -> tuple[WatchRule, ...]:
    if asked.rules_file is not None:
        from msdump.config import watch as watch_rules

        return watch_rules.read(asked.rules_file)
    return () if plan is None else plan.watch.rules
