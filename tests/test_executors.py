"""Work by threads, processes, Dask and MPI: the same results, errors and messages."""

import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from msdump import executors
from msdump.errors import NotAvailableError, ToolError
from msdump.executors import ExecutorChoice, map_items
from tests.communication import launching
from tests.judge import dumped
from tests.world import cli

MUCH = 1 << 40
LITTLE = 1
TWO = ExecutorChoice(2)
LOG = logging.getLogger("msdump.judge")


def placed(number):
    """Return a number, the process that gets it, and whether its first thread does."""
    return number, os.getpid(), threading.current_thread() is threading.main_thread()


def failing(number):
    """Refuse the number 3, and log each."""
    LOG.warning("looks at %d", number)
    if number == 3:
        raise ValueError(f"no {number}")
    return number


def killed(_number):
    """End the process as the system does where memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_of_thirteen(number):
    """End the process at one number."""
    return killed(number) if number == 13 else number


def slept(seconds):
    """Write a line to standard output and wait."""
    os.write(1, b"works\n")
    time.sleep(seconds)


@pytest.fixture(scope="module")
def cluster():
    """Start a scheduler with two worker processes."""
    distributed = pytest.importorskip("distributed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(launching.ROOT))
        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as started:
            yield started


@pytest.fixture(scope="module")
def scheduler(cluster):
    """Return the address of the scheduler."""
    return cluster.scheduler_address


@pytest.fixture(params=["processes", "dask"])
def choice(request, in_processes):
    """Return the choice of each executor of two workers, which get units of one item."""
    in_processes()
    return (
        TWO
        if request.param == "processes"
        else ExecutorChoice(scheduler=request.getfixturevalue("scheduler"))
    )


def results_of(work, items, executor=TWO, size=MUCH, **options):
    """Return all results of a map."""
    return list(map_items(work, items, size=lambda _: size, executor=executor, **options))


def test_results_have_the_order_of_the_items(choice):
    """Two processes work, and results come in the order of the items."""
    results = results_of(placed, range(60), choice)

    assert [*range(60)] == [number for number, _, _ in results]
    processes = {process for _, process, _ in results}
    assert 2 == len(processes)
    assert os.getpid() not in processes


def test_error_and_messages_come_in_their_place(choice, caplog):
    """A worker's error and messages are raised and logged here, behind the results before them."""
    seen, sizes = [], []

    with pytest.raises(ValueError, match="no 3"):
        seen += map_items(failing, range(10), size=lambda _: MUCH, executor=choice, progress=sizes.append)

    assert ["looks at 0", "looks at 1", "looks at 2", "looks at 3"] == caplog.messages
    assert [MUCH] * 3 == sizes


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_before_an_error_in_a_unit(caplog, in_processes, jobs):
    """A unit that fails at its third item gives the results and messages of the first two."""
    in_processes(executors.ITEM_COST * 8)
    results = map_items(failing, [1, 2, 3, 4], size=lambda _: LITTLE, executor=ExecutorChoice(jobs))

    assert [1, 2] == [next(results), next(results)]
    assert ["looks at 1", "looks at 2"] == caplog.messages
    with pytest.raises(ValueError, match="no 3"):
        next(results)
    assert ["looks at 1", "looks at 2", "looks at 3"] == caplog.messages


def test_working_directory_is_that_of_the_caller(choice, tmp_path, monkeypatch):
    """Paths may be relative."""
    monkeypatch.chdir(tmp_path)

    assert [tmp_path] == results_of(Path.absolute, [Path()], choice)


def test_items_are_found_while_others_are_worked_on(choice):
    """Items are taken from their iterator only as far as the workers need them."""
    taken = []

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    results = map_items(placed, items(), size=lambda _: MUCH, executor=choice)
    next(results)
    results.close()

    assert 2 <= len(taken) <= 40


def test_a_process_that_is_killed_is_an_error(in_processes):
    """A process that the system kills ends the work with an error that names a unit and the remedy."""
    in_processes(40 * executors.ITEM_COST)
    results = map_items(killed_of_thirteen, range(40), size=lambda _: 0, executor=TWO, name="item {}".format)

    with pytest.raises(ToolError, match=r"a process was killed .* on one of 40 .*; try --jobs 1"):
        next(results)


MAPPING = """
import _thread, multiprocessing, os, signal, sys
from msdump.executors import ExecutorChoice, map_items
from tests.test_executors import MUCH, slept

if __name__ == "__main__":
    method, moment, end = sys.argv[1:]
    if end == "ignored Ctrl-C":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    multiprocessing.set_start_method(method)
    gate = os.dup(0)  # processes that start wait here until the test closes it
    if moment == "starts":
        os.register_at_fork(after_in_child=lambda: (os.write(1, b"starts\\n"), os.read(gate, 1)))
    if moment == "has started one":  # a thread of a library gets the signal, whatever this one blocks
        start = multiprocessing.process.BaseProcess.start

        def start_interrupted(process):
            start(process)
            os.write(1, b"has started one\\n")
            _thread.interrupt_main()

        multiprocessing.process.BaseProcess.start = start_interrupted
    seconds = 600 if moment == "works" else 0
    try:
        list(map_items(slept, [seconds], size=lambda _: MUCH, executor=ExecutorChoice(2)))
    except KeyboardInterrupt:
        sys.exit(130)
"""


ENDS = {
    **{number.name: (os.kill, number, -number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)},
    "Ctrl-C": (os.killpg, signal.SIGINT, 130),
    "ignored Ctrl-C": (os.killpg, signal.SIGINT, 0),
    "Ctrl-C in a thread": (lambda *_: None, signal.SIGINT, 130),
}


@pytest.mark.parametrize(
    ("method", "moment", "end"),
    [
        *(("fork", "works", end) for end in list(ENDS)[:4]),
        ("fork", "starts", "ignored Ctrl-C"),
        ("fork", "has started one", "Ctrl-C in a thread"),
        *(
            (*how, end)
            for how in (("fork", "starts"), ("forkserver", "works"))
            for end in ("SIGKILL", "Ctrl-C")
        ),
    ],
)
def test_processes_end_with_their_parent(tmp_path, method, moment, end):
    """A signal to the parent ends its workers, too, without a traceback: no process holds the pipes then."""
    send, number, code = ENDS[end]
    (tmp_path / "mapping.py").write_text(MAPPING)
    with subprocess.Popen(
        [sys.executable, "mapping.py", method, moment, end],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(launching.ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        try:
            assert f"{moment}\n" == parent.stdout.readline()
            send(parent.pid, number)
            _, errors = parent.communicate(timeout=60)
        except BaseException:
            os.killpg(parent.pid, signal.SIGKILL)
            raise

    assert code == parent.returncode
    assert "Traceback" not in errors  # Python's resource tracker of a fork server warns of semaphores


@pytest.mark.parametrize(("size", "jobs"), [(LITTLE, 2), (MUCH, 1)], ids=["little work", "one job"])
def test_little_work_stays_in_this_process(size, jobs):
    """No process is started if it would cost more than it saves, or for one job."""
    here = os.getpid(), True

    assert [(1, *here), (2, *here)] == results_of(placed, [1, 2], ExecutorChoice(jobs), size)


@pytest.mark.parametrize(
    ("size", "jobs", "in_threads", "expected"),
    [
        pytest.param(MUCH, 2, True, (True, False), id="threads"),
        pytest.param(executors.LARGE, 2, True, (True, False), id="just large enough"),
        pytest.param(executors.LARGE - 1, 2, True, (False, True), id="small items go to processes"),
        pytest.param(MUCH, 1, True, (True, True), id="one job"),
        pytest.param(MUCH, 2, False, (False, True), id="work that holds the interpreter"),
    ],
)
def test_threads_work_on_large_items(size, jobs, in_threads, expected):
    """Work that may be done by threads is, for large items; results keep the order of the items."""
    sizes = []

    results = results_of(
        placed, range(30), ExecutorChoice(jobs), size, in_threads=in_threads, progress=sizes.append
    )

    assert [*range(30)] == [number for number, _, _ in results]
    assert {expected} == {(process == os.getpid(), is_main) for _, process, is_main in results}
    assert [size] * 30 == sizes


def test_error_in_a_thread_comes_in_its_place():
    """An error in a thread is raised here, behind the results before it; later items are left."""
    seen = []

    with pytest.raises(ValueError, match="no 3"):
        seen.extend(map_items(failing, range(10), size=lambda _: MUCH, executor=TWO, in_threads=True))

    assert [0, 1, 2] == seen


def test_executors_that_exclude_each_other():
    """Only one executor can be chosen."""
    with pytest.raises(ToolError, match="--jobs and --scheduler exclude each other; give one of them"):
        ExecutorChoice(2, "tcp://there:1").check()


def test_path_that_workers_do_not_see(scheduler, tmp_path):
    """Workers that do not see the dump are refused."""
    with pytest.raises(
        ToolError, match=f"does not see {tmp_path}/none; the workers must share this file system"
    ):
        results_of(placed, [1], ExecutorChoice(scheduler=scheduler), paths=(f"{tmp_path}/none",))


def test_scheduler_without_workers(monkeypatch):
    """A scheduler that has no worker is an error after a while."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "WAITING", 0.2)
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as alone:
        address = alone.scheduler_address
        with pytest.raises(
            ToolError,
            match=f"{address}: the scheduler has had no worker for 0.2 s; start one with dask worker",
        ):
            results_of(placed, [1], ExecutorChoice(scheduler=address))


def test_scheduler_that_is_not_there(monkeypatch):
    """A scheduler that does not answer is an error that names it."""
    pytest.importorskip("distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(executors, "CONNECTING", 0.5)

    with pytest.raises(
        ToolError, match=f"--scheduler tcp://127.0.0.1:{port}: the Dask scheduler does not answer"
    ):
        results_of(placed, [1], ExecutorChoice(scheduler=f"tcp://127.0.0.1:{port}"))


@pytest.mark.parametrize("address", ["there", "tcp://there", "udp://there:1", "there:"])
def test_address_that_is_none(address):
    """A text that is no address is refused at once."""
    pytest.importorskip("distributed")
    with pytest.raises(ToolError, match=f"--scheduler {address}: not an address of a Dask scheduler"):
        results_of(placed, [1], ExecutorChoice(scheduler=address))


def test_without_dask(monkeypatch):
    """Without the package the extra is named."""
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(NotAvailableError, match=r"pip install 'msdump\[cluster\]'"):
        results_of(placed, [1], ExecutorChoice(scheduler="tcp://127.0.0.1:1"))


START = 1612439563338030
RANKS, ITERATIONS, OPERATORS = 3, 2, 4


def dump(root, noise=0.0):
    """Write a dump of some ranks and iterations: tensors alone, one of them torn."""
    rng = np.random.default_rng(0)
    for rank in range(RANKS):
        for iteration in range(ITERATIONS):
            folder = root / f"rank_{rank}/Net/0/{iteration}"
            folder.mkdir(parents=True)
            for number in range(OPERATORS):
                array = rng.normal(0, 1, (5, 7)).astype("f4") + np.float32(noise * (number > 1))
                name = f"ReLU.Default_ReLU-op{number}.{number}.0.{START + number}.output.0.DefaultFormat"
                np.save(folder / f"{name}.float32.npy", array)
            weight = np.full(3, rank == 1, "f4")
            np.save(folder / f"Parameter.fc.weight.0.0.{START}.output.0.DefaultFormat.float32.npy", weight)
    torn = next((root / "rank_1/Net/0/1").glob("*op2*"))
    torn.write_bytes(torn.read_bytes()[:-9])
    (root / "rank_2/Net/0/0/what.is.this").write_text("foreign")


@pytest.fixture
def dumps(tmp_path):
    """Write two dumps, a rule file and dump files."""
    dump(tmp_path / "mine", 0.01)
    dump(tmp_path / "golden")
    rules = [
        {"name": "large", "condition": "tensor_too_large", "max_gt": 1.5},
        {"name": "stuck", "condition": "tensor_not_changed", "rtol": 0.1},
        {"name": "apart", "condition": "ranks_disagree"},
    ]
    (tmp_path / "rules.json").write_text(json.dumps({"rules": rules}))
    (tmp_path / "alone.json").write_text(json.dumps({"rules": rules[::2]}))
    for number in range(5):
        tensor = dumped.tensor(dumped.counted((number + 1,)))
        dumped.file(tmp_path / "files" / f"Add.op{number}.0.0.{START + number}", tensor)
    (tmp_path / "files" / "broken").write_text("no dump")
    return tmp_path


COMMANDS = {
    "compare": (1, "verdict   own", "compare", "mine", "golden", "-out", "out"),
    "watch": (1, "apart: iteration 0, rank 1: ", "watch", "mine", "--rules", "rules.json"),
    "watch alone": (1, "apart: iteration 0, rank 1: ", "watch", "mine", "--rules", "alone.json"),
    "watch --json": (1, '"count": ', "watch", "mine", "--rules", "rules.json", "--json"),
    "baseline": (1, "kept      29 tensors of 6 folders", "baseline", "mine", "-out", "out"),
    "query": (1, "ReLU-op3", "query", "mine", "--measure", "--csv", "select * from statistics order by all"),
    "report": (1, "Default_ReLU-op3", "report", "mine", "golden", "--csv"),
    "report, its page": (
        1,
        "Default_ReLU-op2 (ReLU) in iteration 0: own",
        "report",
        "mine",
        "golden",
        "-o",
        "out/report.html",
    ),
    "convert": (1, "converted 5 dump files to 5 files", "convert", "files", "-out", "out"),
}
"""Exit code, something of what is printed, and arguments of commands that read tensors."""


def state(folder):
    """Return the files of a result by their names, without the time that tables and pages were made at."""
    files = [path for path in sorted((folder / "out").rglob("*")) if path.is_file()]
    return [(path.name[:8], re.sub(rb"[0-9:]{8} UTC", b"", path.read_bytes())) for path in files]


def outcome(folder, arguments, monkeypatch):
    """Run a command; return its output on each stream, its exit code and its files."""
    monkeypatch.chdir(folder)
    shutil.rmtree(folder / "out", ignore_errors=True)
    done = cli(*arguments)
    printed = (*done.stdout.splitlines(), *done.stderr.splitlines())
    lines = [line for line in printed if not line.startswith("written")]
    return lines, done.exit_code, state(folder)


@pytest.mark.parametrize(
    ("code", "told", "arguments"),
    [(code, told, arguments) for code, told, *arguments in COMMANDS.values()],
    ids=COMMANDS,
)
def test_executors_agree(dumps, code, told, arguments, monkeypatch, scheduler, in_processes):
    """A command prints and writes the same with every executor."""
    in_processes()
    alone = outcome(dumps, (*arguments, "--jobs", "1"), monkeypatch)
    assert code == alone[1]
    assert told in "\n".join(alone[0])

    assert alone == outcome(dumps, (*arguments, "--jobs", "2"), monkeypatch)
    assert alone == outcome(dumps, (*arguments, "--scheduler", scheduler), monkeypatch)


@launching.needs_mpi
@pytest.mark.parametrize("command", ["compare", "watch", "report, its page", "convert"])
def test_ranks_of_mpi_agree(dumps, command, monkeypatch):
    """The same under mpirun, where rank 1 works for rank 0."""
    _, _, *arguments = COMMANDS[command]
    alone = outcome(dumps, (*arguments, "--jobs", "1"), monkeypatch)
    shutil.rmtree(dumps / "out", ignore_errors=True)

    program = (sys.executable, "-m", "mpi4py.futures", "-m", "msdump", *arguments)
    code, _, err = launching.Launch([launching.MPIRUN, "-n", "2", *program], dumps).end()

    assert alone[1] == code, err
    assert alone[2] == state(dumps)


@launching.needs_mpi
def test_ranks_of_mpi_do_the_work(tmp_path):
    """Rank 1 gets the items, and neither another process nor rank 0."""
    code = (
        "import os\n"
        "from mpi4py import MPI\n"
        "from msdump import executors\n"
        "from tests import test_executors\n"
        "if __name__ == '__main__':\n"
        "    done = executors.map_items(test_executors.placed, range(5), size=lambda _: 1)\n"
        "    numbers, processes, _ = zip(*done)\n"
        "    print(executors._is_mpi_started(), numbers, len({*processes} - {os.getpid()}))\n"
    )
    (tmp_path / "program.py").write_text(code)
    program = (sys.executable, "-m", "mpi4py.futures", "program.py")

    _, out, err = launching.Launch([launching.MPIRUN, "-n", "2", *program], tmp_path).end()

    assert "True (0, 1, 2, 3, 4) 1" == out.strip(), err


@launching.needs_mpi
def test_jobs_under_mpi(tmp_path):
    """Under MPI, here without mpirun, which may hang after aborts, --jobs is refused."""
    program = (sys.executable, "-m", "mpi4py.futures", "-m", "msdump", "compare", "a", "b", "-j", "2")

    code, _, err = launching.Launch(program, tmp_path).end()

    assert 2 == code
    assert "--jobs and mpi4py.futures exclude each other; give one of them" in err


def test_unit_that_kills_workers_of_dask(cluster, scheduler, monkeypatch):
    """Dask gives a unit up at its own limit, here none: workers may never return. The error names it."""
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)

    with pytest.raises(ToolError, match=r"Dask gave up item 1: .* 1 different workers.*allowed-failures"):
        results_of(killed, [1], ExecutorChoice(scheduler=scheduler), name=lambda number: f"item {number}")
