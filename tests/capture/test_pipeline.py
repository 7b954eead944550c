"""The steps of each kind of artifact, and the walk through them."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.capture.pipeline import ArtifactKind, Pipeline, artifact_kind, compile_steps
from msdump.plan import FileFormat, Tree
from msdump.reasons import Reason
from tests.capture.records import CONV, TASK, compiled_plan, record

TEXT, EMPTY, NUMBER = (
    record(np.array(["a"], object)),
    record(np.zeros((0, 2), np.float32)),
    record(np.ones(1)),
)
DROPPED = {
    ArtifactKind.TENSOR: [Reason.TEXT, Reason.NO_ELEMENTS],
    ArtifactKind.OPERATOR: [Reason.TEXT],
    ArtifactKind.OPERATOR_TABLE: [],
    ArtifactKind.FAILURE: [Reason.TEXT],
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


@pytest.mark.parametrize(("kind", "expected"), DROPPED.items(), ids=lambda item: getattr(item, "name", None))
def test_artifacts_drop_what_they_cannot_hold(kind, expected):
    """A .npy file holds neither text nor nothing; a dump file tells of nothing, and a table even of text."""
    kept = Kept()
    steps = compile_steps(compiled_plan(tree=Tree.MODELS), kind)

    Pipeline(steps, kept, kept.reasons.append).take("/d", CONV, TASK, [TEXT, EMPTY, NUMBER])

    assert expected == kept.reasons
    assert 3 - len(expected) == len(kept.records)


def test_tensors_walk_one_by_one():
    """A writer has a tensor before the next one walks, so that no copies pile up."""
    kept = Kept()
    steps = compile_steps(compiled_plan(tree=Tree.MODELS), ArtifactKind.OPERATOR)

    Pipeline(steps, kept, kept.reasons.append).take("/d", CONV, TASK, [NUMBER, TEXT, NUMBER, TEXT])

    assert [0, 1] == kept.before
    assert [Reason.TEXT] * 2 == kept.reasons


KINDS = {
    "ranks": ({"tree": Tree.RANKS}, ArtifactKind.TENSOR),
    "npy": ({"tree": Tree.STEPS, "file_format": FileFormat.NPY}, ArtifactKind.TENSOR),
    "bin": ({"tree": Tree.STEPS, "file_format": FileFormat.BIN}, ArtifactKind.OPERATOR),
    "table": ({"tree": Tree.MODELS, "operator_statistics": ("Max",)}, ArtifactKind.OPERATOR_TABLE),
}


@pytest.mark.parametrize(("fields", "expected"), KINDS.values(), ids=KINDS)
def test_plans_say_what_an_artifact_holds(fields, expected):
    """A tree of ranks has files of tensors; a compiled graph has what its format says."""
    assert expected is artifact_kind(compiled_plan(**fields))
