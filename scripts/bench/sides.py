"""msdump's side of a comparison."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump.capture import Process
from msdump.config import mindspore as config
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel
from msdump.session import Network
from scripts.bench import measure, whole
from scripts.bench.measure import Case
from tests.world import common_settings

NEVER: Final = "1000000"
"""An iteration that no benchmark reaches."""


def inputs(path: Path) -> dict[str, np.ndarray]:
    """Return seeded inputs of a model, the same that onnxruntime's side gets."""
    graph = loader.load(path)
    return whole.random_inputs(
        {value.name: (value.type.dtype.numpy, value.type.shape) for value in graph.inputs}
    )


def plan(
    folder: Path,
    iteration: str = "all",
    *,
    level: JitLevel = JitLevel.O0,
    trans_flag: bool = True,
    waits: bool = True,
    msdump: dict[str, Any] | None = None,
    **changes: Any,
) -> DumpPlan:
    """Return the plan of an Ascend dump of every output.

    Args:
        folder: Where it goes.
        iteration: Which steps.
        level: O2: dump files of the compiled graph.
        trans_flag: Whether tensors are in the host's format.
        waits: Whether the dump is synchronous.
        msdump: Values of ``msdump``.
        changes: Other values of ``common_dump_settings``.
    """
    common = common_settings(folder, iteration=iteration, **{"input_output": 2, **changes})
    settings: dict[str, Any] = {
        "common_dump_settings": common,
        # as the session it is compared with
        "msdump": {"precision_mode": "must_keep_origin_dtype", **(msdump or {})},
    }
    if level is not JitLevel.O2:
        settings["e2e_dump_settings"] = {"enable": waits, "trans_flag": trans_flag}
    context = Context(DeviceTarget.ASCEND, level)
    return config.parse(json.dumps(settings).encode(), str(folder / "data_dump.json"), context)


def network(path: Path, dump: DumpPlan | None = None) -> Network:
    """Return a network that shares nothing with the others of the process."""
    return Network(loader.load(path), dump, Process())


def beside(
    case: Case, ours: Network, theirs: Network, *folders: Path, is_alone: bool = True
) -> measure.Figure:
    """Return the ratio of runs of two networks; folders are emptied after each."""
    feeds = inputs(case.path)
    sides = partial(ours.run, feeds), partial(theirs.run, feeds)
    return measure.ratio(*sides, case, tidy=emptying(*folders), is_alone=is_alone)


def emptying(*folders: Path) -> Callable[[], None]:
    """Return a function that removes the iterations of dumps, and other files in folders."""
    return partial(_empty, folders)


def _empty(folders: tuple[Path, ...]) -> None:
    for folder in folders:
        for entry in (*folder.glob("rank_0/Net/0/*"), *folder.glob("[0-9]*")):
            shutil.rmtree(entry)
