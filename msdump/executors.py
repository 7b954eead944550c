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

from msdump import reading
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
_DEATHS: Final = 3  # processes that a unit may kill before it is given up; Dask's limit, too
_PATIENCE: Final = 1.0  # seconds without a result after which the workers are checked
_ADDRESS: Final = re.compile(r"((tcp|tls|ucx|ws|wss)://)?[^/\s]+:[0-9]{1,5}")
_ALONE: Final = "the scheduler has had no worker for {:g} s; start one with dask worker"
_GONE: Final = "the scheduler has ended, or dropped the work"
_LOG: Final = logging.getLogger("msdump")


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """Executor that does the work of a command; the ranks of MPI where ``mpi4py.futures`` started them.

    Attributes:
        jobs: Number of processes, 0: one for each core.
        scheduler: Address of a Dask scheduler, "": none.
    """

    jobs: int = 0
    scheduler: str = ""

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
        ToolError: Workers died of an item, have another version, or there are none.
    """
    sized = ((item, size(item)) for item in items)
    first = list(_first_items(sized))
    if not first:
        return
    everything = itertools.chain(first, sized)
    workers = _open_workers(executor, first, tuple(paths), in_threads=in_threads)
    if workers is None:
        for item, bytes_read in everything:
            result = work(item)
            progress(bytes_read)
            yield result
        return
    try:
        for unit, outcome in _outcomes(work, _units(everything, workers.unit_cost), workers, name):
            for (_, bytes_read), (result, messages, error) in zip(unit, outcome, strict=False):
                for logger, level, text in messages:
                    logging.getLogger(logger).log(level, "%s", text)
                if error is not None:
                    raise error
                progress(bytes_read)
                yield result
    finally:
        workers.close()


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


def _open_workers(
    choice: ExecutorChoice, first: _Unit[Any], paths: tuple[str, ...], *, in_threads: bool
) -> _Workers | None:
    """Open the chosen executor, None if the first items are so little work that this process does it."""
    level = _LOG.getEffectiveLevel()
    if choice.scheduler or _is_mpi_started():
        origin = _Origin(installed_versions(), str(Path.cwd()), paths, level)
        if choice.scheduler:
            return _DaskWorkers(choice.scheduler, origin)
        ranks = importlib.import_module("mpi4py.futures").MPIPoolExecutor()  # if one dies, MPI ends all
        return _Workers(lambda: ranks, ranks.num_workers, origin)
    count = choice.jobs or cores()
    if count == 1 or _cost(first) < WORTH_IT:
        return None
    if in_threads and sum(size for _, size in first) >= LARGE * len(first):
        return _Workers(lambda: pools.ThreadPoolExecutor(count), count, are_processes=False, unit_cost=0)
    return _ProcessWorkers(count, level)


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
    workers: _Workers,
    name: Callable[[_Item], str],
) -> Iterator[tuple[_Unit[_Item], _Outcome]]:
    """Yield units with their outcomes, in order; further units are submitted ahead."""
    given: deque[tuple[_Unit[_Item], Any]] = deque()
    while True:
        # once a process died, no more units are submitted: the lost ones run again first, one at a time
        while len(given) < workers.count * _AHEAD and not any(_is_lost(future) for _, future in given):
            if (following := next(units, None)) is None:
                break
            given.append((following, workers.submit(work, following)))
        if not given:
            return
        unit, future = given[0]
        if not _is_done(future):
            workers.check()
            continue
        given.popleft()
        for _ in range(_DEATHS):
            if _is_lost(future):
                future = workers.submit(work, unit)
                pools.wait([future])
        try:
            outcome = future.result()
        except Exception as error:
            first, last = name(unit[0][0]), name(unit[-1][0])
            some = first if len(unit) == 1 else f"one of {len(unit)} from {first} to {last}"
            raise workers.explain(error, some) from error
        yield unit, outcome


def _is_done(future: Any) -> bool:
    """Return whether a unit is done; wait a moment for it."""
    try:
        future.exception(_PATIENCE)  # not result(): in Dask its transfer may exceed the limit
    except TimeoutError:
        return False
    return True


def _is_lost(future: Any) -> bool:
    """Return whether a process of a pool died before the unit was done."""
    is_done = isinstance(future, pools.Future) and future.done() and not future.cancelled()
    return is_done and isinstance(future.exception(), pools.BrokenExecutor)


@dataclass
class _Workers:
    """An executor that is open.

    Attributes:
        start: Returns the executor; called again when one of its processes has died.
        count: Number of units that are worked on at the same time.
        origin: Requirements on workers that are not children of this process.
        are_processes: Whether messages of workers are logged again here.
        unit_cost: Cost of the items that a worker gets together.
    """

    start: Callable[[], Any]
    count: int
    origin: _Origin | None = None
    are_processes: bool = True
    unit_cost: int = field(default_factory=lambda: UNIT_COST)

    def __post_init__(self) -> None:
        self.executor = self.start()

    def submit(self, work: Callable[[_Item], Any], unit: _Unit[_Item]) -> Any:
        """Give a unit to a worker; return its future."""
        run = functools.partial(_run, work, [item for item, _ in unit], self.are_processes)
        if self.origin is not None:
            run = functools.partial(_run_remote, pickle.dumps(run, pickle.HIGHEST_PROTOCOL), self.origin)
        try:
            return self._submit(run)
        except pools.BrokenExecutor:
            self.close()
            self.executor = self.start()
            return self._submit(run)

    def _submit(self, run: Callable[[], _Outcome]) -> Any:
        return self.executor.submit(run)

    def check(self) -> None:
        """Raise ToolError if no worker is left that could finish a unit."""

    def explain(self, error: Exception, unit: str) -> Exception:
        """Return the error to raise if the worker of a unit failed, not the work itself."""
        if isinstance(error, pools.BrokenExecutor):  # mostly killed by the kernel when memory ran out
            fault = f"a process was killed while it worked, again and again on {unit}"
            return ToolError(ReturnCode.UNKNOWN, f"{fault}, possibly for lack of memory; try --jobs 1")
        if self.origin is not None and isinstance(error, (ImportError, AttributeError)):
            fault = f"a worker cannot load msdump: {error}; install the same version there"
            return ToolError(ReturnCode.UNSUPPORTED, fault)
        return error

    def close(self) -> None:
        """Give the executor back: an error or Ctrl-C must not wait for units that are no longer needed."""
        self.executor.shutdown(cancel_futures=True)


class _ProcessWorkers(_Workers):
    """Processes of this machine; each waits for the end of a pipe from this one, and so ends with it."""

    def __init__(self, count: int, level: int) -> None:
        multiprocessing: Any = importlib.import_module("multiprocessing")  # not above: it is slow

        def start() -> pools.Executor:
            alive, self._own_end = multiprocessing.Pipe(duplex=False)
            begin = functools.partial(_begin, level, alive, self._own_end)
            return pools.ProcessPoolExecutor(count, initializer=begin)

        super().__init__(start, count)

    def _submit(self, run: Callable[[], _Outcome]) -> Any:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a script's background
            run = functools.partial(_run_interruptibly, run)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process that starts inherits it
        try:
            return super()._submit(run)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def close(self) -> None:
        """End the processes, also processes that an interrupted or failed start left without a task."""
        try:
            super().close()
        finally:
            self._own_end.close()


class _DaskWorkers(_Workers):
    """The workers of a Dask scheduler, which starts a unit again where a worker died."""

    def __init__(self, address: str, origin: _Origin) -> None:
        self._prefix = f"--scheduler {address}: "
        try:
            distributed: Any = importlib.import_module("distributed")
        except ModuleNotFoundError as error:
            if error.name != "distributed":
                raise
            fault = "--scheduler: distributed is not installed; install it, or msdump with its extra"
            raise NotAvailableError(f"{fault}: pip install 'msdump[cluster]'") from error
        if not _ADDRESS.fullmatch(address):  # Dask's client raises an error, too, and then hangs for 20 s
            raise self._fault(
                "not an address of a Dask scheduler; write one such as tcp://node7:8786", ReturnCode.PARAMETER
            )
        for logger in ("distributed", "distributed.client"):  # errors are raised here in one line
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        try:
            client = distributed.Client(address, timeout=CONNECTING, set_as_default=False)
        except (OSError, ValueError) as error:
            raise self._fault(f"the Dask scheduler does not answer: {error}", ReturnCode.PARAMETER) from error
        try:
            client.wait_for_workers(1, timeout=WAITING)
        except TimeoutError as error:
            client.close()
            raise self._fault(_ALONE.format(WAITING), ReturnCode.PARAMETER) from error
        super().__init__(lambda: client, max(1, sum(client.ncores().values())), origin)
        self._checks_without_workers = 0

    def _fault(self, fault: str, code: ReturnCode = ReturnCode.UNKNOWN) -> ToolError:
        return ToolError(code, self._prefix + fault)

    def _submit(self, run: Callable[[], _Outcome]) -> Any:
        return self.executor.submit(run, pure=False)

    def check(self) -> None:
        """Raise ToolError if the scheduler or all workers have gone for good."""
        try:
            workers = self.executor.ncores() if self.executor.status == "running" else None
        except OSError as error:
            raise self._fault(_GONE) from error
        if workers is None:
            raise self._fault(_GONE)
        self._checks_without_workers = 0 if workers else self._checks_without_workers + 1
        if self._checks_without_workers * _PATIENCE > WAITING:
            raise self._fault(_ALONE.format(WAITING))

    def explain(self, error: Exception, unit: str) -> Exception:
        """Return the error of a unit of which workers died, or which the scheduler dropped."""
        if type(error).__name__ == "KilledWorker":
            reason = str(error).partition(". ")[0]
            hint = "possibly for lack of memory; the limit is Dask's distributed.scheduler.allowed-failures"
            return ToolError(ReturnCode.UNKNOWN, f"Dask gave up {unit}: {reason}; {hint}")
        if isinstance(error, pools.CancelledError):
            return self._fault(_GONE)
        return super().explain(error, unit)

    def close(self) -> None:
        """Leave the scheduler, which cancels the units that are still running."""
        self.executor.close()


def _is_mpi_started() -> bool:
    """Return whether ``mpirun -n 16 python -m mpi4py.futures`` started this program in one of the ranks."""
    return getattr(sys.modules.get("mpi4py.futures._core"), "SharedPool", None) is not None


def _begin(level: int, alive: Any, parents_end: Any) -> None:
    """Prepare a new process: it ends when its parent does, and its messages are logged by the parent.

    Ctrl-C interrupts only its work: between units it would print a traceback.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _LOG.handlers.clear()
    _LOG.setLevel(level)
    parents_end.close()  # this process's copy, which would keep the pipe open

    def end_with_parent() -> None:
        alive.poll(None)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _run_interruptibly(run: Callable[[], _Outcome]) -> _Outcome:
    """Run a unit; Ctrl-C raises KeyboardInterrupt here, and only here."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


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
    """Versions, working directory, paths to be seen and level of messages of the process that gives work."""

    versions: str
    directory: str
    paths: tuple[str, ...]
    level: int


def _run_remote(unit: bytes, origin: _Origin) -> _Outcome:
    """Work on a pickled unit in a worker that is no child of the process that gives it.

    Raises:
        ToolError: This process has other versions, or does not see a path.
    """
    import socket  # not above: processes of this machine do not need it

    place = f"{socket.gethostname()}, process {os.getpid()}"
    if origin.versions != installed_versions():
        fault = f"a worker has other versions: {installed_versions()} ({place}), not {origin.versions}"
        raise ToolError(ReturnCode.UNSUPPORTED, f"{fault}; install the same versions on both sides")
    for path in (origin.directory, *origin.paths):
        if not os.path.lexists(os.path.join(origin.directory, path)):  # noqa: PTH118 - as it was given
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


@functools.cache
def installed_versions() -> str:
    """Return the versions of msdump, with a digest of its source files, Python and numpy.

    The number of a release alone is the same for two installations from a repository.
    """
    # not above: processes of this machine do not need them
    import hashlib
    import platform
    from importlib import metadata

    digest = hashlib.sha1(usedforsecurity=False)
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode())
        with reading.open_file(path) as file:
            digest.update(file.read())
    python = ".".join(platform.python_version_tuple()[:2])
    release, numpy = metadata.version("msdump"), metadata.version("numpy")
    return f"msdump {release} ({digest.hexdigest()[:8]}), Python {python}, numpy {numpy}"
