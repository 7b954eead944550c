"""The program msaccucmp.py: CANN's commands over dumps, with its options, log lines and exit codes.

The exit code is the return code (``tools/return_codes.py``); 2 also stands for a command line
that cannot be understood.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from msdump.cli import closed_pipe, messages
from msdump.cli.accucmp import compare, parser
from msdump.cli.program import INTERRUPTED
from msdump.errors import DumpReadError, DumpWriteError, MsdumpError, ToolError
from msdump.tools import reports
from msdump.tools.compare.cann import two_files
from msdump.tools.convert import conversion, sources
from msdump.tools.convert.names import FAILED_LIST, OutputKind
from msdump.tools.convert.result import Target
from msdump.tools.overflow import records as overflow_records
from msdump.tools.overflow import report as overflow
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores.choice import Choice

_LINE: Final = "%(asctime)s (%(process)d) - [%(levelname)s] %(message)s"
_TIME: Final = "%Y-%m-%d %H:%M:%S"

_log = logging.getLogger("msdump.accucmp")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its return code."""
    with closed_pipe.quiet():
        sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its return code.

    Args:
        arguments: The command line without the program's name, None: that of the process.
    """
    options = parser.parser().parse_args(arguments)
    _show_log()
    started = time.monotonic()
    code = _execute(options)
    _log.info("The command was completed and took %d seconds.", time.monotonic() - started)
    return code


def _show_log() -> None:
    """Show the package's log on stderr, in the lines of the vendor's tool."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_LINE, _TIME))
    log = logging.getLogger("msdump")
    # Replaced, not added: a second run in the same process must not say everything twice.
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)


def _execute(options: argparse.Namespace) -> int:
    """Run the chosen command; return its return code, or that of the error that ended it."""
    try:
        return int(_COMMANDS[options.command](options))
    except ToolError as error:
        _log.error("%s", error)
        return error.code
    except KeyboardInterrupt:
        _log.error("interrupted")
        return INTERRUPTED
    except MsdumpError as error:
        _log.error("%s", error)
        fitting = (code for kind, code in _CODES.items() if isinstance(error, kind))
        return int(next(fitting, ReturnCode.UNKNOWN))
    except BrokenPipeError:  # main's closed_pipe ends the program quietly
        raise
    except Exception as error:  # noqa: BLE001 - the end of the program: nothing else will tell
        _log.exception("internal error: %s", type(error).__name__)
        return int(ReturnCode.UNKNOWN)


# Errors of rooms that know nothing of msaccucmp's codes.
_CODES: Final = {DumpReadError: ReturnCode.DUMP_DATA, DumpWriteError: ReturnCode.WRITE}


def _file_compare(options: argparse.Namespace) -> ReturnCode:
    names = two_files.NAMES
    scores = two_files.compare(options.my_dump_path, options.golden_dump_path, Choice(names))
    compare.log_scores(names, scores)
    path = reports.write(
        options.output, reports.stamped("file_result", ".txt"), [two_files.report(scores, names)]
    )
    _log.info("The file compare result has been written to %r.", path)
    return ReturnCode.DONE


def _overflow(options: argparse.Namespace) -> ReturnCode:
    # vendor: the wording of the log lines below.
    records = overflow_records.find(options.dump_path)
    if not records:
        _log.warning("[Overflow] Find [0] overflow node!")
        return ReturnCode.DONE
    shown = min(len(records), options.top_n)
    _log.info("[Overflow] Find [%d] overflow ops. Will show the top %d.", len(records), shown)
    report = overflow.analyse(records, options.output, options.top_n)
    for error in report.errors:
        _log.error("%s", error)
    _log.info("[Overflow] The overflow analyse result:\n%s", "".join(report.blocks))
    reports.write(options.output, reports.stamped("overflow_summary", ".txt"), report.blocks)
    return report.code


def _convert(options: argparse.Namespace) -> ReturnCode:
    target = Target(
        options.format or "",
        OutputKind(options.type),
        _shape(options.shape),
        _only(options.output_tensor, options.input_tensor),
        options.custom_script_path,
        options.version,
    )
    output = options.output or "."
    dump_files = sources.find([path for path in options.dump_file.split(",") if path], output)
    with messages.bar("files", len(dump_files.sources)) as bar:
        report = conversion.convert(dump_files, output, target, progress=bar)
    for result in report.failed:
        for failure in result.failures:
            _log.error("%s: %s: %s", result.path, failure.tensor or "file", failure.message)
    _log.info("Converted %d dump files to %d files in %r.", len(report.results), report.files, output)
    if report.failed:
        _log.warning("%d dump files failed; see %s/%s", len(report.failed), output, FAILED_LIST)
    return ReturnCode(report.code)


def _shape(text: str | None) -> tuple[int, ...]:
    """Return the shape that -s chooses, () for that of each tensor."""
    if text is None:
        return ()
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ToolError(ReturnCode.PARAMETER, f"-s {text!r} is not a shape such as 1,3,224,224")
    return tuple(map(int, parts))


def _only(output_number: str, input_number: str) -> tuple[str, int] | None:
    """Return section and number of the one tensor that -o or -i chooses, None for all."""
    text = output_number or input_number
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ToolError(ReturnCode.PARAMETER, f"-o/-i {text!r}: the number of an output or input")
    return ("output" if output_number else "input", int(text))


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace], ReturnCode]]] = {
    "compare": compare.run,
    "file_compare": _file_compare,
    "overflow": _overflow,
    "convert": _convert,
}
