"""The exceptions of msdump.

MsdumpError
├── ConfigError                 (also RuntimeError, as MindSpore raises)
│   ├── ConfigSyntaxError
│   └── ConfigValueError
├── AclError
├── GraphError
│   ├── UnsupportedOpError
│   └── UnsupportedIRVersionError
├── InputError                  (also ValueError)
├── ExecutionError              (also RuntimeError)
│   └── RankError
├── ReentryError                (also RuntimeError)
├── NotAvailableError           (also NotImplementedError)
├── DeviceMemoryError           (also MemoryError)
├── FormatError                 (also ValueError)
├── DumpReadError               (also OSError)
├── DumpWriteError              (also OSError)
└── ToolError

Messages start in lower case, name the file and the place, show the offending
value, state the allowed ones and end with the remedy. The library raises; only
the command line prints and exits.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

_CALLED: Final = sys.stdlib_module_names | {"msdump", "google", "ml_dtypes", "numpy", "onnx", "onnxruntime"}
"""Packages that msdump calls amid a step, and by name its own."""


def visible(text: str) -> str:
    r"""Return a text with characters that steer a terminal, or turn its direction, spelled out.

    >>> visible("a\x1b[31m\u202eb")
    'a\\x1b[31m\\u202eb'
    """
    if text.isprintable():
        return text
    spelled = (
        each if each.isprintable() or each in "\t\n" else each.encode("unicode_escape").decode()
        for each in text
    )
    return "".join(spelled)


def cut(text: str, most: int) -> str:
    """Return a text of more than some characters with its middle left out.

    >>> cut("0123456789", 4)
    '01 ... (6 characters left out) ... 89'
    """
    left, half = len(text) - most, most // 2
    return text if left <= 0 else f"{text[:half]} ... ({left:,} characters left out) ... {text[-half:]}"


DAMAGED: Final = logging.WARNING + 5
"""Level of a log line about input that could not be read whole: a command that logs one ends with 1."""

logging.addLevelName(DAMAGED, "DAMAGED")


class _Visible(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = visible(record.getMessage()), ()
        return True


_ROOMS = (
    *("accucmp", "acl", "capture", "communication", "config", "counters", "device", "execute", "frontends"),
    *("graph", "judge", "look", "read", "session", "statistics", "store", "torchair", "training"),
)
for _room in _ROOMS:  # escapes messages for all handlers, the user's too
    logging.getLogger(f"msdump.{_room}").addFilter(_Visible())


def name_hint(name: str, candidates: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a hint at the closest candidate, "" without one.

    >>> name_hint("inputs", ("input", "weight"))
    " (did you mean 'input'?)"
    """
    import difflib  # not above: every command loads errors, few have a hint to give

    close = difflib.get_close_matches(name, candidates, n=1)
    return f" (did you mean {str(close[0])!r}?)" if close else ""


class MsdumpError(Exception):
    """Base class of all errors of msdump; pickling keeps class, message and attributes."""

    def __str__(self) -> str:
        """Return the message, visible."""
        return visible(super().__str__())

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle without a call of ``__init__``, which may take other arguments than the message."""
        kinds = (kind for kind in type(self).__mro__ if issubclass(kind, MsdumpError))
        if not any("__init__" in vars(kind) for kind in kinds):
            return super().__reduce__()
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[MsdumpError], args: tuple[object, ...], state: dict[str, object]) -> MsdumpError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


def is_foreign(error: BaseException) -> bool:
    """Return whether an exception comes from the user's program: a signal handler, a callback or a thread.

    Such an exception only interrupts a call of the runtime or the system: it is raised unchanged, without a
    retry. An error of the call itself has a class of the called packages, a message, and a traceback through
    these packages alone; an OSError has an errno.
    """
    error = _original(error)
    if not _is_called(type(error).__module__):
        return True
    if isinstance(error, OSError) and not isinstance(error, MsdumpError):
        return error.errno is None
    place = error.__traceback__
    while place is not None:
        if not _is_called(place.tb_frame.f_globals.get("__name__", "")):
            return True
        place = place.tb_next
    # raised into this thread by PyThreadState_SetAsyncExc, which takes a class and no message
    return type(error) in {Exception, RuntimeError} and not error.args


def _original(error: BaseException) -> BaseException:
    """Return the StopIteration that a generator turned into a RuntimeError, else the error itself."""
    stop = error.__cause__ if isinstance(error, RuntimeError) else None
    return stop if isinstance(stop, StopIteration) else error


def cause_of(error: OSError) -> str:
    """Return the system's message of an error, without the path; raise a foreign error (``is_foreign``)."""
    if is_foreign(error):
        raise error
    return error.strerror or str(error)


def _is_called(module: str) -> bool:
    return module.partition(".")[0] in _CALLED


class passing_over(contextlib.suppress):  # noqa: N801 - as the class that it narrows
    """Suppress exceptions of some classes in a ``with`` block, except foreign ones (``is_foreign``)."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> bool:
        """Return whether the exception of the block is suppressed."""
        return super().__exit__(kind, error, place) and error is not None and not is_foreign(error)


class keeping_stops(contextlib.AbstractContextManager[None], contextlib.ContextDecorator):  # noqa: N801
    """Raise a StopIteration as it is that a generator inside turned into a RuntimeError."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        """Raise the StopIteration of a signal's handler or of another thread."""
        if error is not None and (stop := _original(error)) is not error:
            raise stop


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault (or one doubtful spot) of a configuration file.

    Attributes:
        path: JSON path, ``$.common_dump_settings.iteration``; "" for the file as a whole.
        message: The fault, the allowed values and the remedy.
        line: 1-based line in the file, 0 where there is none (environment variables).
        column: 1-based column of the value, 0 where there is none.
        excerpt: Lines to show below the message, caret line included; may be "".
    """

    path: str
    message: str
    line: int = 0
    column: int = 0
    excerpt: str = ""

    def render(self, source: str) -> str:
        """Return ``file:line: path message`` and the excerpt below it.

        >>> problem = Problem("$.common_dump_settings.dump_mode", "is 3; 0, 1 or 2 is expected", line=4)
        >>> problem.render("dump.json")
        'dump.json:4: $.common_dump_settings.dump_mode is 3; 0, 1 or 2 is expected'
        """
        place = f"{source}:{self.line}" if self.line else source
        head = f"{place}: {self.path} {self.message}" if self.path else f"{place}: {self.message}"
        return f"{head}\n{self.excerpt}" if self.excerpt else head


class ConfigError(MsdumpError, RuntimeError):
    """A configuration that is not valid; ``problems`` lists all faults."""

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))
        super().__init__("\n".join(problem.render(source) for problem in self.problems))


class ConfigSyntaxError(ConfigError):
    """A configuration file that is missing, unreadable or not JSON."""


class ConfigValueError(ConfigError):
    """A configuration file with wrong, missing or contradicting values."""


class AclError(MsdumpError):
    """A failure of a function of ``msdump.acl``, which returns the code instead of raising.

    Attributes:
        code: The return code, 100009 for a faulty dump configuration.
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class GraphError(MsdumpError):
    """A model file that cannot be read or has no valid graph."""


class UnsupportedOpError(GraphError):
    """An operator without a kernel in onnxruntime and in ONNX's reference."""


class UnsupportedIRVersionError(GraphError):
    """A model with an IR version or opset newer than the installed packages support."""


class InputError(MsdumpError, ValueError):
    """An input of a network that is missing, unknown or of the wrong type or shape."""


class UntoldOperatorError(InputError):
    """An operator of a dump with an unknown computation."""


class ExecutionError(MsdumpError, RuntimeError):
    """An operator that failed during a run.

    Attributes:
        operator: Full scoped name of the operator, ``Default/conv1-Conv2d/Conv2D-op0``.
    """

    def __init__(self, operator: str, message: str) -> None:
        self.operator = operator
        super().__init__(f"operator {operator} failed: {message}")


class RankError(ExecutionError):
    """A collective that cannot finish because a rank failed, ended or runs another collective.

    Attributes:
        culprit: The rank at fault, None if several ranks contradict each other.
    """

    def __init__(self, operator: str, message: str, culprit: int | None = None) -> None:
        self.culprit = culprit
        super().__init__(operator, message)


class WatchHitError(MsdumpError, RuntimeError):
    """A hit of a watch rule with ``on_hit`` stop, which ends the run."""

    def __init__(self, rule: str, operator: str, iteration: int, message: str) -> None:
        self.rule = rule
        self.operator = operator
        self.iteration = iteration
        super().__init__(f"watch rule {rule!r} hit at {operator} in iteration {iteration}: {message}")


class ReentryError(MsdumpError, RuntimeError):
    """A call of a network during its own run, from a signal handler or in a forked process."""


class NotAvailableError(MsdumpError, NotImplementedError):
    """A valid setting that is not supported, or a library that is not installed."""


class DeviceMemoryError(MsdumpError, MemoryError):
    """A tensor that does not fit into the memory of the emulated device."""


class FormatError(MsdumpError, ValueError):
    """A tensor or a name that the file format cannot store."""


class DumpReadError(MsdumpError, OSError):
    """A dump file that cannot be read.

    Attributes:
        offset: Byte offset of the fault, or None.
    """

    def __init__(self, path: str, message: str, offset: int | None = None) -> None:
        self.path = path
        self.offset = offset
        where = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{where}: {message}")


class DumpWriteError(MsdumpError, OSError):
    """A dump file that could not be written; the run's summary counts lost files."""


class ToolError(MsdumpError):
    """A failure of a command on finished dumps, with the return code of msaccucmp.

    Attributes:
        code: Return code of msaccucmp (``msdump/return_codes.py``).
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


# messages of glibc, onnxruntime's thread pools, Python, numpy and the dynamic loader
_THREADS: Final = r"pthread_create failed|start new thread|Resource temporarily unavailable"
_MEMORY: Final = (
    r"allocate memory|Available memory|bad.alloc|[Oo]ut of memory|Unable to allocate|failed to map segment"
)


def shortage(error: BaseException) -> str:
    """Return the exhausted resource and the remedy, "" where an error has another cause.

    After such a failure no other executor may run the operator: it would be slow, its last bits might
    differ, and it would need memory as well. A thread without memory for its stack counts as out of memory.
    """
    text = str(error)
    if isinstance(error, MemoryError) or re.search(_MEMORY, text):
        return "out of memory; free memory, raise its limit (ulimit -v) or feed less at once"
    if re.search(_THREADS, text):
        return "out of threads; raise their limit (ulimit -u) or set MSDUMP_THREADS=1"
    return ""


def is_final(error: BaseException) -> bool:
    """Return whether an error must not be retried in another way: a shortage, or a foreign exception."""
    return is_foreign(error) or bool(shortage(error))


def plural(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "tensor"), plural(2000, "tensor")
    ('1 tensor', '2,000 tensors')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"
