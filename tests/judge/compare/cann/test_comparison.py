"""``msaccucmp.py compare``: which tensor meets which, the columns, the numbers, the return codes."""

from __future__ import annotations

import csv
import dataclasses
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from msdump.cli import accucmp
from msdump.judge.scores import ALGORITHMS
from msdump.return_codes import ReturnCode
from tests.judge.compare.cann import compared
from tests.judge.compare.cann.compared import MATRIX, RESULT, SHORT, START

GOLDEN = Path(__file__).resolve().parents[3] / "golden"

DONE, NO_FILE, PATH, PARAMETER, DUMP_DATA, INDEX, JSON = 0, 2, 3, 6, 11, 12, 13
FILE_NAME, WRITE, DUMP_KIND, DATA_TYPE, SHAPE, FILE_TYPE, JSON_CONTENT = 18, 19, 20, 21, 23, 24, 29
UNSUPPORTED, ALGORITHM, UNSAFE = 30, 31, 46


@pytest.fixture
def pair(tmp_path):
    """Return two dumps of a network, the second with slightly other tensors."""
    return compared.network(tmp_path / "mine"), compared.network(tmp_path / "golden", compared.near)


def call(*arguments):
    """Run ``msaccucmp.py compare`` and return its return code."""
    return accucmp.run(["compare", *map(str, arguments)])


def compare(mine, golden, *options, out=None):
    """Compare two directories; return the return code and the text of the result."""
    out = out or Path(mine).parent / "out"
    code = call("-m", mine, "-g", golden, "-out", out, *options)
    files = sorted(out.glob("result_*.csv")) if out.is_dir() else []
    return code, files[-1].read_text(encoding="utf-8").replace("\r\n", "\n") if files else ""


def file_compare(mine, golden, out):
    """Run ``msaccucmp.py file_compare`` and return its return code."""
    return accucmp.run(["file_compare", "-m", str(mine), "-g", str(golden), "-out", str(out)])


def rows(text):
    """Return the rows of a result by the titles of their columns."""
    return list(csv.DictReader(text.splitlines()))


def assert_digits_of_the_vendor(golden, text):
    """Check that a result is the vendor's, its numbers to the digits of float32 in which the vendor adds."""
    expected = (GOLDEN / golden).read_text(encoding="utf-8")
    number = re.compile(r"-?\d+\.\d{6}")

    assert number.sub("#", expected) == number.sub("#", text)
    numbers = [[float(each) for each in number.findall(side)] for side in (expected, text)]
    assert numbers[0] == pytest.approx(numbers[1], rel=2e-7, abs=1.5e-6)


class TestByName:
    """Two dumps of the same graph."""

    def test_result_is_that_of_the_vendor(self, pair):
        """Header, names, numbers and order are the ones of CANN's own tool for these files."""
        mine, golden = pair
        compared.put(mine, "Add.onlyA.9.0", 5, compared.device(MATRIX))
        compared.put(golden, "Add.onlyB.9.0", 6, compared.device(MATRIX))

        code, text = compare(mine, golden)

        assert NO_FILE == code
        assert_digits_of_the_vendor("compare_dumps.csv", text)

    def test_equal_dumps(self, pair):
        """A dump compared with itself has cosine similarity 1 and no errors, and the code is 0."""
        code, text = compare(pair[0], pair[0])

        assert DONE == code
        assert {("1.000000", "0.000000")} == {
            (row["CosineSimilarity"], row["MaxAbsoluteError"]) for row in rows(text)
        }

    def test_several_processes(self, pair, tmp_path, in_processes):
        """Several processes give the same result in the same order."""
        script = tmp_path / "scripts" / "algorithm" / "alg_Size.py"
        script.parent.mkdir(parents=True)
        script.write_text(
            "def compare(mine, golden, args):\n    return str(len(mine)), ''\n", encoding="utf-8"
        )
        expected = compare(*pair, "-c", tmp_path / "scripts")
        in_processes()

        assert expected == compare(*pair, "-c", tmp_path / "scripts", out=tmp_path / "again")

    def test_addresses(self, tmp_path):
        """Both columns of addresses tell where the tensors lay; 0 is not known."""
        info, data = compared.device(SHORT)
        known = dataclasses.replace(info, address=4096)
        mine = compared.put(tmp_path / "mine", "Add.a.1.0", 1, (known, data)).parent
        golden = compared.put(tmp_path / "golden", "Add.a.1.0", 1, (info, data)).parent

        _, text = compare(mine, golden)

        assert "0,Add,a,float32,4096,a,float32,NaN,a:output:0,[6],1.000000" in text

    def test_newest_file_of_an_operator_counts(self, tmp_path):
        """Of several files of an operator the one with the latest timestamp is compared."""
        for number, factor in ((2, 1), (1, 5)):
            compared.put(tmp_path / "mine", "Add.a.1.0", number, compared.device(SHORT * factor))
        golden = compared.put(tmp_path / "golden", "Add.a.1.0", 9, compared.device(SHORT)).parent

        code, text = compare(tmp_path / "mine", golden)

        assert (DONE, ["0.000000"]) == (code, [row["MaxAbsoluteError"] for row in rows(text)])

    def test_sides_that_one_dump_has_not_are_left_out(self, tmp_path):
        """Where only one dump holds inputs, outputs alone are compared."""
        mine = compared.put(
            tmp_path / "mine", "Add.a.1.0", 1, compared.device(SHORT), inputs=[compared.device(SHORT)]
        ).parent
        golden = compared.put(tmp_path / "golden", "Add.a.1.0", 1, compared.device(SHORT)).parent

        code, text = compare(mine, golden)

        assert (DONE, ["a:output:0"]) == (code, [row["TensorIndex"] for row in rows(text)])

    def test_tensor_that_one_side_lacks_is_told(self, tmp_path):
        """A tensor without its number on the other side is a row with the reason, on either side."""
        whole = [compared.device(SHORT), compared.device(SHORT)]
        for side, (more, fewer) in (("mine", "ab"), ("golden", "ba")):
            compared.put(tmp_path / side, f"Add.{more}.1.0", 1, *whole)
            compared.put(tmp_path / side, f"Add.{fewer}.1.0", 2, *whole[:1])

        code, text = compare(tmp_path / "mine", tmp_path / "golden")

        found = {row["TensorIndex"]: row["CompareFailReason"] for row in rows(text)}
        assert ReturnCode.NO_DUMP_FILE == code
        assert "golden has no a:output:1" == found["a:output:1"]
        assert "mine has no b:output:1" == found["b:output:1"]
        assert not found["a:output:0"]

    def test_formats_that_differ_meet_on_the_host(self, tmp_path):
        """A tensor in NC1HWC0 is compared with one in NCHW element by element."""
        mine = compared.put(tmp_path / "mine", "Add.a.1.0", 1, compared.device(RESULT, "NC1HWC0")).parent
        golden = compared.put(tmp_path / "golden", "Add.a.1.0", 1, compared.device(RESULT, "NCHW")).parent

        code, text = compare(mine, golden)

        assert (DONE, "0.000000") == (code, rows(text)[0]["MaxAbsoluteError"])

    def test_npy_trees_of_mindspore(self, tmp_path):
        """Directories of MindSpore's .npy files compare like dump files, without addresses."""
        for side, array in (("mine", SHORT), ("golden", SHORT + 1)):
            folder = tmp_path / side
            folder.mkdir()
            np.save(folder / f"Add.Default_Add-op0.0.0.{START}.output.0.DefaultFormat.float32.npy", array)

        code, text = compare(tmp_path / "mine", tmp_path / "golden")

        assert DONE == code
        assert "Address" not in text
        assert "0,Add,Default_Add-op0,float32,Default_Add-op0,float32,Default_Add-op0:output:0,[6]" in text


class TestByGraphFile:
    """A dump of a compiled graph and golden tensors of the original network."""

    def test_result_is_that_of_the_vendor(self, tmp_path, in_processes):
        """Names, layouts, numbers and order are the ones of CANN's own tool for these files."""
        mine, golden, rules = compared.fused(tmp_path)

        in_processes()

        code, text = compare(mine, golden, "-f", rules)

        assert NO_FILE == code
        assert_digits_of_the_vendor("compare_rules.csv", text)

    def test_inputs_that_onnxruntime_dumped(self, tmp_path):
        """A weight without a producer meets the input of the first original operator."""
        mine, golden, rules = compared.fused(tmp_path)
        compared.golden(golden, "input_conv1", compared.WEIGHT, 1)

        _, text = compare(mine, golden, "-f", rules)

        found = {row["TensorIndex"]: row["MaxAbsoluteError"] for row in rows(text)}
        assert "0.000000" == found["conv1relu1:input:1"]

    @pytest.mark.parametrize(("side", "name"), [("mine", "MatMul.fc_op"), ("golden", "fc.0")])
    def test_torn_file_is_told(self, tmp_path, side, name):
        """With a graph file too a file that cannot be read is a row with the reason, on either side."""
        mine, golden, rules = compared.fused(tmp_path)
        torn = next((tmp_path / side).glob(f"{name}.*"))
        torn.write_bytes(torn.read_bytes()[:50])

        _, text = compare(mine, golden, "-f", rules)

        reasons = [row["CompareFailReason"] for row in rows(text) if row["NPUDump"] == "fc_op"]
        assert any(torn.name in reason for reason in reasons)

    def test_dump_without_fusion(self, tmp_path):
        """With -cf golden is a dump of the unfused graph, found by the originals of its operators."""
        mine, _, rules = compared.fused(tmp_path)
        golden = tmp_path / "unfused"
        compared.put(golden, "ReLU.relu_op.2.0", 2, compared.device(np.maximum(RESULT, 0), "NC1HWC0"))
        compared.put(golden, "MatMul.fc_unfused.3.0", 3, compared.device(MATRIX, "FRACTAL_NZ"))
        unfused = compared.graph(
            tmp_path / "unfused.json",
            compared.operator("conv_op", "Conv2D", 1, [], ["conv1"], [("conv1", 0, "NCHW")]),
            compared.operator("relu_op", "ReLU", 2, ["conv_op:0"], ["relu1"], [("relu1", 0, "NCHW")]),
            compared.operator("fc_unfused", "MatMul", 3, ["relu_op:0"], ["fc"], [("fc", 0, "ND")]),
        )

        _, text = compare(mine, golden, "-f", rules, "-cf", unfused)

        found = {row["TensorIndex"]: row for row in rows(text)}
        assert "conv_op,relu_op" == found["conv1relu1:output:0"]["GroundTruth"]
        assert "0.000000" == found["conv1relu1:output:0"]["MaxAbsoluteError"]
        assert "0.000000" == found["fc_op:output:0"]["MaxAbsoluteError"]

    @pytest.mark.parametrize(
        ("option", "expected"),
        [
            (("-r", "2,5,1"), {"2", "3", "4", "5"}),
            (("-r", "2,6,3"), {"2", "5", "6"}),
            (("-r", ",-1,"), {"1", "2", "3", "4", "5", "6", "8"}),
            (("-s", "2,5,99"), {"2", "5"}),
        ],
        ids=["range", "range with a step ends at its end", "range of all", "select"],
    )
    def test_operators_by_their_place(self, tmp_path, option, expected):
        """-r and -s choose operators by their place, which gets a column."""
        mine, golden, rules = compared.fused(tmp_path)

        _, text = compare(mine, golden, "-f", rules, *option)

        assert expected == {row["OpSequence"] for row in rows(text)}

    def test_mapping(self, tmp_path):
        """-map writes which file is compared with which, and compares nothing."""
        mine, golden, rules = compared.fused(tmp_path)

        code = call("-m", mine, "-g", golden, "-f", rules, "-map", "-out", tmp_path / "out")

        found = rows(next((tmp_path / "out").glob("mapping_*.csv")).read_text(encoding="utf-8"))
        assert DONE == code
        assert [
            "Index",
            "OpType",
            "NPUDump",
            "GroundTruth",
            "TensorIndex",
            "NPUDumpPath",
            "GroundTruthPath",
        ] == [*found[0]]
        assert f"{golden}/relu1.0.{START}.npy" == next(
            row["GroundTruthPath"] for row in found if row["TensorIndex"] == "conv1relu1:output:0"
        )


class TestOptions:
    """Options that add to the result, or take from it."""

    def test_algorithms_by_name_and_number(self, pair):
        """-alg takes names and numbers; the columns have their order, unknown ones are left out."""
        _, text = compare(*pair, "-alg", "7,MaxAbsoluteError,0,Nonsense")

        assert ["RootMeanSquareError", "MaxAbsoluteError", "CosineSimilarity"] == [*rows(text)[0]][-4:-1]

    def test_most_elements(self, tmp_path):
        """-max compares the first elements only."""
        for side, array in (("mine", SHORT), ("golden", SHORT[::-1].copy() * 0 + [1, 2, 9, 9, 9, 9])):
            compared.put(tmp_path / side, "Add.a.1.0", 1, compared.device(np.float32(array)))

        _, text = compare(tmp_path / "mine", tmp_path / "golden", "-max", 2)

        assert "0.000000" == rows(text)[0]["MaxAbsoluteError"]

    def test_overflow_detection(self, tmp_path):
        """-overflow_detection adds a column: float16 from 65504 on overflows, other types have none."""
        tensors = [
            np.float16([65504, 1]),
            np.float16([np.inf, 1]),
            np.float16([np.nan, 65000]),
            np.float32([1e9]),
        ]
        for side in ("mine", "golden"):
            compared.put(tmp_path / side, "Add.a.1.0", 1, *map(compared.device, tensors))

        _, text = compare(tmp_path / "mine", tmp_path / "golden", "-overflow_detection")

        assert ["YES", "YES", "NO", "NaN"] == [row["OverFlow"] for row in rows(text)]

    def test_custom_algorithm(self, pair, tmp_path):
        """-c adds the algorithms of a directory; -a gives them arguments, their exceptions are the reason."""
        scripts = tmp_path / "scripts" / "algorithm"
        scripts.mkdir(parents=True)
        code = "def compare(mine, golden, args):\n    return f'{mine.dtype} {len(mine)} {args.unit}', ''\n"
        (scripts / "alg_Size.py").write_text(code, encoding="utf-8")
        (scripts / "alg_Broken.py").write_text("def compare(a, b, c):\n    return 1 / 0\n", encoding="utf-8")

        _, text = compare(*pair, "-c", scripts.parent, "-a", "Size:unit=m", "-alg", "Size,Broken")

        assert "float32 120 m" == rows(text)[0]["Size"]
        assert "NaN" == rows(text)[0]["Broken"]
        assert "Broken: ZeroDivisionError: division by zero" == rows(text)[0]["CompareFailReason"]

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (compared.same, "Global Consistency\nOperator Index: NA"),
            (np.negative, "Global Consistency\nOperator Index: 0"),
        ],
        ids=["all agree", "some differ"],
    )
    def test_advice(self, tmp_path, change, expected):
        """-advisor writes advice, and turns the detection of overflows on."""
        mine = compared.put(tmp_path / "mine", "Add.a.1.0", 1, compared.device(SHORT)).parent
        golden = compared.put(tmp_path / "golden", "Add.a.1.0", 1, compared.device(change(SHORT))).parent

        _, text = compare(mine, golden, "-advisor")

        assert "OverFlow" in text
        advice = (tmp_path / "out" / "advisor_summary.txt").read_text(encoding="utf-8")
        assert f"Detection Type: {expected}\nExpert Advice: " in advice

    def test_version_1(self, tmp_path):
        """-v 1 reads files that are one message with the data inside."""
        for side in ("mine", "golden"):
            (tmp_path / side).mkdir()
            (tmp_path / side / f"Add.a.1.0.{START}").write_bytes(version_1(SHORT))

        code, text = compare(tmp_path / "mine", tmp_path / "golden", "-v", 1)

        assert (DONE, "1.000000") == (code, rows(text)[0]["CosineSimilarity"])


def version_1(array):
    """Return a DumpData message with one float32 output inside."""
    shape = bytes((0x0A, len(array.shape), *array.shape))
    data = array.tobytes()
    output = b"\x08\x01\x10\x02\x1a" + bytes((len(shape),)) + shape + b"\x2a" + bytes((len(data),)) + data
    return b"\x0a\x031.0\x1a" + bytes((len(output),)) + output


class TestOneTensor:
    """-op: every element of one tensor."""

    @pytest.fixture
    def written(self, tmp_path):
        """Return a function that compares one tensor and returns the files by their names."""
        mine, golden, rules = compared.fused(tmp_path)

        def run(*options):
            code = call("-m", mine, "-g", golden, "-f", rules, "-out", tmp_path / "out", *options)
            found = (tmp_path / "out").glob("*") if (tmp_path / "out").is_dir() else ()
            return code, {path.name: path for path in found}

        return run

    def test_files(self, written):
        """The elements, the most different ones, a summary and the tensor are written."""
        code, files = written("-op", "conv1relu1", "-o", 0, "-n", 2)

        assert DONE == code
        name = "conv1relu1_output_0"
        elements = files[f"{name}_0.csv"].read_text(encoding="utf-8").splitlines()
        assert "Index,N C H W,NPUDump,GroundTruth,AbsoluteError,RelativeError" == elements[0]
        assert "0,0 0 0 0,0.000000\t,0.000000\t,0.000000\t,-" == elements[1]
        assert "7,0 1 0 1,2.000000\t,2.015625\t,0.015625\t,0.007752\t" == elements[8]
        assert 1 + RESULT.size == len(elements)
        absolute = files[f"{name}_absolute_error_topn.csv"].read_text(encoding="utf-8").splitlines()
        assert ["107,0 17 2 1,3.000000\t,3.031250\t,0.031250\t,0.010309\t"] == absolute[1:2]
        assert 3 == len(absolute)
        assert "TotalCount:108\nNPUDump:conv1relu1\nGroundTruth:conv1 relu1\nFormat:N C H W\n" in files[
            f"{name}_summary.txt"
        ].read_text(encoding="utf-8")
        assert np.array_equal(np.maximum(RESULT, 0), np.load(files[f"{name}.npy"]))

    def test_elements_can_be_left_out(self, written):
        """--ignore_single_op_result writes no list of all elements."""
        _, files = written("-op", "fc_op", "--ignore_single_op_result")

        assert "fc_op_output_0_0.csv" not in files
        assert "fc_op_output_0_summary.txt" in files

    def test_long_lists_are_split(self, tmp_path):
        """-ml splits the list of elements; a file's number is that of its first element."""
        for side in ("mine", "golden"):
            compared.put(tmp_path / side, "Add.a.1.0", 1, compared.device(np.zeros(10005, "f4")))

        out = tmp_path / "out"
        call("-m", tmp_path / "mine", "-g", tmp_path / "golden", "-op", "a", "-ml", 10000, "-out", out)

        lists = {path.name: len(path.read_text().splitlines()) for path in out.glob("a_output_0_*0.csv")}
        assert {"a_output_0_0.csv": 10001, "a_output_0_10000.csv": 6} == lists

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            (("-op", "nothing"), PARAMETER),
            (("-op", "fc_op", "-o", "7"), INDEX),
            (("-op", "fc_op", "-i", "x"), PARAMETER),
            (("-op", "conv1relu1", "-i", "1"), NO_FILE),
            (("-op", "conv2_op"), NO_FILE),
            (("-op", "fc_op", "-n", "0"), INDEX),
            (("-op", "fc_op", "-ml", "10"), INDEX),
        ],
        ids=["operator", "number", "no number", "no counterpart", "no file", "-n", "-ml"],
    )
    def test_what_cannot_be_shown(self, written, options, code):
        """An operator or tensor that is not there, and numbers out of range, give their codes."""
        assert (code, {}) == written(*options)


class TestFiles:
    """Two .npy files."""

    @pytest.fixture
    def files(self, tmp_path):
        """Return two .npy files: the documented example."""
        np.save(tmp_path / "a.npy", SHORT)
        np.save(tmp_path / "b.npy", np.float32([1, 2.5, 3, 4, 0, 5]))
        return tmp_path / "a.npy", tmp_path / "b.npy"

    def test_numbers_are_logged(self, files, capsys):
        """Compare logs the algorithms' names and below them their numbers, and writes nothing."""
        code = call("-m", files[0], "-g", files[1], "-alg", "0,7")

        lines = [line.partition("[INFO] ")[2].split() for line in capsys.readouterr().err.splitlines()]
        assert DONE == code
        assert [["CosineSimilarity", "RootMeanSquareError"], ["0.992362", "0.456435"]] == lines[:2]
        assert {*files} == {*files[0].parent.iterdir()}

    def test_file_compare_keeps_the_result(self, files, tmp_path):
        """file_compare writes eight algorithms, a line each."""
        code = file_compare(*files, tmp_path / "out")

        text = next((tmp_path / "out").glob("file_result_*.txt")).read_text(encoding="utf-8")
        assert DONE == code
        assert (
            "CosineSimilarity: 0.992362\nMaxAbsoluteError: 1.000000\nAccumulatedRelativeError: 0.400000\n"
            "RelativeEuclideanDistance: 0.147764\nMeanAbsoluteError: 0.250000\n"
            "RootMeanSquareError: 0.456435\nMaxRelativeError: 0.200000\nMeanRelativeError: 0.066667\n"
        ) == text

    @pytest.mark.parametrize(
        ("name", "content", "code"),
        [
            ("b.npy", np.zeros((2, 3)), SHAPE),
            ("b.npy", np.array(["x"] * 6), DUMP_DATA),
            ("b.npy", b"no npy", DUMP_DATA),
            ("b.txt", b"", FILE_TYPE),
            ("missing/b.npy", None, PATH),
        ],
        ids=["shape", "text", "no npy", "suffix", "missing"],
    )
    def test_files_that_cannot_be_compared(self, files, tmp_path, name, content, code):
        """Files of other shapes, types and names give their codes, and no result."""
        other = tmp_path / name
        if isinstance(content, bytes):
            other.write_bytes(content)
        elif content is not None:
            np.save(other, content)

        found = file_compare(files[0], other, tmp_path / "out")

        assert code == found
        assert not (tmp_path / "out").exists()


class TestRefused:
    """Comparisons that are refused."""

    @pytest.mark.parametrize(
        ("options", "code", "message"),
        [
            (("-o", "1"), PARAMETER, "-o: only with -op"),
            (("-n", "3", "-ml", "10000"), PARAMETER, "-n, -ml: only with -op"),
            (("--ignore_single_op_result",), PARAMETER, "only with -op"),
            (("-map",), PARAMETER, "-map needs -f"),
            (("-map", "-f", "x", "-op", "a"), PARAMETER, "exclude each other"),
            (("-r", "1,2,1"), PARAMETER, "-r: only with -f"),
            (("-s", "1"), PARAMETER, "-s: only with -f"),
            (("-r", "1,2,1", "-s", "1", "-f", "x"), PARAMETER, "-r and -s exclude each other"),
            (("-r", "1,2,1", "-f", "x", "-op", "a"), PARAMETER, "-r and -op exclude each other"),
            (("-max", "-1"), PARAMETER, "-max -1"),
            (("-p", "1"), PARAMETER, "-p is for .h5 files only"),
            (("-cf", "x"), PARAMETER, "-f, the one with it, is missing"),
            (("-q", "x"), UNSUPPORTED, "quantised"),
            (("-alg", "Nonsense"), ALGORITHM, "chooses no algorithm"),
            (("-a", "Name=1"), PARAMETER, "is not Name:key=value"),
            (("-c", "missing"), PATH, "no such directory of custom scripts"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
    )
    def test_options(self, pair, capsys, options, code, message):
        """Options that contradict each other or that nothing defines are errors that name them."""
        assert (code, "") == compare(*pair, *options)
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("missing", PATH),
            ("file", PATH),
            ("empty", FILE_NAME),
            ("foreign", FILE_NAME),
            ("mixed", FILE_NAME),
        ],
    )
    def test_directories(self, pair, tmp_path, name, code):
        """Directories that are missing, hold no dump files or several kinds of them give their codes."""
        (tmp_path / "file").write_bytes(b"")
        (tmp_path / "empty").mkdir()
        (tmp_path / "foreign").mkdir()
        (tmp_path / "foreign" / "notes.txt").write_bytes(b"")
        shutil.copytree(pair[0], tmp_path / "mixed")
        compared.golden(tmp_path / "mixed", "a", SHORT)

        assert (code, "") == compare(tmp_path / name, pair[1])

    def test_directory_above(self, pair, tmp_path):
        """A directory above the only one with dump files stands for it; above several it does not."""
        compared.network(tmp_path / "tree" / "0" / "20240101000000" / "0" / "Net" / "1" / "0")

        assert DONE == compare(tmp_path / "tree", pair[0])[0]

        compared.network(tmp_path / "tree" / "1")
        assert PARAMETER == compare(tmp_path / "tree", pair[0])[0]

    def test_golden_tensors_need_a_graph_file(self, tmp_path, capsys):
        """Without -f the operators of golden tensors are unknown."""
        mine, golden, _ = compared.fused(tmp_path)

        assert (PARAMETER, "") == compare(mine, golden)
        assert "give the model's graph file with -f" in capsys.readouterr().err

    @pytest.mark.parametrize("damage", [b"", b"\xff" * 8, b"\xff" * 200, b"\0" * 100], ids=len)
    def test_corrupt_files_are_told(self, pair, damage):
        """A corrupt file gives a row with the reason and code 11; the others are compared."""
        victim = next(pair[0].glob("MatMul*"))
        victim.write_bytes(damage)

        code, text = compare(*pair)

        reasons = [
            row["CompareFailReason"] for row in rows(text) if row["NPUDump"] == "Default_fc_MatMul-op0"
        ]
        assert DUMP_DATA == code
        assert [True] == [str(victim) in reason for reason in reasons]
        assert "0.999992" == rows(text)[0]["CosineSimilarity"]

    def test_result_that_cannot_be_written(self, pair, tmp_path):
        """A result that cannot be written is code 19."""
        (tmp_path / "file").write_bytes(b"")

        assert WRITE == call("-m", pair[0], "-g", pair[1], "-out", tmp_path / "file" / "out")

    @pytest.mark.parametrize(
        ("mode", "code", "text"),
        [
            (0o622, UNSAFE, "def compare(a, b, c): ...\n"),
            (0o600, ALGORITHM, "x = 1\n"),
            (0o600, ALGORITHM, "1 / 0\n"),
        ],
        ids=["others may write", "no function", "fails"],
    )
    def test_custom_scripts(self, pair, tmp_path, mode, code, text):
        """Scripts that others may write, without the function or with a fault are refused."""
        script = tmp_path / "scripts" / "algorithm" / "alg_A.py"
        script.parent.mkdir(parents=True)
        script.write_text(text, encoding="utf-8")
        script.chmod(mode)

        assert (code, "") == compare(*pair, "-c", tmp_path / "scripts")


FAULTS = {
    "broken": ("{", JSON, "not JSON"),
    "list": ("[]", JSON, "$.graph is missing"),
    "no list": ('{"graph": {}}', JSON, "$.graph is dict {}; it must be of type list"),
    "empty": ('{"graph": []}', JSON, "the graph has no operators"),
    "nameless": ('{"graph": [{"op": [{}]}]}', JSON, "$.graph[0].op[0].name is missing"),
    "name": ('{"graph": [{"op": [{"name": 1, "type": "A"}]}]}', JSON, "op[0].name is int 1"),
    "id": ('{"graph": [{"op": [{"name": "a", "type": "A", "id": "1"}]}]}', JSON, "op[0].id is str '1'"),
    "input": ('{"graph": [{"op": [{"name": "a", "type": "A", "input": ["b"]}]}]}', JSON_CONTENT, "is 'b'"),
    "input no text": (
        '{"graph": [{"op": [{"name": "a", "type": "A", "input": [1]}]}]}',
        JSON,
        "input[0] is no text",
    ),
    "key": ('{"graph": [{"op": [{"name": "a", "type": "A", "attr": [{"key": 1}]}]}]}', JSON, "attr[0].key"),
    "deep": ("[" * 100000, JSON, "nested too deeply"),
}


class TestGraphFiles:
    """Graph files that cannot be used."""

    @pytest.mark.parametrize(("text", "code", "message"), FAULTS.values(), ids=FAULTS)
    def test_fault_is_named(self, tmp_path, capsys, text, code, message):
        """A file that is no graph gives code 13 or 29 and names the place in it."""
        mine, golden, _ = compared.fused(tmp_path)
        bad = tmp_path / "bad.json"
        bad.write_text(text, encoding="utf-8")

        assert (code, "") == compare(mine, golden, "-f", bad)
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize("text", ["-r 1,2", "-r a,b,c", "-s x", "-s 99"])
    def test_malformed_places(self, tmp_path, text):
        """A malformed range, and a list of places that the graph has not, are code 6."""
        mine, golden, rules = compared.fused(tmp_path)

        assert (PARAMETER, "") == compare(mine, golden, "-f", rules, *text.split())

    def test_a_loop_of_casts_ends(self, tmp_path):
        """Casts that read each other have no origin, and the search for it ends."""
        compared.put(tmp_path / "mine", "Cast.a.1.0", 1, compared.device(SHORT))
        compared.golden(tmp_path / "golden", "x", SHORT)
        rules = compared.graph(
            tmp_path / "graph.json",
            compared.operator("a", "Cast", 1, ["b:0"], []),
            compared.operator("b", "Cast", 2, ["a:0"], []),
        )

        code, text = compare(tmp_path / "mine", tmp_path / "golden", "-f", rules)

        assert NO_FILE == code
        assert "golden has no counterpart of a:output:0" == rows(text)[0]["CompareFailReason"]


def test_page_lists_algorithms_and_codes():
    """The page on msaccucmp shows the table of algorithms and every return code."""
    text = (GOLDEN.parents[1] / "docs" / "reference" / "msaccucmp.md").read_text(encoding="utf-8")

    rows = [f"| {number} | {each.name} | `{each.definition}` |" for number, each in enumerate(ALGORITHMS)]
    assert [] == [row for row in rows if row not in text]
    assert {*map(int, ReturnCode)} == {*map(int, re.findall(r"^\| (\d+) \| [a-z]", text, re.MULTILINE))}
