"""``msdump compare``: pairs of directories and tensors, agreement, and messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msdump.device import formats
from tests.judge.compare import compared
from tests.judge.compare.compared import MATRIX, RESULT, SHORT, both, table, tensor, verdicts

PAIRS = {
    "same": (SHORT, SHORT, "equal"),
    "rounded": (SHORT, SHORT * np.float32(1.00001), "agrees"),
    "thousandth": (SHORT, SHORT * np.float32(1.001), "differs"),
    "tiny": (SHORT * np.float32(1e-8), SHORT * np.float32(1.02e-8), "differs"),
    "tiny_rounded": (SHORT * np.float32(1e-9), SHORT * np.float32(1.00001e-9), "agrees"),
    "doubles": (SHORT.astype("f8"), SHORT.astype("f8") * 1.000001, "differs"),
    "halves_rounded": (SHORT.astype("f2"), (SHORT * 1.002).astype("f2"), "agrees"),
    "halves": (SHORT.astype("f2"), (SHORT * 1.02).astype("f2"), "differs"),
    "integers": (SHORT.astype("i4"), SHORT.astype("i4") + 1, "differs"),
    "large_integers": (np.int64([10**12]), np.int64([10**12 + 1]), "differs"),
    "types_of_integers": (SHORT.astype("i4"), SHORT.astype("i8"), "agrees"),
    "negative_zero": (np.float32([0.0, 1]), np.float32([-0.0, 1]), "agrees"),
    "tenth": (SHORT, SHORT * 1.1, "differs"),
    "sign": (SHORT, -SHORT, "differs"),
    "order": (SHORT, SHORT[::-1].copy(), "differs"),
    "zeros": (SHORT * 0, SHORT * 0, "equal"),
    "nearly_zero": (SHORT * 0, SHORT * 0 + np.float32(1e-4), "differs"),
    "golden_zero": (SHORT * 0 + np.float32(1e-9), SHORT * 0, "differs"),
    "one_zero": (SHORT * 0, SHORT, "differs"),
    "nan": (np.float32([1, np.nan]), np.float32([1, np.nan]), "equal"),
    "nan_rounded": (np.float32([1, np.nan]), np.float32([1.00001, np.nan]), "agrees"),
    "nan_beside_a_difference": (np.float32([1, np.nan]), np.float32([1.1, np.nan]), "differs"),
    "infinities": (np.float32([1, np.inf]), np.float32([1, -np.inf]), "differs"),
    "one_nan": (np.float32([1, 2]), np.float32([1, np.nan]), "differs"),
    "truths": (np.array([True, False]), np.array([True, False]), "equal"),
    "other_truths": (np.array([True, False]), np.array([True, True]), "differs"),
    "scalar": (np.float32(3), np.float32(3.0001), "agrees"),
    "complex": (np.complex64([1 + 2j]), np.complex64([1 - 2j]), "differs"),
    "other_scalar": (np.float32(3), np.float32(-3), "differs"),
    "empty": (np.empty((0, 3), "f4"), np.empty((0, 3), "f4"), "equal"),
    "size": (SHORT, SHORT[:3], "shape"),
    "shape": (SHORT.reshape(3, 2), SHORT.reshape(2, 3), "shape"),
    "joined_axes": (SHORT, SHORT.reshape(2, 3), "equal"),
    "ones": (SHORT.reshape(1, 6), SHORT, "equal"),
    "types": (SHORT.astype("f2"), SHORT, "agrees"),
}


class TestVerdicts:
    """Tensors that agree, and limits."""

    @pytest.mark.parametrize(("dumped", "golden", "verdict"), PAIRS.values(), ids=PAIRS)
    def test_verdict(self, tmp_path, run, dumped, golden, verdict):
        """The distance relative to the scale decides, NaN must be at the same places, shapes must fit."""
        run(*both(tmp_path, dumped, golden))

        assert {("a", "output:0"): verdict} == verdicts(tmp_path)

    @pytest.mark.parametrize(
        ("options", "verdict"),
        [
            (("--distance", 0.2), "agrees"),
            (("--distance", 0.2, "--cosine", 0.99999), "differs"),
            (("--precision", "float8_e4m3fn"), "agrees"),
            (("--precision", "float16"), "differs"),
            ((), "differs"),
        ],
        ids=["distance", "cosine", "coarse", "finer", "default"],
    )
    def test_limits(self, tmp_path, run, options, verdict):
        """--cosine, --distance and --precision set the limits."""
        run(*both(tmp_path, SHORT, SHORT * 1.1 + np.float32(0.05)), *options)

        assert {("a", "output:0"): verdict} == verdicts(tmp_path)


class TestTensors:
    """Which tensors meet."""

    def test_every_kind_of_dump(self, tmp_path, run):
        """Dump files and .npy files of the same operators meet, device formats on the host."""
        compared.put(tmp_path / "mine", "Conv2D.a.1.0", 1, compared.device(RESULT, "NC1HWC0"))
        compared.put(tmp_path / "mine", "MatMul.b.1.0", 2, compared.device(MATRIX, "FRACTAL_NZ"))
        tensor(tmp_path / "golden", "a", RESULT)
        tensor(tmp_path / "golden", "b", MATRIX)

        assert 0 == run().exit_code
        assert {"equal"} == set(verdicts(tmp_path).values())

    @pytest.mark.parametrize(
        ("forms", "verdict", "note"),
        [
            (("NC1HWC0", "NC1HWC0"), "equal", ""),
            (("NC1HWC0", "FRACTAL_Z"), "shape", "shape"),
        ],
        ids=["same", "other"],
    )
    def test_npy_files_without_a_host_shape(self, tmp_path, run, forms, verdict, note):
        """Files of the same format without a host shape are compared as they are."""
        for side, form in zip(("mine", "golden"), forms, strict=True):
            tensor(tmp_path / side, "a", formats.encode(form, RESULT), form=form)

        run()

        (row,) = table(tmp_path)
        assert verdict == row["Verdict"]
        assert note in row["Note"]

    def test_reshape_that_was_optimised_away(self, tmp_path, run):
        """A golden tensor of as many elements is compared in their order, and its shape is shown."""
        compared.put(tmp_path / "mine", "MatMul.fc.1.0", 1, compared.device(MATRIX))
        compared.golden(tmp_path / "golden", "fc", MATRIX.reshape(33, 17))

        run()

        (row,) = table(tmp_path)
        assert ("equal", "shape (17, 33) against (33, 17); compared by element order") == (
            row["Verdict"],
            row["Note"],
        )

    def test_operators_that_ran_several_times(self, tmp_path, run):
        """The first execution of an operator meets the first, the second the second."""
        for number in range(3):
            tensor(tmp_path / "mine", "a", SHORT + number, number)
            tensor(tmp_path / "golden", "a", SHORT + number, number)
        tensor(tmp_path / "mine", "a", SHORT, 9)

        run()

        assert ["equal", "equal", "equal", "unchecked"] == [row["Verdict"] for row in table(tmp_path)]

    def test_golden_tensors_by_name(self, tmp_path, run):
        """Golden tensors meet operators of the same name, whatever their layout."""
        compared.put(tmp_path / "mine", "Conv2D.conv.1.0", 1, compared.device(RESULT, "NC1HWC0"))
        compared.golden(tmp_path / "golden", "conv", np.transpose(RESULT, (0, 2, 3, 1)))

        assert 0 == run().exit_code

    def test_golden_tensors_by_graph_file(self, tmp_path, run):
        """A graph file of GE pairs operators with golden tensors."""
        dumped, golden, rules = compared.fused(tmp_path)

        done = run(dumped, golden, "--graph", rules, "--distance", 0.05)

        found = verdicts(tmp_path)
        assert 0 == done.exit_code
        assert (
            "agrees"
            == found["conv1relu1", "output:0"]
            == found["trans", "input:0"]
            == found["part_1", "output:0"]
        )
        assert "unchecked" == found["conv1relu1", "input:1"]

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(at=st.integers(0, 400), bits=st.integers(1, 255))
    def test_damaged_files_never_crash(self, tmp_path, run, at, bits):
        """Whatever a bit flip makes of a dump file, the program ends with one of its codes."""
        path = compared.put(tmp_path / "mine", "Add.a.1.0", 1, compared.device(RESULT, "NC1HWC0"))
        compared.put(tmp_path / "golden", "Add.a.1.0", 1, compared.device(RESULT, "NC1HWC0"))
        data = bytearray(path.read_bytes())
        data[at % len(data)] ^= bits
        path.write_bytes(data)

        done = run()

        assert done.exit_code in {0, 1, 2}
        assert "internal error" not in done.stderr


class TestDirectories:
    """Which directories meet."""

    def test_same_places_meet_whenever_they_were_dumped(self, tmp_path, run):
        """Directories with the same path belong together, the time of the dump aside."""
        for side, time in (("mine", "20240101000000"), ("golden", "20250101000000")):
            for iteration in (2, 10):
                folder = tmp_path / side / str(iteration) / time / "0" / "Net" / "1" / "0"
                tensor(folder, "a", SHORT * iteration)

        done = run()

        assert 0 == done.exit_code
        assert ["2/0/Net/1/0", "10/0/Net/1/0"] == [row["Directory"] for row in table(tmp_path)]

    def test_iterations_of_other_layouts_meet(self, tmp_path, run):
        """Where no path is the same, directories of the same iteration belong together."""
        for iteration in (0, 1):
            tensor(tmp_path / "mine" / "rank_0" / "Net" / "0" / str(iteration), "a", SHORT)
            tensor(tmp_path / "golden" / "0" / "Net" / "1" / str(iteration), "a", SHORT)

        assert 0 == run().exit_code
        assert ["0", "1"] == [row["Directory"] for row in table(tmp_path)]

    def test_graph_compiled_as_a_whole_meets_the_first_of_several(self, tmp_path, run):
        """A directory meets that of the main graph; branches and loops are listed."""
        tensor(tmp_path / "mine" / "0" / "Net" / "1" / "0", "a", SHORT)
        for graph in (0, 1, 2):
            tensor(tmp_path / "golden" / "rank_0" / "Net" / str(graph) / "0", "abc"[graph], SHORT)

        done = run()

        assert 0 == done.exit_code
        assert {("a", "output:0"): "equal"} == verdicts(tmp_path)
        assert f"warning: {tmp_path}/golden/rank_0/Net/2/0 has no counterpart" in done.stderr

    def test_directories_without_a_counterpart_are_told(self, tmp_path, run):
        """A directory that one side has not is a warning."""
        for side, iterations in (("mine", (0, 1, 2)), ("golden", (0, 1))):
            for iteration in iterations:
                tensor(tmp_path / side / "Net" / str(iteration), "a", SHORT)

        done = run()

        assert 0 == done.exit_code
        assert f"warning: {tmp_path}/mine/Net/2 has no counterpart" in done.stderr

    def test_directory_in_which_nothing_meets_is_told(self, tmp_path, run):
        """A pair of directories without anything in common is a warning though another pair agrees."""
        for side in ("mine", "golden"):
            tensor(tmp_path / side / "Net" / "0", "a", SHORT)
            tensor(tmp_path / side / "Net" / "1", f"only_{side}", SHORT)

        done = run()

        assert 0 == done.exit_code
        fault = f"warning: no tensor of {tmp_path}/mine/Net/1 has a counterpart in {tmp_path}/golden/Net/1"
        assert fault in done.stderr

    @pytest.mark.parametrize(
        ("dumped", "golden", "message"),
        [
            ("missing", "one", "missing: no such directory"),
            ("one", "empty", "empty: no dump files in it, nor below it"),
            ("statistics", "empty", "only statistic.csv, which needs a dump on the other side"),
            ("one", "statistics", "statistic.csv: the table has no rows"),
            ("two", "other", "give the directory of one iteration on each side"),
        ],
    )
    def test_directories_that_do_not_meet(self, tmp_path, run, dumped, golden, message):
        """Directories that are missing, empty or have nothing in common are errors of code 2."""
        (tmp_path / "empty").mkdir()
        (tmp_path / "statistics").mkdir()
        (tmp_path / "statistics" / "statistic.csv").write_text("Op Type\n", encoding="utf-8")
        tensor(tmp_path / "one", "a", SHORT)
        for iteration in ("1", "2"):
            tensor(tmp_path / "two" / iteration, "a", SHORT)
            tensor(tmp_path / "other" / f"{iteration}0", "a", SHORT)

        done = run(tmp_path / dumped, tmp_path / golden)

        assert 2 == done.exit_code
        assert message in done.stderr


class TestRefused:
    """Sides that cannot be compared."""

    @pytest.mark.parametrize(
        ("kind", "options", "message"),
        [
            ("npy", (), "no operator name is in both"),
            ("golden", (), "add --graph model.onnx"),
            ("golden", ("--graph", "rules.json"), "belongs to the same value of"),
        ],
        ids=["names", "golden", "graph"],
    )
    def test_nothing_in_common(self, tmp_path, run, kind, options, message):
        """Where no tensor has a counterpart the code is 2, and the program names the remedy."""
        compared.graph(tmp_path / "rules.json", compared.operator("x", "Data", 1))
        tensor(tmp_path / "mine", "a", SHORT)
        if kind == "npy":
            tensor(tmp_path / "golden", "b", SHORT)
        else:
            compared.golden(tmp_path / "golden", "b", SHORT)

        done = run(
            *(option.replace("rules", f"{tmp_path}/rules") for option in options),
        )

        assert 2 == done.exit_code
        assert "error: nothing was compared" in done.stderr
        assert message in done.stderr

    @pytest.mark.parametrize(("name", "text"), [("bad.onnx", "x"), ("bad.json", "{"), ("missing.onnx", None)])
    def test_graph_that_cannot_be_read(self, tmp_path, run, name, text):
        """A model or graph file that cannot be read is an error of code 2 that names it."""
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")

        done = run(*both(tmp_path, SHORT, SHORT), "--graph", tmp_path / name)

        assert 2 == done.exit_code
        assert name in done.stderr


class TestFiles:
    """Two .npy files."""

    def test_all_numbers_are_printed(self, tmp_path, run):
        """Two .npy files give the scores and the verdict, which is the exit code too."""
        np.save(tmp_path / "a.npy", SHORT)
        np.save(tmp_path / "b.npy", np.float32([1, 2.5, 3, 4, 0, 5]))

        done = run(tmp_path / "a.npy", tmp_path / "b.npy")

        assert 1 == done.exit_code
        assert "CosineSimilarity: 0.992362\n" in done.stdout
        assert done.stdout.endswith("Verdict: differs\n")
        assert 4 == len(done.stdout.splitlines())

    @pytest.mark.parametrize(
        ("golden", "options", "code", "verdict"),
        [
            (SHORT, (), 0, "equal"),
            (SHORT * np.float32(1.00001), (), 0, "agrees"),
            (SHORT * np.float32(1.1), ("--distance", 0.2), 0, "agrees"),
            (SHORT.reshape(2, 3), (), 1, "shape (shape (6,) against (2, 3))"),
            (SHORT > 2, (), 1, "dtype (float32 against bool)"),
        ],
        ids=["same", "rounded", "distance", "shape", "types"],
    )
    def test_verdict_of_two_files(self, tmp_path, run, golden, options, code, verdict):
        """Two .npy files that agree give code 0, others code 1 with the reason."""
        np.save(tmp_path / "a.npy", SHORT)
        np.save(tmp_path / "b.npy", golden)

        done = run(tmp_path / "a.npy", tmp_path / "b.npy", *options)

        assert (code, f"Verdict: {verdict}") == (done.exit_code, done.stdout.splitlines()[-1])
