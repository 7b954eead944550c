"""Failures by which the machine says that its memory or threads ran out, told from those of a network.

After one of them no other way may run the operator: it would be slow, its last bits might differ, and it
would need memory as well.
"""

from __future__ import annotations

import re
from typing import Final

# the texts of glibc, of onnxruntime's thread pools, of Python, of numpy and of the dynamic loader
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
