"""Works on many files in several processes, and gives the results in the order of the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Final, TypeVar

from msdump.errors import ToolError
from msdump.threads import cores
from msdump.tools.return_codes import ReturnCode

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_WORTH_IT: Final = 32 << 20  # bytes; with less, processes take longer to start than the work takes
_SHARES: Final = 8  # parts of the work for each process, so that they end at the same time
_LARGEST_SHARE: Final = 16


def each(
    work: Callable[[_Item], _Result], items: Sequence[_Item], *, amount: int, jobs: int = 0
) -> Iterator[_Result]:
    """Yield the result of a function for each item, in the order of the items.

    Args:
        work: A function of a module, or a ``functools.partial`` of one; its arguments and results
            travel between processes. An exception that it raises is raised here.
        items: The arguments of the calls.
        amount: Bytes that are read in all; with few, this process does the work itself.
        jobs: Number of processes, 0: one for each core.

    Raises:
        ToolError: A process was killed.
    """
    jobs = min(jobs or cores(), len(items))
    if jobs < 2 or amount < _WORTH_IT:  # noqa: PLR2004 - one process is this one
        yield from map(work, items)
        return
    share = max(1, min(len(items) // (jobs * _SHARES), _LARGEST_SHARE))
    pool = ProcessPoolExecutor(jobs)
    try:
        yield from pool.map(work, items, chunksize=share)
    except BrokenProcessPool as error:  # mostly the kernel, when memory ran out
        fault = "a process was killed while it worked, perhaps for want of memory; try --jobs 1"
        raise ToolError(ReturnCode.UNKNOWN, fault) from error
    finally:
        # An error, Ctrl-C or a reader that stops early must not wait for work that nobody wants any more.
        pool.shutdown(cancel_futures=True)
