"""The csv file that stands in for an operator's tensors."""

import math

import pytest

from msdump.encode import TensorInfo, operator_csv
from msdump.plan import DEFAULT_STATISTICS

CELLS = {"Count": 6, "Max": 1.5, "Min": -1e9, "Avg": 1 / 3, "Nan": 0, "Negative Inf": 1, "Positive Inf": 2}
IMAGE = TensorInfo(2, 3, (1, 1, 2, 4, 16), (1, 3, 2, 4), 256)
SCALAR = TensorInfo(1, 2, (), (), 4)
ROWS = {
    "device format": (
        ("input", 0, IMAGE, CELLS, DEFAULT_STATISTICS),
        "Input,0,256,DT_FLOAT16,NC1HWC0,1x1x2x4x16,1.5,-1e+09,0.333333,6,0,1,2",
    ),
    "scalar": (("output", 3, SCALAR, CELLS, ("Max",)), "Output,3,4,DT_FLOAT,ND,-,6,1.5"),
    "not finite": (
        (
            "input",
            0,
            SCALAR,
            CELLS | {"Max": math.inf, "Min": -math.inf, "L2norm": math.nan},
            ("Max", "Min", "L2norm"),
        ),
        "Input,0,4,DT_FLOAT,ND,-,6,inf,-inf,nan",
    ),
    "unmeasured default": (("input", 0, SCALAR, None, DEFAULT_STATISTICS), "Input,0,4,DT_FLOAT,ND,-,,,,,,,"),
    "unmeasured choice": (("input", 0, SCALAR, None, ("Max",)), "Input,0,4,DT_FLOAT,ND,-,NA,NA"),
}


@pytest.mark.parametrize(("arguments", "expected"), ROWS.values(), ids=ROWS)
def test_row(arguments, expected):
    """A row has the facts of a dump file's header, then the statistics with six significant digits."""
    assert f"{expected}\n".encode() == operator_csv.row(*arguments)
