"""Golden operators that the examined side has no files of: missing, lost, not asked for, or run elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from msdump.device.tasks import INSERTED_PREFIX, is_settled
from msdump.store import names
from msdump.tools.compare.pairing import numbering
from msdump.tools.compare.pairing.dump_folder import COMPILED
from msdump.tools.compare.verdict.folders import ComparedFolder
from msdump.tools.compare.verdict.surroundings import are_cut_otherwise
from msdump.tools.judge.findings import Finding, TensorResult, Uneven
from msdump.tools.judge.verdicts import TensorVerdict, Verdict


def missing(folder: ComparedFolder) -> tuple[str, ...]:
    """Return golden operators that the examined side should have and lacks, in the order of execution."""
    lost = folder.losses.whole
    expected = {name for name in folder.matched.missing if is_expected(folder, name)} | folder.gone
    return tuple(name for name in folder.golden.operators if name in expected and name not in lost)


def unasked(folder: ComparedFolder) -> tuple[str, ...]:
    """Return golden operators that the examined side's configuration leaves out, in their order."""
    lost = folder.losses.whole
    return tuple(name for name in folder.matched.missing if name not in lost and _is_left_out(folder, name))


def findings(folder: ComparedFolder) -> Iterator[Finding]:
    """Yield the golden operators whose files the examined side has lost, or which it ran elsewhere."""
    for name, tensors in folder.losses.whole.items():
        results = tuple(TensorResult(each, TensorVerdict.UNREADABLE, each.note) for each in tensors)
        yield Finding(folder.missing_place(name), Verdict.UNREADABLE, results, results[0].note)
    for name in folder.matched.missing:
        if note := _why_unknown(folder, name):
            yield Finding(folder.missing_place(name), Verdict.UNCHECKED, note=note)


def is_expected(folder: ComparedFolder, name: str) -> bool:
    """Tell whether the examined side should have a golden operator.

    What the device adds belongs to one side alone; compiled graphs have no task for what only hands
    tensors on, and hold the results of operators that read weights alone.
    """
    if name.startswith(INSERTED_PREFIX) or names.sanitize(name) in folder.found_again:
        return False
    golden_graph = folder.theirs.graph
    if golden_graph is not None and numbering.may_be_listed(names.sanitize(name), golden_graph):
        return False  # nothing tells which of the graph's operators it is
    if _why_unknown(folder, names.sanitize(name)) or _is_left_out(folder, name):
        return False
    if folder.dumped.kind not in COMPILED or folder.golden.kind in COMPILED:
        return True
    operator = folder.theirs.operator(name)
    is_run = operator is None or not is_settled(operator.op_type)
    return is_run and not folder.theirs.is_fixed(name)


def uneven(folder: ComparedFolder) -> tuple[Uneven, ...]:
    """Return operators that did not run equally often, and not in other graphs either."""
    return tuple(each for each in folder.matched.uneven if not _ran_elsewhere(folder, each.name))


def _is_left_out(folder: ComparedFolder, name: str) -> bool:
    """Tell whether the examined side's configuration leaves a golden operator out."""
    name = names.sanitize(name)
    if name.startswith(INSERTED_PREFIX) or name in folder.found_again or _why_unknown(folder, name):
        return False
    return folder.mine.leaves_out(folder.missing_place(name), folder.own_name(name))


def _ran_elsewhere(folder: ComparedFolder, name: str) -> bool:
    """Tell whether the examined side ran as many operators of a golden one's type, in other graphs."""
    files = folder.golden.operators.get(name, ())
    return bool(files) and are_cut_otherwise(files[-1].op_type, folder.mine, folder.theirs)


def _why_unknown(folder: ComparedFolder, name: str) -> str:
    """Return in words why nothing tells whether the examined side lacks an operator, else ""."""
    if folder.mine.is_graph_torn or folder.theirs.is_graph_torn:
        return "the file of a graph breaks off"
    return "mine ran operators of its type in other graphs" if _ran_elsewhere(folder, name) else ""
