"""acl's exception dump where environment variables turn it on, and the directory that it goes to."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from msdump import env
from msdump.plan import (
    Context,
    DumpPlan,
    FileFormat,
    FilePlan,
    ModelDump,
    ModelItem,
    Scene,
    Tree,
    Trigger,
    What,
    When,
)

_log = logging.getLogger("msdump.config")

_SCENES: Final = (Scene.BRIEF_EXCEPTION, Scene.NORM_EXCEPTION, Scene.DETAIL_EXCEPTION)
_PATHS: Final = (env.ASCEND_DUMP_PATH, env.ASCEND_WORK_PATH)
"""Variables of the path, in order of precedence."""


def exception_plan(context: Context) -> DumpPlan | None:
    """Return the exception dump that the environment turns on, None where it does not.

    ASCEND_DUMP_SCENE names the scene; else a usable NPU_COLLECT_PATH turns the norm scene on.
    """
    scene = _scene()
    if scene is not None:
        return _plan(scene, path() or str(Path.cwd()), env.ASCEND_DUMP_SCENE, context)
    collected = _usable(env.NPU_COLLECT_PATH)
    if collected is not None:
        return _plan(Scene.NORM_EXCEPTION, collected, env.NPU_COLLECT_PATH, context)
    return None


def path() -> str | None:
    """Return the directory of exception dumps that ASCEND_DUMP_PATH or ASCEND_WORK_PATH names.

    It is made where it is missing; None where neither variable names one that can be used.
    """
    for name in _PATHS:
        usable = _usable(name)
        if usable is not None:
            return usable
    return None


def _scene() -> Scene | None:
    text = env.read(env.ASCEND_DUMP_SCENE)
    if text is None:
        return None
    if text in _SCENES:
        return Scene(text)
    allowed = "/".join(sorted(_SCENES))
    _log.warning("%s = %r has no effect: it must be %s", env.ASCEND_DUMP_SCENE, text, allowed)
    return None


def _usable(name: str) -> str | None:
    """Return the directory that a variable names, None where it cannot be made or used."""
    text = env.read(name)
    if text is None:
        return None
    directory = Path(text).absolute()
    try:
        _make(directory)
    except (OSError, ValueError) as error:
        _log.warning("%s = %r is passed over: it cannot be made: %s", name, text, error)
        return None
    if not os.access(directory, os.R_OK | os.W_OK):
        _log.warning("%s = %r is passed over: it is not readable and writable", name, text)
        return None
    return str(directory)


def _make(directory: Path) -> None:
    """Make a directory and those above it, each 0700; mkdir gives that mode to the last one alone."""
    if not directory.is_dir():
        _make(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def _plan(scene: Scene, directory: str, source: str, context: Context) -> DumpPlan:
    return DumpPlan(
        source=source,
        source_bytes=b"",
        context=context,
        files=FilePlan(
            path=directory,
            file_format=FileFormat.BIN,
            tree=Tree.MODELS,
        ),
        what=What(
            keeps_device_format=True,
        ),
        when=When(
            trigger=Trigger.EXCEPTION,
        ),
        compiled=ModelDump(
            models=(ModelItem(),),
            scene=scene,
        ),
    )
