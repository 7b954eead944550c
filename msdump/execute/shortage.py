"""What a failure means that is nobody's fault: memory or threads of this machine ran out.

Nothing else may run an operator instead then: it would be slow, its last bits might differ,
and the next attempt would need memory as well.
"""

from __future__ import annotations

import re
from typing import Final

_THREADS: Final = re.compile(r"pthread_create failed|start new thread|Resource temporarily unavailable")
_MEMORY: Final = re.compile(
    r"allocate memory|bad_alloc|bad allocation|[Oo]ut of memory|Unable to allocate|failed to map segment"
)


def shortage(error: BaseException) -> str:
    """Return what ran out and what to do about it, "" where an error has another cause.

    A thread that cannot be started for want of memory for its stack counts as memory.
    """
    text = str(error)
    if isinstance(error, MemoryError) or _MEMORY.search(text):
        return "out of memory; free memory, raise its limit (ulimit -v) or feed less at once"
    if _THREADS.search(text):
        return "out of threads; raise their limit (ulimit -u) or set MSDUMP_THREADS=1"
    return ""
