"""Cases: faults in a network, or a sound pair, and how both sides run; trials are cases drawn from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
from onnx import numpy_helper

from msdump.device import tasks
from msdump.errors import MsdumpError
from scripts.faults import dumps, kernels
from scripts.faults.dumps import CPU, MODES, Mode
from scripts.faults.faults import KINDS, Draw, Fault, Values, distance, site, sites
from scripts.faults.networks import NETWORKS, Net, network

BEYOND = 1.25
"""Times the limit of the element type: how far a fault moves a tensor at least."""

LIMITS = {"float32": 2**-13, "float16": 2**-8, "bfloat16": 2**-6}
"""Largest distance of tensors that agree (docs/reference/verdicts.md), by the type that computed them."""

SEEN = 1e-5
"""How far a changed weight moves its readers, at least: weights are compared by bits."""

FILES, MODEL, DIFF = METHODS = ("files", "model", "diff")
"""Ways to compare: dump beside dump, the same with the golden model, two models in lockstep without dumps."""

_BFLOAT16 = {"ascend_config": {"precision_mode": "allow_fp32_to_bf16"}}


@dataclass(frozen=True, eq=False)
class Case:
    """Faults in a network, or none, and how both sides run.

    Attributes:
        net: The golden network.
        faults: The faults of the examined side.
        pair: How the examined side and the golden one run.
        runs: The inputs of both sides, run by run; none: once the network's.
        methods: Ways to compare them.
        restored: Value with a file of a sound run's result: memory that was right when it was dumped.
        given: The model that ``--model`` gets: golden's, or the examined one.
        before: Networks that the examined process loads first.
        examined: The examined model of a sound pair, None: golden's.
        is_first: Whether the fault has to be the first that is named, and as not finite.
    """

    net: Net
    faults: tuple[Fault, ...]
    pair: tuple[Mode, Mode]
    runs: tuple[Mapping[str, np.ndarray], ...] = ()
    methods: tuple[str, ...] = METHODS
    restored: str = ""
    given: str = "golden"
    before: tuple[Net, ...] = ()
    examined: onnx.ModelProto | None = None
    is_first: bool = False

    def __str__(self) -> str:
        mine, golden = self.pair
        told = "; ".join(f"[{fault.kind}] {fault.text}" for fault in self.faults)
        return f"{self.net.name}, {mine.name} beside {golden.name}: {told or 'sound'}"

    def model(self) -> onnx.ModelProto:
        """Return the examined model."""
        return self.examined or (edited(self.net.model, self.faults) if self.faults else self.net.model)

    @property
    def wrong(self) -> dict[str, kernels.Steps]:
        """Steps of wrong kernels, by node."""
        return {name: steps for fault in self.faults for name, steps in fault.wrong.items()}


def edited(model: onnx.ModelProto, faults: tuple[Fault, ...]) -> onnx.ModelProto:
    """Return a model with faults."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for fault in faults:
        fault.edit(changed)
    return changed


# --- drawing ---------------------------------------------------------------------------------------------


@cache
def sound_values(name: str) -> Values:
    """Return the results of a sound network's operators."""
    net = network(name)
    return dumps.values(net, net.model)


@cache
def kernel_outputs(name: str, mode: Mode) -> dict[str, frozenset[str]]:
    """Return the values of each node that a dump of a sound network shows."""
    return dumps.kernel_outputs(network(name), mode)


def draw(seed: int, modes: Sequence[Mode] = MODES, *, beside: Mode | None = None) -> Case:
    """Return the trial of a seed; networks take turns, and modes.

    Golden runs ``beside``; None: as the examined side, or on the CPU.
    """
    chance = random.Random(f"trial {seed}")
    names = list(NETWORKS)
    net = network(names[seed % len(names)])
    mode = modes[seed // len(names) % len(modes)]
    mine, golden = (fitting(net, each) for each in (mode, beside or chance.choice([mode, mode, CPU])))
    faults: list[Fault] = []
    count = chance.choice([1, 1, 2, 3])
    for _ in range(200):
        if len(faults) == count:
            break
        fault = _drawn(net, chance)
        if fault and _is_apart(net, fault, faults) and _all_matter(net, (*faults, fault), mine, golden):
            faults.append(fault)
    return Case(net, tuple(faults), (mine, golden))


def fitting(net: Net, mode: Mode) -> Mode:
    """Return a mode in which a network works at all: float16 holds no values of 1e-8."""
    if net.name != "mlp" or mode.computes != "float16":
        return mode
    return Mode(f"{mode.name} bfloat16", mode.context | _BFLOAT16, mode.changes, "bfloat16")


def _drawn(net: Net, chance: random.Random) -> Fault | None:
    kinds = [kind for kind, (_, often) in KINDS.items() for _ in range(often)]
    return KINDS[chance.choice(kinds)][0](Draw(net, sound_values(net.name), chance))


def _is_apart(net: Net, fault: Fault, others: list[Fault]) -> bool:
    """Tell whether a fault shares no value with the nodes of others: else one may undo or hide another."""
    taken = touched(net.model, frozenset().union(*(other.nodes for other in others)))
    return not (touched(net.model, fault.nodes) & taken)


def touched(model: onnx.ModelProto, names: frozenset[str]) -> set[str]:
    """Return the values that nodes read and write."""
    nodes = [place.node for place in sites(model.graph) if place.node.name in names]
    return {value for node in nodes for value in (*node.input, *node.output) if value}


def _all_matter(net: Net, faults: tuple[Fault, ...], mine: Mode, golden: Mode) -> bool:
    """Return whether each fault moves its operators' outputs beyond rounding, alone and beside the others."""
    new = faults[-1]
    if new.weight and not survives(net, new, mine, golden):
        return False
    if mine.is_compiled and any(is_settled(site(net.model, name).node) for name in new.nodes):
        return False  # it has no kernel that could be wrong
    try:
        alone, sound = values_with(net, (new,)), sound_values(net.name)
        together = values_with(net, faults) if len(faults) > 1 else alone
        without = {fault: values_with(net, _but(faults, fault)) for fault in faults if len(faults) > 1}
    except MsdumpError:
        return False  # shapes do not fit, or a type that nothing runs
    pairs = [(new, alone, sound), *((fault, together, others) for fault, others in without.items())]
    if not all(_moves(net, fault, wrong, right, mine, golden) for fault, wrong, right in pairs):
        return False
    return all(is_written(net, fault, faults, mine) for fault in faults if fault.kind == "overflow")


def is_written(net: Net, fault: Fault, faults: tuple[Fault, ...], mine: Mode) -> bool:
    """Return whether a fault changes its kernels' outputs beside other faults: their NaN may hide it."""
    if len(faults) == 1:
        return True
    faulty, sound = (values_with(net, each, mine) for each in (faults, _but(faults, fault)))
    own = kernel_outputs(net.name, mine)
    written = [name for node in fault.nodes for name in own.get(node, ()) if name in faulty and name in sound]
    pairs = [pair for name in written for pair in zip(faulty[name], sound[name], strict=False)]
    return not pairs or any(a.tobytes() != b.tobytes() for a, b in pairs)


def _but(faults: tuple[Fault, ...], left_out: Fault) -> tuple[Fault, ...]:
    return tuple(fault for fault in faults if fault is not left_out)


def _moves(net: Net, fault: Fault, faulty: Values, sound: Values, mine: Mode, golden: Mode) -> bool:
    """Tell whether a fault makes the difference between two runs."""
    moved = _moved(shown(net, fault, mine), faulty, sound)
    if fault.kind == "overflow":
        return math.isinf(moved)
    noise = SEEN if fault.weight else BEYOND * allowed(mine, golden)
    if fault.kind == "float16 region" and not mine.is_compiled:
        noise = LIMITS["float32"]  # the type shows
    return moved > noise


def is_settled(node: onnx.NodeProto) -> bool:
    """Tell whether nothing computes a node on the device once a graph is compiled."""
    return not node.domain and node.op_type in tasks.SETTLED | tasks.DATA_FLOW


def values_with(net: Net, faults: tuple[Fault, ...], mode: Mode | None = None) -> Values:
    """Return the results of a faulty network's operators, or of its kernels in a mode."""
    wrong = {name: steps for fault in faults for name, steps in fault.wrong.items()}
    model = edited(net.model, faults)
    with kernels.injected(wrong):
        return dumps.values(net, model) if mode is None else dumps.device_values(net, model, mode)


def shown(net: Net, fault: Fault, mine: Mode) -> set[str]:
    """Return the values of a dump that show a fault: for a part of a fused kernel the kernel's outputs."""
    own = {name: {*site(net.model, name).node.output} - {""} for name in fault.nodes}
    if fault.weight or fault.kind == "overflow":
        return set().union(*own.values())
    written = kernel_outputs(net.name, mine)
    return set().union(*(written.get(name, outputs) for name, outputs in own.items()))


def _moved(written: set[str], faulty: Values, sound: Values) -> float:
    names = [name for name in written if name in faulty and name in sound] or [
        name for name in sound if name in faulty
    ]
    passes = ((a, b) for name in names for a, b in zip(faulty[name], sound[name], strict=False))
    return max((distance(a, b) for a, b in passes), default=0.0)


def allowed(mine: Mode, golden: Mode) -> float:
    """Return the largest distance of tensors of both sides that agree."""
    if mine == golden and not mine.is_compiled and mine.computes != "bfloat16":
        return LIMITS["float32"]  # files hold float32, and both sides round alike
    return max(LIMITS[mode.computes] for mode in (mine, golden))


def survives(net: Net, fault: Fault, mine: Mode, golden: Mode) -> bool:
    """Tell whether a changed weight still differs where both sides hold it in the narrower of their types."""
    sound, faulty = (
        next(numpy_helper.to_array(each) for each in model.graph.initializer if each.name == fault.weight)
        for model in (net.model, edited(net.model, (fault,)))
    )
    types = {mode.computes for mode in (mine, golden)}
    for kind in types - {"float32"}:
        with np.errstate(all="ignore"):
            if kind == "float16":
                sound, faulty = (array.astype(np.float16) for array in (sound, faulty))
            else:
                sound, faulty = (array.view(np.uint32) + 0x8000 >> 16 for array in (sound, faulty))
    return not np.array_equal(sound, faulty)
