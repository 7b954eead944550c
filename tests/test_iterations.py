"""Sets of iteration numbers grow by single numbers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.selector import IterationSet

NUMBERS = st.lists(st.integers(0, 30), max_size=40)


@settings(deadline=None)
@given(NUMBERS)
def test_numbers_one_by_one_make_the_same_set(numbers):
    """Whatever the order, a set has one closed range for each unbroken row of numbers."""
    grown = IterationSet(())
    for number in numbers:
        grown = grown.including(number)

    assert IterationSet.of([(number, number) for number in numbers]) == grown
    assert set(numbers) == {number for number in range(32) if number in grown}
