"""The steps of each kind of artifact, and the walk through them."""

import numpy as np

from msdump.capture.pipeline import ArtifactKind, ArtifactWriter, compile_steps
from msdump.plan import Tree
from msdump.reasons import Reason
from tests.capture.records import CONV, TASK, compiled_plan, record

TEXT, EMPTY, NUMBER = (
    record(np.array(["a"], object)),
    record(np.zeros((0, 2), np.float32)),
    record(np.ones(1)),
)


class Kept(ArtifactWriter):
    """A writer that keeps its tensors, and how many were dropped before each."""

    is_by_operator = False

    def __init__(self):
        """Keep nothing yet."""
        super().__init__(self)
        self.records = []
        self.reasons = []
        self.before = []

    def skip(self, reason):
        """Take the reason why a tensor was dropped."""
        self.reasons.append(reason)

    def write_tensor(self, _directory, _task, record):
        """Take a tensor."""
        self.records.append(record)
        self.before.append(len(self.reasons))


def test_tensors_walk_one_by_one():
    """A writer has a tensor before the next one walks, so that no copies pile up."""
    kept = Kept()
    kept.steps = compile_steps(compiled_plan(tree=Tree.MODELS), ArtifactKind.OPERATOR)

    records = [NUMBER, TEXT, NUMBER, TEXT]
    kept.take("/d", CONV, TASK, records)

    assert [0, 1] == kept.before
    assert [Reason.TEXT] * 2 == kept.reasons
