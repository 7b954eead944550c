"""saved_data statistic and full through MindSpore's door; every expected number is written out."""

import hashlib

import numpy as np
import pytest
from onnx import helper

from tests.dump import nets
from tests.world import O0

ENABLE = pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])
HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"


def md5(data):
    """Return the digits of a hash."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def identity(x):
    """Return a network that passes one tensor on."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    return nets.model([nets.node("Identity", "x", "y")], [nets.value("x", x.shape, kind)], ["y"])


def lines(door, step=0):
    """Return the lines of the statistics of a step."""
    return (door.rank / "Net" / "0" / str(step) / "statistic.csv").read_text().splitlines()


def measured(door, x, **changes):
    """Dump statistics of one tensor; return the header's titles and the cells from Data Size on."""
    door.dump(identity(x), {"x": x}, context=O0, **{"saved_data": "statistic", "input_output": 2, **changes})
    header, row = lines(door)
    before, _, rest = row.partition(",output,0,")
    assert before.startswith("Identity,Default_Identity-op0,0,0,")
    return header.removeprefix(f"{HEAD},"), rest


SIX = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
SIX_MD5 = "fa85978152c7dfb5f1322082915cb050"


ORDERS = {
    "empty": ([], "", ""),
    "backwards": (["l2norm", "min", "max"], "L2Norm Value,Min Value,Max Value", "9.53939,1,6"),
    "hash:md5": (["hash:md5", "avg", "min"], "MD5,Avg Value,Min Value", f"{SIX_MD5},3.5,1"),
}


@ENABLE
@pytest.mark.parametrize(("categories", "titles", "cells"), ORDERS.values(), ids=ORDERS)
def test_order(door, enable, categories, titles, cells):
    """Columns stand in the user's order."""
    found, row = measured(door, SIX, statistic_category=categories, enable=enable)

    expected = '24,float32,"(2,3)"'
    assert (titles, f"{expected},{cells}" if cells else expected) == (found.removeprefix(HEAD), row)


def test_device_drops_what_only_the_host_computes(door, caplog):
    """Categories that the device lacks are dropped with a warning that names them."""
    titles, _ = measured(
        door, SIX, stat_calc_mode="device", statistic_category=["count", "max", "md5", "min", "avg"]
    )

    assert titles == "Max Value,Min Value,Avg Value"
    warned = [r.getMessage() for r in caplog.records if "statistic_category" in r.getMessage()]
    assert len(warned) == 1
    assert "count" in warned[0]
    assert "md5" in warned[0]


def test_unsupported_type_is_told_once(door, caplog):
    """A type that the device does not compute a statistic for leaves null and one warning each."""
    door.dump(
        identity(np.array([True])),
        {"x": np.array([True])},
        context=O0,
        saved_data="statistic",
        stat_calc_mode="device",
        statistic_category=["max", "avg", "l2norm"],
    )

    assert [row.rpartition('"')[2] for row in lines(door)[1:]] == [",True,null,null"] * 2
    told = [r.getMessage() for r in caplog.records if "is not supported" in r.getMessage()]
    assert told == [
        f"in the 'Ascend' platform, 'bool' is not supported for '{name}' statistic dump"
        for name in ("avg", "l2norm")
    ]


def test_device_statistics_of_device_tensors(door):
    """Statistics of a device tensor describe its memory: device shape, size and type."""
    for flag, expected in (
        (False, '128,float32,"(1,1,1,2,16)",4,0,0.3125'),
        (True, '16,float32,"(1,2,1,2)",4,1,2.5'),
    ):
        door.again()
        x = np.array([[[[1, 2]], [[3, 4]]]], np.float32)
        node = nets.node("MaxPool", "x", "y", kernel_shape=[1, 1])
        door.dump(
            nets.model([node], [nets.value("x", x.shape)], ["y"]),
            {"x": x},
            context=O0,
            saved_data="statistic",
            statistic_category=["max", "min", "avg"],
            trans_flag=flag,
            net_name=f"Net{flag:d}",
        )
        rows = (door.rank / f"Net{flag:d}" / "0" / "0" / "statistic.csv").read_text().splitlines()
        assert [expected] * 2 == [row.partition(",0,0,")[2].split(",", 3)[3] for row in rows[1:]]


def test_samples(door):
    """With samples, statistics describe the sample."""
    titles, row = measured(
        door, SIX, sample_mode=1, sample_num=2, statistic_category=["max", "min", "avg", "count"]
    )

    assert (titles, row) == ("Max Value,Min Value,Avg Value,Count", '8,float32,"(2)",2,1,1.5,2')


WITHOUT_ROW = {"complex": np.array([1 + 2j], np.complex64), "empty": np.zeros((0, 3), np.float32)}


@pytest.mark.parametrize("x", WITHOUT_ROW.values(), ids=WITHOUT_ROW)
def test_tensors_without_row(door, x):
    """Complex and empty tensors have no row."""
    door.dump(identity(x), {"x": x}, context=O0, saved_data="statistic")

    assert not (door.rank / "Net").exists()


ADVICE = {"two": (["max", "min"], True), "three": (["max", "min", "avg"], False), "none": ([], True)}


@pytest.mark.parametrize(("categories", "expected"), ADVICE.values(), ids=ADVICE)
def test_advice_about_msprobe(door, caplog, categories, expected):
    """Fewer than three statistics are warned of once: msprobe refuses such files."""
    door.dump(
        identity(SIX), {"x": SIX}, steps=2, context=O0, saved_data="statistic", statistic_category=categories
    )

    assert expected == len([r for r in caplog.records if "msprobe needs" in r.getMessage()])
