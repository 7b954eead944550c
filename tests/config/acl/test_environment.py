"""acl's exception dump by environment variables."""

import stat

import pytest

from msdump import env
from msdump.config.acl.plan import exception_plan
from msdump.plan import Context, DeviceTarget, Trigger

CONTEXT = Context(DeviceTarget.ASCEND)
VARIABLES = (env.ASCEND_DUMP_SCENE, env.ASCEND_DUMP_PATH, env.ASCEND_WORK_PATH, env.NPU_COLLECT_PATH)


@pytest.fixture
def ask(monkeypatch, tmp_path):
    """Return a function that sets the variables and gives scene and path of the dump."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()

    def run(scene="", dump="", work="", collect=""):
        for name, value in zip(VARIABLES, (scene, dump, work, collect), strict=True):
            monkeypatch.setenv(name, value)
        plan = exception_plan(CONTEXT)
        if plan is None:
            return None
        assert Trigger.EXCEPTION is plan.when.trigger
        assert (True, True) == (plan.what.keeps_inputs, plan.what.keeps_outputs)
        return str(plan.compiled.scene), plan.files.path.removeprefix(str(tmp_path)).lstrip("/")

    return run


BRIEF, NORM, DETAIL = "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump"
CASES = {
    "nothing": ({}, None),
    "paths alone": ({"dump": "a", "work": "b"}, None),
    "scene in the working directory": ({"scene": BRIEF}, (BRIEF, "")),
    "scene with dump path": ({"scene": NORM, "dump": "a", "work": "b"}, (NORM, "a")),
    "scene with work path": ({"scene": DETAIL, "work": "b/c"}, (DETAIL, "b/c")),
    "scene with unusable dump path": ({"scene": NORM, "dump": "file/a", "work": "b"}, (NORM, "b")),
    "collect path": ({"collect": "c"}, (NORM, "c")),
    "collect path and others": ({"collect": "c", "dump": "a", "work": "b"}, (NORM, "c")),
    "scene before collect path": ({"scene": BRIEF, "collect": "c", "dump": "a"}, (BRIEF, "a")),
    "unusable collect path": ({"collect": "file"}, None),
    "unknown scene": ({"scene": "watcher"}, None),
    "unknown scene and collect path": ({"scene": "lite_exception", "collect": "c"}, (NORM, "c")),
}


@pytest.mark.parametrize(("variables", "expected"), CASES.values(), ids=CASES)
def test_environment_turns_exception_dumps_on(ask, variables, expected):
    """ASCEND_DUMP_SCENE names the scene, else a usable NPU_COLLECT_PATH turns norm on."""
    assert expected == ask(**variables)


def test_directories_are_made_for_the_owner(ask, tmp_path):
    """A missing path is made, each part of it with mode 0700."""
    ask(collect="a/b")

    assert {0o700} == {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b")}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"scene": "watcher"},
            "ASCEND_DUMP_SCENE = 'watcher' has no effect: it must be aic_err_brief_dump/aic_err_detail_dump",
        ),
        ({"collect": "file/a"}, "NPU_COLLECT_PATH = 'file/a' is skipped: the directory cannot be made"),
    ],
    ids=["scene", "path"],
)
def test_what_is_passed_over_is_told(ask, variables, message, caplog):
    """A variable that cannot be used is a warning."""
    ask(**variables)

    assert message in caplog.text
