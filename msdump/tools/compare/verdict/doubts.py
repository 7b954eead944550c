"""Verdicts that are doubtful as a graph file breaks off, so that names alone pair the operators.

vendor: MindSpore 2.10 numbers operators of one scope and type otherwise in files than in graphs, gives files
of views the shape of the view's input, cuts elements, and leaves outputs that nothing reads as the memory
was. Its graph file tells all that; names without it do not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from msdump.graph.updates import written_inputs
from msdump.record import IO
from msdump.tools.compare.pairing.dump_folder import Folder
from msdump.tools.compare.verdict.folders import ComparedFolder
from msdump.tools.compare.verdict.surroundings import LEFTOVER
from msdump.tools.judge.findings import Finding, TensorResult
from msdump.tools.judge.verdicts import AGREEING, TensorVerdict, Verdict

TORN = "the file of a graph breaks off, and names alone do not tell"
_NUMBER = "-op"


def settled(finding: Finding, folder: ComparedFolder) -> Finding:
    """Return a verdict, or ``unchecked`` in its place where it accuses an operator that may be innocent.

    It accuses rightly where the operator is the only one of its scope and type on both sides, what it reads
    was compared and agrees, and what differs are elements of the same type. Where another file stands for
    the one that breaks off, it is enough that something differs: the model alone may mistake the operator.

    Args:
        finding: The verdict.
        folder: Its directory.
    """
    if not finding.is_accused or folder.is_ours or _is_sure(finding, folder):
        return finding
    return replace(finding, verdict=Verdict.UNCHECKED, note="; ".join(filter(None, (TORN, finding.note))))


def _is_sure(finding: Finding, folder: ComparedFolder) -> bool:
    sides = folder.mine, folder.theirs
    if any(each.is_graph_torn for each in sides):
        return _is_sure_by_name(finding, folder)
    is_untold = bool(finding.tensors) and not any(each.is_bad for each in finding.tensors)
    return not (is_untold and any(each.is_graph_restored for each in sides))


def _is_sure_by_name(finding: Finding, folder: ComparedFolder) -> bool:
    place = finding.place
    if place.op_type in LEFTOVER or written_inputs(place.op_type) or finding.replaces:
        return False
    if not all(_is_alone(place.name, side) for side in (folder.dumped, folder.golden)):
        return False
    read = [each.verdict for each in finding.tensors if each.io is IO.INPUT]
    allowed = AGREEING | ({TensorVerdict.DIFFERS} if finding.verdict is Verdict.WEIGHT else set())
    return bool(read) and {*read} <= allowed and all(map(_is_of_one_type, finding.tensors))


def _is_alone(name: str, folder: Folder) -> bool:
    groups = Counter(each.rpartition(_NUMBER)[0] for each in folder.operators)
    return groups[name.rpartition(_NUMBER)[0]] == 1


def _is_of_one_type(tensor: TensorResult) -> bool:
    evidence = tensor.evidence
    return tensor.verdict is not TensorVerdict.SHAPE and evidence.dtype == evidence.golden_dtype
