"""The table of statistics, and what else of the package has to agree with it."""

from __future__ import annotations

import typing

import pytest

from msdump.capture.statistics.table import BY_CATEGORY, STATISTICS, advice, chosen, reference
from msdump.config import models, plan, rules
from msdump.plan import StatisticSpec


def test_every_configurable_category_is_defined():
    """Whatever a configuration may name has exactly one definition, and nothing else has."""
    accepted = typing.get_args(models.Category)
    aliases = plan._CATEGORY_ALIASES

    assert set(BY_CATEGORY) == {aliases.get(name, name) for name in accepted}
    assert len(BY_CATEGORY) == len(STATISTICS)


def test_device_statistics_are_those_of_the_configuration():
    """The configuration lets the device compute what the table says it can."""
    assert set(rules.DEVICE_STATISTICS) == {each.category for each in STATISTICS if each.device}


def test_titles_are_mindspores():
    """Readers find every column under MindSpore's title."""
    expected = (
        "Max Value,Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,NaN Count,"
        "Negative Inf Count,Positive Inf Count,Zero Count,MD5,SHA1,L2Norm Value"
    )

    assert expected.split(",") == [each.title for each in STATISTICS]


def test_chosen_keeps_the_order():
    """Columns come in the user's order."""
    spec = StatisticSpec(("md5", "max", "md5"))

    assert ["md5", "max", "md5"] == [each.category for each in chosen(spec)]


@pytest.mark.parametrize(
    ("categories", "columns"), [((), 10), (("max",), 11), (("max", "min"), 12)], ids=["none", "one", "two"]
)
def test_few_statistics_get_advice(categories, columns):
    """Fewer than three statistics make a file that msprobe refuses; the message says so."""
    message = advice(StatisticSpec(categories))

    assert message is not None
    assert f"will have {columns} columns" in message
    assert "at least 3 statistics" in message


def test_three_statistics_get_no_advice():
    """The default three are enough."""
    assert advice(StatisticSpec()) is None


def test_reference_names_everything():
    """The reference table has one line for each statistic, with its column."""
    lines = reference().splitlines()

    assert len(STATISTICS) + 2 == len(lines)
    assert "| `l2norm` | L2Norm Value | The square root of the sum of squares" in lines[-1]
    assert lines[-1].endswith("| host and device |")
