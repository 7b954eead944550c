"""The page of a report: whole without a network, readable without JavaScript, safe whatever names hold."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.cli import main
from msdump.tools.report.page import encoding, texts
from msdump.tools.report.page.encoding import NumberTable

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("Default_a_Add-op0", "Default_b_Mul-op0")


def rows(*highs):
    """Return rows of two operators."""
    return [(name, "output", 0, high) for name, high in zip(NAMES, highs, strict=True)]


def unpacked(chunk):
    """Return the bytes of a chunk."""
    return zlib.decompress(base64.b64decode(chunk), -zlib.MAX_WBITS)


def chunks_of(page):
    """Return the chunks of data of a page."""
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    )


def test_first_line_names_the_fault(put, page, plain):
    """The title, and the first line of what a person reads, is the fault that comes first."""
    text = page(put(0, rows(1, "inf")))

    headline = f"{NAMES[1]} (Mul) in iteration 0: infinity begins here"
    assert f"<title>{headline}</title>" in text
    assert plain(text).strip().removeprefix("To what is wrong ").startswith(headline)


def test_readable_without_program_and_style(put, page, plain):
    """What is wrong, the run and the files stand in the page itself."""
    golden = put(0, rows(1, 2), root="golden")

    text = plain(page(put(0, rows(1, 3)), golden))

    assert "Operators that differ from golden" in text
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
    assert [texts.visible(name)] == json.loads(content)["operators"]["name"]


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
    assert 0 == CliRunner().invoke(main, arguments).exit_code

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
    """With --json or --csv the page is written only where --output asks for it."""
    root = put(0, rows(1, 2))

    run(root, "--json")
    assert not (tmp_path / "report.html").exists()

    run(root, "--csv", "-o", tmp_path / "asked.html")
    assert (tmp_path / "asked.html").is_file()


def test_page_cannot_be_written(put, run, tmp_path):
    """A page that cannot be written is an error of its own."""
    (tmp_path / "file").write_text("")

    done = run(put(0, rows(1, 2)), "-o", tmp_path / "file/report.html")

    assert (2, True) == (done.exit_code, "cannot be written" in done.stderr)


def test_browser_is_opened(put, run, monkeypatch, tmp_path):
    """--open shows the page in a browser; where there is none, its path is told."""
    shown = []
    monkeypatch.setattr("webbrowser.open_new_tab", lambda address: shown.append(address) or False)

    done = run(put(0, rows(1, 2)), "--open")

    assert [(tmp_path / "report.html").as_uri()] == shown
    assert "no browser could be started" in done.stderr


def read_back(chunks, name, shape):
    """Return a table as the page's program puts its planes together."""
    planes = [np.frombuffer(unpacked(chunks[f"{name}/{plane}"]), np.uint8) for plane in ("sign", "high")]
    fine = chunks.get(f"{name}/fine")
    planes.append(np.frombuffer(unpacked(fine), np.uint8) if fine else np.zeros_like(planes[0]))
    bits = sum(plane.astype(np.uint32) << shift for plane, shift in zip(planes, (24, 16, 8), strict=True))
    return bits.astype(np.uint32).view(np.float32).reshape(shape)


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_numbers_survive(values):
    """A number of a page differs from the one of the dump by less than 0.002 %; NaN and infinities stay."""
    table = np.array([values])
    chunks, left_out = encoding.tables([NumberTable("max", table, is_kept=True)], 10_000)

    again = read_back(chunks, "max", table.shape)

    assert [] == left_out
    np.testing.assert_allclose(again, table, rtol=1.6e-5, atol=1e-38)


def test_small_pages_leave_out_the_least(put):
    """Where the budget is used up, digits go first, then tables; those that are kept stay."""
    noise = np.random.default_rng(1).standard_normal((200, 20))
    tables = [NumberTable(name, noise, is_kept=name == "max") for name in ("max", "min", "avg")]

    chunks, left_out = encoding.tables(tables, 14_000)

    assert (["min", "avg"], {"max/sign", "max/high"}) == (left_out[-2:], {*chunks} & {"max/sign", "max/high"})
    np.testing.assert_allclose(read_back(chunks, "max", noise.shape), noise, rtol=1e-2)
