"""The program msaccucmp: CANN's ``convert`` of dump files, with its options, log lines and exit codes.

The exit code is the return code (``msdump/return_codes.py``); 2 also stands for a command line
that cannot be understood.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from typing import Final

from msdump.cli import messages, streams
from msdump.cli.program import INTERRUPTED
from msdump.convert import OutputKind, Target, convert_files, find_sources
from msdump.errors import DumpReadError, DumpWriteError, MsdumpError, ToolError
from msdump.return_codes import ReturnCode
from msdump.store import FAILED_LIST

_LINE: Final = "%(asctime)s (%(process)d) - [%(levelname)s] %(message)s"
_TIME: Final = "%Y-%m-%d %H:%M:%S"
_CODES: Final = {DumpReadError: ReturnCode.DUMP_DATA, DumpWriteError: ReturnCode.WRITE}
"""Return codes of exceptions that carry none; a ToolError has its own."""

_log = logging.getLogger("msdump.accucmp")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    program = argparse.ArgumentParser("msaccucmp.py", description="CANN's tool for dumps, on any computer.")
    commands = program.add_subparsers(dest="command", metavar="COMMAND", required=True)
    text = "Convert dump files to .npy or plain files."
    command = commands.add_parser("convert", help=text, description=text, allow_abbrev=False)
    add = command.add_argument
    add("-d", "--dump_file", required=True, help="a dump file, several separated by commas, or a directory")
    add("-out", "--output", default="", help="directory of the results (default: the current one)")
    add("-f", "--format", help="memory format to convert to")
    add("-s", "--shape", help="shape to convert to, 1,3,224,224")
    conversions = "directory of your conversions, format_convert/convert_A_to_B.py"
    add("-c", "--custom_script_path", default="", help=conversions)
    # vendor: a file of version 1 is one protobuf message as a whole, without its length before it.
    versions = "2: header, then tensors; 1: one message"
    add("-v", "--version", type=int, choices=[1, 2], default=2, help=versions)
    add("-t", "--type", choices=["npy", "bin", "msnpy", "pt"], default="npy", help="file type")
    index = command.add_mutually_exclusive_group()
    index.add_argument("-o", "--output_tensor", default="", help="number of the output")
    index.add_argument("-i", "--input_tensor", default="", help="number of the input")
    return program


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (None: that of the process, ``sys.argv``) and exit with its return code."""
    with streams.standard():
        sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its return code, or that of the error that ended it."""
    options = parser().parse_args(arguments)
    handler = logging.StreamHandler()  # shows the package's log in the lines of the vendor's tool
    handler.setFormatter(logging.Formatter(_LINE, _TIME))
    log = logging.getLogger("msdump")
    # The handlers are replaced: a second one would print each line of a second run in this process twice.
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    started = time.monotonic()
    try:
        code = int(_convert(options))
    except KeyboardInterrupt:
        _log.error("interrupted")
        code = INTERRUPTED
    except MsdumpError as error:
        _log.error("%s", error)
        fitting = (code for kind, code in _CODES.items() if isinstance(error, kind))
        code = error.code if isinstance(error, ToolError) else int(next(fitting, ReturnCode.UNKNOWN))
    except Exception as error:  # noqa: BLE001 - the end of the program: nothing else will tell
        _log.exception("internal error: %s", type(error).__name__)
        code = int(ReturnCode.UNKNOWN)
    _log.info("The command was completed and took %d seconds.", time.monotonic() - started)
    return code


def _convert(options: argparse.Namespace) -> ReturnCode:
    text = options.output_tensor or options.input_tensor
    if text and not (text.isascii() and text.isdigit()):
        raise ToolError(ReturnCode.PARAMETER, f"-o/-i {text!r}: the number of an output or input")
    only = ("output" if options.output_tensor else "input", int(text)) if text else None
    shape = () if options.shape is None else options.shape.split(",")
    if not all(part.isascii() and part.isdigit() for part in shape):
        raise ToolError(ReturnCode.PARAMETER, f"-s {options.shape!r} is not a shape such as 1,3,224,224")
    target = Target(
        options.format or "",
        OutputKind(options.type),
        tuple(map(int, shape)),
        only,
        options.custom_script_path,
        options.version,
    )
    output = options.output or "."
    dump_files = find_sources([path for path in options.dump_file.split(",") if path], output)
    with messages.bar("files", len(dump_files.sources)) as bar:
        report = convert_files(dump_files, output, target, progress=bar)
    for result in report.failed:
        for failure in result.failures:
            _log.error("%s: %s: %s", result.path, failure.tensor or "file", failure.message)
    _log.info("Converted %d dump files to %d files in %r.", len(report.results), report.files, output)
    if report.failed:
        _log.warning("%d dump files failed; see %s/%s", len(report.failed), output, FAILED_LIST)
    return ReturnCode(report.code)
