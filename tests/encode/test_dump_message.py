"""Names of the numbers in dump files."""

import pytest

from msdump.encode import dump_message

NAMES = {
    "first": (0, "NCHW", "DT_UNDEFINED"),
    "another": (3, "NC1HWC0", "DT_INT8"),
    "largest": (255, "MAX", "255"),
    "none": (254, "254", "254"),
    "negative": (-1, "-1", "-1"),
}


@pytest.mark.parametrize(("number", "layout", "dtype"), NAMES.values(), ids=NAMES)
def test_names(number, layout, dtype):
    """Formats and data types have their enum's name, digits where a newer toolkit added a number."""
    assert layout == dump_message.format_name(number)
    assert dtype == dump_message.data_type_name(number)
