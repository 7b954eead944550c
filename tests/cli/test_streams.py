"""Names that would steer a terminal: text for people spells them out, text for programs keeps them."""

import csv
import io
import json
import logging
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from msdump import errors
from tests.cli.terminal import shown
from tests.texts import parsed
from tests.world import cli, write_config

PACKAGE = Path(errors.__file__).parent
STEERING = "\x1b[31m\x1b]0;title\x07\x00\u202e\u2028"
SPELLED = r"\x1b[31m\x1b]0;title\x07\x00\u202e\u2028"
OPERATOR = f"Default/sc{STEERING}/ReLU-op0"

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a model of operators with such names, its dump, and one that differs."""
    folder = tmp_path_factory.mktemp("steering")
    text = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x)\n y = Add(a, x) }"
    model = parsed(text, opset=21)
    for node in model.graph.node:
        node.name = f"sc{STEERING}/{node.op_type}"
    onnx.save(model, folder / "model.onnx")
    write_config(folder / "dump.json", folder / "dump", saved_data="full")
    made = ("--config", folder / "dump.json", "--device-target", "Ascend")
    assert 0 == cli("run", folder / "model.onnx", *made).exit_code
    shutil.copytree(folder / "dump", folder / "other")
    (path,) = (folder / "other").rglob("ReLU*.output.0.*.npy")
    np.save(path, np.full((2, 3), 7, np.float32))
    (folder / f"odd{STEERING[:-2].replace(chr(0), '')}").write_text("")
    return folder


COMMANDS = {
    "check": "check {place}/dump.json --model {place}/model.onnx --device-target Ascend",
    "compare": "compare {place}/dump {place}/other -out {out}",
    "diff": "diff {place}/model.onnx -v",
    "diff, a type": "diff {place}/model.onnx --mine Ascend:force_fp16 -v",
    "explain": "explain {place}/dump ReLU-op0",
    "query": "query {place}/dump 'select full_name from operators'",
    "query, an error": "query {place}/dump 'select \"{name}\" from operators'",
    "report": "report {place}/dump {place}/other --output {out}/page.html",
    "run, an error": "run {place}/{name}",
    "show": "show {place}/dump ReLU",
    "show, a tree": "show {place}",
    "trend": "trend {place}/dump nothing",
    "usage": "{name}",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_text_for_people(place, tmp_path, command):
    """No name of an operator, a file, an option or a question reaches a terminal as it is."""
    name = OPERATOR.replace("\x00", "")
    done = cli(*shlex.split(command.format(place=place, out=tmp_path, name=name)))

    told = done.stdout + done.stderr
    assert set() == {each for each in told if not each.isprintable()} - {"\n"}
    assert r"\x1b[31m" in told


def test_text_for_programs(place, tmp_path):
    """Csv, JSON and files keep a name."""
    question = "select full_name from operators where op_type = 'ReLU'"
    rows = csv.reader(io.StringIO(cli("query", place / "dump", question, "--csv").stdout, newline=""))
    document = json.loads(cli("query", place / "dump", question, "--json").stdout)
    cli("compare", place / "dump", place / "other", "-out", tmp_path)
    (table,) = tmp_path.glob("*.csv")

    assert [["full_name"], [OPERATOR]] == list(rows)
    assert [{"full_name": OPERATOR}] == document["rows"]
    assert OPERATOR in table.read_bytes().decode()


def test_our_own_colours(place, tmp_path):
    """A terminal shows operators at fault in red, and their names spelled out."""
    _, told = shown("-m", "msdump", "compare", place / "dump", place / "other", "-out", tmp_path)

    assert "\x1b[31m" in told.replace(STEERING, "")
    assert "\x1b]0;title" not in told
    assert r"\x1b" in told


def test_csv_on_a_terminal(place):
    """Csv that goes to a terminal is text for people."""
    _, told = shown("-m", "msdump", "query", place / "dump", "select full_name from operators", "--csv")

    assert SPELLED in told
    assert "\x1b" not in told


def test_messages_below_a_bar():
    """A message that is printed while a progress bar stands there is spelled out as any other."""
    code = (
        "from msdump.cli import messages, streams\n"
        "with streams.standard(), messages.bar('operators', 2) as bar:\n"
        "    messages.show('a\\x1b[35mb'); print('c\\x1b[35md'); bar()\n"
    )

    _, told = shown("-c", code)

    assert r"a\x1b[35mb" in told
    assert r"c\x1b[35md" in told
    assert "\x1b[35mb" not in told
    assert "\x1b[35md" not in told


def test_logs_of_the_library():
    """Log records of every module in a user's program are spelled out for the user's handlers, too."""
    sources = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    names = {*re.findall(r'logging\.getLogger\("(msdump\.[\w.]+)"\)', sources)}
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    log = logging.getLogger("msdump")
    log.addHandler(handler)
    try:
        for name in names:
            logging.getLogger(name).error("no file of %s", OPERATOR)
    finally:
        log.removeHandler(handler)

    assert len(names) > 10
    assert [f"no file of Default/sc{SPELLED}/ReLU-op0"] * len(names) == text.getvalue().splitlines()


def test_error_of_the_library():
    """An error that ends a user's program shows a spelled name."""
    assert f"sc{SPELLED}: torn" == str(errors.DumpReadError(f"sc{STEERING}", "torn"))
