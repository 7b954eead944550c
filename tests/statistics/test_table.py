"""The table of statistics, and what else of the package has to agree with it."""

from __future__ import annotations

import typing

import pytest

from msdump.capture.statistics.rows import advice, chosen
from msdump.config import models
from msdump.config.reference import reference_text
from msdump.plan import StatisticSpec
from msdump.statistics.table import BY_CATEGORY, CATEGORIES, ON_DEVICE, STATISTICS


def test_every_configurable_category_is_defined():
    """Whatever a configuration may name has exactly one definition, and nothing else has."""
    accepted = typing.get_args(models.Category)

    assert set(CATEGORIES) == set(accepted)
    assert set(BY_CATEGORY) == set(CATEGORIES.values())
    assert len(BY_CATEGORY) == len(STATISTICS)


def test_names_of_hashes():
    """A hash has the names of MindSpore 2.7 too; SHA1 has no other."""
    assert {"md5": "md5", "hash": "sha1", "hash:md5": "md5", "hash:sha1": "sha1"} == {
        name: category for name, category in CATEGORIES.items() if category in {"md5", "sha1"}
    }


def test_device_statistics_are_those_of_the_configuration():
    """The configuration lets the device compute what the table says it can."""
    assert set(ON_DEVICE) == {each.category for each in STATISTICS if each.device}


def test_titles_are_mindspores():
    """Readers find every column under MindSpore's title."""
    expected = (
        "Max Value,Min Value,Avg Value,L2Norm Value,Count,Negative Zero Count,Positive Zero Count,"
        "Zero Count,NaN Count,Negative Inf Count,Positive Inf Count,MD5,SHA1"
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
    section = reference_text().partition("## Statistics\n")[2].partition("\n## ")[0]
    lines = section.strip().splitlines()[2:]

    assert len(STATISTICS) + 2 == len(lines)
    (norm,) = [line for line in lines if "`l2norm`" in line]
    assert norm.startswith("| `l2norm` | L2Norm Value | The square root of the sum of squares")
    assert norm.endswith("| host and device |")
