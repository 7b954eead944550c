"""Runs that dump nothing, or little, beside the session of the whole graph."""

from __future__ import annotations

from functools import partial

import numpy as np

from msdump.capture import Process
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.session import Network
from scripts.bench import measure, sides, whole
from scripts.bench.measure import Case, Figure
from scripts.bench.networks import files

_EVERY = 100
"""One operator of so many is dumped by a filtered dump."""


def of_whole(case: Case) -> Figure:
    """Run without a dump against the session of the whole graph."""
    return _of_whole(sides.network(case.path), case)


def idle_of_whole(case: Case) -> Figure:
    """Run with a configuration that dumps nothing in this iteration against the session."""
    return _of_whole(sides.network(case.path, sides.plan(case.folder, sides.NEVER)), case)


def idle_of_run(case: Case) -> Figure:
    """Run with such a configuration against a run without one."""
    idle = sides.network(case.path, sides.plan(case.folder, sides.NEVER))
    return sides.beside(case, idle, sides.network(case.path))


def of_onnx(case: Case) -> Figure:
    """Run a .mindir against a run of the same network in .onnx."""
    return sides.beside(case, sides.network(files.as_mindir(case.path)), sides.network(case.path))


def filtered(case: Case, optimize: str) -> Figure:
    """Dump one operator of a hundred against the session, both optimised for "all"."""
    names = [operator.full_name for operator in sides.network(case.path).operators]
    kernels = names[_EVERY // 2 :: _EVERY] or [names[len(names) // 2]]
    plan = sides.plan(case.folder, dump_mode=1, kernels=kernels, msdump={"optimize": optimize})
    return _of_whole(sides.network(case.path, plan), case, is_optimised=optimize == "all")


def ascend_of_cpu(case: Case) -> Figure:
    """Generate tokens one by one under Ascend O0 against the same in CPU mode: the cache grows."""
    ascend, cpu = (
        Network(loader.load(case.path), process=Process(), context=context)
        for context in (Context(DeviceTarget.ASCEND, JitLevel.O0), Context())
    )
    feeds = sides.inputs(case.path)
    ours, theirs = (partial(_decode, network, {**feeds}) for network in (ascend, cpu))
    return measure.ratio(ours, theirs, case)


def _decode(network: Network, feeds: dict[str, np.ndarray]) -> None:
    """Run a decoder on one token; change its feeds to the next token's."""
    results = network.run(feeds)
    feeds["input_ids"] = results["logits"].argmax(-1)
    if "position_ids" in feeds:  # the int4 decoder counts its mask
        feeds["position_ids"] = feeds["position_ids"] + 1
    feeds["attention_mask"] = np.pad(feeds["attention_mask"], ((0, 0), (0, 1)), constant_values=1)
    for name, array in results.items():
        if name != "logits":
            feeds[name.replace("present", "past_key_values")] = array


def _of_whole(ours: Network, case: Case, *, is_optimised: bool = False) -> Figure:
    feeds = sides.inputs(case.path)
    theirs = whole.session(case.path, case.threads, is_optimised=is_optimised)
    tidy = sides.emptying(case.folder)
    return measure.ratio(partial(ours.run, feeds), partial(theirs.run, None, feeds), case, tidy=tidy)
