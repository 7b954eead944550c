"""The plans of torchair's GE options."""

import json
import logging

import pytest

from msdump.config import torchair
from msdump.config.grammar import parse_iterations
from msdump.errors import AclError, ConfigValueError, NotAvailableError
from msdump.plan import Context, DeviceTarget, JitLevel, ModelItem, Scene, Tree, Trigger
from msdump.selector import IterationSet
from tests import plans

CONTEXT = Context(DeviceTarget.ASCEND, JitLevel.O2, device_id=3)
STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf")


def options(**changes):
    """Return the options of a dump into the working directory, changed by their short names."""
    given = {"enableDump": "1", "dumpPath": ".", **changes}
    return {f"ge.exec.{name}": value for name, value in given.items() if value is not None}


def acl_json(tmp_path, section):
    """Write an acl.json and return the option that names it."""
    file = tmp_path / "dump_config.json"
    file.write_text(json.dumps({"dump": section}))
    return {"ge_dump_with_acl_config": str(file)}


def test_data_dump(tmp_path):
    """EnableDump dumps every operator in CANN's tree with device bytes, and shows the graph."""
    plan = torchair.plan(options(), CONTEXT)

    expected = {"path": str(tmp_path), "context": CONTEXT, "tree": Tree.MODELS, "models": (ModelItem(),)}
    expected |= {"shows_graph": True, "trigger": Trigger.ALWAYS, "iterations": IterationSet()}
    expected |= {"operator_statistics": None, "keeps_device_format": True, "dumps_single_operators": False}
    assert expected == {name: plans.value(plan, name) for name in expected}
    assert "output" == json.loads(plan.source_bytes)["ge.exec.dumpMode"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"ge.exec.enableDump": "0"},
        {"ge.exec.dumpPath": "nowhere", "ge.exec.dumpMode": "all"},
        {"ge.exec.enableDump": "0", "ge.exec.dumpStep": "broken"},
        {"ge.exec.precision_mode": "force_fp16"},
    ],
)
def test_no_dump(given):
    """Options that turn nothing on make no plan."""
    assert torchair.plan(given, CONTEXT) is None


SIDES = {"input": (True, False), "output": (False, True), "all": (True, True), None: (False, True)}
STEPS = {"0": "0", "0|5|10": "0|5|10", "0|3-5|10": "0|3-5|10", "2|1": "1-2", "": "all"}
LAYERS = {"Add_1Mul_1 Add2": ("Add_1Mul_1", "Add2"), "  Add1_in_0\tAdd2 ": ("Add1_in_0", "Add2"), "": ()}
MEANINGS = [
    *(
        ({"dumpMode": mode}, {"keeps_inputs": reads, "keeps_outputs": writes})
        for mode, (reads, writes) in SIDES.items()
    ),
    *(({"dumpStep": text}, {"iterations": parse_iterations(steps)}) for text, steps in STEPS.items()),
    *(({"dumpLayer": text}, {"models": (ModelItem(layers=layers),)}) for text, layers in LAYERS.items()),
    *(
        ({"dumpData": data}, {"operator_statistics": columns})
        for data, columns in {"tensor": None, "stats": STATISTICS, None: None}.items()
    ),
]


@pytest.mark.parametrize(("changes", "expected"), MEANINGS, ids=str)
def test_meaning_of_an_option(changes, expected):
    """Every option reaches the plan: sides (outputs where none is given), steps, layers, statistics."""
    plan = torchair.plan(options(**changes), CONTEXT)

    assert expected == {name: plans.value(plan, name) for name in expected}


@pytest.mark.parametrize("mode", ["aicore_overflow", "atomic_overflow", "all", None])
def test_overflow(mode):
    """EnableDumpDebug dumps all of the operators that overflow, whatever the options of a data dump say."""
    given = options(enableDump="0", enableDumpDebug="1", dumpDebugMode=mode, dumpMode="input")
    given |= options(enableDump="0", dumpLayer="Add", dumpData="stats", dumpStep="1")

    plan = torchair.plan(given, CONTEXT)

    expected = {"trigger": Trigger.OVERFLOW, "keeps_inputs": True, "keeps_outputs": True}
    expected |= {"models": (ModelItem(),), "operator_statistics": None, "iterations": IterationSet()}
    assert expected == {name: plans.value(plan, name) for name in expected}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"enableDumpDebug": "1"},
            "ge.exec.enableDump and ge.exec.enableDumpDebug cannot be set to 1 at the same time",
        ),
        ({"dumpPath": None}, "ge.exec.dumpPath: is missing or empty (E10058)"),
        ({"dumpPath": ""}, "ge.exec.dumpPath: is missing or empty (E10058)"),
        ({"dumpPath": "gone"}, "ge.exec.dumpPath = 'gone': is not a directory"),
        ({"dumpPath": "x" * 300}, f"dumpPath = '{'x' * 300}': is not a directory"),
        ({"enableDump": "yes"}, "ge.exec.enableDump = 'yes': must be one of 0, 1"),
        (
            {"dumpMode": "outputs"},
            "ge.exec.dumpMode = 'outputs': must be one of input, output, all (did you mean 'output'?)",
        ),
        ({"dumpData": "npy"}, "ge.exec.dumpData = 'npy': must be one of tensor, stats"),
        (
            {"dumpDebugMode": "aicore"},
            "ge.exec.dumpDebugMode = 'aicore': must be one of aicore_overflow, atomic_overflow, all",
        ),
        ({"dumpStep": "5-2"}, "ge.exec.dumpStep = '5-2': the range 5-2 begins above its end"),
        ({"dumpStep": "5-5"}, "ge.exec.dumpStep = '5-5': the graph engine takes no range"),
        ({"dumpStep": "1|"}, "ge.exec.dumpStep = '1|': a segment is empty"),
        (
            {"dumpStep": "|".join(str(2 * step) for step in range(101))},
            "the graph engine takes at most 100 segments, 101",
        ),
        ({"dumpSteps": "1"}, "ge.exec.dumpSteps: is not an option of a dump"),
    ],
)
def test_faults(changes, message):
    """Each rule of the graph engine's dump options is checked, and a fault is an error."""
    with pytest.raises(ConfigValueError) as caught:
        torchair.plan(options(**changes), CONTEXT)

    assert message in str(caught.value)
    assert str(caught.value).startswith("dump_config: ")


def test_all_faults_at_once():
    """Every fault of the options is in the error, not the first one alone."""
    with pytest.raises(ConfigValueError) as caught:
        torchair.plan(options(dumpMode="none", dumpPath="gone", dumpStep="x"), CONTEXT)

    assert 3 == len(caught.value.problems)


def test_captured_graphs():
    """A dump of graphs that are captured and replayed is refused with the mode to set."""
    with pytest.raises(NotAvailableError, match=r"set config\.mode = 'max-autotune'"):
        torchair.plan({"aclgraph.enableDump": "1"}, CONTEXT)


def test_acl_config(tmp_path):
    """The path of an acl.json brings its dump, outputs only where it does not say."""
    plan = torchair.plan(acl_json(tmp_path, {"dump_path": ".", "dump_list": [{"layer": ["A"]}]}), CONTEXT)

    expected = {"path": str(tmp_path), "tree": Tree.MODELS, "models": (ModelItem(layers=("A",)),)}
    expected |= {"keeps_inputs": False, "keeps_outputs": True, "shows_graph": False}
    assert expected == {name: plans.value(plan, name) for name in expected}


SEED_FILES = {
    "models": (
        {
            "dump_list": [
                {"model_name": "ResNet-101"},
                {
                    "model_name": "ResNet-50",
                    "layer": [
                        "conv1conv1_relu",
                        "res2a_branch2ares2a_branch2a_relu",
                        "res2a_branch1",
                        "pool1",
                    ],
                },
            ],
            "dump_path": "output",
            "dump_mode": "output",
            "dump_op_switch": "off",
            "dump_data": "tensor",
        },
        (["ResNet-101", "ResNet-50"], False, Trigger.ALWAYS, None),
    ),
    "single-operators": (
        {"dump_path": "output", "dump_list": [], "dump_op_switch": "on", "dump_data": "tensor"},
        ([None], True, Trigger.ALWAYS, None),
    ),
    "overflow": ({"dump_path": "output", "dump_debug": "on"}, ([None], False, Trigger.OVERFLOW, None)),
    "watcher": (
        {
            "dump_list": [{"layer": ["A", "B"], "watcher_nodes": ["C", "D"]}],
            "dump_path": "output",
            "dump_mode": "output",
            "dump_scene": "watcher",
        },
        ([None], False, Trigger.ALWAYS, Scene.WATCHER),
    ),
}
"""torchair's own examples of dump_config_path, into a directory that is there."""


@pytest.mark.parametrize(("section", "expected"), SEED_FILES.values(), ids=SEED_FILES)
def test_documented_files(tmp_path, section, expected):
    """Each example of a dump configuration file has the documented meaning."""
    (tmp_path / "output").mkdir()

    plan = torchair.plan(acl_json(tmp_path, section), CONTEXT)

    names = [item.model_name for item in plan.compiled.models]
    assert expected == (names, plan.compiled.dumps_single_operators, plan.when.trigger, plan.compiled.scene)
    assert str(tmp_path / "output") == plan.files.path


def test_acl_config_refused(tmp_path):
    """An acl.json that cannot be used aborts with the code of its fault, in the door's own words."""
    given = acl_json(tmp_path, {"dump_path": "gone", "dump_list": [{}]})

    with pytest.raises(AclError, match=r"Fail in acl set dump, return 100009: EP0003: Value gone") as caught:
        torchair.plan(given, CONTEXT)

    assert 100009 == caught.value.code


def test_options_win(tmp_path, caplog):
    """Where options and an acl.json both ask for a dump, the options win, with a warning."""
    given = acl_json(tmp_path, {"dump_path": "gone", "dump_list": [{}]}) | options(dumpMode="all")

    with caplog.at_level(logging.WARNING, logger="msdump"):
        plan = torchair.plan(given, CONTEXT)

    assert plan.what.keeps_inputs
    assert "is ignored, since enable_dump is set too" in caplog.text
