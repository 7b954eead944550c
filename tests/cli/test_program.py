"""The command line: its output, its files, its exit codes."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

from msdump import env
from msdump.capture import Process
from msdump.cli.program import COMMANDS
from msdump.frontends import mindspore
from msdump.statistics import compiled
from msdump.store.write import DiskFiles
from tests import disks
from tests.cli import terminal
from tests.texts import parsed
from tests.world import GRAPHS, cli, completed, write_config

MINI = str(GRAPHS / "mini.onnx")
PROGRAM = [sys.executable, "-c", "from msdump.cli import main; main()"]


pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a configuration and returns its path."""

    def write(**changes):
        given = {"iteration": "0|2"} | changes
        return str(write_config(tmp_path / "data_dump.json", tmp_path / "dump", **given))

    return write


def saved(path, text):
    """Save a model of ONNX's own syntax."""
    onnx.save(parsed(text, opset=21), path)
    return path


def tensors(folder, pattern="*.npy"):
    """Return the arrays of a dump by operator, direction and slot, in the order of their names."""
    found = {}
    for path in sorted(folder.rglob(pattern)):
        fields = path.name.split(".")
        found[path.parent.name, fields[1], fields[5], fields[6]] = np.load(path)
    return found


class TestProgram:
    """Help, version and errors of all commands."""

    @pytest.mark.parametrize("name", COMMANDS)
    def test_command_has_a_help(self, name):
        """Each command explains itself and its options."""
        done = cli(name, "--help")

        assert (done.exit_code, done.stderr) == (0, "")
        assert f"Usage: msdump {name} [OPTIONS]" in done.stdout

    def test_python_without_docstrings(self, tmp_path, config, forks):
        """``python -OO`` dumps the same tensors, and lists the options of a command."""
        dumped = []
        for program in ([forks / "msdump"], [sys.executable, "-OO", "-m", "msdump"]):
            folder = tmp_path / f"dump{len(program)}"
            options = ("--config", config(), "--steps", "3", "--path", folder)
            completed(*program, "run", MINI, *options, check=True)
            dumped.append(tensors(folder))
        done = completed(sys.executable, "-OO", "-m", "msdump", "run", "--help", check=True, timeout=60)

        plain, optimized = dumped
        assert {"0", "2"} <= {iteration for iteration, *_ in plain}
        np.testing.assert_equal(optimized, plain)
        assert "--save-outputs FILE.npz" in done.stdout

    def test_version_is_told(self):
        """--version prints name and version."""
        assert cli("--version").stdout == "msdump 0.1.0\n"

    def test_unknown_command_gets_a_suggestion(self):
        """A misspelt command is answered with the commands and the closest one."""
        done = cli("chekc")

        assert done.exit_code == 2
        commands = ", ".join(COMMANDS)
        assert f"no command 'chekc'; the commands are {commands} (did you mean 'check'?)" in done.stderr

    @pytest.mark.parametrize(("option", "has_traceback"), [((), False), (("-v",), True)])
    def test_traceback_only_with_v(self, tmp_path, option, has_traceback):
        """An error is one line; -v puts the traceback before it."""
        done = cli("run", tmp_path / "no.onnx", *option)

        words = f"msdump: error: {tmp_path}/no.onnx: the model cannot be read: No such file or directory\n"
        assert done.exit_code == 2
        assert done.stderr.endswith(words)
        assert ("Traceback" in done.stderr) == has_traceback
        assert has_traceback or done.stderr == words

    def test_unforeseen_error_is_told_as_one(self, monkeypatch):
        """An error that is not msdump's is called internal, with its class, and exits with 1."""

        def fail(*_):
            raise ZeroDivisionError("division by zero")

        monkeypatch.setattr(mindspore, "load_checked", fail)
        done = cli("run", MINI)

        assert done.exit_code == 1
        assert done.stderr == (
            "msdump: internal error: ZeroDivisionError: division by zero (-v shows the traceback)\n"
        )


class TestRun:
    """``msdump run``."""

    def test_run_without_configuration_dumps_nothing(self, tmp_path, monkeypatch):
        """Without a configuration the model runs, nothing is written, and the summary says why."""
        monkeypatch.chdir(tmp_path)

        done = cli("run", MINI, "--steps", 3)

        first, *others = done.stdout.splitlines()
        assert done.exit_code == 0
        assert first.startswith(f"ran      3 iterations (0-2) of {MINI} in ")
        assert [
            "network  5 operators on CPU",
            "input    x  float32 (1, 1, 6, 6)  normally distributed",
            "output   output  float32 (1, 3)  min -2.29314, max -0.0580594, mean -0.972081",
            "no dump: neither --path nor --config nor MINDSPORE_DUMP_CONFIG is given",
            f"to dump: msdump run {MINI} --path dump",
        ] == others
        assert list(tmp_path.iterdir()) == []

    def test_run_dumps_what_the_variable_says(self, tmp_path, config, monkeypatch):
        """MINDSPORE_DUMP_CONFIG rules the run; the summary counts iterations, files and bytes."""
        monkeypatch.setenv(env.DUMP_CONFIG, config())
        monkeypatch.setenv(env.DEVICE_TARGET, "Ascend")

        done = cli("run", MINI, "--steps", 4)

        files = [path for path in (tmp_path / "dump").rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        assert done.exit_code == 0
        assert (
            f"dumped   2 iterations (0|2): {len(files)} files, {size:,} bytes\n"
            f"into     {tmp_path}/dump/rank_0/Net\n"
        ) in done.stdout
        assert {"0", "2"} == {path.name for path in (tmp_path / "dump/rank_0/Net/0").iterdir()}

    def test_options_beat_the_environment(self, tmp_path, config, monkeypatch):
        """--config and --device-target win over their variables."""
        monkeypatch.setenv(env.DUMP_CONFIG, "/no/such.json")
        monkeypatch.setenv(env.DEVICE_TARGET, "GPU")

        done = cli("run", MINI, "--config", config(), "--device-target", "ascend", "--jit-level", "O1")

        assert done.exit_code == 0
        assert len(list((tmp_path / "dump").rglob("*.float32.npy"))) == 13
        assert not (tmp_path / "dump/rank_0/.dump_metadata").exists()

    @pytest.mark.parametrize(
        ("text", "changes", "options", "words"),
        [
            (
                "",
                {"dump_mode": 2},
                (),
                "no tensors: dump_mode 2 dumps what a program marks by msdump.set_dump",
            ),
            ("", {"iteration": "100"}, (), "dumped   0 iterations: "),
            (
                "",
                {"support_device": [1]},
                ("--device-target", "GPU"),
                "no dump: support_device does not contain",
            ),
            ("g (float[2] x) => (float[2] x) { }", {}, (), "no dump: the model has no operators"),
            (
                "g (string[2] s, float[0] e) => (string[2] t, float[0] f) { t = Identity(s) f = Relu(e) }",
                {},
                ("--device-target", "Ascend"),
                "skipped  2 tensors (text), 2 tensors (no elements)\n",
            ),
        ],
        ids=["marks", "other iterations", "other device", "no operators", "skipped"],
    )
    def test_missing_files_are_explained(self, tmp_path, config, text, changes, options, words):
        """The summary says why tensors, iterations or the whole dump are missing."""
        model = saved(tmp_path / "m.onnx", text) if text else MINI

        done = cli("run", model, "--config", config(**changes), *options)

        assert done.exit_code == 0
        assert words in done.stdout

    @pytest.mark.parametrize(
        ("iterations", "steps", "words"),
        [
            ("0|2", 1, "not run  selected iteration 2 (option: --steps 3)\n"),
            ("0-1|5-8", 1, "not run  selected iterations 1|5-8 (option: --steps 9)\n"),
            ("0|2", 3, ""),
            ("all", 1, ""),
        ],
    )
    def test_selected_iterations_that_did_not_run(self, config, iterations, steps, words):
        """The summary names the selected iterations behind the last step, and the steps that reach them."""
        done = cli("run", MINI, "--config", config(iteration=iterations), "--steps", steps)

        assert done.exit_code == 0
        assert words == "".join(
            line for line in done.stdout.splitlines(keepends=True) if line.startswith("not run")
        )

    @pytest.mark.parametrize(
        "device",
        [(), ("--ranks", 2), ("--device-target", "Ascend", "--jit-level", "O2")],
        ids=["CPU", "ranks", "O2"],
    )
    @pytest.mark.parametrize("uses_ge", ["0", "1"])
    def test_path_replaces_that_of_the_configuration(self, tmp_path, config, monkeypatch, device, uses_ge):
        """All files are written below --path, a relative directory below the working directory."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(env.ENABLE_GE_DUMP, uses_ge)
        monkeypatch.setenv(env.DIAGNOSTIC_DATA_PATH, "/elsewhere")

        done = cli("run", MINI, "--config", config(iteration="0"), "--path", "sub/../good", *device)

        assert done.exit_code == 0, done.output
        assert f"into     {tmp_path}/good" in done.stdout
        assert "has no effect" not in done.stdout
        assert any((tmp_path / "good").rglob("*Conv2D*"))
        assert not (tmp_path / "dump").exists()

    @pytest.mark.parametrize(
        ("options", "pattern"),
        [
            ((), "rank_0/Net/0/0/Conv2D.*.output.0.DefaultFormat.npy"),  # the CPU's names
            (("--dump", "sync"), "rank_0/Net/0/0/Conv2D.*.output.0.DefaultFormat.npy"),
            (
                ("--dump", "sync", "--device-target", "Ascend"),
                "rank_0/Net/0/0/Conv2D.*.output.0.DefaultFormat.float32.npy",
            ),
            (("--dump", "async"), "rank_0/Net/0/0/Conv2D.*.output.0.DefaultFormat.float32.npy"),
            (("--dump", "statistics"), "rank_0/Net/0/0/statistic.csv"),
            (("--dump", "overflow"), "rank_0/Net/0/0/Conv2D.*.output.0.DefaultFormat.float32.npy"),
            (("--dump", "o2"), "0/*/0/mini/1/0/Conv2D.*.output.0.NCHW.float32.npy"),
        ],
    )
    def test_path_without_a_configuration(self, tmp_path, monkeypatch, options, pattern):
        """--path dumps the configuration of msdump init; each mode runs on a device that has its files."""
        for variable in (env.DUMP_CONFIG, env.DEVICE_TARGET, env.JIT_LEVEL):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.chdir(tmp_path)
        np.savez("large.npz", x=np.full((1, 1, 6, 6), 1e38, np.float32))  # infinite in float16

        done = cli("run", MINI, "--inputs", "large.npz", "--path", "here", *options)

        assert done.exit_code == 0, done.output
        assert f"into     {tmp_path}/here" in done.stdout
        assert list((tmp_path / "here").glob(pattern))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--config", "{config}", "--path", ""), "--path needs a directory"),
            (("--path", ""), "--path needs a directory"),
            (("--dump", "o2"), "--dump o2 needs --path DIR, the directory of the dump"),
            (
                ("--config", "{config}", "--path", "x", "--dump", "o2"),
                "--dump excludes --config and MINDSPORE",
            ),
            (
                ("--path", "x", "--dump", "statistics", "--device-target", "CPU"),
                "$.common_dump_settings.saved_data = 'statistic': the CPU has no statistics",
            ),
        ],
    )
    def test_path_and_mode_that_are_refused(self, tmp_path, config, monkeypatch, options, words):
        """--path needs a directory, --dump a --path, no configuration, and a device that has the mode."""
        monkeypatch.delenv(env.DUMP_CONFIG, raising=False)
        monkeypatch.chdir(tmp_path)

        done = cli("run", MINI, *(each.format(config=config()) for each in options))

        assert done.exit_code == 2
        assert words in done.stderr
        assert not (tmp_path / "x").exists()

    @pytest.mark.parametrize(("base", "is_named"), [("/elsewhere", True), ("{folder}", False)])
    def test_variable_without_effect(self, tmp_path, config, monkeypatch, base, is_named):
        """The commands run and check name MS_DIAGNOSTIC_DATA_PATH if the configuration has another path."""
        monkeypatch.setenv(env.DIAGNOSTIC_DATA_PATH, base.format(folder=tmp_path))
        path = config()

        texts = [cli("run", MINI, "--config", path).stdout, cli("check", path).stdout]

        words = "MS_DIAGNOSTIC_DATA_PATH /elsewhere has no effect, because the configuration has a path"
        assert [is_named] * 2 == [words in text for text in texts]

    def test_seed_decides_the_inputs(self, tmp_path, config):
        """The same seed gives the same tensors, another seed and another step others."""
        dumps = []
        for number, seed in enumerate((7, 7, 8)):
            mindspore._state = mindspore.ProcessState(Process())
            path = f"{tmp_path}/dump{number}"
            cli("run", MINI, "--config", config(path=path), "--seed", seed, "--steps", 3)
            dumps.append(tensors(Path(path), "Parameter.x.*"))

        first, same, other = [[array.tolist() for array in dump.values()] for dump in dumps]
        assert first == same
        assert first != other
        assert first[0] != first[1]

    def test_seed_decides_random_numbers(self, tmp_path):
        """Operators without a seed draw the same numbers in two runs with one --seed, others with another."""
        text = "net () => (float[8] y) { n = RandomNormal <shape = [8]>() y = Neg(n) }"
        net, drawn = saved(tmp_path / "net.onnx", text), []
        for seed in (7, 7, 8):
            cli("run", net, "--seed", seed, "--save-outputs", tmp_path / "y.npz")
            drawn.append(np.load(tmp_path / "y.npz")["y"].tolist())

        assert drawn[0] == drawn[1]
        assert drawn[0] != drawn[2]

    def test_dimension_is_filled(self, tmp_path, config):
        """--dim gives a dynamic dimension its size, 1 is the default."""
        model = GRAPHS / "external_data.onnx"

        cli("run", model, "--config", config(path=f"{tmp_path}/one"))
        mindspore._state = mindspore.ProcessState(Process())
        cli("run", model, "--config", config(path=f"{tmp_path}/five"), "--dim", "N=5")

        shapes = [
            next(iter(tensors(tmp_path / name, "Parameter.x.*").values())).shape for name in ("one", "five")
        ]
        assert shapes == [(1, 64), (5, 64)]

    def test_inputs_come_from_a_file(self, tmp_path, config):
        """Arrays of an .npz file are fed by name, in every step."""
        x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
        np.savez(tmp_path / "feeds.npz", x=x)

        done = cli("run", MINI, "--inputs", tmp_path / "feeds.npz", "--config", config(), "--steps", 3)

        fed = tensors(tmp_path / "dump", "Parameter.x.*")
        assert done.exit_code == 0
        assert [x.tolist(), x.tolist()] == [array.tolist() for array in fed.values()]

    @pytest.mark.parametrize(
        ("names", "fault"),
        [
            (("a", "b"), ""),
            (("0", "1"), ""),
            (("arr_0", "arr_1"), ""),
            (("arr_1", "0"), "input 'b'"),
            (("a", "0"), "a, 0 name an input twice, by name and by position"),
            (("a", "2"), "no input '2'; the inputs are a, b"),
            (
                (),
                "one array without a name; --inputs takes a file of numpy.savez(path, input_name=array, ...)",
            ),
        ],
        ids=["names", "numbers", "numpy.savez", "swapped", "twice", "beyond", "npy"],
    )
    def test_inputs_have_names_or_positions(self, tmp_path, names, fault):
        """A file calls inputs by name or by position, as numpy.savez numbers them."""
        model = saved(tmp_path / "m.onnx", "g (float[2] a, float[1] b) => (float[2] y) { y = Sub(a, b) }")
        arrays = np.array([5, 4], np.float32), np.array([1], np.float32)
        if names:
            np.savez(tmp_path / "in.npz", **dict(zip(names, arrays, strict=True)))
        else:
            np.save(tmp_path / "in.npy", arrays[0])
            (tmp_path / "in.npy").rename(tmp_path / "in.npz")

        done = cli("run", model, "--inputs", tmp_path / "in.npz", "--save-outputs", tmp_path / "y.npz")

        assert (done.exit_code, fault in done.stderr) == (2 if fault else 0, True)
        if not fault:
            assert [4, 3] == np.load(tmp_path / "y.npz")["y"].tolist()

    @pytest.mark.parametrize(
        ("array", "fault"),
        [
            (np.array([5, 4], np.float32), ""),
            (np.array([5, 4]), "input 'x'"),
            (np.array([{}], dtype=object), "not an .npz file of plain arrays"),
        ],
        ids=["fits", "type", "pickled"],
    )
    def test_only_input_comes_from_an_array_file(self, tmp_path, array, fault):
        """An .npy file is the input of a network with one input."""
        model = saved(tmp_path / "m.onnx", "g (float[2] x) => (float[2] y) { y = Neg(x) }")
        np.save(tmp_path / "in.npy", array)

        done = cli("run", model, "--inputs", tmp_path / "in.npy", "--save-outputs", tmp_path / "y.npz")

        assert (done.exit_code, fault in done.stderr) == (2 if fault else 0, True)
        if not fault:
            assert [-5, -4] == np.load(tmp_path / "y.npz")["y"].tolist()

    @pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["widened", "raw"])
    def test_bfloat16_comes_from_a_file(self, tmp_path, config, dtype):
        """A type that numpy lacks is fed as float32, as dump files hold it, or as numpy saves it."""
        model = saved(tmp_path / "m.onnx", "g (bfloat16[2] x) => (float[2] y) { y = Cast<to=1>(x) }")
        np.savez(tmp_path / "feeds.npz", x=np.array([1.5, -2], dtype))

        done = cli("run", model, "--inputs", tmp_path / "feeds.npz", "--config", config())

        assert done.exit_code == 0
        assert [1.5, -2] == tensors(tmp_path / "dump", "Cast.*output*")[
            "0", "Default_Cast-op0", "output", "0"
        ].tolist()

    def test_every_type_can_be_made_up(self, tmp_path):
        """Made-up inputs exist for text, bool, integers, floats of any width and complex numbers."""
        kinds = ("string", "bool", "int4", "uint8", "int64", "float16", "float8e5m2", "double", "complex64")
        inputs = ", ".join(f"{kind}[2] i{kind}" for kind in kinds)
        outputs = ", ".join(f"{kind}[2] o{kind}" for kind in kinds)
        body = " ".join(f"o{kind} = Identity(i{kind})" for kind in kinds)
        model = saved(tmp_path / "m.onnx", f"g ({inputs}) => ({outputs}) {{ {body} }}")

        assert cli("run", model).exit_code == 0

    def test_unused_kernels_are_named(self, config):
        """Items of kernels that matched nothing are named once, when the run is over."""
        done = cli("run", MINI, "--config", config(dump_mode=1, kernels=["Conv2D", "LSTM"]))

        assert done.stderr.count("items of kernels that matched no operator that ran: LSTM") == 1


FILE = io.BytesIO()
np.savez(FILE, x=np.zeros(1))
PACKED, PLACE = FILE.getvalue(), FILE.getvalue().index(b"PK\1\2") + 10  # where the way of compression stands

BAD_INPUTS = {
    "missing": (None, {}, (), "input 'x' (float32, shape (1, 1, 6, 6)) is missing"),
    "unknown": (None, {"X": np.zeros(1)}, (), "no input 'X'; the inputs are x"),
    "shape": (None, {"x": np.zeros(3, np.float32)}, (), "shape (3,) given, (1, 1, 6, 6) expected"),
    "dtype": (None, {"x": np.zeros((1, 1, 6, 6))}, (), "dtype float64 given, float32 expected"),
    "sequence in a file": (
        *("seq(float[2])", {"x": np.zeros(2, np.float32)}, ()),
        "input 'x' is a sequence, which an .npz file cannot hold; run the network from Python",
    ),
    "sequence": (
        *("seq(float[2])", None, ()),
        "is a sequence and cannot be made up; run the network from Python: msdump.load(model)(",
    ),
    "map": (
        *("map(int64, float)", None, ()),
        "is a map and cannot be made up; run the network from Python: msdump.load(model)(input_name={",
    ),
    "map in a file": (
        *("map(int64, float)", {"x": np.zeros(2, np.float32)}, ()),
        "input 'x' is a map, which an .npz file cannot hold; run the network from Python",
    ),
    "no dimension": ("float", None, ("--dim", "N=2"), "no dynamic dimension 'N'; there are none"),
    "misspelt dimension": ("float[Batch]", None, ("--dim", "batch=2"), "did you mean 'Batch'?"),
    "long size": (None, None, ("--dim", f"N={5000 * '1'}"), f"'N={78 * '1'}...' is not NAME=SIZE"),
}


class TestRefusal:
    """``msdump run`` of bad models, inputs and options: exit code 2, one line, nothing ran."""

    @pytest.mark.parametrize(
        ("kind", "arrays", "options", "words"), BAD_INPUTS.values(), ids=BAD_INPUTS.keys()
    )
    def test_wrong_inputs_are_refused(self, tmp_path, kind, arrays, options, words):
        """Arrays that are missing or do not fit, inputs that cannot be made up, and dimensions are named."""
        text = f"g ({kind} x) => ({kind} y) {{ y = Identity(x) }}"
        model = saved(tmp_path / "m.onnx", text) if kind else MINI
        if arrays is not None:
            np.savez(tmp_path / "feeds.npz", **arrays)
            options = ("--inputs", tmp_path / "feeds.npz")

        done = cli("run", model, *options)

        assert (done.exit_code, done.stdout) == (2, "")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1 or "Usage" in done.stderr

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "cannot be read: No such file or directory"),
            (b"not a zip", "not an .npz file of plain arrays"),
            (b"PK\3\4 torn", "not an .npz file of plain arrays"),
            (PACKED[:PLACE] + b"c" + PACKED[PLACE + 1 :], "not an .npz file of plain arrays"),
            (
                {"x": np.array(["a"], dtype=object)},
                "not an .npz file of plain arrays ('x' is an array of objects: convert texts with",
            ),
        ],
        ids=["missing", "other file", "torn", "unknown compression", "pickled"],
    )
    def test_wrong_inputs_file_is_refused(self, tmp_path, content, words):
        """A file that is no .npz of plain arrays is named, with the way to make one."""
        path = tmp_path / "feeds.npz"
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, dict):
            np.savez(path, **content)

        done = cli("run", MINI, "--inputs", path)

        assert (done.exit_code, done.stdout) == (2, "")
        assert f"msdump: error: {path}: {words}" in done.stderr
        assert "--inputs takes a file of numpy.savez(path, input_name=array, ...)\n" in done.stderr

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--dim", "Q=3"), "no dynamic dimension 'Q'"),
            (("--inputs", "wrong.npz"), "no input 'stranger'"),
            (("--load-state", "wrong.npz"), "no variable 'stranger'"),
        ],
        ids=["dimension", "inputs", "state"],
    )
    @pytest.mark.parametrize("target", ["CPU", "Ascend"])
    def test_wrong_inputs_leave_no_file(self, tmp_path, monkeypatch, config, target, options, words):
        """They are found before graph files are written."""
        monkeypatch.chdir(tmp_path)
        np.savez("wrong.npz", stranger=np.zeros(2, np.float32))

        done = cli(
            "run", MINI, "--config", config(path=f"{tmp_path}/dump"), "--device-target", target, *options
        )

        assert done.exit_code == 2
        assert words in done.stderr
        assert not [*tmp_path.glob("dump/**/*.*")]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "Missing argument 'MODEL'"),
            ((MINI, "--steps", "0"), "Invalid value for '--steps'"),
            ((MINI, "--device-id", "-1"), "Invalid value for '--device-id'"),
            ((MINI, "--dim", "N"), "'N' is not NAME=SIZE, such as N=8"),
            ((MINI, "--inputs", "a.npz", "--seed", "1"), "--inputs excludes --seed and --dim"),
        ],
        ids=["no model", "steps", "device number", "dimension", "inputs and seed"],
    )
    def test_wrong_usage_is_refused(self, arguments, words):
        """A wrong command line is answered with the usage and the fault."""
        done = cli("run", *arguments)

        assert done.exit_code == 2
        assert done.stderr.startswith("Usage: ")
        assert words in done.stderr

    def test_faulty_configuration_is_refused(self, config):
        """Every fault of the configuration is a line of its own."""
        done = cli("run", MINI, "--config", config(dump_mode=3, net_name="a b"))

        errors = [line for line in done.stderr.splitlines() if line.startswith("msdump: error: ")]
        assert (done.exit_code, done.stdout) == (2, "")
        assert len(errors) == 2
        assert "data_dump.json:1: $.common_dump_settings.dump_mode = 3: must be 0 " in errors[0]

    @pytest.mark.parametrize(
        ("option", "value", "words"),
        [
            ("--device-target", "TPU", "device_target = 'TPU': must be one of CPU, GPU, Ascend"),
            ("--jit-level", "O3", "jit_level = 'O3': must be one of O0, O1, O2"),
            (
                "--config",
                "no.json",
                "no.json: no such file; --config must be the path of a readable .json file",
            ),
        ],
    )
    def test_unknown_values_are_refused(self, option, value, words):
        """An unknown device or level is answered with the known ones, a missing file with the option."""
        done = cli("run", MINI, option, value)

        assert (2, "", f"msdump: error: {words}\n") == (done.exit_code, done.stdout, done.stderr)

    def test_unwritable_path_is_refused(self, tmp_path, config):
        """A dump path below a file is reported before anything runs."""
        (tmp_path / "file").touch()

        done = cli("run", MINI, "--config", config(path=f"{tmp_path}/file/dump"))

        assert (done.exit_code, done.stdout) == (2, "")
        assert f"msdump: error: dump path '{tmp_path}/file/dump' cannot be created " in done.stderr


class TestFailure:
    """``msdump run`` that fails or ends early: dumped files stay."""

    def test_failing_operator_is_named(self, tmp_path, config):
        """An operator that fails ends the run with 1; the files of the operators before it are complete."""
        model = saved(
            tmp_path / "m.onnx",
            "g (int64[1] x) => (float[N] y) <float[1] table = {1.0}, int64[1] two = {2}>"
            " { a = Abs(x) b = Add(a, two) y = Gather(table, b) }",
        )

        done = cli("run", model, "--config", config())

        assert done.exit_code == 1
        assert "msdump: error: operator Default/Gather-op0 failed: " in done.stderr
        assert done.stderr.count(" failed: ") == 1
        assert done.stdout.startswith("ran      0 iterations of ")
        assert {"Default_Abs-op0", "Default_Add-op0"} == {
            key[1] for key in tensors(tmp_path / "dump", "A*.npy")
        }

    def test_failing_write_is_told_once(self, config, monkeypatch):
        """A full disk in the middle of a run ends it with 1 and one line."""
        create = DiskFiles.create

        def fail(self, directory, name, buffers):
            if name.startswith("MatMul"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return create(self, directory, name, buffers)

        monkeypatch.setattr(DiskFiles, "create", fail)
        done = cli("run", MINI, "--config", config())

        assert done.exit_code == 1
        assert done.stderr.count("No space left on device; free space, dump less or choose another path") == 1
        assert "lost     1 file (No space left on device)\n" in done.stdout

    def test_summary_of_a_full_disk(self, tmp_path, config):
        """Iterations without a file are counted apart from the dumped ones; only files on disk count."""
        with disks.mounted(tmp_path / "small", "256k") as folder:
            path = str(folder / "dump")
            file = config(iteration="all", path=path, own={"on_write_error": "warn"})
            done = cli("run", MINI, "--steps", "99", "--config", file)
            files = [each for each in (folder / "dump").rglob("*") if each.is_file() and each.stat().st_size]
            steps = sum(any(each.iterdir()) for each in (folder / "dump/rank_0/Net/0").glob("[0-9]*"))

        assert 0 < steps < 99
        assert done.stdout.startswith("ran      99 iterations")
        assert f"\ndumped   {steps} iterations (0-{steps - 1}): {len(files)} files, " in done.stdout
        assert (
            f"\ndropped  {99 - steps} iterations ({steps}-98): all of their files were lost\n" in done.stdout
        )

    def test_interrupted_run_leaves_complete_files(self, tmp_path, config):
        """Ctrl-C in the middle of a run exits with 130, says so once and leaves only whole files."""
        arguments = ["run", MINI, "--steps", "1000000", "--config", config(iteration="all")]
        process = subprocess.Popen(
            [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        iterations = tmp_path / "dump/rank_0/Net/0"
        deadline = time.monotonic() + 60
        while not (iterations / "20").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)

        interrupted = [line for line in errors.splitlines() if "interrupted in" in line]
        files = [path for path in (tmp_path / "dump").rglob("*") if path.is_file()]
        assert process.returncode == 130
        assert len(interrupted) == 1
        assert interrupted[0].startswith("msdump: interrupted in iteration ")
        assert "Traceback" not in errors
        assert output.startswith("ran      ")
        assert all(np.load(path).size for path in files if path.suffix == ".npy")
        assert [path for path in files if path.suffix == ".tmp"] == []


class TestOutputFiles:
    """Options that name a file of results."""

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["run", MINI, "--save-outputs"], b"PK"),
            (["run", MINI, "--trace"], b"{"),
            (["report", "{dump}", "-o"], b"<!doctype html>"),
        ],
        ids=["save-outputs", "trace", "report"],
    )
    def test_pipe_is_written_to(self, tmp_path, config, arguments, expected):
        """The reader of a pipe gets the whole file."""
        cli("run", MINI, "--config", config())
        os.mkfifo(tmp_path / "pipe")
        with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
            done = cli(*(part.format(dump=tmp_path / "dump") for part in arguments), tmp_path / "pipe")
            try:
                read, _ = reader.communicate(timeout=60)
            finally:
                reader.kill()

        assert done.exit_code == 0
        assert read.startswith(expected)
        assert (tmp_path / "pipe").is_fifo()

    def test_pipe_is_refused(self, tmp_path, config):
        """A Parquet file cannot be written to a pipe, which stays."""
        cli("run", MINI, "--config", config())
        os.mkfifo(tmp_path / "pipe")

        done = cli("query", tmp_path / "dump", "select 1", "--parquet", tmp_path / "pipe")

        message = "not a regular file: a Parquet file cannot be written there; give another path"
        assert done.exit_code == 2
        assert f"{tmp_path}/pipe: {message}" in done.stderr
        assert (tmp_path / "pipe").is_fifo()

    @pytest.mark.parametrize(
        "arguments",
        [
            ["run", MINI, "--save-outputs", "{typo}/outputs.npz"],
            ["run", MINI, "--trace", "{typo}/trace.json"],
            ["report", "{dump}", "-o", "{typo}/report.html"],
            ["pack", "{dump}", "-o", "{typo}"],
            ["baseline", "{dump}", "-o", "{typo}"],
        ],
        ids=lambda arguments: f"{arguments[0]} {arguments[-2]}",
    )
    def test_missing_directories(self, tmp_path, config, arguments):
        """No chain of directories is made, and the message names the first that is missing."""
        cli("run", MINI, "--config", config())
        typo = tmp_path / "no" / "folder"

        done = cli(*(part.format(dump=tmp_path / "dump", typo=typo) for part in arguments))

        assert done.exit_code != 0
        assert f"there is no directory '{tmp_path}/no'" in done.stderr
        assert not (tmp_path / "no").exists()


class TestTerminal:
    """Output that only a terminal gets."""

    def test_progress_is_shown_on_a_terminal_only(self, tmp_path):
        """A bar counts iterations on a terminal; elsewhere there is not one escape sequence."""
        arguments = ["run", MINI, "--steps", "500"]

        code, shown = terminal.shown("-m", "msdump", *arguments, cwd=tmp_path)
        done = cli(*arguments)

        assert 0 == code
        assert "iterations \x1b" in shown
        assert "ran      500 iterations (0-499)" in shown
        assert "\x1b" not in done.output


TOO_LONG = 300 * "x"


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (["show", TOO_LONG], 2, "no dump here"),
        (["compare", TOO_LONG, TOO_LONG], 2, "no such directory"),
        (["convert", "-d", TOO_LONG], 2, "no such file or directory"),
        (["overflow", TOO_LONG], 2, "no such directory"),
        (["check", TOO_LONG], 2, "cannot be read (File name too long)"),
    ],
    ids=["show", "compare", "convert", "overflow", "check"],
)
def test_names_that_are_too_long(command, code, told):
    """A name that no file can have is answered like one that no file has."""
    done = cli(*command)

    assert (code, f"msdump: error: {TOO_LONG}: {told}") == (
        done.exit_code,
        done.stderr.partition(";")[0].strip(),
    )


CONV = "Default/conv1-Conv2d/Conv2D-op0"
O0 = ("--device-target", "Ascend")
O2 = (*O0, "--jit-level", "O2")
GPU = ("--device-target", "GPU")
HUGE = "net (float[1125899906842624] x) => (y) { y = Relu(x) }"
DYNAMIC = str(GRAPHS / "external_data.onnx")
LONG = str(GRAPHS / "transformer.onnx")
HINTS = {
    "Default/conv1-Conv2d/Conv2D-op1": f" (did you mean '{CONV}'?)",
    "Conv2F": " (did you mean 'Conv2D'?)",
    "Default/fc-Dense": " (a scope of 2 operators; write name-regex(Default/fc-Dense/.+))",
    "name-regex(.*Pool.*)": "",
}
CHECKED = {
    # changes of the configuration, model, options, texts on standard output, texts that are not there
    "plan": ({}, None, O0, ["device:     Ascend O0, device 0\n", "iterations: 0|2\n"], ["model:"]),
    "kernels": (
        *({"dump_mode": 1, "kernels": ["MatMul", CONV]}, MINI, ()),
        [
            f"\nmodel:      {MINI}, 5 operators, 2 dumped\n  Conv2D               {CONV}\n  MatMul ",
            " for 2 iterations in all\n",
            "left out:   3 operators: not selected by kernels\n",
        ],
        [],
    ),
    **{
        item: ({"dump_mode": 1, "kernels": ["ReLU", item]}, MINI, (), [f"nothing: {item!r}{hint}\n"], [])
        for item, hint in HINTS.items()
    },
    "parameters": ({}, MINI, (), ["parameters: 4, at the end of each dumped iteration"], ["left out"]),
    "no parameters": ({}, MINI, O0, [], ["parameters:"]),
    "long": ({}, LONG, (), ["\n  ... and 23 more; -v lists all\n"], []),
    "long with -v": ({}, LONG, ("-v",), [], ["more; -v"]),
    "compiled": (
        {"op_debug_mode": 0, "dump_mode": 1, "kernels": ["name-regex(Flatten|relu)", "Default/none/Add-op0"]},
        *(MINI, O2),
        [
            f"5 operators, compiled into 8 kernels, 1 dumped\n  Conv2D               {CONV}",
            "matches nothing: 'Default/none/Add-op0'",
            "left out:   7 operators: not selected by kernels\n",
            "            1 operator: without a task on the device\n",
            "/dump/{step}/{time}/",
        ],
        ["matches nothing: 'name"],
    ),
    "no array": (
        *({}, HUGE, O0),
        ["0 files, 0 bytes for each iteration, and 2 tensors of 9,007,199,254,740,992 bytes that no array"],
        [],
    ),
    "made-up sizes": ({}, DYNAMIC, (), ["9 files, 18,690 bytes for each iteration\n"], ["unknown shape"]),
    "known": ({}, DYNAMIC, ("--dim", "N=4"), ["for each iteration\n"], ["unknown shape"]),
    "marks": (
        *({"dump_mode": 2}, MINI, ()),
        [
            "the operators that set_dump marks during the run",
            "left out:   5 operators: not marked by set_dump",
        ],
        [],
    ),
    "other device": ({"support_device": [1]}, MINI, GPU, ["nothing, because support_device"], []),
    "no end": ({"iteration": "all"}, MINI, (), ["for each iteration\n"], ["in all"]),
    "outputs": (
        {"input_output": 2},
        MINI,
        (),
        ["left out:   8 inputs: of a side not selected (input or output)"],
        [],
    ),
    "limit": (
        *({"own": {"max_bytes": 1000}}, MINI, ()),
        ["exceeds max_bytes 1,000: files beyond it are skipped"],
        [],
    ),
}


class TestCheck:
    """``msdump check``."""

    @pytest.mark.parametrize(
        ("changes", "model", "options", "texts", "others"), CHECKED.values(), ids=CHECKED
    )
    def test_effects_are_said_in_words(self, tmp_path, config, changes, model, options, texts, others):
        """Plan, selected operators, forecast and left out operators are printed, nothing is written."""
        if model == HUGE:
            model = saved(tmp_path / "m.onnx", model)

        done = cli("check", config(**changes), *(() if model is None else ("--model", model)), *options)

        assert done.exit_code == 0
        assert [] == [text for text in texts if text not in done.stdout], done.stdout
        assert [] == [text for text in others if text in done.stdout]
        assert not (tmp_path / "dump").exists()

    def test_faults_are_all_named(self, config):
        """Every fault is a message and the exit code is 2."""
        done = cli("check", config(dump_mode=3, iteration="5-2", saved_data="tensors"))

        errors = [line for line in done.stderr.splitlines() if line.startswith("msdump: error: ")]
        assert (done.exit_code, done.stdout) == (2, "")
        assert len(errors) == 3
        assert "did you mean 'tensor'?" in done.stderr

    def test_missing_library(self, monkeypatch, config):
        """Without the compiled library, text and JSON say that numpy computes statistics."""
        monkeypatch.setattr(compiled, "KERNEL", None)

        done = cli("check", config())
        document = json.loads(cli("check", config(), "--json").stdout)

        words = document["plan"]["library"]
        assert words.startswith("numpy computes statistics, about 4 times slower")
        assert f"library:    {words}" in done.stdout.splitlines()

    def test_unknown_dimension_is_refused(self, config):
        """A dimension that the model lacks is named beside the ones that it has."""
        done = cli("check", config(), "--model", DYNAMIC, "--dim", "M=4")

        assert done.exit_code == 2
        assert "no dynamic dimension 'M'; they are N" in done.stderr


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (env.DEVICE_ID, 5000 * "1", f"DEVICE_ID = '{79 * '1'}...: must be a device number"),
        (
            env.DEVICE_ID,
            "2147483648",
            "DEVICE_ID = '2147483648': must be a device number (0, 1, ... 2147483647)",
        ),
    ],
)
def test_number_of_the_environment_that_is_too_large(monkeypatch, variable, text, message):
    """A number that no device or process has is reported with its variable before anything runs."""
    monkeypatch.setenv(variable, text)

    result = cli("run", MINI)

    assert 2 == result.exit_code
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_operators_are_found_by_any_text(config):
    """``--find`` lists the operators that a text may mean and the item that selects them."""
    result = cli("check", config(), "--model", MINI, "--find", "fc")

    assert 0 == result.exit_code
    _, found = result.stdout.split("\n\n")
    head, *listed = found.splitlines()
    assert "'fc': a module of 2 operators; write name-regex(Default/fc-Dense/.+)" == head
    names = ["Default/fc-Dense/MatMul-op0", "Default/fc-Dense/BiasAdd-op0"]
    assert names == [line.split()[1] for line in listed]
    assert "--find needs --model" in cli("check", config(), "--find", "fc").stderr


@pytest.mark.parametrize("command", ["check", "run", "diff"])
@pytest.mark.parametrize(
    "text",
    [
        "g (float[N,2,T] x) => (y) { y = MaxPool<kernel_shape=[9999]>(x) }",
        "g (float[N,2,T] x) => (y) { y = Conv(x) }",
    ],
)
def test_sizes_that_do_not_fit_name_the_option(command, text, config, tmp_path):
    """Where made-up sizes leave a window nothing, or nothing can run, no command fails without a cure."""
    model = saved(tmp_path / "m.onnx", text)
    arguments = {"check": [config(), "--model", model], "run": [model], "diff": [model, model]}

    done = cli(command, *arguments[command])

    assert "internal error" not in done.output
    if command == "check":
        assert ("MaxPool" in text) == (
            "T=8 do not fit the shapes of the model; give others with --dim" in done.stderr
        )
    else:
        assert "the sizes of N, T are made up; if they do not fit, give --dim NAME=SIZE" in done.stderr
