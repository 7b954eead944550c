"""The compiled pass as it gets onto a machine: built where a compiler is, done without elsewhere."""

import runpy
import shutil

import numpy as np
import pytest

from msdump import dtypes
from msdump.statistics import StatisticNeed, compiled, passes
from tests.world import ROOT

NEED = StatisticNeed(extremes=True, counts=True, total=True, squares=True)

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def compile_kernel():
    """Return the function that compiles the kernel of a source tree."""
    return runpy.run_path(str(ROOT / "scripts" / "compile_kernel.py"))["compile_kernel"]


@pytest.fixture
def tree(tmp_path):
    """Return a source tree with the kernel's source alone."""
    source = compiled.LIBRARY.parent
    shutil.copytree(source, tmp_path / source.relative_to(ROOT), ignore=shutil.ignore_patterns("*.so"))
    return tmp_path


@needs_compiler
def test_without_variants_for_newer_machines_it_measures_too(monkeypatch, compile_kernel, tree):
    """A C library that cannot choose between variants of a function gets one of each."""
    attempts = (("--no-such-flag",), ("-DPORTABLE", "-O0"))  # as below
    monkeypatch.setitem(compile_kernel.__globals__, "_ATTEMPTS", attempts)
    reasons = []
    array = np.array([1, 2, -1], np.float16)

    kernel = compiled.load(compile_kernel(tree, reasons.append))

    assert passes.Totals(3, 2.0, -1.0, 1, 2, 0, 0, 0, 2.0, 6.0) == kernel.totals(array, NEED)
    assert reasons == []


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "true"])
def test_what_cannot_be_compiled_is_told_and_leaves_nothing(monkeypatch, compile_kernel, tree, compiler):
    """Without a compiler that works an older library goes, and one message says why."""
    older = tree / compiled.LIBRARY.relative_to(ROOT)
    older.write_bytes(b"older")
    monkeypatch.setenv("CC", compiler)
    reasons = []

    made = compile_kernel(tree, reasons.append)

    assert made is None
    assert not older.exists()
    assert len(reasons) == 1
    assert reasons[0].startswith("statistics will be computed by numpy: ")


@pytest.mark.parametrize("contents", [None, b"", b"\x7fELF of another machine"])
def test_a_library_that_cannot_be_loaded_is_done_without(tmp_path, contents):
    """A missing, empty or foreign file is no error."""
    library = tmp_path / "_kernel.so"
    if contents is not None:
        library.write_bytes(contents)

    assert compiled.load(library) is None


@needs_compiler
def test_a_library_that_is_compiled_is_one_of_its_version(monkeypatch, compile_kernel, tree):
    """The library that is compiled is one that measures, and is not used by a package of another version."""
    reasons = []
    # optimising takes most of the time; other tests measure by the installed library, which is optimised
    monkeypatch.setitem(compile_kernel.__globals__, "_ATTEMPTS", (("-O0",), ("-DPORTABLE", "-O0")))

    library = compile_kernel(tree, reasons.append)

    kernel = compiled.load(library)
    assert kernel is not None
    assert reasons == []
    array = np.array([3, -4, 0], np.float32)
    assert passes.Totals(3, 3.0, -4.0, 1, 1, 0, 0, 0, -1.0, 25.0) == kernel.totals(array, NEED)
    monkeypatch.setattr(compiled, "_VERSION", 0)
    assert compiled.load(library) is None


def test_both_passes_tell_of_the_same_types():
    """Every type that has statistics is measured by the compiled pass, itself or as a larger one."""
    kernel = compiled.load(compiled.LIBRARY)
    if kernel is None:
        pytest.skip("this installation has no compiled pass")
    measurable = [dtype for dtype in dtypes.DTYPES if passes.is_measurable(dtype) and dtype.saved.kind != "b"]

    assert [] == [dtype.name for dtype in measurable if not kernel.takes(dtype.saved)]


@needs_compiler
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FIELD(double, squares)", "FIELD(double, squares) FIELD(double, cubes)"),
        ("FIELD(double, high) FIELD(double, low)", "FIELD(double, low) FIELD(double, high)"),
        ("return sizeof(struct found)", "return sizeof(struct found) + 8"),
        ("PUBLIC size_t msdump_found_size", "static size_t msdump_found_size"),
        ("#define VERSION ", "#define VERSION 1"),
    ],
    ids=["a field more", "another order", "another size", "no size", "another version"],
)
def test_a_library_of_another_record_is_not_used(monkeypatch, compile_kernel, tree, caplog, before, after):
    """A library of another record or version is done without, and a warning names the file."""
    source = tree / compiled.LIBRARY.relative_to(ROOT).with_name("kernel.c")
    text = source.read_text()
    assert text.count(before) == 1
    source.write_text(text.replace(before, after))
    monkeypatch.setitem(compile_kernel.__globals__, "_ATTEMPTS", (("-O0",), ("-DPORTABLE", "-O0")))

    library = compile_kernel(tree, list)

    assert compiled.load(library) is None
    (message,) = caplog.messages
    assert message.startswith(f"{library}: is of another version of msdump, so numpy computes the statistics")
