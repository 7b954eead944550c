"""Work on many files by several processes, results in the order of the files."""

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
    """Yield what a function returns for each item, in the order of the items.

    Args:
        work: A function of a module, or a ``functools.partial`` of one; what it takes and returns
            travels between processes. Whatever it raises is raised here.
        items: What to work on.
        amount: Bytes that are read in all; little work is done in this process.
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
    except BrokenProcessPool as error:
        fault = "a process was killed while it worked, perhaps for want of memory; try --jobs 1"
        raise ToolError(ReturnCode.UNKNOWN, fault) from error
    finally:
        pool.shutdown(cancel_futures=True)
