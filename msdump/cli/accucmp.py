"""The program msaccucmp.py: CANN's commands over dumps, with its options, log lines and exit codes.

The exit code is the return code (``msdump/return_codes.py``); 2 also stands for a command line
that cannot be understood.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msdump.cli import messages, streams
from msdump.cli.program import INTERRUPTED
from msdump.convert import OutputKind, Target, convert_files, find_sources
from msdump.errors import DumpReadError, DumpWriteError, MsdumpError, ToolError
from msdump.judge import ALL, Choice, Score, choose, groups_at, reports, select_places, select_range
from msdump.judge.compare import ElementPairs, Options, Pair, Sides, cann, open_sides
from msdump.look import overflow
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import FAILED_LIST

_NUMBERED: Final = ", ".join(f"{number}={name}" for number, name in enumerate(ALL))

_Option = tuple[tuple[str, ...], dict[str, Any]]


# Each of these returns one row of a table of options: its spellings and argparse's settings.
# vendor: -alg takes any number of values, which options of click cannot; hence argparse.


def _required(short: str, name: str, text: str) -> _Option:
    return (short, f"--{name}"), {"dest": name, "required": True, "help": text}


def _text(short: str, name: str, text: str) -> _Option:
    return (short, f"--{name}"), {"dest": name, "default": "", "help": text}


def _number(short: str, name: str, text: str, **more: Any) -> _Option:
    return (short, f"--{name}"), {"dest": name, "type": int, "default": None, "help": text, **more}


def _flag(*spellings: str, dest: str, text: str) -> _Option:
    return spellings, {"dest": dest, "action": "store_true", "help": text}


_MINE: Final = _required("-m", "my_dump_path", "dump to examine: directory of dump files or .npy file")
_GOLDEN: Final = _required("-g", "golden_dump_path", "reference dump: directory of dump files or .npy file")
_OUTPUT: Final = _text("-out", "output", "directory of the results (default: the current one)")
# vendor: a file of version 1 is one protobuf message as a whole, without its length before it.
_VERSION: Final = _number(
    "-v", "version", "2: header, then tensors; 1: one message", choices=[1, 2], default=2
)
_INDEX: Final[tuple[_Option, ...]] = (
    _text("-o", "output_tensor", "number of the output"),
    _text("-i", "input_tensor", "number of the input"),
)

_COMPARE_OPTIONS: Final[tuple[_Option, ...]] = (
    _MINE,
    _GOLDEN,
    _OUTPUT,
    _text("-f", "fusion_rule_file", "graph JSON of the model, for golden tensors of the original network"),
    _text("-q", "quant_fusion_rule_file", "graph JSON of a quantised model (not supported)"),
    _text("-cf", "close_fusion_rule_file", "graph JSON of the model compiled without fusion"),
    _text("-c", "custom_script_path", "directory of user-defined algorithms, algorithm/alg_NAME.py"),
    _text("-a", "algorithm_options", "arguments of such algorithms, NAME:key=value,key=value;NAME:..."),
    (
        ("-alg", "--algorithm"),
        {
            "dest": "algorithm",
            "nargs": "+",
            "default": ["all"],
            "help": f"names or numbers, separated by commas or spaces; {_NUMBERED}",
        },
    ),
    _flag("-map", "--mapping", dest="mapping", text="write only the pairs of files"),
    _flag("-overflow_detection", dest="overflow_detection", text="report float16 tensors that overflow"),
    _text("-r", "range", "range of operators by place in the graph file, start,end,step"),
    _text("-s", "select", "list of operators by place in the graph file, 1,5,7"),
    _number("-p", "post_process", "for .h5 files, which are not supported", choices=[0, 1]),
    _number("-max", "max_cmp_size", "number of first elements to compare, 0: all", default=0),
    _flag("-advisor", dest="advisor", text="write advice; turns -overflow_detection on"),
    _VERSION,
    (("-op", "--op_name"), {"dest": "op_name", "default": None, "help": "show one tensor of this operator"}),
    _number("-n", "topn", "number of listed elements, largest errors first, 1 to 10000 (default: 20)"),
    _number("-ml", "max_line", "largest number of lines in a file, 10000 to 1000000 (default: 1000000)"),
    _flag("--ignore_single_op_result", dest="ignores_elements", text="write no list of all elements"),
    # Accepted because scripts pass it.
    _flag("-ffts", dest="ffts", text="no effect: parts of FFTS+ tasks are compared one by one"),
)

_FILE_COMPARE_OPTIONS: Final[tuple[_Option, ...]] = (
    _MINE,
    _GOLDEN,
    _required("-out", "output", "directory of the results"),
)

_OVERFLOW_OPTIONS: Final[tuple[_Option, ...]] = (
    _required("-d", "dump_path", "directory of the dump; directories below are searched, too"),
    _required("-out", "output", "directory of the results"),
    _number("-n", "top_n", "number of overflows, oldest first (default: 1)", choices=range(1, 6), default=1),
)

_CONVERT_OPTIONS: Final[tuple[_Option, ...]] = (
    _required("-d", "dump_file", "a dump file, several separated by commas, or a directory"),
    _OUTPUT,
    (("-f", "--format"), {"dest": "format", "default": None, "help": "memory format to convert to"}),
    (("-s", "--shape"), {"dest": "shape", "default": None, "help": "shape to convert to, 1,3,224,224"}),
    _text("-c", "custom_script_path", "directory of your conversions, format_convert/convert_A_to_B.py"),
    _VERSION,
    (
        ("-t", "--type"),
        {"dest": "type", "choices": ["npy", "bin", "msnpy", "pt"], "default": "npy", "help": "file type"},
    ),
)

_PARSED: Final[tuple[tuple[str, str, tuple[_Option, ...], bool], ...]] = (
    ("compare", "Compare the tensors of two dumps, or two .npy files.", _COMPARE_OPTIONS, True),
    ("convert", "Convert dump files to .npy or plain files.", _CONVERT_OPTIONS, True),
    ("overflow", "List the operators that overflowed.", _OVERFLOW_OPTIONS, False),
    ("file_compare", "Compare two .npy files and write the result.", _FILE_COMPARE_OPTIONS, False),
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line: a sub-parser for each command of the vendor's tool."""
    program = argparse.ArgumentParser("msaccucmp.py", description="CANN's tool for dumps, on any computer.")
    commands = program.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text, options, has_index in _PARSED:
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        _add(command, options)
        if has_index:
            _add(command.add_mutually_exclusive_group(), _INDEX)
    return program


def _add(arguments: Any, options: Sequence[_Option]) -> None:
    """Add options to a parser, or to an argument group of a parser."""
    for flags, settings in options:
        arguments.add_argument(*flags, **settings)


_DEFAULT_TOP: Final = 20
_H5: Final = ".h5"

_log = logging.getLogger("msdump.accucmp")


def _compare(options: argparse.Namespace) -> ReturnCode:
    """Compare two ``.npy`` files, one tensor element by element (-op), or all tensors of two directories.

    With -map only the pairs of files are written.
    """
    _check(options)
    paths = (options.my_dump_path, options.golden_dump_path)
    # vendor: of two files only the scores are shown, whatever -f and -op say.
    if all(os.path.isfile(path) for path in paths) and not options.mapping:
        return _files(options)
    sides = open_sides(
        *paths, options.fusion_rule_file, options.close_fusion_rule_file, version=options.version
    )
    if options.mapping:
        return _mapping(options, sides)
    if options.op_name:
        return _one_tensor(options, sides)
    return _directories(options, sides)


def _log_scores(names: Sequence[str], scores: Sequence[Score]) -> None:
    """Log a line with the names of algorithms, below it their scores, and then their notes."""
    widths = [max(len(name), len(score.text)) for name, score in zip(names, scores, strict=True)]
    _log.info(" ".join(name.ljust(width) for name, width in zip(names, widths, strict=True)))
    _log.info(" ".join(score.text.ljust(width) for score, width in zip(scores, widths, strict=True)))
    for note in filter(None, (score.note for score in scores)):
        _log.info("%s", note)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other, and warn of options that do nothing."""
    only_with_op = {
        "-o": options.output_tensor,
        "-i": options.input_tensor,
        "-n": options.topn,
        "-ml": options.max_line,
        "--ignore_single_op_result": options.ignores_elements,
    }
    unused = [option for option, value in only_with_op.items() if value not in {"", None, False}]
    picks = [option for option, value in (("-r", options.range), ("-s", options.select)) if value]
    faults = (
        (unused and not options.op_name, f"{', '.join(unused)}: only with -op"),
        (options.mapping and options.op_name, "-map and -op exclude each other"),
        (options.mapping and not options.fusion_rule_file, "-map needs -f, the graph file of the model"),
        (picks and not options.fusion_rule_file, f"{', '.join(picks)}: only with -f"),
        (picks and options.op_name, f"{', '.join(picks)} and -op exclude each other"),
        (len(picks) > 1, "-r and -s exclude each other"),
        (options.max_cmp_size < 0, f"-max {options.max_cmp_size}: a number of elements, or 0 for all"),
        (options.post_process is not None, "-p is for .h5 files only"),
    )
    for is_fault, message in faults:
        if is_fault:
            raise ToolError(ReturnCode.PARAMETER, message)
    _check_values(options)


def _check_values(options: argparse.Namespace) -> None:
    if options.quant_fusion_rule_file:
        raise ToolError(ReturnCode.UNSUPPORTED, "-q: quantised models cannot be compared")
    # vendor: .h5 files are dumps of PyTorch, which the tool compares too.
    for path in (options.my_dump_path, options.golden_dump_path):
        if path.endswith(_H5):
            raise ToolError(ReturnCode.UNSUPPORTED, f"{path}: .h5 files cannot be compared")
    if options.advisor and (options.range or options.select or options.op_name):
        _log.warning("-advisor does nothing beside -r, -s and -op")
        options.advisor = False
    # The advisor looks for overflows in the column that only -overflow_detection adds.
    options.overflow_detection |= options.advisor
    limits = (("-n", options.topn, (1, cann.MOST_SHOWN)), ("-ml", options.max_line, cann.LINES))
    # vendor: the allowed ranges of -n and -ml, and the return code of a number outside of its range.
    for option, value, (low, high) in limits:
        if value is not None and not low <= value <= high:
            raise ToolError(ReturnCode.INDEX, f"{option} {value}: a number from {low} to {high}")


def _choice(options: argparse.Namespace) -> Choice:
    # -alg takes numbers separated by spaces as well as names separated by commas.
    selection = ",".join(options.algorithm)
    return choose(selection, options.algorithm_options, options.custom_script_path)


def _files(options: argparse.Namespace) -> ReturnCode:
    choice = _choice(options)
    scores = cann.compare_files(
        options.my_dump_path, options.golden_dump_path, choice, limit=options.max_cmp_size
    )
    _log_scores(choice.names, scores)
    return ReturnCode.DONE


def _groups(options: argparse.Namespace, sides: Sides) -> frozenset[int] | None:
    """Return the groups of operators that -r or -s choose, None for all of them."""
    if sides.rules is None or not (options.range or options.select):
        return None
    read, text = (select_range, options.range) if options.range else (select_places, options.select)
    return groups_at(read(text, sides.rules), sides.rules)


def _mapping(options: argparse.Namespace, sides: Sides) -> ReturnCode:
    chosen = _groups(options, sides)
    pairs = [pair for item in sides.groups(chosen) for pair in sides.pairs(item)]
    lines = cann.mapping(pairs, has_sequence=chosen is not None)
    path = _write_table(options.output, "mapping", lines)
    _log.info("The mapping has been written to %r.", path)
    return ReturnCode.DONE


def _write_table(folder: str, name: str, lines: Iterable[Sequence[object]]) -> str:
    text = "".join(reports.csv_lines(lines, "\r\n"))
    return reports.write(folder, reports.stamped(name, ".csv"), [text])


def _directories(options: argparse.Namespace, sides: Sides) -> ReturnCode:
    choice, groups = _choice(options), _groups(options, sides)
    wanted = Options(choice, options.max_cmp_size, options.overflow_detection, groups)
    rows: list[Pair] = []
    with messages.bar("operators", len(sides.groups(groups))) as bar:
        for operator_rows in cann.rows(sides, wanted, bar):
            for row in operator_rows:
                if row.fault:
                    _log.warning("%s", row.fault)
            rows += operator_rows
    path = _write_table(options.output, "result", cann.result(rows, wanted, sides))
    _log.info("The comparison result has been written to %r.", path)
    if options.advisor:
        _advise(options.output, sides, choice.names, rows)
    return _verdict(rows)


def _verdict(rows: Sequence[Pair]) -> ReturnCode:
    """Log how many tensors were compared and how many were not; return the command's return code."""
    compared = sum(not row.fault for row in rows)
    others = len(rows) - compared
    _log.info("Compared %d tensors; %d tensors or operators could not be compared.", compared, others)
    if not compared:
        _log.error("Nothing was compared: no tensor has a counterpart. Are these dumps of the same model?")
    return cann.code_of(rows)


def _advise(output: str, sides: Sides, algorithms: Sequence[str], rows: Sequence[Pair]) -> None:
    inputs = sides.rules.data_nodes if sides.rules is not None else ()
    lines = cann.advise(rows, algorithms, inputs)
    for line in lines:
        _log.info("%s", line)
    path = reports.write(output, cann.SUMMARY, [f"{line}\n" for line in lines])
    _log.info("The advice has been written to %r.", path)


def _one_tensor(options: argparse.Namespace, sides: Sides) -> ReturnCode:
    # Without -o and -i the first output is shown.
    io = IO.INPUT if options.input_tensor else IO.OUTPUT
    index = _index(options.input_tensor or options.output_tensor or "0")
    elements = ElementPairs.of(sides, options.op_name, io, index)
    lines = 0 if options.ignores_elements else options.max_line or cann.LINES[1]
    prefix = f"{options.op_name.replace('/', '_')}_{io}_{index}"
    written = []
    for name, contents in elements.files(prefix, options.topn or _DEFAULT_TOP, lines):
        if name.endswith("_topn.csv"):
            title = name.removeprefix(f"{prefix}_").partition("_")[0].capitalize()
            _log.info("%s Error TopN\n%s", title, b"".join(contents).decode().replace("\t", "").rstrip())
        written.append(reports.write_bytes(options.output, name, contents))
    for path in written:
        _log.info("Written: %r", path)
    return ReturnCode.DONE


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ToolError(ReturnCode.PARAMETER, f"-o/-i {text!r}: the number of an output or input")
    return int(text)


_LINE: Final = "%(asctime)s (%(process)d) - [%(levelname)s] %(message)s"
_TIME: Final = "%Y-%m-%d %H:%M:%S"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (None: that of the process, ``sys.argv``) and exit with its return code."""
    with streams.standard():
        sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its return code."""
    options = parser().parse_args(arguments)
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
    # The handlers are replaced: a second one would print each line of a second run in this process twice.
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
    except Exception as error:  # noqa: BLE001 - the end of the program: nothing else will tell
        _log.exception("internal error: %s", type(error).__name__)
        return int(ReturnCode.UNKNOWN)


# The return codes of exceptions that carry none; a ToolError has its own.
_CODES: Final = {DumpReadError: ReturnCode.DUMP_DATA, DumpWriteError: ReturnCode.WRITE}


def _file_compare(options: argparse.Namespace) -> ReturnCode:
    names = cann.OF_FILES
    scores = cann.compare_files(options.my_dump_path, options.golden_dump_path, Choice(names))
    _log_scores(names, scores)
    path = reports.write(
        options.output, reports.stamped("file_result", ".txt"), [cann.report_of_files(scores, names)]
    )
    _log.info("The file compare result has been written to %r.", path)
    return ReturnCode.DONE


def _overflow(options: argparse.Namespace) -> ReturnCode:
    # vendor: the wording of the log lines below.
    records = overflow.find(options.dump_path)
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
    text = options.output_tensor or options.input_tensor
    only = ("output" if options.output_tensor else "input", _index(text)) if text else None
    target = Target(
        options.format or "",
        OutputKind(options.type),
        _shape(options.shape),
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


def _shape(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ToolError(ReturnCode.PARAMETER, f"-s {text!r} is not a shape such as 1,3,224,224")
    return tuple(map(int, parts))


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace], ReturnCode]]] = {
    "compare": _compare,
    "file_compare": _file_compare,
    "overflow": _overflow,
    "convert": _convert,
}
