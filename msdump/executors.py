"""Map a function over many items with threads, processes, a Dask cluster or the ranks of MPI.

Results, errors and messages are the same, in the order of the items, with every executor.
"""

from __future__ import annotations

import concurrent.futures as pools  # imports its executors when they are used
import contextlib
import functools
import importlib
import itertools
import logging
import os
import pickle
import re
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from msdump.errors import NotAvailableError, ToolError
from msdump.return_codes import ReturnCode
from msdump.threads import cores

__all__ = ["ExecutorChoice", "directory_size", "file_size", "map_items"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Unit = list[tuple[_Item, int]]  # items that one worker gets together, each with its bytes
_Messages = list[tuple[str, int, str]]  # logger, level and text of each
_Outcome = list[
    tuple[Any, _Messages, Exception | None]
]  # result, messages and error of each item, up to the first that failed

WORTH_IT: Final = 32 << 20  # cost of work from which on processes take less time to start than they save
ITEM_COST: Final = 1 << 17  # fixed cost of an item, as bytes that could be read in that time
UNIT_COST: Final = 8 << 20  # cost of a unit, the items that a worker gets and returns together: 10 to 200 ms
LARGE: Final = 4 << 20  # mean bytes of items from which on threads lose little to the interpreter's lock
CONNECTING: Final = 10  # seconds that a Dask scheduler may take to answer
WAITING: Final = 60  # seconds that a Dask scheduler may lack a worker, which may be starting or restarting

_AHEAD: Final = 12  # units for each worker that are given out before the first result is taken
_ADDRESS: Final = re.compile(r"((tcp|tls|ucx|ws|wss)://)?[^/\s]+:[0-9]{1,5}")
_LOG: Final = logging.getLogger("msdump")


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """Executor that does the work of a command; the ranks of MPI where ``mpi4py.futures`` started them."""

    jobs: int = 0  # number of processes, 0: one for each core
    scheduler: str = ""  # address of a Dask scheduler, "": none

    def check(self) -> None:
        """Raise ToolError if the choices exclude each other; give one of them."""
        choices = {"--jobs": self.jobs, "--scheduler": self.scheduler, "mpi4py.futures": _is_mpi_started()}
        given = [name for name, is_given in choices.items() if is_given]
        if len(given) > 1:
            raise ToolError(
                ReturnCode.PARAMETER, f"{' and '.join(given)} exclude each other; give one of them"
            )


def map_items(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    size: Callable[[_Item], int],
    executor: ExecutorChoice = ExecutorChoice(),
    name: Callable[[_Item], str] = str,
    paths: Iterable[str] = (),
    progress: Callable[[int], object] = lambda _: None,
    in_threads: bool = False,
) -> Iterator[_Result]:
    """Yield the result of a function for each item, in the order of the items.

    Args:
        work: A function of a module, or a ``functools.partial`` of one; its arguments and results travel
            between processes. An exception that it raises is raised here.
        items: The arguments of the calls, which may be found while others are worked on.
        size: Returns the bytes that the work on an item reads; with few in all, this process does the work.
        executor: Executor that is used if the work is worth it.
        name: Returns the name of an item in messages.
        paths: Files and directories that workers on other machines must see.
        progress: Called with the size of each item when its result is taken.
        in_threads: Whether the work on a large item is mostly that of numpy and the system, so that threads
            do it as fast as processes, without their start and their imports; it must log nothing, as
            threads would not keep the order.

    Raises:
        ToolError: A worker died or cannot load msdump, or there is none.
    """
    sized = ((item, size(item)) for item in items)
    first = list(_first_items(sized))
    if not first:
        return
    everything = itertools.chain(first, sized)
    opened = _open(executor, first, in_threads=in_threads)
    if opened is None:
        for item, bytes_read in everything:
            result = work(item)
            progress(bytes_read)
            yield result
        return
    try:
        for unit, outcome in _outcomes(
            work, _units(everything, opened.unit_cost), opened, name, tuple(paths)
        ):
            for (_, bytes_read), (result, messages, error) in zip(unit, outcome, strict=False):
                for logger, level, text in messages:
                    logging.getLogger(logger).log(level, "%s", text)
                if error is not None:
                    raise error
                progress(bytes_read)
                yield result
    finally:  # an error or Ctrl-C must not wait for units that are no longer needed
        opened.close()


def _cost(unit: _Unit[Any]) -> int:
    return sum(size for _, size in unit) + len(unit) * ITEM_COST


def _first_items(sized: Iterator[tuple[_Item, int]]) -> Iterator[tuple[_Item, int]]:
    """Yield items until their work is worth other processes."""
    cost = 0
    for each in sized:
        yield each
        cost += _cost([each])
        if cost >= WORTH_IT:
            return


@dataclass(frozen=True)
class _Opened:
    """An executor of ``concurrent.futures`` with ``count`` workers, and how it is closed."""

    pool: pools.Executor
    count: int
    close: Callable[[], object]
    are_processes: bool = True
    is_remote: bool = False
    unit_cost: int = field(default_factory=lambda: UNIT_COST)


def _open(choice: ExecutorChoice, first: _Unit[Any], *, in_threads: bool) -> _Opened | None:
    """Open the chosen executor, None if the first items are so little work that this process does it."""
    if choice.scheduler:
        client = _connect(choice.scheduler)
        count = max(1, sum(client.ncores().values()))
        return _Opened(client.get_executor(pure=False), count, client.close, is_remote=True)
    if _is_mpi_started():
        ranks = importlib.import_module("mpi4py.futures").MPIPoolExecutor()  # if one dies, MPI ends all
        return _Opened(ranks, ranks.num_workers, _closing(ranks), is_remote=True)
    count = choice.jobs or cores()
    if count == 1 or _cost(first) < WORTH_IT:
        return None
    if in_threads and sum(size for _, size in first) >= LARGE * len(first):
        threads = pools.ThreadPoolExecutor(count)
        return _Opened(threads, count, _closing(threads), are_processes=False, unit_cost=0)
    level = _LOG.getEffectiveLevel()
    processes = pools.ProcessPoolExecutor(count, initializer=_begin, initargs=(level,))
    return _Opened(processes, count, _closing(processes))


def _closing(pool: pools.Executor) -> Callable[[], object]:
    return functools.partial(pool.shutdown, cancel_futures=True)


def _connect(address: str) -> Any:
    """Return a client of a Dask scheduler that has a worker."""
    place = f"--scheduler {address}"
    try:
        distributed: Any = importlib.import_module("distributed")
    except ModuleNotFoundError as error:
        if error.name != "distributed":
            raise
        fault = "--scheduler: distributed is not installed; install it, or msdump with its extra"
        raise NotAvailableError(f"{fault}: pip install 'msdump[cluster]'") from error
    if not _ADDRESS.fullmatch(address):  # Dask's client raises an error, too, and then hangs for 20 s
        fault = "not an address of a Dask scheduler; write one such as tcp://node7:8786"
        raise ToolError(ReturnCode.PARAMETER, f"{place}: {fault}")
    # errors are raised here in one line, and futures that are no longer needed are none
    for logger in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(address, timeout=CONNECTING, set_as_default=False)
    except (OSError, ValueError) as error:
        fault = f"{place}: the Dask scheduler does not answer: {error}"
        raise ToolError(ReturnCode.PARAMETER, fault) from error
    try:
        client.wait_for_workers(1, timeout=WAITING)
    except TimeoutError as error:
        client.close()
        fault = f"the scheduler has had no worker for {WAITING:g} s; start one with dask worker"
        raise ToolError(ReturnCode.PARAMETER, f"{place}: {fault}") from error
    return client


def file_size(path: str) -> int:
    """Return the bytes of a file, 0 on an error, which the reader of the file will meet and report."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_size  # noqa: PTH116 - of many files
    return 0


def directory_size(path: str) -> int:
    """Return the bytes of the files in a directory, without subdirectories; 0 where it cannot be listed."""
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        return sum(file_size(entry.path) for entry in entries)
    return 0


def _units(sized: Iterable[tuple[_Item, int]], most: int) -> Iterator[_Unit[_Item]]:
    """Group consecutive items into units of at least the cost ``most``; the last one may cost less."""
    unit: list[tuple[_Item, int]] = []
    for each in sized:
        unit.append(each)
        if _cost(unit) >= most:
            yield unit
            unit = []
    if unit:
        yield unit


def _outcomes(
    work: Callable[[_Item], Any],
    units: Iterator[_Unit[_Item]],
    opened: _Opened,
    name: Callable[[_Item], str],
    paths: tuple[str, ...],
) -> Iterator[tuple[_Unit[_Item], _Outcome]]:
    """Yield units with their outcomes, in order; further units are submitted ahead."""
    origin = _Origin(str(Path.cwd()), paths, _LOG.getEffectiveLevel()) if opened.is_remote else None
    given: deque[tuple[_Unit[_Item], pools.Future[_Outcome]]] = deque()
    while True:
        for unit in itertools.islice(units, opened.count * _AHEAD - len(given)):
            run = functools.partial(_run, work, [item for item, _ in unit], opened.are_processes)
            if origin is not None:
                run = functools.partial(_run_remote, pickle.dumps(run, pickle.HIGHEST_PROTOCOL), origin)
            with _starting_processes():
                given.append((unit, opened.pool.submit(run)))
        if not given:
            return
        unit, future = given.popleft()
        try:
            outcome = future.result()
        except Exception as error:
            first, last = name(unit[0][0]), name(unit[-1][0])
            some = first if len(unit) == 1 else f"one of {len(unit)} from {first} to {last}"
            raise _explained(error, some) from error
        yield unit, outcome


@contextlib.contextmanager
def _starting_processes() -> Iterator[None]:
    """Let Ctrl-C wait until the pool knows its processes: it would never end one that it does not know."""
    interrupts: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    # a thread of a library, which blocks nothing, would make Python interrupt this one
    defers = callable(handler) and threading.current_thread() is threading.main_thread()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process that starts inherits it
    if defers:
        signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        if defers:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if interrupts:
            signal.raise_signal(signal.SIGINT)


def _explained(error: Exception, unit: str) -> Exception:
    """Return the error to raise if the worker of a unit failed, not the work itself."""
    if isinstance(error, pools.BrokenExecutor):  # mostly killed by the kernel when memory ran out
        fault = f"a process was killed while it worked on {unit} or on a unit behind it"
        return ToolError(ReturnCode.UNKNOWN, f"{fault}, possibly for lack of memory; try --jobs 1")
    if type(error).__name__ == "KilledWorker":
        reason = str(error).partition(". ")[0]
        hint = "possibly for lack of memory; the limit is Dask's distributed.scheduler.allowed-failures"
        return ToolError(ReturnCode.UNKNOWN, f"Dask gave up {unit}: {reason}; {hint}")
    if isinstance(error, pools.CancelledError):
        return ToolError(ReturnCode.UNKNOWN, "the scheduler has ended, or dropped the work")
    if isinstance(error, (ImportError, AttributeError)):
        fault = f"a worker cannot load msdump: {error}; install the same version there"
        return ToolError(ReturnCode.UNSUPPORTED, fault)
    return error


def _is_mpi_started() -> bool:
    """Return whether ``mpirun -n 16 python -m mpi4py.futures`` started this program in one of the ranks."""
    return getattr(sys.modules.get("mpi4py.futures._core"), "SharedPool", None) is not None


def _begin(level: int) -> None:
    """Prepare a process: it logs through its parent and ends with it, or by Ctrl-C as its parent does."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _LOG.handlers.clear()
    _LOG.setLevel(level)
    multiprocessing: Any = importlib.import_module("multiprocessing")  # not above: it is slow

    def end_with_parent() -> None:
        multiprocessing.parent_process().join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _run(work: Callable[[Any], Any], items: list[Any], is_process: bool) -> _Outcome:  # noqa: FBT001 - pickled
    """Work on a unit; runs in the worker."""
    outcome: _Outcome = []
    listener = _Listener()
    if is_process:
        _LOG.addHandler(listener)
    try:
        for item in items:
            outcome.append((work(item), listener.take(), None))
    except Exception as error:  # noqa: BLE001 - raised where the results are taken
        outcome.append((None, listener.take(), error))
    finally:
        _LOG.removeHandler(listener)
    return outcome


class _Listener(logging.Handler):
    """Keeps the messages of one thread: several threads of a worker may work on units."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._messages: _Messages = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._messages.append((record.name, record.levelno, record.getMessage()))

    def take(self) -> _Messages:
        """Return the messages since the last call."""
        taken, self._messages = self._messages, []
        return taken


@dataclass(frozen=True, slots=True)
class _Origin:
    """Working directory, paths to be seen and level of messages of the process that gives work."""

    directory: str
    paths: tuple[str, ...]
    level: int


def _run_remote(unit: bytes, origin: _Origin) -> _Outcome:
    """Work on a pickled unit in a worker that is no child of the process that gives it."""
    for path in (origin.directory, *origin.paths):
        if not os.path.lexists(os.path.join(origin.directory, path)):  # noqa: PTH118 - as it was given
            place = f"{os.uname().nodename}, process {os.getpid()}"
            fault = f"a worker ({place}) does not see {path}"
            raise ToolError(ReturnCode.PATH, f"{fault}; the workers must share this file system")
    _LOG.setLevel(min(origin.level, _LOG.level or origin.level))
    with _WORKING_DIRECTORY.at(origin.directory):
        outcome: _Outcome = pickle.loads(unit)()  # noqa: S301 - from the process that gives the work
        return outcome


class _WorkingDirectory:
    """The working directory of this process, which threads share."""

    def __init__(self) -> None:
        self._users = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Change to a directory; wait until no other thread works in a different one."""
        with self._changed:
            self._changed.wait_for(lambda: not self._users or Path(path).resolve() == Path.cwd())
            if not self._users:
                self._own = Path.cwd()
                os.chdir(path)
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                if not self._users:
                    os.chdir(self._own)
                    self._changed.notify_all()


_WORKING_DIRECTORY: Final = _WorkingDirectory()
