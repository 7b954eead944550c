"""The help of each command: sections, examples, exit codes and words."""

import shlex
import shutil
import subprocess
import sys

import click
import pytest

from msdump.cli import accucmp
from msdump.cli.program import COMMANDS, GROUPS, main
from msdump.cli.sections import Option
from scripts.budget import VAGUE
from tests.world import ROOT, cli, completed, write_config

PROGRAM = click.Context(main, info_name="msdump")


def command_of(name):
    """Return a command of the program."""
    return main.get_command(PROGRAM, name)


def texts(name):
    """Return the texts of a command's help: its text, its exit codes, and its arguments and options."""
    command = command_of(name)
    records = [each.get_help_record(PROGRAM) for each in command.params]
    return [
        command.help,
        *(text for _, text in command.exit_codes),
        *(text for _, text in filter(None, records)),
    ]


EXAMPLES = [(name, line) for name in COMMANDS for line in command_of(name).examples]


def test_groups_list_each_command_once_in_80_columns():
    """The help of the program has every command in one group, on one line."""
    shown = main.get_help(click.Context(main, info_name="msdump", terminal_width=80)).splitlines()

    assert len(COMMANDS) == sum(map(len, GROUPS.values()))
    for title, commands in GROUPS.items():
        first = shown.index(f"{title}:") + 1
        assert [*commands.items()] == [
            (line.split()[0], line.split(maxsplit=1)[1]) for line in shown[first : first + len(commands)]
        ]


@pytest.mark.parametrize("name", COMMANDS)
def test_first_sentence_is_the_line_of_the_group(name):
    """The first paragraph of a command's help is its line in the help of the program."""
    assert COMMANDS[name] == command_of(name).help.partition("\n\n")[0]
    assert COMMANDS[name].endswith(".")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_stands_in_a_section_and_has_a_text(name):
    """Options are declared in sections; arguments and options have a help text."""
    for each in command_of(name).params:
        assert each.help, each.name
        assert isinstance(each, click.Argument | Option), each.name


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_codes_have_one_form(name):
    """Every command lists its exit codes, each with a sentence."""
    codes = dict(command_of(name).exit_codes)

    assert ["0", "2", "130"] == [code for code in codes if code != "1"]
    assert all(text.endswith(".") for text in codes.values())


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_examples_are_command_lines(name, line):
    """Options and arguments of an example exist."""
    program, command, *arguments = shlex.split(line)

    assert ("msdump", name) == (program, command)
    with command_of(name).make_context(name, arguments, parent=PROGRAM):
        assert len(line) <= 78


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_one_to_three_examples(name):
    """Every command has examples, and a few at most."""
    assert len(command_of(name).examples) in {1, 2, 3}


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_words_are_plain(name):
    """Help texts have none of the vague words that the lint of docstrings looks for."""
    assert [] == VAGUE.findall("\n".join(texts(name) if name else [main.help, main.epilog, *GROUPS]))


@pytest.mark.parametrize("name", ["convert"])
def test_words_of_msaccucmp_are_plain(capsys, name):
    """The help of msaccucmp has none of the vague words, either."""
    with pytest.raises(SystemExit):
        accucmp.run([name, "--help"])

    shown = capsys.readouterr().out
    assert shown.startswith("usage: msaccucmp.py ")
    assert [] == VAGUE.findall(shown)


def test_module_is_called_like_the_program():
    """``python -m msdump`` shows the usage of the program msdump."""
    done = completed(sys.executable, "-m", "msdump", "show", "--help", check=True)

    assert done.stdout.startswith("Usage: msdump show [OPTIONS] DUMP [OPERATOR]\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, forks):
    """Return a folder with the files that examples name."""
    path = tmp_path_factory.mktemp("examples")
    shutil.copy(ROOT / "graphs/mini.onnx", path / "model.onnx")
    shutil.copy(ROOT / "graphs/mindspore_cnn.mindir", path / "net.mindir")
    (path / "rules.json").write_text('{"rules": [{"condition": "tensor_overflow"}]}')
    config = write_config(path / "data_dump.json", path / "dump", iteration="0")
    asynchronous = write_config(
        path / "async.json", path / "dump_data", iteration="0", is_synchronous=False, file_format="bin"
    )
    for line in (
        f"run {path}/model.onnx --config {config}",
        f"run {path}/model.onnx --config {asynchronous} --device-target Ascend --jit-level O2",
        f"train-graph {path}/model.onnx -o {path}/step.onnx",
    ):
        subprocess.run([forks / "msdump", *line.split()], check=True)
    for name, source in (("golden", "dump"), ("overflow_dump", "dump_data")):
        shutil.copytree(path / source, path / name)
    return path


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_examples_run(monkeypatch, tmp_path, folder, name, line):
    """Every example does its work in a folder with a model, a configuration and dumps."""
    if name != "init":  # which writes the configuration that the folder has
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("webbrowser.open_new_tab", lambda _: True)

    done = cli(*shlex.split(line)[1:])

    assert 0 == done.exit_code, done.output
