"""The steps of each kind of artifact, and the walk through them."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.capture.pipeline import Pipeline, Unit, compile_steps, unit
from msdump.plan import FileFormat, Tree
from msdump.reasons import Reason
from tests.capture.records import CONV, TASK, compiled_plan, record

TEXT, EMPTY, NUMBER = (
    record(np.array(["a"], object)),
    record(np.zeros((0, 2), np.float32)),
    record(np.ones(1)),
)
DROPPED = {
    Unit.TENSOR: [Reason.TEXT, Reason.NO_ELEMENTS],
    Unit.OPERATOR: [Reason.TEXT],
    Unit.OPERATOR_TABLE: [],
    Unit.FAILURE: [Reason.TEXT],
}


class Kept:
    """A writer that keeps what it takes, and how much was told to be dropped before each tensor."""

    def __init__(self):
        """Keep nothing yet."""
        self.records = []
        self.reasons = []
        self.before = []

    def write(self, _directory, _operator, _task, tensors):
        """Take tensors."""
        for tensor in tensors:
            self.records.append(tensor)
            self.before.append(len(self.reasons))


@pytest.mark.parametrize(("of", "expected"), DROPPED.items(), ids=lambda item: getattr(item, "name", None))
def test_artifacts_drop_what_they_cannot_hold(of, expected):
    """A .npy file holds neither text nor nothing; a dump file tells of nothing, and a table even of text."""
    kept = Kept()
    steps = compile_steps(compiled_plan(tree=Tree.MODELS), of)

    Pipeline(steps, kept, kept.reasons.append).take("/d", CONV, TASK, [TEXT, EMPTY, NUMBER])

    assert expected == kept.reasons
    assert 3 - len(expected) == len(kept.records)


def test_tensors_walk_one_by_one():
    """A writer has a tensor before the next one walks, so that no copies pile up."""
    kept = Kept()
    steps = compile_steps(compiled_plan(tree=Tree.MODELS), Unit.OPERATOR)

    Pipeline(steps, kept, kept.reasons.append).take("/d", CONV, TASK, [NUMBER, TEXT, NUMBER, TEXT])

    assert [0, 1] == kept.before
    assert [Reason.TEXT] * 2 == kept.reasons


UNITS = {
    "ranks": ({"tree": Tree.RANKS}, Unit.TENSOR),
    "npy": ({"tree": Tree.STEPS, "file_format": FileFormat.NPY}, Unit.TENSOR),
    "bin": ({"tree": Tree.STEPS, "file_format": FileFormat.BIN}, Unit.OPERATOR),
    "table": ({"tree": Tree.MODELS, "operator_statistics": ("Max",)}, Unit.OPERATOR_TABLE),
}


@pytest.mark.parametrize(("fields", "expected"), UNITS.values(), ids=UNITS)
def test_plans_say_what_an_artifact_holds(fields, expected):
    """A tree of ranks has files of tensors; a compiled graph has what its format says."""
    assert expected is unit(compiled_plan(**fields))
