"""The goals: one literal table of measurements and their limits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

Networks = tuple[tuple[str, int], ...]
"""Names with batch sizes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement of several networks and thread counts that has one limit.

    Attributes:
        name: Name of the row on the command line; rows with several limits share it.
        title: The measured quantity.
        job: ``module.function`` of ``scripts/bench/jobs``, ``:`` and its argument where it has one.
        networks: Networks to measure on; ``NONE`` where it needs none.
        threads: Of one operator: 1 is CPU time of the calling thread where only that one works.
        limit: The figure must not be above it.
        is_floor: The figure must not be below the limit instead.
    """

    name: str
    title: str
    job: str
    networks: Networks
    threads: tuple[int, ...]
    limit: float
    is_floor: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the measured table: a row on one network with one number of threads."""

    row: Row
    network: str
    batch: int
    threads: int

    @property
    def on(self) -> str:
        """The network with its batch size; "" where the row needs none."""
        return f"{self.network} b{self.batch}" if self.network else ""

    def __str__(self) -> str:
        """Name the goal in one line."""
        return ", ".join(
            filter(None, (self.row.title, self.on, f"{self.threads} thread{'s' * (self.threads > 1)}"))
        )

    def holds(self, value: float) -> bool:
        """Tell whether a figure reaches the goal."""
        return value >= self.row.limit if self.row.is_floor else value <= self.row.limit


NONE: Final[Networks] = (("", 1),)
RESNET: Final[Networks] = (("resnet50", 1), ("resnet50", 8))
RESNET_B8: Final[Networks] = (("resnet50", 8),)
LANGUAGE: Final[Networks] = (("bert", 1), ("gpt2", 1))
MINDIR: Final[Networks] = (("resnet50", 1), ("decoder", 1))
"""Networks that ``networks/mindir.py`` writes as MindIR files, too."""
LLAMA: Final[Networks] = (("llama", 1),)
LLAMAS: Final[Networks] = (*LLAMA, ("llama-int4", 1))
LARGE: Final[Networks] = (*RESNET, *LANGUAGE)
MOBILE: Final[Networks] = (("mobilenetv2", 1),)
LENET: Final[Networks] = (("lenet", 1),)
WATCHED: Final[Networks] = (("resnet50", 8), ("bert", 1), ("mobilenetv2", 1))
LOOP: Final[Networks] = (("loop1000", 1),)
KILOBYTES: Final[Networks] = (("kilobytes2000", 1),)
NODES: Final[Networks] = (("nodes100000", 1),)

BOTH: Final = (1, 2)
TWO: Final = (2,)
ONE: Final = (1,)

ROWS: Final = (
    Row("run", "run / whole graph, not optimised", "running.of_whole", LARGE, BOTH, 1.03),
    Row("run", "run / whole graph, not optimised", "running.of_whole", MOBILE, BOTH, 1.08),
    Row("run", "run / whole graph, not optimised", "running.of_whole", LENET, BOTH, 2.0),
    Row("run", "run of a .mindir / of the .onnx", "running.of_onnx", MINDIR, BOTH, 1.05),
    Row("idle", "idle configuration / whole graph, not optimised", "running.idle_of_whole",
        LARGE, BOTH, 1.03),
    Row("idle", "idle configuration / whole graph, not optimised", "running.idle_of_whole",
        MOBILE, BOTH, 1.08),
    Row("idle-run", "idle configuration / none", "running.idle_of_run", (*LARGE, *MOBILE), TWO, 1.02),
    Row("filtered-all", "1 % dumped, `optimize: all` / whole graph, optimised", "running.filtered:all",
        (*LARGE, *MOBILE), BOTH, 1.15),
    Row("filtered", "1 % dumped / whole graph, not optimised", "running.filtered:none",
        (*LARGE, *MOBILE), BOTH, 1.10),
    Row("loop", "Loop of 1000 passes, 5 operators / onnxruntime's", "running.of_whole", LOOP, BOTH, 6),
    Row("decode", "decode step, Ascend O0 / CPU", "running.ascend_of_cpu", LLAMAS, BOTH, 1.3),
    Row("sync", "synchronous dump / all outputs + np.save", "dumping.of_saved",
        (*LARGE, *MOBILE), BOTH, 0.95),
    Row("sync", "synchronous dump of a .mindir / of the .onnx", "dumping.of_onnx", MINDIR, BOTH, 1.2),
    Row("sync-inputs", "dump of inputs and outputs / all of them + np.save", "dumping.with_inputs",
        (("resnet50", 1), *MOBILE), BOTH, 0.95),
    Row("async", "asynchronous dump / slower of run and os.write", "dumping.asynchronous_parts",
        (*RESNET_B8, *LANGUAGE, *MOBILE), BOTH, 1.15),
    Row("async-sync", "asynchronous / synchronous dump", "dumping.asynchronous",
        (*RESNET_B8, *LANGUAGE), BOTH, 0.85),
    Row("async-memory", "asynchronous dump: extra memory, MiB", "dumping.asynchronous_memory",
        RESNET_B8, TWO, 320),
    Row("trans-flag", "device's formats / host's, synchronous dump", "dumping.device_formats",
        (*RESNET_B8, ("bert", 1), *MOBILE), BOTH, 1.2),
    Row("files", "files of 1 KB a second", "dumping.files_a_second", KILOBYTES, TWO, 25_000, is_floor=True),
    Row("dump-memory", "peak memory of dump / all outputs + np.save", "dumping.memory", RESNET_B8, TWO, 0.33),
    Row("steps-memory", "peak memory, one step of three dumped / all of them", "dumping.memory_of_all:turns",
        LLAMA, TWO, 1.05),
    Row("steps-memory", "peak memory, no step dumped / all of them", "dumping.memory_of_all:idle",
        LLAMA, TWO, 1.05),
    Row("dump-o2", "O2 dump files / O0 .npy, float32", "dumping.compiled:must_keep_origin_dtype",
        RESNET_B8, TWO, 1.1),
    Row("dump-o2", "O2 dump files / O0 .npy, float16", "dumping.compiled:allow_fp32_to_fp16",
        RESNET_B8, TWO, 1.1),
    Row("statistics", "default statistics / run", "looking.statistics:default",
        (*RESNET_B8, *LANGUAGE, *MOBILE), BOTH, 1.12),
    Row("statistics-all", "all statistics but hashes / run", "looking.statistics:all but hashes",
        (*RESNET_B8, *LANGUAGE), BOTH, 1.25),
    Row("statistics-all", "all statistics but hashes / run", "looking.statistics:all but hashes",
        MOBILE, BOTH, 1.35),
    Row("statistics-pass", "statistics of 1e7 float32 / np.max of float32", "looking.elements:float32",
        NONE, ONE, 2.2),
    Row("statistics-pass", "statistics of 1e7 float16 / np.max of float32", "looking.elements:float16",
        NONE, ONE, 2.2),
    Row("statistics-pass", "statistics of 1e7 bfloat16 / np.max of float32", "looking.elements:bfloat16",
        NONE, ONE, 3.3),
    Row("md5", "time that md5 adds to a run / hashlib, two threads", "looking.hashes",
        (*RESNET_B8, *LANGUAGE), TWO, 1.15),
    Row("watch", "watch rules / run", "looking.rules:run", WATCHED, TWO, 1.2),
    Row("watch", "watch rules / default statistics", "looking.rules:statistics", WATCHED, TWO, 1.1),
    Row("round", "float32 to float16 / copy", "looking.rounding", NONE, TWO, 1.5),
    Row("layout", "NCHW to NC1HWC0 / copy", "looking.layout", NONE, TWO, 1.3),
    Row("load", "load and first run / onnxruntime's, time", "loading.seconds",
        (*LANGUAGE, *LLAMAS), TWO, 1.3),
    Row("load", "load and first run / onnxruntime's, memory", "loading.memory",
        (*LANGUAGE, *LLAMAS), TWO, 1.2),
    Row("load", "load and first run of a .mindir / of the .onnx", "loading.of_onnx", MINDIR, BOTH, 1.2),
    Row("nodes", "100,000 nodes: load and run / onnxruntime's, time", "loading.seconds", NODES, TWO, 3),
    Row("nodes", "100,000 nodes: load and run / onnxruntime's, memory", "loading.memory", NODES, TWO, 2),
    Row("commands", "`import msdump`, CPU ms", "tools.importing", NONE, ONE, 20),
    Row("commands", "`msdump --help`, CPU ms", "tools.helping", NONE, ONE, 80),
    Row("commands", "`msdump check` of a small model, CPU ms", "tools.checking", NONE, ONE, 300),
    Row("convert", "convert to .npy / cp, 500 MB", "tools.convert", NONE, TWO, 1.3),
    Row("convert", "convert -f NCHW / cp, 500 MB", "tools.convert:NCHW", NONE, TWO, 1.8),
    Row("compare", "compare of .npy files / reading both", "tools.compare:npy", NONE, TWO, 3.5),
    Row("compare", "compare of dump files / reading both", "tools.compare:bin", NONE, TWO, 3.5),
    Row("compare", "compare of a tree of msprobe / reading both", "tools.compare_tree", NONE, TWO, 4),
    Row("cluster", "compare of 8 ranks, two processes / one", "tools.compare_ranks", NONE, ONE, 0.6),
    Row("cluster", "compare of 8 ranks, two Dask workers / two processes", "comparing.dask", NONE, ONE, 1.10),
    Row("rerun", "compare --model / compare + run", "comparing.rerun", (*MOBILE, ("bert", 1)), TWO, 1.3),
    Row("diff", "diff / both runs", "comparing.diff", (*RESNET, ("bert", 1)), TWO, 1.35),
    Row("diff", "diff: peak memory / one run's", "comparing.diff_memory", (*RESNET, ("bert", 1)), TWO, 1.6),
    Row("diff", "diff --golden torch: / exports and runs", "comparing.of_module", NONE, ONE, 1.3),
    Row("advise", "diff --advise, seconds", "tools.advise_seconds", (("bert", 1),), TWO, 60),
    Row("advise", "diff --advise, peak memory in GB", "tools.advise_gigabytes", (("bert", 1),), TWO, 0.7),
    Row("reader", "open_dump of 100,000 files, CPU seconds", "tools.opening", NONE, ONE, 0.5),
    Row("query", "first question, 1,000,000 rows of statistic.csv, s", "tools.query:csv", NONE, TWO, 0.8),
    Row("query", "first question, 1,000,000 rows of Parquet, s", "tools.query:parquet", NONE, TWO, 0.03),
    Row("report", "report of 5,000 operators x 20 iterations, s", "tools.report_seconds", NONE, ONE, 3),
    Row("report", "report of 5,000 operators x 20 iterations, MiB", "tools.report_memory", NONE, ONE, 400),
    Row("report", "page of 5,000 operators x 20 iterations, MB", "tools.report_megabytes", NONE, ONE, 2),
    Row("report", "page in chromium: first paint, s", "tools.first_paint", NONE, ONE, 1),
    Row("report", "page in chromium: sorting, s", "tools.sorting", NONE, ONE, 0.2),
    Row("training", "step / whole graph", "training.of_whole", (("lenet", 8),), BOTH, 1.3),
    Row("training", "step / whole graph", "training.of_whole", RESNET_B8, BOTH, 1.08),
    Row("training", "step / PyTorch", "training.of_torch", (("lenet", 8), ("resnet50", 8)), BOTH, 1.5),
    Row("training", "making the step graph, CPU seconds", "training.making",
        (*RESNET_B8, ("bert", 1)), ONE, 5),
    Row("ranks", "AllReduce of 100 MB / mpi4py's own", "ranks.all_reduce", NONE, ONE, 1.5),
    Row("ranks", "dump of two ranks, per byte / of one", "ranks.dumping", (("resnet50", 1),), ONE, 1.2),
)  # fmt: skip


def goals(rows: Sequence[Row] = ROWS) -> Iterator[Goal]:
    """Yield the goals in the order of the table."""
    for row in rows:
        for network, batch in row.networks:
            for threads in row.threads:
                yield Goal(row, network, batch, threads)


HOW_TO_CHOOSE: Final = (
    "what is measured: commas between alternatives, each of words that all hold: names of rows or beginnings "
    "of words in a line, as in 'run lenet,sync'"
)


def chosen(only: str, rows: Sequence[Row] = ROWS) -> list[Goal]:
    """Return the goals that a text chooses (``HOW_TO_CHOOSE``); all for "".

    Raises:
        ValueError: An alternative chooses nothing.
    """
    everything = list(goals(rows))
    if not only:
        return everything
    names = dict.fromkeys(row.name for row in rows)
    picked = set()
    for alternative in only.split(","):
        words = alternative.split()
        matches = [goal for goal in everything if all(_matches(goal, word, names) for word in words)]
        if not words or not matches:
            raise ValueError(f"{alternative!r} chooses no goal: names are {', '.join(names)}")
        picked.update(matches)
    return [goal for goal in everything if goal in picked]


def _matches(goal: Goal, word: str, names: Collection[str]) -> bool:
    if word in names:
        return goal.row.name == word
    return re.search(rf"(?<!\w){re.escape(word)}", str(goal)) is not None
