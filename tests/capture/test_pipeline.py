"""The steps of each kind of artifact, the walk through them, and the files of operators."""

import csv
import io

import numpy as np
import pytest

from msdump import dtypes
from msdump.capture.pipeline import ArtifactKind, ArtifactWriter, OperatorTableWriter, compile_steps
from msdump.encode import operator_csv
from msdump.plan import DEFAULT_STATISTICS, DeviceTarget, FileFormat, Naming, Tree
from msdump.reasons import Reason
from msdump.store import names
from tests.capture.records import CONV, TASK, compiled_plan, record, take
from tests.store.memory import MemorySink

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


NAMING = (Naming.V2_5, DeviceTarget.ASCEND)
STYLE = names.STYLES[NAMING]
ALL = tuple(operator_csv.TITLES)
TABLE = compiled_plan(tree=Tree.MODELS, file_format=FileFormat.BIN, operator_statistics=ALL)


def table(statistics, *tensors):
    """Return path and contents of the csv file of tensors."""
    sink = MemorySink()
    take(TABLE, OperatorTableWriter(sink, STYLE, statistics), sink, tensors)
    ((path, data),) = sink.files.contents.items()
    return path, io.StringIO(data.decode())


IMAGE = np.arange(24, dtype=np.float16).reshape(1, 3, 2, 4)


def cells(array, chosen=ALL):
    """Return the cells of the statistics of a tensor by their titles."""
    (row,) = csv.DictReader(table(chosen, record(array))[1])
    return list(row.values())[6:]


NAN, INF = np.nan, np.inf
STATISTICS = {
    "numbers": ([1, 2, 4], ["3", "4", "1", "2.33333", "0", "0", "0", "4.58258"]),
    "nan first": ([NAN, 2, 4], ["3", "nan", "nan", "nan", "1", "0", "0", "nan"]),
    "nan later": ([1, NAN, 4], ["3", "4", "1", "nan", "1", "0", "0", "nan"]),
    "inf": ([1, INF], ["2", "inf", "1", "inf", "0", "0", "1", "inf"]),
    "-inf": ([1, -INF], ["2", "1", "-inf", "-inf", "0", "1", "0", "inf"]),
    "both": ([-INF, INF], ["2", "inf", "-inf", "nan", "0", "1", "1", "inf"]),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize(("values", "expected"), STATISTICS.values(), ids=STATISTICS)
def test_statistics(values, dtype, expected):
    """NaN counts for the extremes only where it comes first; infinities give the mean that C++ gives."""
    array = np.array(values).astype(dtypes.from_name(dtype).numpy)

    assert expected == cells(array)


def test_statistics_count_padding():
    """The zeros that fill a device format are elements too."""
    (row,) = csv.DictReader(table(("Max", "Min"), record(IMAGE + 1, layout="NC1HWC0"))[1])

    assert ("128", "24", "0") == (row["Count"], row["Max Value"], row["Min Value"])


def test_statistics_of_integers():
    """Integers and truth values are measured; small integers print as numbers."""
    assert ["3", "-1", "-128"] == cells(np.array([-1, -128, -7], np.int8), ("Max", "Min"))
    assert ["2", "1", "0"] == cells(np.array([True, False]), ("Max", "Min"))


@pytest.mark.parametrize(
    "array", [np.array([1j], np.complex64), np.zeros(0, np.float32)], ids=["complex", "empty"]
)
def test_types_without_statistics(array):
    """Statistics that cannot be measured have cells that say so."""
    assert ["NA", "NA"] == cells(array, ("Max",))
    assert [""] * 7 == cells(array, DEFAULT_STATISTICS)
