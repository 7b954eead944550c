"""The pages: their commands run, their outputs are real, their lists are complete."""

import ast
import html
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from msdump import dtypes, env
from msdump.config import mindspore
from msdump.config.acl import plan as acl
from msdump.graph.files import ir_proto
from msdump.plan import Context, DeviceTarget
from msdump.store import layouts, names
from scripts import budget, pictures
from tests import path_warnings
from tests.world import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
WANTED = ("graphs", "sample_nets", "scripts", "docs", "README.md")  # read by commands of pages
RUN = ("bash", "console", "python")
SHOWN = ("text", "json", "sql")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_SKIP = re.compile(r"<!-- not run: (\S.*) -->\n\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page.

    Attributes:
        page: The page.
        language: The word behind the fence.
        text: Its lines.
        reason: Why it is not run, None where it is.
    """

    page: Path
    language: str
    text: str
    reason: str | None

    def __str__(self):
        """Name the page and the first line."""
        return f"{self.page.name}: {self.text.partition(chr(10))[0][:40]}"


def blocks_of(page):
    """Return the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        skip = _SKIP.search(text, 0, match.start())
        found.append(Block(page, match[1], match[2], skip and skip[1]))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
NEEDS_TORCH = "dump-torchair.md"


def needs_torch(block):
    """Tell whether a block imports torch, or runs programs that do."""
    return block.page.name == NEEDS_TORCH or "import torch" in block.text


def to_run(*languages):
    """Return the blocks of some languages that are run; blocks with torch where torch is there."""
    mark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
    for block in BLOCKS:
        if block.language in languages and not block.reason:
            yield pytest.param(block, marks=mark if needs_torch(block) else (), id=str(block))


def imports_of(block):
    """Return a Python block's imports of libraries: modules, names in them and behind dots."""
    tree, found = ast.parse(block.text), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and re.fullmatch(r"msdump\.[\w.]+", text := ast.unparse(node)):
            found.add(text)
    return {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names}


def first_imports():
    """Return the blocks of Python that import something that no block before them does."""
    before, first = set(), set()
    for block in BLOCKS:
        if block.language == "python" and not block.reason:
            if needs_torch(block) or not imports_of(block) <= before:
                first.add(block)
            before |= imports_of(block)
    return first


IMPORT_FIRST = first_imports()


@pytest.fixture
def run(tmp_path, forks):
    """Return a function that runs a block by a program in a folder that looks like the repository.

    Its msdump and python start as forks.
    """
    for name in WANTED:
        (tmp_path / name).symlink_to(ROOT / name)
    programs = f"{forks}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def call(*command):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={"PATH": programs, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        output = path_warnings.without(done.stdout, tmp_path)
        return done.returncode, output.replace(str(tmp_path), "/home/you/msdump")

    return call


def test_every_block_is_known():
    """A block is run, shown, or says why it is not run."""
    unknown = [str(block) for block in BLOCKS if block.language not in (*RUN, *SHOWN)]
    skipped = [block for block in BLOCKS if block.reason]

    assert unknown == []
    allowed = {
        "README.md",
        "CONTRIBUTING.md",
        "install.md",
        "mindspore-network.md",
        "from-torch-to-operator.md",
    }
    assert allowed >= {block.page.name for block in skipped}


@pytest.mark.parametrize("block", list(to_run("bash", "python")))
def test_block_runs(run, block, forks):
    """The commands of a page run without an error in a fresh clone.

    A block of Python starts with nothing imported where it imports something first, else as a fork.
    """
    python = sys.executable if block in IMPORT_FIRST else forks / "python"
    program = ("bash", "-euo", "pipefail", "-c") if block.language == "bash" else (python, "-c")

    code, output = run(*program, block.text)

    assert code == 0, output


def same(output):
    """Return an output without times of day and durations."""
    return re.sub(r"\d+\.\d\d s\b", "T s", re.sub(r"\b\d{16}\b", "T", output))


@pytest.mark.parametrize("block", list(to_run("console")))
def test_output_is_real(run, block):
    """The output that a page shows is the command's."""
    lines = block.text.splitlines()
    script = "\n".join(f"echo {line!r}\n{line[2:]}" for line in lines if line.startswith("$ "))

    code, output = run("bash", "-c", script)

    assert code == 0, output
    assert same(block.text) == same(output)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "json"], ids=str)
def test_configuration_compiles(block, monkeypatch, tmp_path):
    """A configuration that a page shows, MindSpore's or acl's, has no fault."""
    monkeypatch.setenv(env.DIAGNOSTIC_DATA_PATH, "/dump")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    settings = json.loads(block.text)
    read = acl.parse if "dump" in settings else mindspore.parse

    plan = read(json.dumps(settings).encode(), "page.json", Context(DeviceTarget.ASCEND))

    assert plan.files.net_name or plan.compiled.models


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language == "json" and "how-to" in b.page.parts], ids=str
)
def test_configuration_is_the_one_that_runs(block):
    """The configuration of a worked example is the one that its commands use."""
    shown = json.loads(block.text)

    names = set(re.findall(r"(?:data_dump|acl)\w*\.json", block.page.read_text("utf-8")))
    files = [file for name in names for file in (ROOT / "sample_nets").glob(f"*/{name}")]
    assert shown in [json.loads(file.read_text("utf-8")) for file in files]


def prose(page):
    """Return the text of a page without fenced blocks, comments and code."""
    text = _COMMENT.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))
    return re.sub(r"(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)", "`code`", text, flags=re.DOTALL)


def anchors(page):
    """Return the anchors of a page's headings, in the spelling of GitHub and MyST."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Every relative link of a page names a file, and a heading in it."""
    wrong = []
    for link in re.findall(r"\]\(([^)]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            wrong.append(link)

    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_has_no_vague_words(page):
    """The prose of a page has no word of the list in scripts/budget.py."""
    assert budget.VAGUE.findall(prose(page)) == []


def words_of_svg(path):
    """Return the words of a terminal's picture, without its title."""
    texts = re.findall(r"<text class=\"[\w-]+-r\d+\".*?>(.*?)</text>", path.read_text(encoding="utf-8"))
    return html.unescape(" ".join(texts)).replace("\xa0", " ")


@pytest.mark.parametrize("name", pictures.SCENES)
def test_picture_is_real(name, forks):
    """A picture shows the output of its commands, run as forks; make pictures draws it again."""
    shown, real = (
        "".join(same(text).split())
        for text in (
            words_of_svg(ROOT / f"docs/pictures/{name}.svg"),
            " ".join(line.plain for line in pictures.SCENES[name].terminal(forks)),
        )
    )

    assert real == shown


def test_pictures_are_small():
    """A picture of the documentation is smaller than 200,000 bytes, an SVG than 40,000, and loads nothing."""
    files = list((ROOT / "docs" / "pictures").iterdir())

    assert [
        file for file in files if file.stat().st_size > (40_000 if file.suffix == ".svg" else 200_000)
    ] == []
    assert [file for file in files if file.suffix == ".svg" and b'url("http' in file.read_bytes()] == []


def toctree(page):
    """Return the pages that the toctree of a page names."""
    blocks = re.findall(r"^:::\{toctree\}\n(.*?)^:::$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    entries = [entry for block in blocks for entry in re.findall(r"^[\w./-]+$", block, re.MULTILINE)]
    return [Path(os.path.normpath(page.parent / entry)) for entry in entries]


def test_every_page_stands_in_one_toctree():
    """The doors lead to every page of the documentation, to each one once."""
    docs = ROOT / "docs"
    pages = [page.with_suffix("") for kind in ("md", "rst") for page in docs.rglob(f"*.{kind}")]
    named = [entry for page in PAGES if docs in page.parents for entry in toctree(page)]

    assert sorted(pages) == sorted([docs / "index", *named])


def test_doors_link_to_their_pages():
    """A page that the toctree of a door names also has a link in the door's tables."""
    missing = [
        entry.stem
        for door in (ROOT / "docs" / "doors").glob("*.md")
        for entry in toctree(door)
        if f"/{entry.name}." not in door.read_text("utf-8")
    ]

    assert missing == []


def test_tensor_names_of_pages_are_real():
    """Every name of a tensor file that a page shows is one that the grammar reads."""
    shown = {
        name
        for page in PAGES
        for name in re.findall(r"[\w.-]+\.\d{16}\.[\w.-]+\.npy", page.read_text("utf-8"))
    }

    assert len(shown) > 5
    assert [name for name in shown if names.parse(name) is None] == []


def test_paths_of_the_formats_page_are_complete():
    """The pages of formats and of compiled graphs name every path of the layouts."""
    pages = [ROOT / "docs" / name for name in ("formats.md", "compiled-graphs.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)

    assert [kind for kind in layouts.PathKind if f"`{kind.path}`" not in text] == []


def test_code_organization_is_complete():
    """ARCHITECTURE's tree names every module and room of the package."""
    tree = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Rooms\n")[2].split("```")[1]
    rooms = {entry.parent.name + "/" for entry in (ROOT / "msdump").glob("*/__init__.py")}
    modules = {entry.name for entry in (ROOT / "msdump").glob("[!_]*.py")}

    assert [name for name in sorted(rooms | modules) if name not in tree] == []


def test_pages_are_short():
    """README and ARCHITECTURE fit two pages, CONTRIBUTING one."""
    lengths = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in PAGES}

    assert lengths["README.md"] <= 120
    assert lengths["ARCHITECTURE.md"] <= 140
    assert lengths["CONTRIBUTING.md"] <= 60


def test_formats_page_lists_every_dtype():
    """The page of formats has one row for each element type that a file can hold."""
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8").replace("\\|", "|")

    rows = [
        f"| `{row.name}` | `{row.title}` | `{row.saved.str}` |"
        for row in dtypes.DTYPES
        if row is not dtypes.STRING
    ]
    assert [row for row in rows if row not in text] == []


def test_formats_page_lists_every_message():
    """The page of formats has every field of the graph message with its number and type."""
    text = " ".join((ROOT / "docs" / "formats.md").read_text(encoding="utf-8").split())

    messages = [f"{message} {fields}" for message, fields in ir_proto._MESSAGES.items()]
    assert [message for message in messages if message not in text] == []
