"""The plans of acl.json."""

import json
import logging
from pathlib import Path

import pytest

from msdump import env
from msdump.config.acl import plan as acl
from msdump.plan import (
    Blocked,
    Context,
    DeviceTarget,
    DumpLevel,
    JitLevel,
    ModelItem,
    OnWriteError,
    Scene,
    Tree,
    Trigger,
)
from msdump.selector import IterationSet
from tests import plans

CONTEXT = Context(DeviceTarget.ASCEND, JitLevel.O2, device_id=3)
SCENES = ("lite_exception", "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump")


def plan_of(section, **top):
    """Return the plan of a dump section below the working directory."""
    given = {"dump_path": ".", **section}
    return acl.parse(json.dumps({"dump": given, **top}).encode(), "acl.json", CONTEXT)


def test_model_dump(tmp_path):
    """A list of models is dumped whole, outputs only, in CANN's tree, with device bytes."""
    plan = plan_of({"dump_list": [{}]})

    assert str(tmp_path / "acl.json") == plan.source
    assert b'{"dump": {"dump_path": ".", "dump_list": [{}]}}' == plan.source_bytes
    expected = {"path": str(tmp_path), "context": CONTEXT, "keeps_inputs": False, "keeps_outputs": True}
    expected |= {"tree": Tree.MODELS, "level": DumpLevel.ALL, "models": (ModelItem(),), "scene": None}
    expected |= {"trigger": Trigger.ALWAYS, "dumps_single_operators": False, "iterations": IterationSet()}
    expected |= {"operator_statistics": None, "keeps_device_format": True}
    assert expected == {name: plans.value(plan, name) for name in expected}


def test_items_are_kept():
    """Everything that an item of the list says reaches the plan."""
    entry = {"name": "Conv", "pos": ["input0", "output1"]}
    item = {
        "model_name": "ResNet-50",
        "layer": ["conv1", "pool1"],
        "optype_blacklist": [entry],
        "opname_blacklist": [{"name": "pool1"}],
        "opname_range": [{"begin": "conv1", "end": "relu1"}],
    }

    plan = plan_of({"dump_level": "op", "dump_list": [{"model_name": "ResNet-101"}, item]})

    assert (
        ModelItem("ResNet-101"),
        ModelItem(
            "ResNet-50",
            ("conv1", "pool1"),
            (),
            (Blocked("Conv", ("input0", "output1")),),
            (Blocked("pool1"),),
            (("conv1", "relu1"),),
        ),
    ) == plan.compiled.models


ALL = (ModelItem(),)
LIST = {"dump_list": [{}]}
SIX = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf")
SIDES = {"input": (True, False), "output": (False, True), "all": (True, True)}
STEPS = {
    "": None,
    "3": ((3, 3),),
    "0|3-5|10": ((0, 0), (3, 5), (10, 10)),
    "9" * 5000: (((1 << 63) - 1,) * 2,),
}
SINGLE = {
    "empty list": ({"dump_list": []}, ALL),
    "no list": ({}, ALL),
    "empty item": ({"dump_list": [{"model_name": "", "layer": []}]}, ALL),
    "one model": ({"dump_list": [{"model_name": "m"}]}, (ModelItem("m"),)),
}
WATCHED = {"layer": ["A", "B"], "watcher_nodes": ["C", "D"]}
FAILURES = {"trigger": Trigger.EXCEPTION, "models": ALL}
MEANINGS = {
    **{
        f"mode {mode}": (LIST | {"dump_mode": mode}, {"keeps_inputs": reads, "keeps_outputs": writes})
        for mode, (reads, writes) in SIDES.items()
    },
    **{
        f"level {level}": (LIST | {"dump_level": level}, {"level": level, "models": models})
        for level, models in {"op": ALL, "all": ALL, "kernel": ()}.items()
    },
    **{
        f"step {text[:9]}": (LIST | {"dump_step": text}, {"iterations": IterationSet(spans)})
        for text, spans in STEPS.items()
    },
    "tensors": (LIST | {"dump_data": "tensor"}, {"operator_statistics": None}),
    "statistics": (LIST | {"dump_data": "stats"}, {"operator_statistics": SIX}),
    "statistics in the order of columns, once": (
        LIST | {"dump_data": "stats", "dump_stats": ["Min", "Max", "Min"]},
        {"operator_statistics": ("Max", "Min")},
    ),
    "norm": (LIST | {"dump_data": "stats", "dump_stats": ["L2norm"]}, {"operator_statistics": ("L2norm",)}),
    **{
        f"single operators, {name}": (
            section | {"dump_op_switch": "on"},
            {"dumps_single_operators": True, "models": models},
        )
        for name, (section, models) in SINGLE.items()
    },
    "overflow of any model, both sides": (
        {"dump_debug": "on", "dump_mode": "input", "dump_step": "1-2"},
        {"trigger": Trigger.OVERFLOW, "keeps_inputs": True, "keeps_outputs": True, "models": ALL}
        | {"iterations": IterationSet(((1, 2),))},
    ),
    "watcher, outputs alone": (
        {"dump_scene": "watcher", "dump_list": [WATCHED]},
        {"scene": Scene.WATCHER, "models": (ModelItem(layers=("A", "B"), watched=("C", "D")),)}
        | {"trigger": Trigger.ALWAYS, "keeps_inputs": False, "keeps_outputs": True},
    ),
    **{
        scene: ({"dump_scene": scene, "dump_path": "not/yet/there"}, {"scene": scene, **FAILURES})
        for scene in SCENES
    },
    "msdump's own defaults": (
        LIST,
        {"context.fuses": True, "precision_mode": None, "on_write_error": OnWriteError.RAISE},
    ),
}


@pytest.mark.parametrize(("section", "expected"), MEANINGS.values(), ids=MEANINGS)
def test_meaning_of_a_section(section, expected, tmp_path):
    """Every key of a section reaches the plan; a missing one has the device's meaning."""
    plan = plan_of(section)

    assert expected == {name: plans.value(plan, name) for name in expected}
    assert str(tmp_path / section.get("dump_path", ".")) == plan.files.path


PRIORITY = {
    "both variables": ({env.ASCEND_DUMP_PATH: "a", env.ASCEND_WORK_PATH: "b"}, "json", "a"),
    "work path": ({env.ASCEND_WORK_PATH: "b"}, "json", "b"),
    "empty variable": ({env.ASCEND_DUMP_PATH: "", env.ASCEND_WORK_PATH: "b/c"}, "json", "b/c"),
    "unusable variable": ({env.ASCEND_DUMP_PATH: "file/x", env.ASCEND_WORK_PATH: "b"}, "json", "b"),
    "dump_path": ({}, "json", "json"),
    "nothing": ({}, None, "."),
}


@pytest.mark.parametrize(("variables", "dump_path", "expected"), PRIORITY.values(), ids=PRIORITY)
def test_path_of_an_exception_dump(variables, dump_path, expected, monkeypatch, tmp_path):
    """ASCEND_DUMP_PATH goes before ASCEND_WORK_PATH, dump_path and the working directory."""
    (tmp_path / "file").touch()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    given = {"dump_scene": "lite_exception"} | ({"dump_path": dump_path} if dump_path else {})

    plan = acl.parse(json.dumps({"dump": given}).encode(), "acl.json", CONTEXT)

    assert str(tmp_path / expected) == plan.files.path


@pytest.mark.parametrize("section", [{"dump_list": [{}]}, {"dump_debug": "on"}, {"dump_scene": "watcher"}])
def test_variables_move_no_other_dump(section, monkeypatch, tmp_path):
    """Only the exception dump looks at the path variables."""
    monkeypatch.setenv(env.ASCEND_DUMP_PATH, "a")
    monkeypatch.setenv(env.ASCEND_WORK_PATH, "b")

    assert str(tmp_path) == plan_of(section).files.path
    assert [] == list(tmp_path.iterdir())


def test_remote_path_is_local(caplog, tmp_path):
    """The address of another host is taken off with a warning."""
    plan = plan_of({"dump_path": f"10.0.0.1:{tmp_path}/there", "dump_list": [{}]})

    assert f"{tmp_path}/there" == plan.files.path
    assert "msdump reaches no other host" in caplog.text


def test_own_settings():
    """The msdump object has settings that CANN has no key for."""
    own = {"max_bytes": 1000, "queue_bytes": 2000, "writer_threads": 2, "precision_mode": "force_fp32"}

    plan = plan_of({"dump_list": [{}]}, msdump=own | {"on_write_error": "warn", "fusion_switch": "off"})

    expected = own | {"on_write_error": OnWriteError.WARN, "context.fuses": False}
    assert expected == {name: plans.value(plan, name) for name in expected}


def test_operators_of_other_types(tmp_path):
    """The msdump object names files of operators that compute in other types."""
    (tmp_path / "keep.cfg").write_text("OpType::MatMul\n")

    plan = plan_of({"dump_list": [{}]}, msdump={"keep_dtype": str(tmp_path / "keep.cfg")})

    assert ["MatMul"] == [rule.name for rule in plan.operator_dtypes.kept]


@pytest.mark.parametrize(
    "section", [{"dump_path": "."}, {"dump_op_switch": "off"}, {"dump_debug": "off", "dump_list": []}]
)
def test_section_that_asks_for_nothing(section, caplog):
    """A path alone is no dump; that is said."""
    assert plan_of(section) is None
    assert [
        (
            "acl.json:1: $.dump selects no dump: add an item to dump_list, or set dump_scene, "
            "dump_debug or dump_stats"
        )
    ] == (caplog.messages)


ITEM = '"dump_path": ".", "dump_list": [{}]'
WARNINGS = {
    f'{{"dump": {{{ITEM}, "dump_lists": []}}}}': (
        "$.dump.dump_lists is unknown and ignored (did you mean 'dump_list'?)"
    ),
    '{"dump": {"dump_path": ".", "dump_list": [{"layers": []}]}}': (
        "$.dump.dump_list[0].layers is unknown and ignored (did you mean 'layer'?)"
    ),
    f'{{"dump": {{{ITEM}}}, "msdump": {{"max_byte": 1}}}}': (
        "$.msdump.max_byte is unknown and ignored (did you mean 'max_bytes'?)"
    ),
    f'{{"dump": {{{ITEM}}}, "msdump": {{"naming": "2.7"}}}}': (
        "$.msdump.naming has no effect here: files have the names that CANN documents"
    ),
    f'{{"dump": {{"dump_path": "a", {ITEM}}}}}': (
        "$.dump.dump_path is given more than once in its object; the last value is used"
    ),
    '{"dump": {"dump_scene": "lite_exception", "dump_list": [{}]}}': (
        "$.dump.dump_list is ignored: dump_scene turns an exception dump on"
    ),
    '{"dump": {"dump_path": ".", "dump_debug": "on", "dump_step": "a"}}': (
        "$.dump.dump_step = 'a': is malformed and ignored"
    ),
}


@pytest.mark.parametrize(("text", "message"), WARNINGS.items())
def test_doubts_are_told(text, message, caplog):
    """A setting without effect is a warning with its place; the dump goes on."""
    with caplog.at_level(logging.WARNING):
        plan = acl.parse(text.encode(), "acl.json", CONTEXT)

    assert plan is not None
    assert [f"acl.json:1: {message}"] == caplog.messages


def test_other_sections_are_not_read(caplog):
    """acl.json has other users; their keys are no fault."""
    plan = plan_of({"dump_list": [{}]}, profiler={"switch": "on"}, err_msg_mode="1")

    assert plan is not None
    assert caplog.messages == []


def test_file_is_read_from_its_path(tmp_path):
    """``read`` and ``parse`` agree; the source is absolute."""
    text = '{"dump": {"dump_path": ".", "dump_list": [{}]}}'
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "acl.json").write_text(text)

    plan = acl.read("conf/acl.json", CONTEXT)

    assert tmp_path / "conf" / "acl.json" == Path(plan.source)
    assert text.encode() == plan.source_bytes
