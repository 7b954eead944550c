"""CompilerConfig: options, their checks and the GE options that they become. No torch is needed."""

import copy
import logging
import re
import sys
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump import torchair
from msdump.config.torchair import plan
from msdump.plan import Context, DeviceTarget, JitLevel, ModelItem
from msdump.selector import IterationSet
from tests.world import completed

CONTEXT = Context(DeviceTarget.ASCEND, JitLevel.O2)
STEPS = r"^(((\d+)|(\d+-{0,1}\d+))\|{0,1})*$"
LAYERS = r'^[0-9a-zA-Z_" "/\\.]*$'


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Give a fresh configuration in a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    return torchair.CompilerConfig()


def member(config, path):
    """Return the group of an option by its dotted path, and the option's name."""
    *groups, name = path.split(".")
    for group in groups:
        config = getattr(config, group)
    return config, name


DEFAULTS = {
    "dump_config.enable_dump": "0",
    "dump_config.dump_path": "./",
    "dump_config.dump_mode": "all",
    "dump_config.quant_dumpable": "0",
    "dump_config.dump_step": "",
    "dump_config.dump_layer": "",
    "dump_config.dump_data": "tensor",
    "dump_config.dump_config_path": None,
    "dump_config.data_dump_stage": "optimized",
    "debug.graph_dump.type": None,
    "debug.graph_dump.path": None,
    "debug.data_dump.type": None,
    "debug.data_dump.path": None,
    "debug.data_dump.filter": None,
    "mode": "max-autotune",
}


def test_defaults(config):
    """Each option has the documented default, as a text."""
    found = {path: getattr(*member(config, path)).value for path in DEFAULTS}

    assert DEFAULTS == found


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("dump_config.enable_dump", True, "1"),
        ("dump_config.enable_dump", False, "0"),
        ("dump_config.dump_path", ".", "."),
        ("dump_config.dump_mode", "input", "input"),
        ("dump_config.dump_mode", "output", "output"),
        ("dump_config.quant_dumpable", True, "1"),
        ("dump_config.dump_step", "0|1", "0|1"),
        ("dump_config.dump_step", "0|3-5|10", "0|3-5|10"),
        ("dump_config.dump_layer", "Add_1Mul_1 Add2", "Add_1Mul_1 Add2"),
        ("dump_config.dump_layer", r'layer/a\b.c "d"', r'layer/a\b.c "d"'),
        ("dump_config.dump_data", "stats", "stats"),
        ("dump_config.dump_config_path", None, None),
        ("dump_config.data_dump_stage", "original", "original"),
        ("debug.graph_dump.type", "txt", "txt"),
        ("debug.graph_dump.type", "pbtxt", "pbtxt"),
        ("debug.graph_dump.type", "py", "py"),
        ("debug.graph_dump.type", None, None),
        ("debug.graph_dump.path", "graphs", "graphs"),
        ("debug.data_dump.type", "npy", "npy"),
        ("debug.data_dump.filter", len, len),
        ("mode", "reduce-overhead", "reduce-overhead"),
    ],
)
def test_values(config, path, value, expected):
    """A value that is allowed is held as a text, a function as itself."""
    group, name = member(config, path)

    setattr(group, name, value)

    assert expected == getattr(group, name).value


CHOICES = {
    "dump_config.enable_dump": ("yes", "[False, True]", bool),
    "dump_config.quant_dumpable": ("no", "[False, True]", bool),
    "dump_config.dump_mode": ("outputs", "['input', 'output', 'all']", str),
    "dump_config.dump_data": ("npy", "['tensor', 'stats']", str),
    "dump_config.data_dump_stage": ("late", "['original', 'optimized']", str),
    "debug.graph_dump.type": ("json", "['txt', 'pbtxt', 'py']", str),
    "debug.data_dump.type": ("pt", "['npy']", str),
    "mode": ("default", "['max-autotune', 'reduce-overhead']", str),
}


ILLEGAL = "Please set legal regex value format match {}, {} is Illegal format, correct example:{}."
TEXTS = {
    **dict.fromkeys(("0,1", "all", "3-", "1||2", "|1"), ("dump_step", STEPS, "0|1|2-5|6")),
    **dict.fromkeys(("Add1,Add2", "Add-op1"), ("dump_layer", LAYERS, "Mul_1 Add1 Conv2D_1")),
}


@given(
    st.text("019-|", max_size=7)
    | st.lists(st.from_regex(r"(\d{1,2}|\d-{0,1}\d)\|{0,1}", fullmatch=True), max_size=2).map("".join)
)
@settings(max_examples=200, deadline=None)
def test_steps_are_those_of_the_documented_expression(text):
    """The linear expression takes just the texts that the documented one takes."""
    try:
        torchair.CompilerConfig().dump_config.dump_step = text
        is_taken = True
    except ValueError:
        is_taken = False

    assert bool(re.match(STEPS, text)) is is_taken


NO_FOLDER = "Please set legal dir path, {} is not found or is not a file directory!"
NO_FILE = "Please set legal file path, {} is not found or is not '.json' file!"
GROUP = "_DataDumpConfig has no option enable, all options ['enable_dump', 'dump_path',"
REFUSED = [
    *(
        (
            path,
            value,
            ValueError,
            f"Value {value!r} (type: {str}) not in optional list {allowed} (type: {kind}).",
        )
        for path, (value, allowed, kind) in CHOICES.items()
    ),
    *(
        (f"dump_config.{name}", value, ValueError, ILLEGAL.format(expression, value, example))
        for value, (name, expression, example) in TEXTS.items()
    ),
    *(
        (f"dump_config.{name}", 1, TypeError, "value must be str, got <class 'int'>")
        for name in ("dump_step", "dump_layer")
    ),
    *(
        ("dump_config.dump_path", folder, FileNotFoundError, NO_FOLDER.format(folder))
        for folder in ("./*****", None, "file.txt")
    ),
    *(
        ("dump_config.dump_config_path", file, FileNotFoundError, NO_FILE.format(file))
        for file in ("gone.json", "file.txt", "folder.json")
    ),
    ("dump_config.dump_config_path", "", ValueError, "File path cannot be empty!"),
    ("dump_config.enable", True, ValueError, GROUP),
    (
        "debug.graph",
        True,
        ValueError,
        "_DebugConfig has no option graph, all options ['graph_dump', 'data_dump',",
    ),
    ("debug.graph_dump.kind", True, ValueError, "_Dump has no option kind, all options ['path', 'type']"),
    ("dump", True, ValueError, "CompilerConfig has no option dump, all options ['debug', 'dump_config',"),
    ("dump_config", True, TypeError, "CompilerConfig.dump_config is a group of options"),
    ("debug.data_dump.filter", 3, TypeError, "value must be Callable or None, got <class 'int'>"),
]


@pytest.mark.parametrize(("path", "value", "error", "message"), REFUSED)
def test_refused(config, tmp_path, path, value, error, message):
    """Other values, types, paths that are not there, and options that a group lacks are refused."""
    (tmp_path / "file.txt").touch()
    (tmp_path / "folder.json").mkdir()
    group, name = member(config, path)

    with pytest.raises(error) as caught:
        setattr(group, name, value)

    assert message in str(caught.value)


def test_unknown_option_read(config):
    """Reading an option that is not there is an AttributeError, as of any object."""
    assert not hasattr(config.dump_config, "enable")


def test_group_is_replaced(config):
    """A group of another configuration can be taken over."""
    other = torchair.CompilerConfig()
    other.dump_config.dump_mode = "input"

    config.dump_config = other.dump_config

    assert "input" == config.dump_config.dump_mode.value


@pytest.mark.parametrize(
    "path",
    [
        "experimental_config.frozen_parameter",
        "experimental_config.aclgraph._aclnn_static_shape_kernel",
        "ge_config.oo_level",
        "inference_config.dynamic_gears_merge_policy",
        "fusion_config.fusion_switch_file",
        "export.experimental.auto_atc_config_generated",
        "aoe_config.aoe_mode",
        "aclgraph_config.use_custom_pool",
        "debug.fx_summary.type",
        "debug.aclgraph.disable_reinplace_input_mutated_ops_pass",
    ],
)
def test_options_without_effect(config, caplog, path):
    """Options of the real device's compiler are held, with a warning that they have no effect."""
    group, name = member(config, path)

    with caplog.at_level(logging.WARNING, logger="msdump"):
        setattr(group, name, "set")

    assert "set" == getattr(group, name).value
    assert f"{name} = 'set': has no effect on the emulated device" in caplog.text


def test_copy(config):
    """A deep copy holds the same values and goes its own way."""
    config.dump_config.dump_mode = "input"

    twin = copy.deepcopy(config)
    twin.dump_config.dump_data = "stats"

    assert "input" == twin.dump_config.dump_mode.value
    assert "tensor" == config.dump_config.dump_data.value


def test_options_of_nothing(config, tmp_path):
    """A fresh configuration turns no dump on and makes no directory."""
    local, shared = config.as_dict()

    assert ({}, {}) == (local, shared)
    assert [] == list(tmp_path.iterdir())


def test_options_of_the_documented_example(config, tmp_path):
    """The documented example becomes one GE option for each line, and the plan that they mean."""
    (tmp_path / "dump").mkdir()
    dump = config.dump_config
    dump.enable_dump = True
    dump.dump_mode = "all"
    dump.dump_path = str(tmp_path / "dump")
    dump.quant_dumpable = True
    dump.dump_step = "0|1"
    dump.dump_layer = "Add_1Mul_1 Add2"
    dump.dump_data = "stats"

    _, shared = config.as_dict("max-autotune")
    meant = plan(shared, CONTEXT)

    root = tmp_path / "dump" / "worldsize1_global_rank0"
    assert {
        "ge.exec.enableDump": "1",
        "ge.exec.dumpPath": str(root),
        "ge.exec.dumpMode": "all",
        "ge.quant_dumpable": "1",
        "ge.exec.dumpStep": "0|1",
        "ge.exec.dumpLayer": "Add_1Mul_1 Add2",
        "ge.exec.dumpData": "stats",
    } == shared
    assert root.is_dir()
    assert (str(root), IterationSet(((0, 1),))) == (meant.files.path, meant.when.iterations)
    assert (ModelItem(layers=("Add_1Mul_1", "Add2")),) == meant.compiled.models
    assert (True, True, True) == (
        meant.what.keeps_inputs,
        meant.what.keeps_outputs,
        meant.compiled.shows_graph,
    )
    assert meant.compiled.operator_statistics is not None


def test_options_left_out(config):
    """Steps and layers that are not set are no GE options; the rest is given with its default."""
    config.dump_config.enable_dump = True

    assert {
        "ge.exec.enableDump": "1",
        "ge.exec.dumpPath": "worldsize1_global_rank0",
        "ge.exec.dumpMode": "all",
        "ge.quant_dumpable": "0",
        "ge.exec.dumpData": "tensor",
    } == config.as_dict()[1]


def test_options_of_a_file(config, tmp_path):
    """dump_config_path becomes the option that names an acl.json, and no directory is made."""
    file = tmp_path / "dump_config.json"
    file.write_text("{}")
    config.dump_config.dump_config_path = str(file)

    assert {"ge_dump_with_acl_config": str(file)} == config.as_dict()[1]
    assert [file] == list(tmp_path.iterdir())


def test_options_of_another_mode(config):
    """In reduce-overhead the dump is one of captured graphs."""
    config.dump_config.enable_dump = True

    assert {
        "aclgraph.enableDump": "1",
        "aclgraph.dumpPath": "worldsize1_global_rank0",
        "aclgraph.dumpStage": "optimized",
    } == config.as_dict("reduce-overhead")[1]


@pytest.mark.parametrize(
    ("is_initialised", "expected"),
    [(True, "worldsize8_global_rank5"), (False, "worldsize1_global_rank0")],
    ids=["distributed", "alone"],
)
def test_directory_of_the_rank(config, tmp_path, monkeypatch, is_initialised, expected):
    """The directory of a process has the number of processes and its own rank."""
    distributed = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: is_initialised,
        get_world_size=lambda: 8,
        get_rank=lambda: 5,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    config.dump_config.enable_dump = True

    config.as_dict()

    assert (tmp_path / expected).is_dir()


def test_directory_of_a_launchers_rank(config, tmp_path, monkeypatch):
    """Without torch.distributed the launcher's variables tell how many processes there are."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    config.dump_config.enable_dump = True

    config.as_dict()

    assert (tmp_path / "worldsize2_global_rank1").is_dir()


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from msdump import torchair
try:
    torchair.get_npu_backend
except NotImplementedError as error:
    print(error)
"""


def test_missing_torch():
    """Where torch is missing, the error names the package to install."""
    done = completed(sys.executable, "-c", WITHOUT_TORCH, check=True)

    expected = "msdump.torchair needs PyTorch, and 'torch' is not installed: pip install msdump[torch]"
    assert expected == done.stdout.strip()


def test_names():
    """The door has torchair's names and no other."""
    assert ["CompilerConfig", "get_npu_backend", "scope"] == dir(torchair)
    with pytest.raises(AttributeError, match="has no attribute 'dynamo_export'"):
        _ = torchair.dynamo_export
