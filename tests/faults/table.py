"""The table: kinds of faults and sound pairs, in networks, asked of files, of ``--model`` and of ``diff``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from msdump.analysis.diff import make_side, models
from msdump.execute import WeightCopies
from msdump.graph import loader
from msdump.read import read_folder
from msdump.record import IO
from msdump.store import sanitize
from tests.faults import dumps, kernels, kinds, lockstep, trials
from tests.faults.dumps import Dumped
from tests.faults.faults import Fault, sites
from tests.faults.kinds import DIFF, METHODS, MODEL, Case
from tests.faults.networks import network
from tests.faults.packages import UnavailableError
from tests.faults.trials import Sides

BOUND = 180
"""Seconds that a case may take before it counts as failed."""


@dataclass(frozen=True)
class Row:
    """The answer of one method to one case.

    Attributes:
        network: Name of the network.
        kind: Kind of fault, or sound pair.
        seed: What the case was drawn from.
        method: What was asked.
        case: What was done.
        is_sound: Whether nothing was.
        is_named: Whether the fault is accused; of overflow as not finite, and first.
        accused: Who is accused with no fault.
        verdict: Of the whole.
        error: Why there is no answer.
        seconds: How long it took.
    """

    network: str
    kind: str
    seed: int
    method: str
    case: str
    is_sound: bool
    is_named: bool = False
    accused: tuple[str, ...] = ()
    verdict: str = ""
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Claim:
    """That an operator, a weight, or a fact is the fault.

    Attributes:
        text: For messages.
        verdict: Its word.
        nodes: The nodes of the models, and weights, that are meant.
    """

    text: str
    verdict: str
    nodes: frozenset[str]


# --- what a document says: the one place that knows its form ---------------------------------------------


def claims(document: dict[str, Any], sides: Sides) -> list[Claim]:
    """Return whom a document accuses, in its order: operators first, then facts about the two graphs."""
    found = [
        Claim(f"{row.operator} {row.verdict}", row.verdict, row.nodes)
        for row in trials.accused(document, sides)
    ]
    for fact in document.get("facts", ()):
        names = {fact.get(key) or "" for key in ("operator", "golden", "onnx_name")} - {""}
        nodes = frozenset().union(
            names, *(sides.nodes(name) | sides.nodes(name, missing=True) for name in names)
        )
        found.append(
            Claim(f"{fact.get('operator') or fact.get('golden')} fact {fact['kind']}", fact["kind"], nodes)
        )
    return found


def is_named(case: Case, fault: Fault, found: Sequence[Claim], to_blame: frozenset[str]) -> bool:
    """Tell whether claims name a fault; where infinities begin, first and as that."""
    if case.is_first:
        return bool(found) and bool(found[0].nodes & to_blame) and found[0].verdict in fault.verdicts
    return any(claim.nodes & to_blame for claim in found)


def blamed(fault: Fault, sides: Sides, *, is_compiled: bool) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes and weights whose accusation names a fault, and who is rightly accused with it.

    An operator that is left out is named by its reader, too; who reads one too many is rightly accused of
    another input, which does not name it, and control flow of what is in its bodies. Parts of a kernel stand
    for all of it.
    """
    names, excused = set(trials.guilty(fault, sides)), set[str]()
    if fault.kind == "dropped":
        names |= _beside(sides.golden, fault.nodes, reads=True)
    if is_compiled:  # what no kernel computes is seen behind it
        nodes = [each.node for each in sites(onnx.load(sides.mine.model).graph)]
        settled = {node.name for node in nodes if node.name in fault.nodes and trials.is_settled(node)}
        names |= _beside(sides.mine, frozenset(settled), reads=True)
    if fault.kind == "inserted":
        excused |= _beside(sides.mine, fault.nodes, reads=True)
        around = excused | _beside(sides.mine, fault.nodes, reads=False)
        for members in trials.by_operator(sides.golden.graph).values():
            if len(members & around) > 1:
                names |= members  # the kernel that it splits
    excused |= {outer for outer, inner in _bodies(onnx.load(sides.mine.model).graph) if inner & names}
    for nodes in (names, excused):
        for side in (sides.golden, sides.mine):
            for members in trials.by_operator(side.graph).values():
                if members & nodes:
                    nodes.update(members)
    return frozenset(names), frozenset(excused)


def _beside(side: Dumped, names: frozenset[str], *, reads: bool) -> set[str]:
    """Return the nodes that read what some nodes write, or write what they read."""
    nodes = [each.node for each in sites(onnx.load(side.model).graph)]
    at = [node for node in nodes if node.name in names]
    values = {value for node in at for value in (node.output if reads else node.input) if value}
    return {node.name for node in nodes if values & set(node.input if reads else node.output)}


def _bodies(graph: onnx.GraphProto) -> Iterator[tuple[str, set[str]]]:
    """Yield each node of control flow, and the nodes in its bodies."""
    for node in graph.node:
        for body in (each.g for each in node.attribute if each.type == onnx.AttributeProto.GRAPH):
            yield node.name, {each.node.name for each in sites(body)}
            yield from _bodies(body)


# --- asking ----------------------------------------------------------------------------------------------


Answer = tuple[dict[str, Any], Sides]
"""A document, and both sides of what it says."""


def answers(case: Case, methods: Sequence[str], folder: Path) -> Iterator[tuple[str, Callable[[], Answer]]]:
    """Yield each method, and what asks it; both sides are dumped once."""
    sides = cache(partial(_dumped, case, folder))

    def compared(method: str) -> Answer:
        options = ("--model", str(getattr(sides(), case.given).model)) if method == MODEL else ()
        return trials.compare(sides(), folder / method, "-j", "1", *options), sides()

    for method in case.methods:
        if method in methods:
            yield method, partial(_diff, case, folder) if method == DIFF else partial(compared, method)


def _dumped(case: Case, folder: Path) -> Sides:
    mine, golden = case.pair
    wrong = case.fault.wrong if case.fault else {}
    with kernels.injected(wrong) if wrong else nullcontext():
        examined = dumps.dump(
            case.net, case.model(), mine, folder / "mine", runs=case.runs, before=case.before
        )
    if case.restored:
        _restore(case, examined, dumps.dump(case.net, case.net.model, mine, folder / "sound", runs=case.runs))
    return Sides(examined, dumps.dump(case.net, case.net.model, golden, folder / "golden", runs=case.runs))


def _restore(case: Case, examined: Dumped, sound: Dumped) -> None:
    """Write what a sound run computed into the file of a value's writer."""
    graphs = examined.graph.walk()
    [writer] = (node for graph in graphs for node in graph.nodes if case.restored in node.declared_outputs)
    slot = writer.declared_outputs.index(case.restored)
    wrong, right = (_file_of(each, writer.operator.full_name, slot) for each in (examined, sound))
    Path(wrong).chmod(0o600)
    shutil.copyfile(right, wrong)


def _file_of(side: Dumped, operator: str, slot: int) -> str:
    """Return the file of an operator's output, which has a stand-in where its name is too long."""
    folders = (read_folder(str(path)) for path in {file.parent for file in side.path.rglob("*.npy")})
    files = (file for folder in folders for file in folder.operators.get(sanitize(operator), ()))
    [path] = [file.path for file in files if (file.io, file.slot) == (IO.OUTPUT, slot)]
    return path


def _diff(case: Case, folder: Path) -> Answer:
    folder = folder / "diff"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "mine.onnx", folder / "golden.onnx"]
    model = case.model()
    if model is case.net.model:
        paths = [folder / "golden.onnx"] * 2
    texts = [lockstep.variant(mode) for mode in case.pair]
    for path, each in zip(paths, (model, case.net.model), strict=True):
        onnx.save(each, path)
    graphs = [
        make_side(loader.load(path), models.parse(text), WeightCopies(), trains=False).graph
        for path, text in zip(paths, texts, strict=True)
    ]
    sides = Sides(*(Dumped(folder, path, graph) for path, graph in zip(paths, graphs, strict=True)))
    given = []
    for number, feeds in enumerate(case.runs):
        np.savez(folder / f"inputs_{number}.npz", **feeds)
        given += ["--inputs", str(folder / f"inputs_{number}.npz")]
    arguments = [*map(str, dict.fromkeys(paths)), "--mine", texts[0], "--golden", texts[1], *given, "--json"]
    wrong = case.fault.wrong if case.fault else {}
    with kernels.injected(wrong, str(paths[0])) if wrong else nullcontext():
        return trials.document(["diff", *arguments]), sides


@contextmanager
def _bounded(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in what takes longer."""

    def raise_timeout(*_: object) -> None:
        raise TimeoutError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, raise_timeout)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def rows(
    name: str, kind: str, seed: int, *, methods: Sequence[str], keep: Path | None
) -> tuple[list[Row], int]:
    """Return the answers to one case, and how many draws were skipped because they changed nothing."""
    folder = keep or Path(tempfile.mkdtemp(prefix="msdump-faults-"))
    try:
        with _bounded(BOUND):
            net = network(name)
            case, skipped = (
                kinds.draw(kind, net, seed) if kind in kinds.KINDS else (kinds.SOUND[kind](net), 0)
            )
        if case is None:
            return [], skipped
        blank = Row(name, kind, seed, "", str(case), is_sound=case.fault is None)
        return [_row(blank, case, *asked) for asked in answers(case, methods, folder)], skipped
    except Exception:  # noqa: BLE001 - the other cases are to be asked
        print(f"no case: {name}, {kind}, {seed}: {traceback.format_exc(limit=-3)}", flush=True)
        return [], 0
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _row(blank: Row, case: Case, method: str, ask: Callable[[], Answer]) -> Row:
    begun = time.monotonic()
    told = replace(blank, method=method)
    try:
        with _bounded(BOUND):
            document, sides = ask()
        found = claims(document, sides)
        names, excused = frozenset[str](), defaultdict[str, frozenset[str]](frozenset)
        if case.fault:
            names, beside = blamed(case.fault, sides, is_compiled=case.pair[0].is_compiled)
            excused = defaultdict(lambda: beside, nonfinite=beside | kinds.makes_nonfinite(case))
        told = replace(
            told,
            is_named=case.fault is not None and is_named(case, case.fault, found, names),
            accused=tuple(
                claim.text for claim in found if not claim.nodes & (names | excused[claim.verdict])
            ),
            verdict=document["verdict"],
        )
    except Exception as error:  # noqa: BLE001 - a method that raises has not named the fault
        what = traceback.format_exception_only(error)[-1].strip()[:400]
        at = traceback.extract_tb(error.__traceback__)[-1]
        told = replace(told, error=f"{what} ({Path(at.filename).name}:{at.lineno})")
    return replace(told, seconds=round(time.monotonic() - begun, 2))


# --- the table -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """What the table is made of.

    Attributes:
        networks: Names of networks.
        kinds: Kinds of faults and sound pairs.
        seeds: Each draws one case of each kind in each network.
        methods: What is asked.
        jobs: Processes.
        file: Where the rows go as JSON, too.
        keep: Folder of the files of a single case.
    """

    networks: Sequence[str]
    kinds: Sequence[str]
    seeds: Sequence[int]
    methods: Sequence[str] = METHODS
    jobs: int = 1
    file: Path | None = None
    keep: Path | None = None

    def cases(self) -> Iterator[tuple[str, str, int]]:
        """Yield network, kind and seed of each case; a sound pair has one."""
        for name in self.networks:
            for kind in self.kinds:
                yield from (
                    (name, kind, seed) for seed in (self.seeds if kind in kinds.KINDS else self.seeds[:1])
                )


def measure(wanted: Wanted) -> int:
    """Ask all methods for all cases, print what is wrong and the table; return how many answers are wrong."""
    begun = time.monotonic()
    found: list[Row] = []
    skipped = 0
    for answered, passed_over in _mapped(replace(wanted, networks=[*_available(wanted.networks)])):
        skipped += passed_over
        found += answered
        for row in answered:
            if wrong := _wrong(row):
                print(
                    f"WRONG {row.method}: {row.network}, {row.kind}, {row.seed}: {row.case}\n    {wrong}",
                    flush=True,
                )
        if wanted.file:
            _write(wanted.file, found, skipped)
    print(table(found))
    print(
        f"{skipped} draws change nothing and are not counted; {time.monotonic() - begun:,.0f} s", flush=True
    )
    return sum(bool(_wrong(row)) for row in found)


def _available(names: Sequence[str]) -> Iterator[str]:
    """Yield the networks that can be had; say of the others why not."""
    for name in names:
        try:
            network(name)
        except UnavailableError as error:
            print(f"skipped: {name}: {error}", flush=True)
        else:
            yield name


def _mapped(wanted: Wanted) -> Iterable[tuple[list[Row], int]]:
    work = partial(_rows, methods=wanted.methods, keep=wanted.keep)
    if wanted.jobs == 1:
        yield from map(work, wanted.cases())
        return
    with ProcessPoolExecutor(wanted.jobs) as pool:
        yield from pool.map(work, wanted.cases(), chunksize=len(wanted.kinds))


def _rows(case: tuple[str, str, int], *, methods: Sequence[str], keep: Path | None) -> tuple[list[Row], int]:
    return rows(*case, methods=methods, keep=keep)


def _write(file: Path, found: Sequence[Row], skipped: int) -> None:
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps({"skipped": skipped, "rows": [asdict(row) for row in found]}, indent=1))
    os.replace(beside, file)  # noqa: PTH105 - whole or not at all


def _wrong(row: Row) -> str:
    """Return what is wrong with an answer."""
    told = [] if row.is_named or row.is_sound else ["not named"]
    told += (
        [f"accused: {', '.join(row.accused[:4])}{' ...' if len(row.accused) > 4 else ''}"]
        if row.accused
        else []
    )
    if row.is_sound and not row.accused and row.verdict not in SOUND_VERDICTS:
        told.append(f"verdict {row.verdict}")
    return row.error.replace("\n", "\n    ") or "; ".join(told)


SOUND_VERDICTS = frozenset({"equal", "agrees", "unchecked"})
"""Verdicts with which a sound pair should end."""


def table(found: Sequence[Row]) -> str:
    """Return the table: for each kind and method how many faults are named, and how often nobody else is."""
    lines = [_line("faults: named, nobody else accused", METHODS)]
    faulty = [row for row in found if not row.is_sound]
    for kind in (*dict.fromkeys(row.kind for row in faulty), ""):
        of_kind = [row for row in faulty if kind in {"", row.kind}]
        lines.append(
            _line(kind or "sum", [_counts(of_kind, method, _is_named, _is_clean) for method in METHODS])
        )
    lines += ["", _line("sound pairs: accused, or another verdict than agrees", METHODS)]
    sound = [row for row in found if row.is_sound]
    for kind in (*dict.fromkeys(row.kind for row in sound), ""):
        of_kind = [row for row in sound if kind in {"", row.kind}]
        lines.append(
            _line(kind or "sum", [_counts(of_kind, method, _is_accused, _differs) for method in METHODS])
        )
    return "\n".join(lines)


def _is_named(row: Row) -> bool:
    return row.is_named


def _is_clean(row: Row) -> bool:
    return not row.accused and not row.error


def _is_accused(row: Row) -> bool:
    return bool(row.accused)


def _differs(row: Row) -> bool:
    return bool(row.error) or row.verdict not in SOUND_VERDICTS


def _counts(found: Sequence[Row], method: str, *questions: Callable[[Row], bool]) -> str:
    asked = [row for row in found if row.method == method]
    return (
        ", ".join(str(sum(map(question, asked))) for question in questions) + f" of {len(asked)}"
        if asked
        else "-"
    )


def _line(head: str, cells: Sequence[str]) -> str:
    return f"{head:52}" + "".join(f"{cell:>20}" for cell in cells)
