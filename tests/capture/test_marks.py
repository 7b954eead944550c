"""What ``set_dump`` has marked, in a network and by name."""

from __future__ import annotations

from msdump.capture.marks import Marks, NamedMarks


def test_a_run_takes_changes_in_their_order():
    """Marks that were changed since the last run count, the last change of each operator most."""
    marks = Marks()
    marks.change(("a", "b"), enabled=True)
    marks.change(("b", "c"), enabled=False)

    assert {"a"} == marks.take()


def test_marks_stay_until_they_change():
    """Without a change there is nothing to take; a later change adds to the marks before it."""
    marks = Marks()
    assert marks.take() is None

    marks.change(("a",), enabled=True)
    marks.take()

    assert marks.take() is None
    marks.change(("b",), enabled=True)
    assert {"a", "b"} == marks.take()


def test_names_that_no_network_has():
    """Names that some network has are met; the others are told with what may have been meant."""
    names = NamedMarks()
    for name in ("fc", "cf", "conv", "Fc"):
        names.add(name, enabled=True)
    names.add("conv", enabled=False)
    names.miss("fc", " (did you mean 'fc2'?)")
    names.meet("fc")
    names.meet("conv")
    names.miss("Fc", " (did you mean 'fc'?)")

    assert (("fc", True), ("cf", True), ("conv", False), ("Fc", True)) == names.all()
    assert ["Fc (did you mean 'fc'?)", "cf"] == names.unmet()
