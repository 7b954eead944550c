"""``msdump report``: its document, its page, the problems that it names, and annotated models for Netron."""

import base64
import csv
import io
import json
import re
import subprocess
import zlib

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import msdump
from msdump.capture import Process
from msdump.encode import npy
from msdump.errors import visible
from msdump.frontends import mindspore
from msdump.look.report.page import rendering
from tests.judge import dumped
from tests.texts import parsed
from tests.world import ROOT, cli, common_settings, write_config

HEAD = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    "Max Value,Min Value,L2Norm Value"
)


@pytest.fixture(autouse=True)
def _fresh(fresh, quiet):
    """Let each test begin as a new process."""


@pytest.fixture
def put(tmp_path):
    """Return a function that writes the statistics of an iteration: names of operators and extremes."""

    def write(iteration, rows, *, root="dump", rank=0, network="Net"):
        path = tmp_path / root / f"rank_{rank}/{network}/0/{iteration}/statistic.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [HEAD]
        for place, (name, side, slot, high) in enumerate(rows):
            op_type = name.rpartition("_")[2].partition("-")[0]
            time = 1_795_217_009_000_000 + iteration * 1000 + place
            cells = f'{op_type},{name},0,0,{time},{side},{slot},24,float32,"(2,3)",{high},-1,{high}'
            lines.append(cells)
        path.write_text("\n".join((*lines, "")), encoding="utf-8")
        return tmp_path / root

    return write


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that runs ``msdump report`` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return cli("report", *arguments, catch_exceptions=False)

    return call


@pytest.fixture
def document(run):
    """Return a function that makes a report and returns its document; its faults are in the exit code."""

    def call(*arguments):
        done = run(*arguments, "--json")
        report = json.loads(done.stdout)
        assert int(bool(report["faults"])) == done.exit_code, done.stderr
        return report

    return call


@pytest.fixture
def page(run, tmp_path):
    """Return a function that makes a report which succeeds, and returns its page."""

    def call(*arguments):
        done = run(*arguments, "-o", tmp_path / "page.html")
        assert done.exit_code in (0, 1), done.stderr  # 1: a file cannot be read; the page names it
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    return call


@pytest.fixture
def plain():
    """Return a function that gives a page as it is read without JavaScript and without style sheets."""

    def strip(text):
        text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))

    return strip


NAMES = ("Default_a_Add-op0", "Default_b_Mul-op0")


def rows(*highs):
    """Return rows of two operators."""
    return [(name, "output", 0, high) for name, high in zip(NAMES, highs, strict=True)]


def test_series(put, document):
    """Statistics stand by iteration; null stands for the others."""
    put(3, rows(1, "null"))
    root = put(5, rows(2.5, 4)[1:])

    report = document(root)

    (first,), (second,) = (each["tensors"] for each in report["operators"])
    assert [3, 5] == report["iterations"]
    assert ([1.0, None], ["", None]) == (first["statistics"]["max"], first["holds"])
    assert ([None, 4.0], ["", ""]) == (second["statistics"]["max"], second["holds"])
    assert ("float32", "2x3", "output:0") == (first["dtype"], first["shape"], first["tensor"])


def test_last_execution(put, document):
    """Where two programs dumped into one directory, the numbers are the last one's."""
    root = put(0, [*rows(1, 5), *rows(7, 2)])

    tensors = [each["tensors"][0]["statistics"]["max"] for each in document(root)["operators"]]

    assert [[7.0], [2.0]] == tensors


def test_csv_holds_the_same(put, run, document):
    """The csv has a row for each tensor and iteration, with the numbers of the document."""
    for number in range(2):
        root = put(number, rows(number + 1, "inf"))

    table = [*csv.DictReader(io.StringIO(run(root, "--csv").stdout))]
    report = document(root)

    assert [("0", "1"), ("1", "2")] == [(row["Iteration"], row["max"]) for row in table[:2]]
    assert ["", "", "inf", "inf"] == [row["Holds"] for row in table]
    assert report["problems"][0]["text"] == table[2]["Problem"]
    assert [each["operator"] for each in report["operators"]] == [
        *dict.fromkeys(row["Operator"] for row in table)
    ]


def test_csv_has_one_width(tmp_path, run):
    """A row of the csv has as many cells as the titles, also of an operator without tensors."""
    model = parsed("g (float[2,2] x) => (y) { [Relu] a = Relu(x) [Neg] y = Neg(a) }")
    common = common_settings(tmp_path / "dump") | {"dump_mode": 1, "kernels": ["ReLU"]}
    blocks = {"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}
    network = msdump.load(model, config=blocks, context={"device_target": "Ascend"})
    network.run({"x": np.ones((2, 2), np.float32)})

    titles, *table = csv.reader(io.StringIO(run(tmp_path / "dump", "--csv").stdout))

    assert ["ReLU", "ReLU", "Neg"] == [row[titles.index("Type")] for row in table]
    assert {len(titles)} == set(map(len, table))


DAMAGES = {
    "a torn last row": (lambda text: text[:-2], "the last row has no line feed yet", 1),
    "a row with too many cells": (
        lambda text: text.replace("\nMul", "\nx,y,z\nMul"),
        "1 row with another number",
        2,
    ),
    "an open quote": (lambda text: text.replace("\nMul", '\n"x,y\nMul'), "1 row with another number", 2),
    "no titles": (lambda _: "nonsense\n", "no titles of statistics", 0),
    "nothing": (lambda _: "", "the table is empty", 0),
    "a second line of titles": (lambda text: text + text.partition("\n")[0] + "\n", None, 2),
}


@pytest.mark.parametrize(("damage", "fault", "count"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_statistics(put, document, damage, fault, count):
    """The readable part of a file is there, the rest is reported."""
    root = put(0, rows(1, 2))
    path = next(root.rglob("statistic.csv"))
    path.write_text(damage(path.read_text()))

    report = document(root)

    assert count == len(report["operators"])
    assert ([] if fault is None else [True]) == [fault in each for each in report["faults"]]


def test_left_out_and_configured(put, document, tmp_path):
    """A configuration is reported as it was compiled, and why operators of the graph have no files."""
    root = put(0, rows(1, 2))
    (root / "rank_0/.dump_metadata").mkdir()
    given = {
        "dump_mode": 1,
        "kernels": ["Add"],
        "iteration": "0|5-8",
        "saved_data": "statistic",
        "input_output": 2,
    }
    write_config(root / "rank_0/.dump_metadata/data_dump.json", "/dump", **given)
    (root / "rank_0/.dump_metadata/config.json").write_text('{"device_target": "GPU", "ms_version": "2.7.0"}')

    facts = {each["subject"]: each["words"] for each in document(root)["facts"]}

    assert "0, 5-8" in facts["configured iterations"] or "0|5-8" in facts["configured iterations"]
    assert '"ms_version": "2.7.0"' in facts["device"]
    assert "1: 0" == facts["ranks"]


def unpacked(chunk):
    """Return the bytes of a chunk."""
    return zlib.decompress(base64.b64decode(chunk), -zlib.MAX_WBITS)


def chunks_of(page):
    """Return the chunks of data of a page."""
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    )


def test_first_line_names_the_fault(put, page, plain):
    """The title, and the first line of the page's text, is the first fault."""
    text = page(put(0, rows(1, "inf")))

    headline = f"{NAMES[1]} (Mul) in iteration 0: infinity begins here"
    assert f"<title>{headline}</title>" in text
    assert plain(text).strip().removeprefix("To what is wrong ").startswith(headline)


def test_operators_alike_share_a_row(put, page, plain):
    """Infinities that begin in three operators of one type and class of module are one row with a cure."""
    names = [f"Default/{number}-Block/norm-RMSNorm/_Pow-op0" for number in range(3)]
    text = page(
        put(0, [each for name in names for each in ((name, "input", 0, 1), (name, "output", 0, "inf"))])
    )

    told = plain(text)
    assert 1 == told.count("and 2 more Pow of RMSNorm")
    assert f"Same fault {names[1]} , {names[2]}" in told
    assert (
        "Next: run msdump diff MODEL.onnx --mine VARIANT --advise 0.01 to find the operators to keep." in told
    )


def test_readable_without_program_and_style(put, page, plain):
    """Faults, the run and the files stand in the page itself."""
    golden = put(0, rows(1, 2), root="golden")

    text = plain(page(put(0, rows(1, 3)), golden))

    assert "Differences from golden" in text
    assert f"{NAMES[1]} Mul 0 0 own: output 0 differs" in text
    assert "rank_0/Net/0/0/statistic.csv" in text
    assert "iterations 1: 0" in text


def test_nothing_is_fetched(put, page):
    """The page names no address to load anything from, and forbids it."""
    text = page(put(0, rows(1, 2)))

    assert "default-src 'none'" in text
    assert [] == re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", text)
    assert ["http://www.w3.org/2000/svg"] == re.findall(r"https?://[^\s\"']+", text)


def test_links_are_relative(put, page, tmp_path):
    """Files are linked from where the page lies."""
    root = put(0, rows(1, "nan"))

    links = re.findall(r'<li><a href="([^"#]+)">', page(root))

    assert ["dump/rank_0/Net/0/0/statistic.csv"] == links
    assert (tmp_path / links[0]).is_file()


HOSTILE = {
    "a script": "x</script><script>alert(1)</script>",
    "an image": "<img src=x onerror=alert(1)>",
    "quotes": "a\"onmouseover='alert(1)'",
    "right to left": "a\u202eb\u2066c\u200f",
    "a template": "{{ 7 * 7 }}{% raw %}",
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names(put, page, name):
    """Names that hold HTML, templates or marks of direction change nothing but their own text."""
    cell = '"' + name.replace('"', '""') + '"'
    root = put(0, [("op_Add", "output", 0, "inf")])
    path = next(root.rglob("statistic.csv"))
    path.write_text(path.read_text().replace(",op_Add,", f",{cell},"), encoding="utf-8")

    text = page(root)
    content = unpacked(chunks_of(text)["report"]).decode()

    assert 2 == len(re.findall(r"<script\b", text))
    assert [] == re.findall(r"<img|<[^>]+onmouseover", text)
    assert [] == re.findall(
        "[\u200e\u200f\u202a-\u202e\u2066-\u2069]", text + json.loads(json.dumps(content))
    )
    assert [visible(name)] == json.loads(content)["operators"]["name"]


def test_no_source(put, page, run, tmp_path):
    """Without sources no absolute path and no code stands in the page, nor in its data."""
    root = put(0, rows(1, "nan"))
    path = next(root.rglob("statistic.csv"))
    path.write_bytes(path.read_bytes() + b"torn")

    text = page(root, "--no-source")

    assert str(tmp_path) not in text
    assert str(tmp_path).encode() not in unpacked(chunks_of(text)["report"])
    assert str(tmp_path) not in run(root, "--no-source", "--json").stdout
    assert "rank_0/Net/0/0/statistic.csv" in text


def test_no_source_of_a_graph(run, tmp_path, monkeypatch):
    """Without sources the lines of a graph's operators stand without their code, with their files' names."""
    monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", str(tmp_path))
    config = ROOT / "sample_nets/lenet/data_dump.json"
    arguments = ["run", str(ROOT / "graphs/lenet.onnx"), "--config", str(config), "--device-target", "Ascend"]
    assert 0 == cli(*arguments).exit_code

    whole, without = (
        json.loads(run(tmp_path / "debug_dump", *options, "--json").stdout)
        for options in ((), ("--no-source",))
    )

    lines = [each["source"] for each in whole["operators"] if each["source"]]
    assert lines
    assert [line.partition(": ")[0] for line in lines] == [
        each["source"] for each in without["operators"] if each["source"]
    ]
    assert str(tmp_path) not in json.dumps(without)


def test_page_beside_document(put, run, tmp_path):
    """With --json or --csv the page is written only with --output."""
    root = put(0, rows(1, 2))

    run(root, "--json")
    assert not (tmp_path / "report.html").exists()

    run(root, "--csv", "-o", tmp_path / "asked.html")
    assert (tmp_path / "asked.html").is_file()


REFUSED = {
    "no dump": (("empty",), "not a dump"),
    "another network": (("dump", "golden"), "nothing was compared"),
    "a page in a file": (("dump", "-o", "file/page.html"), "cannot be written"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(put, run, tmp_path, arguments, message):
    """The reason is one line, with exit code 2 and without a page."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("{")
    put(0, rows(1, 2))
    put(0, [("Default_z_Sub-op0", "output", 0, 1)], root="golden")

    done = run(*arguments)

    assert 2 == done.exit_code
    assert message in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_browser_is_opened(put, run, monkeypatch, tmp_path):
    """--open shows the page in a browser; where there is none, its path is reported."""
    shown = []
    monkeypatch.setattr("webbrowser.open_new_tab", lambda address: shown.append(address) or False)

    done = run(put(0, rows(1, 2)), "--open")

    assert [(tmp_path / "report.html").as_uri()] == shown
    assert "no browser could be started" in done.stderr


def read_back(chunk, shape):
    """Return a table as the page's program puts its bytes together, and the bytes of a number."""
    data = np.frombuffer(unpacked(chunk), np.uint8)
    planes = data[1:].reshape(data[0], -1)
    bits = sum(plane.astype(np.uint32) << (24 - 8 * place) for place, plane in enumerate(planes))
    return bits.astype(np.uint32).view(np.float32).reshape(shape), data[0]


@examples(deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_numbers_survive(values):
    """A number of a page differs from the one of the dump by less than 0.002 %; NaN and infinities stay."""
    table = np.array([values])
    chunks, left_out = rendering.encode_tables({"max": table}, 10_000)

    again, _ = read_back(chunks["max"], table.shape)

    assert [] == left_out
    np.testing.assert_allclose(again, table, rtol=1.6e-5, atol=1e-38)


def test_small_pages_leave_out_the_least():
    """Where the budget is used up, digits go first, then tables; kept ones stay."""
    noise = np.random.default_rng(1).standard_normal((200, 20))

    chunks, left_out = rendering.encode_tables({"max": noise, "min": noise, "avg": noise}, 22_000)

    again, digits = read_back(chunks["max"], noise.shape)
    assert (["avg"], 2) == (left_out, digits)
    assert (["max"], ["min", "avg"]) == tuple(
        [*each] for each in rendering.encode_tables({"max": noise, "min": noise, "avg": noise}, 14_000)
    )
    np.testing.assert_allclose(again, noise, rtol=1e-2)


CONV, RELU, FC = "Default_conv_Conv2D-op0", "Default_relu_ReLU-op0", "Default_fc_MatMul-op0"


def outputs(*highs):
    """Return rows of three operators with these largest elements."""
    return [(name, "output", 0, high) for name, high in zip((CONV, RELU, FC), highs, strict=True)]


def test_sound_dump(put, document):
    """A dump without NaN and infinities has no problem."""
    report = document(put(0, outputs(1, 2, 3)))

    assert ("No problem was found", []) == (report["headline"], report["problems"])


BEGINNINGS = {
    "the first operator that is struck": ([outputs(1, "inf", "nan")], [(RELU, [0], [FC])]),
    "an operator whose inputs are sound": (
        [
            [
                (CONV, "output", 0, "inf"),
                (RELU, "input", 0, 1),
                (RELU, "output", 0, "nan"),
                (FC, "input", 0, "nan"),
                (FC, "output", 0, "nan"),
            ]
        ],
        [(CONV, [0], []), (RELU, [0], [FC])],
    ),
    "the same operator in several iterations": (
        [outputs(1, 1, 1), outputs(1, "inf", "inf"), outputs(1, "inf", 1)],
        [(RELU, [1, 2], [FC])],
    ),
    "an input that nothing of the dump wrote": (
        [[(CONV, "input", 0, "nan"), (CONV, "output", 0, "nan"), (RELU, "output", 0, 1)]],
        [(CONV, [0], [])],
    ),
    "-inf alone masks": ([[(CONV, "output", 0, 1), (RELU, "output", 0, "-inf")]], []),
}


@pytest.mark.parametrize(("iterations", "expected"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_where_they_begin(put, document, iterations, expected):
    """The operator in which NaN or infinities begin stands before the ones that they reach."""
    for number, rows in enumerate(iterations):
        root = put(number, rows)

    report = document(root)

    names = [each["operator"] for each in report["operators"]]
    assert expected == [
        (each["operator"], each["iterations"], [names[place] for place in each["victims"]])
        for each in report["problems"]
    ]


def test_golden_names_the_operator_at_fault(put, document):
    """The first operator that differs though its inputs agree is the headline; heirs are folded."""
    golden = put(0, outputs(1, 2, 3), root="golden")
    root = put(0, outputs(1, 2.5, 3.5))

    report = document(root, golden)

    assert report["headline"].startswith(f"{RELU} (ReLU) in iteration 0: own: output 0 differs")
    assert [(RELU, True)] == [(each["operator"], each["is_accused"]) for each in report["problems"]]
    assert [[FC]] == [
        [report["operators"][place]["operator"] for place in each["victims"]] for each in report["problems"]
    ]
    assert report["advice"].startswith("add --model MODEL.onnx")


def test_missing_operators_are_told(put, document):
    """Golden operators that the dump lacks are reported behind operators at fault, without an accusation."""
    for number in range(2):
        golden = put(number, outputs(1, 2, 3), root="golden")
        root = put(number, outputs(1, 2, 3)[:2])

    (problem,) = document(root, golden)["problems"]

    assert (FC, [0, 1], False, None) == tuple(
        problem[key] for key in ("operator", "iterations", "is_accused", "index")
    )
    assert "missing: only golden has it" == problem["text"]


def test_tensors_are_measured(document, tmp_path, monkeypatch):
    """Of a dump of tensors the statistics are measured, and the NaN that begin in them are found."""
    folder = tmp_path / "dump/rank_0/Net/0/0"
    folder.mkdir(parents=True)
    for place, (name, array) in enumerate(((CONV, [1.0, 2.0]), (RELU, [np.nan, 2.0]))):
        op_type = name.rpartition("_")[2].partition("-")[0]
        file = f"{op_type}.{name}.0.0.{1795217009720246 + place}.output.0.DefaultFormat.float32.npy"
        (folder / file).write_bytes(b"".join(npy.encode(np.array(array, np.float32))))

    report = document(tmp_path / "dump")

    (problem,) = report["problems"]
    assert (RELU, "NaN begins here", 1) == (problem["operator"], problem["text"], len(problem["files"]))
    assert [2.0, "NaN"] == [each["tensors"][0]["statistics"]["max"][0] for each in report["operators"]]
    (histogram,) = report["histograms"]
    assert (1, 1, 2) == (sum(histogram["counts"]), histogram["nonfinite"], histogram["size"])


def test_ranks_disagree(put, document):
    """A weight that ranks should share, and do not, is reported with the rank that stands alone."""
    for rank in range(3):
        rows = [("fc_weight", "output", 0, 7 if rank == 1 else 3)]
        root = put(0, [(name, io, slot, high) for name, io, slot, high in rows], rank=rank)
    for path in root.rglob("statistic.csv"):
        path.write_text(path.read_text().replace("weight,fc_weight", "Parameter,fc_weight"))

    (problem,) = document(root)["problems"]

    assert ("ranks", 1) == (problem["kind"], problem["rank"])
    assert "rank 1 differs from rank 0, 2" in problem["text"]


def test_watch_rules(put, document, tmp_path):
    """Hits of rules are reported by rule and tensor, with their iterations."""
    for number in range(3):
        root = put(number, outputs(1, 100 * number, 3))
    (tmp_path / "rules.json").write_text('[{"condition": "tensor_too_large", "max_gt": 50, "name": "large"}]')

    (problem,) = document(root, "--rules", tmp_path / "rules.json")["problems"]

    assert ("watch", RELU, [1, 2]) == (problem["kind"], problem["operator"], problem["iterations"])
    assert problem["text"].startswith("large: output 0: the largest element is 100")


TIME = "20260112093000123"
FAILURES = {
    "types and shapes": (f"Gather.gather.1.{TIME}", "Gather", "int64 (4)"),
    "in brief": (f"exception_info.0.1.{TIME}", None, "32 bytes"),
}


@pytest.mark.parametrize(("name", "op_type", "told"), FAILURES.values(), ids=FAILURES)
def test_operator_that_failed(document, tmp_path, name, op_type, told):
    """The file of an exception dump is the first fault, with the operator's inputs."""
    path = tmp_path / "dump/extra-info/data-dump/0" / name
    dumped.file(path, inputs=[dumped.tensor(np.arange(4, dtype="i8"))], op_name="gather")

    report = document(tmp_path / "dump")

    (problem,) = report["problems"]
    assert ("failure", "gather", op_type) == (problem["kind"], problem["operator"], problem["op_type"])
    assert f"it failed when it ran; its inputs: {told}" == problem["text"]
    assert [str(path)] == problem["files"]
    assert report["headline"].startswith("gather")


def test_torn_file_of_a_failure(document, tmp_path):
    """An operator with a torn file is named by the file's name, and the damage is reported."""
    path = tmp_path / "dump/extra-info/data-dump/0" / f"Gather.gather.1.{TIME}"
    dumped.file(path, inputs=[dumped.tensor(np.arange(4, dtype="i8"))], op_name="gather")
    path.write_bytes(path.read_bytes()[:12])

    report = document(tmp_path / "dump")

    assert [("gather", "it failed when it ran")] == [
        (each["operator"], each["text"]) for each in report["problems"]
    ]
    assert 1 == len(report["faults"])


@pytest.mark.parametrize(("mode", "kind"), [(3, "overflow"), (4, "failure")])
def test_what_is_there_because_it_went_wrong(put, document, tmp_path, monkeypatch, mode, kind):
    """Where a configuration dumps only operators that fail or overflow, each one in the dump is reported."""
    monkeypatch.setenv("DEVICE_TARGET", "Ascend")
    write_config(tmp_path / "config.json", tmp_path, op_debug_mode=mode)
    put(0, [(CONV, "input", 0, 1)])
    root = put(2, [(CONV, "input", 0, 1), (RELU, "input", 0, 65504)])

    problems = document(root, "--config", tmp_path / "config.json")["problems"]

    assert [(kind, CONV, [0, 2]), (kind, RELU, [2])] == [
        (each["kind"], each["operator"], each["iterations"]) for each in problems
    ]
    assert all(f"op_debug_mode {mode}" in each["text"] for each in problems)


CULPRIT = "Default/norm-RMSNorm/Mul-op0"


def run_command(*arguments):
    """Run a command; return exit code and both outputs."""
    done = cli(*arguments)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory, forks):
    """Build the network that overflows in float16 and return its file."""
    folder = tmp_path_factory.mktemp("model")
    subprocess.run(
        [forks / "python", "sample_nets/build.py", "overflow", "--out", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder / "overflow_b1_s0.onnx"


@pytest.fixture
def dumps(model, tmp_path, monkeypatch):
    """Dump the statistics of three steps in float16 and in float32; return both dumps."""

    def dump(name, config):
        monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))
        monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", str(tmp_path / name))
        config = ROOT / "sample_nets" / "overflow" / config
        code, _, told = run_command(
            "run", model, "--config", config, "--steps", 3, "--device-target", "Ascend", "--jit-level", "O0"
        )
        assert 0 == code, told
        return tmp_path / name / "debug_dump"

    return dump("mine", "data_dump_statistic.json"), dump("golden", "data_dump_statistic_float32.json")


def test_annotated_model(dumps, model, tmp_path):
    """The nodes of the model tell verdicts, errors and statistics; nothing else of it changes."""
    mine, golden = dumps

    code, text, told = run_command("report", mine, golden, "--annotate", model, tmp_path / "out.onnx")

    assert 0 == code, told
    before, after = onnx.load(model), onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(after)
    texts = {
        node.name: {each.key: each.value for each in node.metadata_props if each.key.startswith("msdump ")}
        for node in after.graph.node
    }
    (culprit,) = (each for each in texts.values() if each.get("msdump operator") == CULPRIT)
    assert "nonfinite" == culprit["msdump verdict"]
    assert "inf" == culprit["msdump state"]
    assert float(culprit["msdump positive inf count"]) > 0
    assert f"{sum(map(bool, texts.values()))} nodes with texts" in text
    for node in after.graph.node:
        kept = [each for each in node.metadata_props if not each.key.startswith("msdump ")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    assert before == after


def test_annotating_again_replaces(dumps, model, tmp_path):
    """A model that was annotated before has each text once."""
    run_command("report", dumps[0], "--annotate", model, tmp_path / "once.onnx")
    run_command("report", dumps[0], "--annotate", tmp_path / "once.onnx", tmp_path / "twice.onnx")

    assert onnx.load(tmp_path / "once.onnx") == onnx.load(tmp_path / "twice.onnx")


def test_weights_in_other_files(dumps, tmp_path):
    """A model with weights in files beside it is written into the folder of these files only."""
    path = ROOT / "graphs" / "external_data.onnx"

    code, _, told = run_command("report", dumps[0], "--annotate", path, tmp_path / "out.onnx")

    assert 2 == code
    assert "its weights are in other files" in told


NO_MODELS = {
    "another model": (ROOT / "graphs" / "strings.onnx", "give the model of the dump"),
    "no model": (ROOT / "graphs" / "README.md", "not an ONNX model"),
    "nothing": (ROOT / "graphs" / "none.onnx", "the model cannot be read"),
}


@pytest.mark.parametrize(("path", "message"), NO_MODELS.values(), ids=NO_MODELS)
def test_what_cannot_be_annotated(dumps, tmp_path, path, message):
    """A file that is not the model of the dump is refused."""
    code, _, told = run_command("report", dumps[0], "--annotate", path, tmp_path / "out.onnx")

    assert 2 == code
    assert message in told
    assert not (tmp_path / "out.onnx").exists()


def test_no_page_unless_asked_for(dumps, model, tmp_path, monkeypatch):
    """With the model alone no page is written, with -o it is."""
    monkeypatch.chdir(tmp_path)

    run_command("report", dumps[0], "--annotate", model, tmp_path / "out.onnx")
    assert not (tmp_path / "report.html").exists()
    run_command("report", dumps[0], "--annotate", model, tmp_path / "out.onnx", "-o", "page.html")
    assert (tmp_path / "page.html").exists()
