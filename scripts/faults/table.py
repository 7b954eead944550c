"""The table: kinds of faults and sound pairs, in networks, by files, ``--model`` and ``diff``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import onnx

from scripts.faults import answers, kinds, trials
from scripts.faults.answers import Accused, Answer, Sides, accused
from scripts.faults.dumps import Dumped
from scripts.faults.faults import Fault, sites
from scripts.faults.networks import network
from scripts.faults.packages import UnavailableError
from scripts.faults.trials import METHODS, Case
from scripts.faults.violations import guilty

BOUND = 180
"""Seconds that a case may take before it counts as failed."""


@dataclass(frozen=True)
class Row:
    """The answer of one method to one case.

    Attributes:
        is_named: Whether the fault is accused; an overflow as not finite, and first.
        accused: Accused operators without a fault.
        verdict: Verdict of the whole.
        error: Reason why there is no answer.
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


def claims(document: dict[str, Any], sides: Sides) -> list[Accused]:
    """Return the accused operators of a document in its order, then the facts about the two graphs."""
    found = accused(document, sides)
    for fact in document.get("facts", ()):
        names = {fact.get(key) or "" for key in ("operator", "golden", "onnx_name")} - {""}
        nodes = frozenset(names).union(
            *(sides.nodes(name, missing=missing) for name in names for missing in (False, True))
        )
        found.append(Accused(f"{fact.get('operator') or fact.get('golden')} fact", fact["kind"], nodes))
    return found


def is_named(case: Case, fault: Fault, found: Sequence[Accused], to_blame: frozenset[str]) -> bool:
    """Return whether claims name a fault; an overflow first and as that."""
    if case.is_first:
        return bool(found) and bool(found[0].nodes & to_blame) and found[0].verdict in fault.verdicts
    return any(claim.nodes & to_blame for claim in found)


def blamed(fault: Fault, sides: Sides, *, is_compiled: bool) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes and weights that stand for a fault, and further ones rightly accused.

    An operator that is left out is named by its reader, too; the reader of an inserted one is rightly accused
    of another input, which does not name it, and control flow of faults in its bodies. Parts of a kernel
    stand for all of it.
    """
    names, excused = set(guilty(fault, sides)), set[str]()
    if fault.kind == "dropped":
        names |= _beside(sides.golden, fault.nodes, reads=True)
    if is_compiled:  # operators without a kernel show in their readers
        nodes = [each.node for each in sites(onnx.load(sides.mine.model).graph)]
        settled = {node.name for node in nodes if node.name in fault.nodes and trials.is_settled(node)}
        names |= _beside(sides.mine, frozenset(settled), reads=True)
    if fault.kind == "inserted":
        excused |= _beside(sides.mine, fault.nodes, reads=True)
        around = excused | _beside(sides.mine, fault.nodes, reads=False)
        for members in answers.by_operator(sides.golden.graph).values():
            if len(members & around) > 1:
                names |= members  # the kernel that it splits
    excused |= {outer for outer, inner in _bodies(onnx.load(sides.mine.model).graph) if inner & names}
    for chosen in (names, excused):
        for side in (sides.golden, sides.mine):
            for members in answers.by_operator(side.graph).values():
                if members & chosen:
                    chosen.update(members)
    return frozenset(names), frozenset(excused)


def _beside(side: Dumped, names: frozenset[str], *, reads: bool) -> set[str]:
    """Return the nodes that read some nodes' outputs, or write their inputs."""
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


@contextmanager
def _bounded(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a longer block."""

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
        blank = Row(name, kind, seed, "", str(case), is_sound=not case.faults)
        return [_row(blank, case, *asked) for asked in answers.ask(case, methods, folder)], skipped
    except Exception:  # noqa: BLE001 - the other cases go on
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
        if case.faults:
            names, beside = blamed(case.faults[0], sides, is_compiled=case.pair[0].is_compiled)
            excused = defaultdict(lambda: beside, nonfinite=beside | kinds.makes_nonfinite(case))
        told = replace(
            told,
            is_named=any(is_named(case, fault, found, names) for fault in case.faults),
            accused=tuple(
                f"{claim.operator} {claim.verdict}"
                for claim in found
                if not claim.nodes & (names | excused[claim.verdict])
            ),
            verdict=document["verdict"],
        )
    except Exception as error:  # noqa: BLE001 - a method that raises has not named the fault
        what = traceback.format_exception_only(error)[-1].strip()[:400]
        at = traceback.extract_tb(error.__traceback__)[-1]
        told = replace(told, error=f"{what} ({Path(at.filename).name}:{at.lineno})")
    return replace(told, seconds=round(time.monotonic() - begun, 2))


# --- the table -------------------------------------------------------------------------------------------


def measure(
    networks: Sequence[str],
    chosen: Sequence[str],
    seeds: Sequence[int],
    methods: Sequence[str] = METHODS,
    jobs: int = 1,
    *,
    file: Path | None = None,
    keep: Path | None = None,
) -> int:
    """Apply all methods to all cases, print wrong answers and the table; return the number of wrong answers.

    Args:
        networks: Names of networks.
        chosen: Kinds of faults and sound pairs.
        seeds: Each draws one case of each kind in each network; a sound pair has one.
        methods: Ways to compare.
        jobs: Processes.
        file: Gets the rows as JSON.
        keep: Folder of the files of a single case.
    """
    begun = time.monotonic()
    cases = [
        (name, kind, seed)
        for name in _available(networks)
        for kind in chosen
        for seed in (seeds if kind in kinds.KINDS else seeds[:1])
    ]
    found: list[Row] = []
    skipped = 0
    work = partial(rows, methods=methods, keep=keep)
    with ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        answered = (
            pool.map(work, *zip(*cases, strict=True), chunksize=len(chosen)) if pool else starmap(work, cases)
        )
        for new, passed_over in answered:
            skipped += passed_over
            found += new
            for row in new:
                if wrong := _wrong(row):
                    case = f"{row.network}, {row.kind}, {row.seed}: {row.case}"
                    print(f"WRONG {row.method}: {case}\n    {wrong}", flush=True)
            if file:
                _write(file, found, skipped)
    print(table(found))
    seconds = time.monotonic() - begun
    print(f"{skipped} draws change nothing and are not counted; {seconds:,.0f} s", flush=True)
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


def _write(file: Path, found: Sequence[Row], skipped: int) -> None:
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps({"skipped": skipped, "rows": [asdict(row) for row in found]}, indent=1))
    os.replace(beside, file)  # noqa: PTH105 - whole or not at all


def _wrong(row: Row) -> str:
    """Return the fault of an answer in words."""
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


_QUESTIONS: dict[bool, tuple[str, tuple[Callable[[Row], bool], ...]]] = {
    False: (
        "faults: named, nobody else accused",
        (lambda row: row.is_named, lambda row: not row.accused and not row.error),
    ),
    True: (
        "sound pairs: accused, or another verdict than agrees",
        (lambda row: bool(row.accused), lambda row: bool(row.error) or row.verdict not in SOUND_VERDICTS),
    ),
}
"""Titles and counts of the two tables, of faults and of sound pairs."""


def table(found: Sequence[Row]) -> str:
    """Return the tables: for each kind and method the counts of rows."""
    lines = []
    for is_sound, (title, questions) in _QUESTIONS.items():
        lines += ([""] if lines else []) + [_line(title, METHODS)]
        chosen = [row for row in found if row.is_sound is is_sound]
        for kind in (*dict.fromkeys(row.kind for row in chosen), ""):
            of_kind = [row for row in chosen if kind in {"", row.kind}]
            lines.append(_line(kind or "sum", [_counts(of_kind, method, *questions) for method in METHODS]))
    return "\n".join(lines)


def _counts(found: Sequence[Row], method: str, *questions: Callable[[Row], bool]) -> str:
    asked = [row for row in found if row.method == method]
    return (
        ", ".join(str(sum(map(question, asked))) for question in questions) + f" of {len(asked)}"
        if asked
        else "-"
    )


def _line(head: str, cells: Sequence[str]) -> str:
    return f"{head:52}" + "".join(f"{cell:>20}" for cell in cells)
