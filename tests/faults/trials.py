"""One trial: faults are drawn, both sides dumped, compared, and the answers held against what was done."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from click.testing import CliRunner
from onnx import numpy_helper

from msdump.cli import main
from msdump.device import tasks
from msdump.errors import MsdumpError
from msdump.graph import Graph
from msdump.store import sanitize
from tests.faults import dumps, kernels
from tests.faults.dumps import CPU, MODES, Dumped, Mode
from tests.faults.faults import KINDS, Draw, Fault, Values, distance, site, sites
from tests.faults.networks import NETWORKS, Net, network

ACCUSING = frozenset({"own", "weight", "nonfinite", "replaced", "shape", "dtype", "missing"})
"""Verdicts that say: the fault is here."""

BEYOND = 1.25
"""Times the limit of the element type: how far a fault moves a tensor at least."""

LIMITS = {"float32": 2**-13, "float16": 2**-8, "bfloat16": 2**-6}
"""Largest distance of tensors that agree (docs/how-to/compare-dumps.md), by what they were computed in."""

SEEN = 1e-5
"""How far a changed weight moves what reads it, at least: weights are compared by bits."""

_BFLOAT16 = {"ascend_config": {"precision_mode": "allow_fp32_to_bf16"}}


@dataclass(frozen=True)
class Trial:
    """Faults in a network, and how the two sides ran.

    Attributes:
        seed: What it was drawn from.
        net: The sound network.
        faults: What is wrong on the examined side.
        mine: How that ran.
        golden: How the sound network ran.
    """

    seed: int
    net: Net
    faults: tuple[Fault, ...]
    mine: Mode
    golden: Mode

    def __str__(self) -> str:
        told = "; ".join(f"[{fault.kind}] {fault.text}" for fault in self.faults)
        return f"{self.seed} {self.net.name}, {self.mine.name} beside {self.golden.name}: {told}"

    def model(self) -> onnx.ModelProto:
        """Return the examined model."""
        return edited(self.net.model, self.faults)

    @property
    def wrong(self) -> dict[str, kernels.Steps]:
        """What wrong kernels do, by node."""
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
    """Return what the operators of a sound network compute."""
    net = network(name)
    return dumps.values(net, net.model)


@cache
def kernel_outputs(name: str, mode: Mode) -> dict[str, frozenset[str]]:
    """Return the values that a dump of a sound network shows of what each node writes."""
    return dumps.kernel_outputs(network(name), mode)


def draw(seed: int, modes: Sequence[Mode] = MODES, *, beside: Mode | None = None) -> Trial:
    """Return the trial of a seed; networks take turns, and modes.

    Args:
        seed: Any number.
        modes: How the examined side may run.
        beside: How golden runs; None: as the examined side, or on the CPU.
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
    return Trial(seed, net, tuple(faults), mine, golden)


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
    """Tell whether each fault moves what its operators write beyond rounding, alone and beside the others.

    An earlier fault may hide another one, as NaN do.
    """
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
    if not all(_moves(net, fault, *values, mine, golden) for fault, *values in pairs):
        return False
    return all(is_written(net, fault, faults, mine) for fault in faults if fault.kind == "overflow")


def is_written(net: Net, fault: Fault, faults: tuple[Fault, ...], mine: Mode) -> bool:
    """Tell whether the kernels of a fault write anything else because of it.

    What other faults made NaN in the device's arithmetic stays NaN.
    """
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
    """Return what the operators of a network with faults compute, in a mode or with those of the model."""
    wrong = {name: steps for fault in faults for name, steps in fault.wrong.items()}
    model = edited(net.model, faults)
    with kernels.injected(wrong):
        return dumps.values(net, model) if mode is None else dumps.device_values(net, model, mode)


def shown(net: Net, fault: Fault, mine: Mode) -> set[str]:
    """Return the values that tell of a fault in a dump: of a part of a fused kernel what the kernel writes.

    Weights are files themselves, and an overflow inside of a kernel is found by running it again.
    """
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


# --- comparing -------------------------------------------------------------------------------------------


_WORDS = {"replaced": "; in the place of ", "own": "; own error ", "nonfinite": "; NaN or infinities "}
"""What the note of a wrong weight says of another fault, by the verdict that this would have alone."""


@dataclass(frozen=True)
class Accused:
    """An operator that a report accuses."""

    operator: str
    verdict: str
    nodes: frozenset[str]
    order: int = 0
    note: str = ""

    @property
    def told(self) -> set[str]:
        """The verdicts that it tells: of a kernel with a wrong weight what else is wrong stands in words."""
        if self.verdict != "weight":
            return {self.verdict}
        return {self.verdict, *(verdict for verdict, words in _WORDS.items() if words in self.note)}


@dataclass(frozen=True)
class Sides:
    """Both dumps, and what their operators are in the model."""

    mine: Dumped
    golden: Dumped

    def nodes(self, operator: str, *, missing: bool = False) -> frozenset[str]:
        """Return the names of the nodes that an operator of a report is, as a kernel is several."""
        for dumped in (self.golden, self.mine) if missing else (self.mine, self.golden):
            for graph in (dumped.graph, dumped.source):
                found = by_operator(graph).get(sanitize(operator))
                if found:
                    return found
        # files of parameters carry the names of weights
        return frozenset({f"weight {sanitize(operator)}"})


def by_operator(graph: Graph) -> dict[str, frozenset[str]]:
    """Return the names of the nodes that each operator is, by its full name as files have it."""
    return {
        sanitize(node.operator.full_name): frozenset(part.name for part in node.members)
        for inner in graph.walk()
        for node in inner.nodes
    }


def dumped(trial: Trial, folder: Path) -> Sides:
    """Dump both sides of a trial."""
    golden = dumps.dump(trial.net, trial.net.model, trial.golden, folder / "golden")
    with kernels.injected(trial.wrong):
        mine = dumps.dump(trial.net, trial.model(), trial.mine, folder / "mine")
    return Sides(mine, golden)


def compare(sides: Sides, out: Path, *options: str) -> dict:
    """Return the document of ``msdump compare --json``."""
    arguments = [
        "compare",
        str(sides.mine.path),
        str(sides.golden.path),
        "-out",
        str(out),
        "--json",
        *options,
    ]
    return document(arguments)


def document(arguments: Sequence[str]) -> dict:
    """Return the document that a comparing command prints."""
    done = CliRunner().invoke(main, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    told = json.loads(done.stdout)
    assert "operators" in told, told
    return told


def accused(document: dict, sides: Sides) -> list[Accused]:
    """Return the operators that a document accuses, in order."""
    order = _order(sides.golden.graph)
    rows = [row for row in document["operators"] if row["verdict"] in ACCUSING]
    nodes = [sides.nodes(row["operator"], missing=row["verdict"] == "missing") for row in rows]
    places = [min((order[name] for name in names if name in order), default=len(order)) for names in nodes]
    return [
        Accused(row["operator"], row["verdict"], names, place, row["note"] or "")
        for row, names, place in zip(rows, nodes, places, strict=True)
    ]


def _order(graph: Graph) -> dict[str, int]:
    """Return the place of every node in the execution, bodies where their control flow stands."""

    def names(inner: Graph) -> Iterator[str]:
        for node in inner.nodes:
            yield from (part.name for part in node.members)
            for body in node.bodies.values():
                yield from names(body)

    return {name: at for at, name in enumerate(names(graph))}


# --- judging the judge -----------------------------------------------------------------------------------


def guilty(fault: Fault, sides: Sides) -> frozenset[str]:
    """Return the nodes whose accusation names a fault: its own, and the kernels that hold them."""
    nodes = set(fault.nodes) | {node for node in _node_names(sides.mine.graph) if _is_added(node, fault)}
    nodes |= _joined(fault, sides) | _readers_of_folded(fault, sides)
    nodes |= {f"weight {sanitize(fault.weight)}"} if fault.weight else set()
    for graph in (sides.golden.graph, sides.mine.graph, sides.golden.graph):
        for members in by_operator(graph).values():
            if members & nodes and len(members) > 1:
                nodes |= members
    return frozenset(nodes | _carriers(fault, sides))


def _joined(fault: Fault, sides: Sides) -> set[str]:
    """Return the nodes of kernels that are put together otherwise where an operator is left out or added."""
    if fault.kind not in {"dropped", "inserted"}:
        return set()
    values = set().union(
        *(touched(onnx.load(side.model), fault.nodes) for side in (sides.golden, sides.mine))
    )
    sound = [set(members) for members in by_operator(sides.golden.graph).values()]
    beside: set[str] = set()
    for graph in sides.mine.graph.walk():
        for node in graph.nodes:
            members = {part.name for part in node.members}
            values_of = {value for part in node.members for value in (*part.inputs, *part.outputs)}
            if len(members) > 1 and members not in sound and values & values_of:
                beside |= members
    return beside


def _readers_of_folded(fault: Fault, sides: Sides) -> set[str]:
    """Return the nodes that read what the compiler makes once for all of what is wrong."""
    model, ran = onnx.load(sides.mine.model), set(_node_names(sides.mine.graph))
    wrong, made, readers = {fault.weight} - {""}, set[str](), set[str]()
    for node in (each.node for each in sites(model.graph)):
        if node.name not in ran:
            if node.name in fault.nodes or wrong & set(node.input):
                wrong |= set(node.output)
                made |= set(node.output)
        elif made & set(node.input):
            readers.add(node.name)
    return readers


def _node_names(graph: Graph) -> Iterator[str]:
    return (part.name for inner in graph.walk() for node in inner.nodes for part in node.members)


def _is_added(name: str, fault: Fault) -> bool:
    return any(name.startswith((f"{node}_narrowed", f"{node}_widened")) for node in fault.nodes)


def _carriers(fault: Fault, sides: Sides) -> frozenset[str]:
    """Return the operators that the device adds to bring a changed weight to who reads it."""
    if not fault.weight:
        return frozenset()
    found: set[str] = set()
    for graph in sides.mine.graph.walk():
        reached = {fault.weight}
        for node in graph.nodes:
            if reached & set(node.inputs) and node.is_added:
                found.add(node.name)
                reached |= set(node.outputs)
    return frozenset(found)


def violations(trial: Trial, found: list[Accused], sides: Sides, *, all_faults: bool) -> list[str]:
    """Return what is wrong with an answer.

    Args:
        trial: What was done.
        found: Who is accused, in order.
        sides: Both dumps.
        all_faults: Whether every fault has to be named and nobody else; else the first, and nobody before it.
    """
    if not trial.faults:
        return [f"innocent accused: {listed(found)}"] if found else []
    by_fault = {number: guilty(fault, sides) for number, fault in enumerate(trial.faults)}
    named = {number: [each for each in found if each.nodes & nodes] for number, nodes in by_fault.items()}
    innocent = [each for each in found if not any(each.nodes & nodes for nodes in by_fault.values())]
    if not all_faults:
        first = _first(trial, sides)
        place = min((each.order for each in named[first]), default=None)
        if place is None:
            return [f"not named: {_told(trial.faults[first])}; accused are {listed(found)}"]
        before = [each for each in innocent if each.order < place]
        return [f"accused before it: {listed(before)}"] if before else []
    told = [f"not named: {_told(trial.faults[number])}" for number, rows in named.items() if not rows]
    for number, rows in named.items():
        verdicts = set(trial.faults[number].verdicts)
        if trial.faults[number].kind == "dropped" and len(by_fault[number]) > 1:
            verdicts.add("own")  # the kernel that it was a part of
        others = {each: nodes for each, nodes in by_fault.items() if each != number}
        if rows and not any(verdicts & _verdicts_told(row, trial, others) for row in rows):
            told.append(f"misnamed: {_told(trial.faults[number])} as {listed(rows)}")
    return [*told, *([f"innocent accused: {listed(innocent)}"] if innocent else [])]


def _verdicts_told(row: Accused, trial: Trial, others: Mapping[int, frozenset[str]]) -> set[str]:
    """Return the verdicts that an answer tells of a fault: in words only beside one that names another fault.

    Args:
        row: Who is accused.
        trial: What was done.
        others: The nodes whose accusation names the other faults, by their numbers.
    """
    is_of_another = any(
        row.verdict in trial.faults[number].verdicts and row.nodes & nodes for number, nodes in others.items()
    )
    return row.told if is_of_another else {row.verdict}


def _first(trial: Trial, sides: Sides) -> int:
    """Return the number of the fault that the run met first."""
    order = _order(sides.golden.graph)
    return min(
        range(len(trial.faults)),
        key=lambda number: min(order.get(name, len(order)) for name in trial.faults[number].nodes),
    )


def _told(fault: Fault) -> str:
    return f"[{fault.kind}] {fault.text}"


def listed(rows: list[Accused]) -> str:
    """Return the accused as messages name them."""
    return ", ".join(f"{each.operator} {each.verdict}" for each in rows[:6]) or "nobody"
