"""Whatever a table is written of, the reader of that table takes it."""

import math
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msdump import dtypes
from msdump.capture import Statistics
from msdump.capture.pipeline import OperatorTableWriter
from msdump.device import Task
from msdump.encode.operator_csv import TITLES
from msdump.plan import DEFAULT_STATISTICS, DeviceTarget, Naming, StatisticSpec, Tree
from msdump.read import read_statistics
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.statistics import BY_CATEGORY
from msdump.store import CLOCK, names
from tests.capture.records import compiled_plan, record, take

ODD_VALUES = [0, 1, -1, np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 255, 1e300]
TYPES = [row for row in dtypes.DTYPES if row is not dtypes.STRING]
SETTINGS = settings(deadline=None, max_examples=150)
NAMES = ["Default/a,b", 'quote"d', "Größe/名前", "line\nbreak", "tab\t", ",,,", "'", "=1+1", "", " "]
TABLE = compiled_plan(tree=Tree.MODELS, operator_statistics=DEFAULT_STATISTICS)
STYLE = names.STYLES[Naming.V2_5, DeviceTarget.ASCEND]


class Sink:
    """Keeps the files that are written to it."""

    def __init__(self):
        """Begin with nothing."""
        self.data = b""

    def skip(self, reason):
        """Expect to write every tensor."""
        raise AssertionError(reason)

    def write(self, artifact):
        """Take a file."""
        self.data = b"".join(map(bytes, artifact.buffers))


@st.composite
def arrays(draw):
    """Give an array of any element type, with elements that statistics stumble over; it may be empty."""
    dtype = draw(st.sampled_from(TYPES))
    shape = draw(st.sampled_from([(), (0,), (2, 0, 3), (1,), (3,), (2, 2), (1, 2, 1, 3)]))
    count = math.prod(shape)
    chosen = draw(st.lists(st.sampled_from(ODD_VALUES), min_size=count, max_size=count))
    with np.errstate(all="ignore"):
        wide = np.array(chosen, np.float64).reshape(shape)
        if dtype.numpy.kind in "iu" or dtype.numpy.kind == "b" or dtype.per_byte > 1:
            whole = np.nan_to_num(wide, posinf=1, neginf=0).clip(0, 1).astype(np.int8)
            return dtype, whole.astype(dtype.numpy)
        return dtype, wide.astype(dtype.numpy)


def read(data):
    """Return the rows of a table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_bytes(data)
        return read_statistics(str(path))


@SETTINGS
@example(
    tensors=[(dtypes.from_name("float32"), np.zeros((0,), np.float32))],
    chosen=set(DEFAULT_STATISTICS),
    name="empty",
)
@example(
    tensors=[(dtypes.from_name("complex64"), np.zeros((2,), np.complex64))],
    chosen=set(DEFAULT_STATISTICS),
    name="complex",
)
@given(
    tensors=st.lists(arrays(), min_size=1, max_size=4),
    chosen=st.sets(st.sampled_from(sorted(TITLES)), min_size=1),
    name=st.sampled_from(NAMES),
)
def test_statistics_of_operators_read_back(tensors, chosen, name):
    """Acl's csv file has a row for each tensor, read under the titles that were written."""
    sink = Sink()
    operator = OperatorRef("Odd,type", name)
    records = [
        record(array, side, slot, operator=operator)
        for side in (IO.INPUT, IO.OUTPUT)
        for slot, (_, array) in enumerate(tensors)
    ]

    take(TABLE, OperatorTableWriter(sink, STYLE, tuple(chosen)), sink, records, operator=operator)

    rows = read(sink.data)
    both = [*tensors, *tensors]
    assert len(both) == len(rows)
    for row, (dtype, array) in zip(rows, both, strict=True):
        assert ("x".join(map(str, array.shape)) or "-") == row["Shape"]
        assert set(row) >= {"Data Size", "Count", *(TITLES[item] for item in chosen)}
        assert row["Count"] in {None, array.size}
        assert (row["Count"] is None) >= (not array.size or dtype.numpy.kind == "c")


@SETTINGS
@given(
    tensor=arrays(),
    chosen=st.lists(st.sampled_from(sorted(BY_CATEGORY)), min_size=1, unique=True),
    name=st.sampled_from(NAMES),
    on_device=st.booleans(),
)
def test_rows_of_statistic_csv_read_back(tensor, chosen, name, on_device):
    """statistic.csv has a cell for each statistic of a tensor that gets a row."""
    dtype, array = tensor
    if on_device:
        chosen = [item for item in chosen if BY_CATEGORY[item].device is not None] or ["max"]
    record = TensorRecord(OperatorRef("Odd,type", name), IO.INPUT, 0, dtype, array, CLOCK.now(), "ND")
    statistics = Statistics(StatisticSpec(tuple(chosen), on_device), STYLE)

    cells = statistics.measure(record)

    if cells is None:
        assert not array.size or dtype.numpy.kind == "c"
        return
    (row,) = read(statistics.header + statistics.rows([(record, cells, Task(3, 4))]))
    assert (3, 4, dtype.name) == (row["Task ID"], row["Stream ID"], row["Data Type"])
    assert f"({','.join(map(str, array.shape))})" == row["Shape"]
    assert {BY_CATEGORY[item].title for item in chosen} <= row.keys()
