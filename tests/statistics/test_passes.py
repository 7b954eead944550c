"""Both passes, the compiled one and the blocked one, against a slow one that follows the definitions."""

import math
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from msdump import dtypes, env
from msdump.capture.statistics import octets_of
from msdump.statistics import BY_CATEGORY, StatisticNeed, compiled, measure, passes
from msdump.statistics.passes import BLOCK
from tests.capture.statistics.cases import HOST, literal, record

ALL = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
LENGTHS = st.integers(1, 80)  # up to ten short blocks

BITS = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NARROW = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
DOUBLES = st.floats(-1e100, 1e100) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324])

SINGLES = st.floats(width=32)
SPECIAL = (math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0)


def _patterns(name):
    dtype = dtypes.from_name(name).numpy
    unsigned = f"u{dtype.itemsize}"
    return hnp.arrays(unsigned, LENGTHS).map(lambda bits: bits.view(dtype))


def _narrow(name):
    low, high = NARROW[name]
    arrays = hnp.arrays(np.int8, LENGTHS, elements=st.integers(low, high))
    return arrays.map(lambda array: array.astype(dtypes.from_name(name).numpy))


ARRAYS = st.one_of(
    *(_patterns(name) for name in BITS),
    *(hnp.arrays(name, LENGTHS) for name in (*INTEGERS, "bool")),
    *(_narrow(name) for name in NARROW),
    hnp.arrays(np.float64, LENGTHS, elements=DOUBLES),
)


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def _reader(request, monkeypatch):
    """Measure with the compiled pass, and as where none is installed."""
    if request.param == "numpy":
        monkeypatch.setattr(compiled, "KERNEL", None)
    elif compiled.KERNEL is None:
        pytest.skip("this installation has no compiled pass")


@pytest.fixture
def short_blocks(monkeypatch):
    """Make every short tensor cross several block borders, and sum float32 in short runs."""
    monkeypatch.setattr(passes, "BLOCK", 16)
    monkeypatch.setattr(passes, "_RUN", 4)
    monkeypatch.setattr(passes, "_SINGLES_FROM", 8)
    ones = {size: ones[:4] for size, ones in passes._ONES.items()}
    monkeypatch.setattr(passes, "_ONES", ones)


def measured(array):
    """Return all statistics of the fast pass by category."""
    tensor = record(array)
    totals = measure(array, tensor.dtype, ALL)
    return {category: BY_CATEGORY[category].value(totals, lambda: octets_of(tensor)) for category in HOST}


def assert_agree(values, found):
    """Extremes and counts are equal, even in the sign of zero; sums agree to float32 rounding.

    Squares below the normal numbers of float64 lose their digits one by one, or as a sum where the machine
    multiplies and adds in one: they may differ by half a step each, however small they are.
    """
    expected = literal(values)
    finite = [abs(value) for value in values if math.isfinite(value)]
    spread = 1e-6 * math.fsum(finite) / len(values) + 1e-300
    assert found.pop("avg") == pytest.approx(expected.pop("avg"), rel=1e-12, abs=spread, nan_ok=True)
    steps = math.sqrt(len(values) * 5e-324)  # two square roots are no further apart than the root of that
    assert found.pop("l2norm") == pytest.approx(expected.pop("l2norm"), rel=1e-6, abs=steps, nan_ok=True)
    assert repr(expected) == repr(found)


@pytest.mark.usefixtures("short_blocks")
@settings(max_examples=300, deadline=None)
@given(ARRAYS)
@example(np.full(2, 5.104474489208424e-161))
def test_every_type_agrees_with_the_definitions(array):
    """For any bits, the pass over blocks gives the result of one element after the other."""
    values = [float(value) for value in array]

    found = measured(array)

    assert_agree(values, found)


@pytest.mark.usefixtures("short_blocks")
@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=SINGLES))
def test_strides_do_not_matter(array):
    """A transposed, a reversed, a thinned-out or an unaligned view is measured in its own order."""
    shifted = np.frombuffer(b"\0" + array.tobytes(), np.float32, offset=1)
    for view in (array.T, array[::-1], array[:, ::2], array.astype(">f4"), shifted):
        found = measured(view)

        assert_agree([float(value) for value in view.reshape(-1)], found)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5000])
def test_sizes_around_a_block(name, size):
    """Real blocks, whole and broken, give numpy's own numbers."""
    dtype = dtypes.from_name(name).numpy
    array = (np.random.default_rng(size).standard_normal(size) * 20).astype(np.int8).astype(dtype)
    doubles = array.astype(np.float64)

    found = measured(array)

    assert (doubles.max(), doubles.min()) == (found["max"], found["min"])
    assert np.count_nonzero(doubles < 0) == found["negative zero count"]
    assert np.count_nonzero(doubles == 0) == found["zero count"]
    assert found["avg"] == pytest.approx(doubles.mean(), rel=1e-12, abs=1e-15)
    assert found["l2norm"] == pytest.approx(np.linalg.norm(doubles), rel=1e-8)


@pytest.mark.parametrize(
    "pair",
    [(-1e-30, 5e-31), (-1e-12, 5e-13), (-1.0, 0.5), (-1e15, 5e14), (-1e30, 5e29), (-1e30, 1.0)],
    ids=str,
)
def test_squares_neither_overflow_nor_vanish(pair):
    """float32 with squares beyond float32 are summed in double."""
    array = np.tile(np.array(pair, np.float32), BLOCK)
    doubles = array.astype(np.float64)

    found = measured(array)

    assert found["l2norm"] == pytest.approx(np.linalg.norm(doubles), rel=1e-7, abs=0)
    assert found["avg"] == pytest.approx(doubles.mean(), rel=5e-7, abs=0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32], ids=str)
def test_constant_tensors_are_exact(dtype):
    """Equal elements have their own size as mean, whatever their number."""
    array = np.full(2 * BLOCK + 1, 3.14159, dtype)

    found = measured(array)

    assert float(array[0]) == found["avg"]
    assert found["l2norm"] == pytest.approx(float(array[0]) * math.sqrt(len(array)), rel=1e-15)


def test_float32_sums_are_right_to_1e_8():
    """A norm of a million elements has eight right digits, a mean as many of the elements' size."""
    array = np.random.default_rng(1).standard_normal(1_000_000, dtype=np.float32)
    doubles = array.astype(np.float64)

    found = measured(array)

    assert found["l2norm"] == pytest.approx(np.linalg.norm(doubles), rel=2e-8)
    assert found["avg"] == pytest.approx(doubles.mean(), abs=2e-8)


@settings(max_examples=200)
@given(
    st.sampled_from([np.float16, ml_dtypes.bfloat16, np.float32, np.float64]),
    st.integers(1, 5000),
    st.lists(st.tuples(st.integers(0, 4999), st.sampled_from([*SPECIAL, 1e-30, 1e30, 65504.0, -6e-8]))),
    st.integers(0, 3),
)
def test_specials_among_many_agree_with_float64(dtype, size, placed, scale):
    """NaN, infinities, zeros of both signs, huge and tiny numbers anywhere: numpy's float64 says the same."""
    values = np.random.default_rng(size).standard_normal(size) * 10.0**scale
    with np.errstate(all="ignore"):
        array = values.astype(dtype)
        for position, value in placed:
            array[position % size] = value

    found = measured(array)

    assert_agree([float(value) for value in array], found)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16], ids=str)
def test_threads_do_not_share_buffers(dtype):
    """Tensors measured in several threads at once get their own numbers."""
    arrays = [np.arange(3 * BLOCK).astype(np.uint8).astype(dtype) - number for number in range(8)]
    expected = [measured(array) for array in arrays]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(measured, arrays * 8))

    assert expected * 8 == found


COUNTED = {
    "nan": (math.nan, [0, 1, 2, 3], (0, 0, 4, 0, 0)),
    "negative infinities": (-math.inf, [0, 2], (2, 0, 0, 2, 0)),
    "infinities": (math.inf, [1, 3, 3], (0, 3, 0, 0, 3)),
    "negative": (-2.0, [0, 0, 3], (3, 0, 0, 0, 0)),
    "positive": (2.0, [1, 2, 2, 3], (0, 4, 0, 0, 0)),
}


@pytest.mark.parametrize("name", ["float16", "float32"])
@pytest.mark.parametrize(("value", "parts", "expected"), COUNTED.values(), ids=COUNTED)
def test_parts_of_a_large_tensor_are_counted_together(monkeypatch, name, value, parts, expected):
    """The statistics of parts that several threads measure add up, of every kind of element."""
    monkeypatch.setenv(env.THREADS, "4")
    array = np.zeros(4 << 19, name)
    for number, part in enumerate(parts):
        array[(part << 19) + 7 * number] = value

    found = measure(array, dtypes.from_name(name), ALL)

    counts = (found.negative, found.positive, found.nan, found.negative_inf, found.positive_inf)
    assert expected == counts
    assert array.size - len(parts) == found.zero


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_share_tensors(monkeypatch, threads):
    """Threads share tensors of any size and type, each with the statistics of the whole."""
    sizes = {
        "float32": 1,
        "float16": 90,
        "bfloat16": 150,
        "int8": 250,
        "bool": 10,
        "float64": 600,
        "int4": 40,
    }
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-8, 8, size).astype(dtypes.from_name(name).numpy) for name, size in sizes.items()]
    pairs = [(array, dtypes.from_numpy(array.dtype)) for array in [*arrays, arrays[2]]]
    alone = [measure(*pair, ALL) for pair in pairs]
    monkeypatch.setenv(env.THREADS, str(threads))
    monkeypatch.setattr(passes, "PART", 100)

    assert alone == passes.measure_all(pairs, ALL) == [measure(*pair, ALL) for pair in pairs]
    assert [] == passes.measure_all([], ALL)
