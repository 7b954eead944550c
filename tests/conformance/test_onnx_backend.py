"""ONNX's backend suite: nothing that runs as a whole is lost operator by operator."""

import pytest

from scripts.conformance import run as runner

# Cases that pass operator by operator: less than today's count would be a step back.
LEAST = {"node": 1850, "simple": 21, "pytorch-operator": 35, "pytorch-converted": 82}


@pytest.mark.parametrize("kind", runner.KINDS)
def test_enough_cases_pass(kind, record_property):
    """Operator by operator, at least as many cases pass as are counted on."""
    record_property("conformance", runner.report(kind))

    passed = [outcome.case.name for outcome in runner.outcomes(kind) if not outcome.by_operator]

    assert LEAST[kind] <= len(passed)


@pytest.mark.parametrize("kind", runner.KINDS)
def test_what_passes_as_a_whole_passes_operator_by_operator(kind):
    """Every case that one onnxruntime session passes passes operator by operator, float16 rounding aside."""
    passed_whole = [outcome for outcome in runner.outcomes(kind) if not outcome.whole]

    assert passed_whole
    assert [_shown(o) for o in passed_whole if o.by_operator and not o.explanation] == []


@pytest.mark.parametrize("kind", runner.KINDS)
def test_every_failure_is_explained(kind):
    """Each case that fails has a written reason."""
    failed = [outcome for outcome in runner.outcomes(kind) if outcome.by_operator]

    assert [_shown(o) for o in failed if not o.explanation] == []


def _shown(outcome):
    return f"{outcome.case.name}: {outcome.by_operator}"
