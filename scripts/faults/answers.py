"""Answers of the commands on a case: both sides are dumped or run in lockstep, and the document is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from click.testing import CliRunner

from msdump.cli import main
from msdump.execute import WeightCopies
from msdump.graph import Graph, loader
from msdump.judge.diff import make_side, models
from msdump.read import read_folder
from msdump.record import IO
from msdump.store import sanitize
from scripts.faults import dumps, kernels
from scripts.faults.dumps import Dumped, Mode
from scripts.faults.trials import DIFF, MODEL, Case

ACCUSING = frozenset({"own", "weight", "nonfinite", "replaced", "shape", "dtype", "missing", "extra"})
"""Verdicts that say: the fault is here."""

_WORDS = {"replaced": "; in place of ", "own": "; own error ", "nonfinite": "; NaN or infinities "}
"""Words in the note of a wrong weight on another fault, by the verdict that this would have alone."""


@dataclass(frozen=True)
class Accused:
    """An operator that a document accuses; its nodes of the model, and its place in the execution."""

    operator: str
    verdict: str
    nodes: frozenset[str]
    order: int = 0
    note: str = ""

    @property
    def verdicts(self) -> set[str]:
        """All verdicts on it: further faults of a kernel with a wrong weight stand in the note."""
        if self.verdict != "weight":
            return {self.verdict}
        return {self.verdict, *(verdict for verdict, words in _WORDS.items() if words in self.note)}


@dataclass(frozen=True)
class Sides:
    """Both sides, and the nodes of the model that their operators are."""

    mine: Dumped
    golden: Dumped

    def nodes(self, operator: str, *, missing: bool = False) -> frozenset[str]:
        """Return the names of an operator's nodes, of which a kernel has several."""
        for dumped in (self.golden, self.mine) if missing else (self.mine, self.golden):
            for graph in (dumped.graph, dumped.source):
                found = by_operator(graph).get(sanitize(operator))
                if found:
                    return found
        # files of parameters carry the names of weights
        return frozenset({f"weight {sanitize(operator)}"})


def by_operator(graph: Graph) -> dict[str, frozenset[str]]:
    """Return the names of each operator's nodes, by its full name in files."""
    return {
        sanitize(node.operator.full_name): frozenset(part.name for part in node.members)
        for inner in graph.walk()
        for node in inner.nodes
    }


Answer = tuple[dict[str, Any], Sides]
"""A document, and both sides of it."""


def ask(case: Case, methods: Sequence[str], folder: Path) -> Iterator[tuple[str, Callable[[], Answer]]]:
    """Yield each method of a case with a function that returns its answer; both sides are dumped once."""
    sides = cache(partial(dumped, case, folder))

    def compared(method: str) -> Answer:
        options = ("--model", str(getattr(sides(), case.given).model)) if method == MODEL else ()
        paths = str(sides().mine.path), str(sides().golden.path)
        out = str(folder / method)
        return document(["compare", *paths, "-out", out, "--json", "-j", "1", *options]), sides()

    for method in case.methods:
        if method in methods:
            yield method, partial(_diff, case, folder) if method == DIFF else partial(compared, method)


def dumped(case: Case, folder: Path) -> Sides:
    """Dump both sides of a case."""
    mine, golden = case.pair
    with kernels.injected(case.wrong) if case.wrong else nullcontext():
        examined = dumps.dump(
            case.net, case.model(), mine, folder / "mine", runs=case.runs, before=case.before
        )
    if case.restored:
        _restore(case, examined, dumps.dump(case.net, case.net.model, mine, folder / "sound", runs=case.runs))
    return Sides(examined, dumps.dump(case.net, case.net.model, golden, folder / "golden", runs=case.runs))


def _restore(case: Case, examined: Dumped, sound: Dumped) -> None:
    """Write a sound run's result into the file of a value's writer."""
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
    net, model, texts = case.net, case.model(), [variant(mode) for mode in case.pair]
    paths = (
        [folder / "golden.onnx"] * 2 if model is net.model else [folder / "mine.onnx", folder / "golden.onnx"]
    )
    for path, each in zip(paths, (model, net.model), strict=True):
        onnx.save(each, path)
    graphs = [
        make_side(loader.load(path), models.parse(text), WeightCopies(), trains=net.trains).graph
        for path, text in zip(paths, texts, strict=True)
    ]
    sides = Sides(*(Dumped(folder, path, graph) for path, graph in zip(paths, graphs, strict=True)))
    with kernels.injected(case.wrong, str(paths[0])) if case.wrong else nullcontext():
        return diff(
            case, folder, *map(str, dict.fromkeys(paths)), "--mine", texts[0], "--golden", texts[1]
        ), sides


def diff(case: Case, folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the document of ``msdump diff`` on the inputs of a case."""
    given = ["--train"] if case.net.trains else []
    for number, feeds in enumerate(case.runs or (case.net.feeds,)):
        np.savez(folder / f"inputs_{number}.npz", **feeds)
        given += ["--inputs", str(folder / f"inputs_{number}.npz")]
    return document(["diff", *arguments, *given, "--json"])


def variant(mode: Mode) -> str:
    """Return a mode as ``--mine`` takes it."""
    if mode.context["device_target"] == "CPU":
        return "float32"
    precision = mode.changes.get("precision_mode", "")
    precision = precision or mode.context.get("ascend_config", {}).get("precision_mode", "")
    return ":".join(filter(None, ("Ascend", mode.context["jit_level"], precision)))


def document(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the document that a comparing command prints."""
    done = CliRunner().invoke(main, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    found = json.loads(done.stdout)
    assert "operators" in found, found
    return found


def accused(document: dict[str, Any], sides: Sides) -> list[Accused]:
    """Return the operators that a document accuses, in order."""
    places = order(sides.golden.graph)
    rows = [row for row in document["operators"] if row["verdict"] in ACCUSING]
    nodes = [sides.nodes(row["operator"], missing=row["verdict"] == "missing") for row in rows]
    firsts = [min((places[name] for name in names if name in places), default=len(places)) for names in nodes]
    return [
        Accused(row["operator"], row["verdict"], names, first, row["note"] or "")
        for row, names, first in zip(rows, nodes, firsts, strict=True)
    ]


def order(graph: Graph) -> dict[str, int]:
    """Return the place of every node in the execution, bodies where their control flow stands."""

    def names(inner: Graph) -> Iterator[str]:
        for node in inner.nodes:
            yield from (part.name for part in node.members)
            for body in node.bodies.values():
                yield from names(body)

    return {name: at for at, name in enumerate(names(graph))}


def overflows(row: dict[str, Any]) -> bool:
    """Return whether an operator makes NaN or infinities of finite inputs that golden does not make."""
    if row["verdict"] != "nonfinite":
        return False
    misplaced = {
        io: [each["error"] is not None and each["error"]["misplaced"] for each in row[io]]
        for io in ("inputs", "outputs")
    }
    return not any(misplaced["inputs"]) and any(misplaced["outputs"])
