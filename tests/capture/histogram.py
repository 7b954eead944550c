"""A step of the tests' own, added where all steps are compiled."""

from collections import Counter

from msdump.capture import pipeline


class Histogram:
    """Counts the tensors that walk through the steps, by operator type and side, and keeps them."""

    def __init__(self):
        """Begin with none."""
        self.counts = Counter()

    def step(self, record):
        """Count a tensor."""
        self.counts[record.operator.op_type, str(record.io)] += 1
        return record


def added(monkeypatch):
    """Add a histogram behind the steps of every plan; return it."""
    histogram, compiled = Histogram(), pipeline.compile_steps

    def compile_steps(plan, kind):
        return (*compiled(plan, kind), histogram.step)

    monkeypatch.setattr(pipeline, "compile_steps", compile_steps)
    return histogram
