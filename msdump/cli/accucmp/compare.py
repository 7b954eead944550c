"""``msaccucmp.py compare``: two files, two directories, one tensor, or which file belongs to which."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from typing import Final

from msdump.cli import messages
from msdump.errors import ToolError
from msdump.record import IO
from msdump.tools import reports
from msdump.tools.compare.cann import advisor, comparison, detail, two_files
from msdump.tools.compare.cann import table as comparison_csv
from msdump.tools.compare.cann.comparison import Options, Row
from msdump.tools.compare.cann.detail import ElementPairs
from msdump.tools.compare.cann.table import OptionalColumns
from msdump.tools.compare.pairing import places
from msdump.tools.compare.pairing.sides import Sides, open_sides
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores import choice as algorithm_choice
from msdump.tools.scores.algorithms import Score
from msdump.tools.scores.choice import Choice

_DEFAULT_TOP: Final = 20
_H5: Final = ".h5"

_log = logging.getLogger("msdump.accucmp")


def run(options: argparse.Namespace) -> ReturnCode:
    """Run ``compare`` and return its return code.

    What is compared follows from the options: two ``.npy`` files, one tensor element by element (-op), or
    all tensors of two directories; with -map only the pairs of files are written.

    Args:
        options: The parsed command line (``parser.COMPARE``).

    Raises:
        ToolError: An option or a file cannot be used.
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


def log_scores(names: Sequence[str], scores: Sequence[Score]) -> None:
    """Log a line with the names of algorithms, below it their scores, and then their notes."""
    widths = [max(len(name), len(score.text)) for name, score in zip(names, scores, strict=True)]
    _log.info(" ".join(name.ljust(width) for name, width in zip(names, widths, strict=True)))
    _log.info(" ".join(score.text.ljust(width) for score, width in zip(scores, widths, strict=True)))
    for note in filter(None, (score.note for score in scores)):
        _log.info("%s", note)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other, and warn of those that do nothing."""
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
    _check_unsupported(options)
    _check_numbers(options)


def _check_unsupported(options: argparse.Namespace) -> None:
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


def _check_numbers(options: argparse.Namespace) -> None:
    limits = (("-n", options.topn, (1, detail.MOST_SHOWN)), ("-ml", options.max_line, detail.LINES))
    # vendor: the ranges, and the return code of a number outside of them.
    for option, value, (low, high) in limits:
        if value is not None and not low <= value <= high:
            raise ToolError(ReturnCode.INDEX, f"{option} {value}: a number from {low} to {high}")


def _choice(options: argparse.Namespace) -> Choice:
    # -alg takes numbers separated by spaces as well as names separated by commas.
    selection = ",".join(options.algorithm)
    return algorithm_choice.choose(selection, options.algorithm_options, options.custom_script_path)


def _files(options: argparse.Namespace) -> ReturnCode:
    choice = _choice(options)
    scores = two_files.compare(
        options.my_dump_path, options.golden_dump_path, choice, limit=options.max_cmp_size
    )
    log_scores(choice.names, scores)
    return ReturnCode.DONE


def _groups(options: argparse.Namespace, sides: Sides) -> frozenset[int] | None:
    """Return the groups of operators that -r or -s choose, None for all of them."""
    if sides.rules is None or not (options.range or options.select):
        return None
    read, text = (places.of_range, options.range) if options.range else (places.of_select, options.select)
    return places.groups(read(text, sides.rules), sides.rules)


def _mapping(options: argparse.Namespace, sides: Sides) -> ReturnCode:
    chosen = _groups(options, sides)
    pairs = [pair for item in sides.groups(chosen) for pair in sides.pairs(item)]
    text = comparison_csv.mapping(pairs, has_sequence=chosen is not None)
    path = reports.write(options.output, reports.stamped("mapping", ".csv"), [text])
    _log.info("The mapping has been written to %r.", path)
    return ReturnCode.DONE


def _directories(options: argparse.Namespace, sides: Sides) -> ReturnCode:
    choice, groups = _choice(options), _groups(options, sides)
    rows = _rows(sides, Options(choice, options.max_cmp_size, options.overflow_detection, groups))
    shown = OptionalColumns.of(sides, overflow=options.overflow_detection, sequence=groups is not None)
    text = comparison_csv.result(rows, choice.names, shown)
    path = reports.write(options.output, reports.stamped("result", ".csv"), [text])
    _log.info("The comparison result has been written to %r.", path)
    if options.advisor:
        _advise(options.output, sides, choice.names, rows)
    return _verdict(rows)


def _rows(sides: Sides, options: Options) -> list[Row]:
    """Return the rows of the result table, and log the fault of each pair that cannot be compared."""
    rows: list[Row] = []
    with messages.bar("operators", len(sides.groups(options.groups))) as bar:
        for operator_rows in comparison.rows(sides, options, bar):
            for row in operator_rows:
                if row.pair.fault:
                    _log.warning("%s", row.pair.fault)
            rows += operator_rows
    return rows


def _verdict(rows: Sequence[Row]) -> ReturnCode:
    """Log how many tensors were compared and how many were not; return the command's return code."""
    compared = sum(not row.pair.fault for row in rows)
    others = len(rows) - compared
    _log.info("Compared %d tensors; %d tensors or operators could not be compared.", compared, others)
    if not compared:
        _log.error("Nothing was compared: no tensor has a counterpart. Are these dumps of the same model?")
    return comparison.code_of(rows)


def _advise(output: str, sides: Sides, algorithms: Sequence[str], rows: Sequence[Row]) -> None:
    inputs = sides.rules.data_nodes if sides.rules is not None else ()
    lines = advisor.advise(rows, algorithms, inputs).lines()
    for line in lines:
        _log.info("%s", line)
    path = reports.write(output, advisor.SUMMARY, [f"{line}\n" for line in lines])
    _log.info("The advice has been written to %r.", path)


def _one_tensor(options: argparse.Namespace, sides: Sides) -> ReturnCode:
    # Without -o and -i the first output is shown.
    io = IO.INPUT if options.input_tensor else IO.OUTPUT
    index = _index(options.input_tensor or options.output_tensor or "0")
    elements = detail.elements(sides, options.op_name, io, index)
    prefix = detail.prefix(options.op_name, io, index)
    for path in _element_files(options, elements, prefix):
        _log.info("Written: %r", path)
    return ReturnCode.DONE


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ToolError(ReturnCode.PARAMETER, f"-o/-i {text!r}: the number of an output or input")
    return int(text)


def _element_files(options: argparse.Namespace, elements: ElementPairs, prefix: str) -> list[str]:
    """Write the files about one tensor; return their paths."""
    absolute, relative = (
        list(table) for table in detail.most_different(elements, options.topn or _DEFAULT_TOP)
    )
    texts = {
        f"{prefix}_absolute_error_topn.csv": absolute,
        f"{prefix}_relative_error_topn.csv": relative,
        f"{prefix}_summary.txt": [detail.summary(elements)],
    }
    for title, table in (("Absolute Error TopN", absolute), ("Relative Error TopN", relative)):
        _log.info("%s\n%s", title, "".join(table).replace("\t", "").rstrip())
    written = [reports.write(options.output, name, text) for name, text in texts.items()]
    written.append(reports.write_bytes(options.output, f"{prefix}.npy", detail.tensor_file(elements)))
    if not options.ignores_elements:
        for start, text in detail.tables(elements, options.max_line or detail.LINES[1]):
            written.append(reports.write(options.output, f"{prefix}_{start}.csv", text))
    return written
