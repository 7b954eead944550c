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
from msdump.tools.compare.cann.table import Shown
from msdump.tools.compare.pairing import places
from msdump.tools.compare.pairing.sides import Sides, open_sides
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores import choice as algorithm_choice
from msdump.tools.scores.algorithms import Score
from msdump.tools.scores.choice import Choice

_DEFAULT_TOP: Final = 20
_H5: Final = ".h5"

_log = logging.getLogger("msdump.accucmp")


def run(given: argparse.Namespace) -> ReturnCode:
    """Run the command.

    Raises:
        ToolError: An option or a file cannot be used.
    """
    _check(given)
    paths = (given.my_dump_path, given.golden_dump_path)
    if all(os.path.isfile(path) for path in paths) and not given.mapping:
        return _files(given)
    sides = open_sides(*paths, given.fusion_rule_file, given.close_fusion_rule_file, version=given.version)
    if given.mapping:
        return _mapping(given, sides)
    if given.op_name:
        return _one_tensor(given, sides)
    return _directories(given, sides)


def log_scores(names: Sequence[str], scores: Sequence[Score]) -> None:
    """Log the names of algorithms and below them what they say."""
    widths = [max(len(name), len(score.text)) for name, score in zip(names, scores, strict=True)]
    _log.info(" ".join(name.ljust(width) for name, width in zip(names, widths, strict=True)))
    _log.info(" ".join(score.text.ljust(width) for score, width in zip(scores, widths, strict=True)))
    for note in filter(None, (score.note for score in scores)):
        _log.info("%s", note)


def _check(given: argparse.Namespace) -> None:
    """Refuse options that contradict each other, and warn of those that do nothing."""
    only_with_op = {
        "-o": given.output_tensor,
        "-i": given.input_tensor,
        "-n": given.topn,
        "-ml": given.max_line,
        "--ignore_single_op_result": given.ignores_elements,
    }
    unused = [option for option, value in only_with_op.items() if value not in {"", None, False}]
    picks = [option for option, value in (("-r", given.range), ("-s", given.select)) if value]
    faults = (
        (unused and not given.op_name, f"{', '.join(unused)}: only with -op"),
        (given.mapping and given.op_name, "-map and -op exclude each other"),
        (given.mapping and not given.fusion_rule_file, "-map needs -f, the graph file of the model"),
        (picks and not given.fusion_rule_file, f"{', '.join(picks)}: only with -f"),
        (picks and given.op_name, f"{', '.join(picks)} and -op exclude each other"),
        (len(picks) > 1, "-r and -s exclude each other"),
        (given.max_cmp_size < 0, f"-max {given.max_cmp_size}: a number of elements, or 0 for all"),
        (given.post_process is not None, "-p is for .h5 files only"),
    )
    for is_fault, message in faults:
        if is_fault:
            raise ToolError(ReturnCode.PARAMETER, message)
    _check_unsupported(given)
    _check_numbers(given)


def _check_unsupported(given: argparse.Namespace) -> None:
    if given.quant_fusion_rule_file:
        raise ToolError(ReturnCode.UNSUPPORTED, "-q: quantised models cannot be compared")
    for path in (given.my_dump_path, given.golden_dump_path):
        if path.endswith(_H5):
            raise ToolError(ReturnCode.UNSUPPORTED, f"{path}: .h5 files cannot be compared")
    if given.advisor and (given.range or given.select or given.op_name):
        _log.warning("-advisor does nothing beside -r, -s and -op")
        given.advisor = False
    given.overflow_detection |= given.advisor


def _check_numbers(given: argparse.Namespace) -> None:
    limits = (("-n", given.topn, (1, detail.MOST_SHOWN)), ("-ml", given.max_line, detail.LINES))
    for option, value, (low, high) in limits:
        if value is not None and not low <= value <= high:
            raise ToolError(ReturnCode.INDEX, f"{option} {value}: a number from {low} to {high}")


def _choice(given: argparse.Namespace) -> Choice:
    return algorithm_choice.choose(
        ",".join(given.algorithm), given.algorithm_options, given.custom_script_path
    )


def _files(given: argparse.Namespace) -> ReturnCode:
    choice = _choice(given)
    found = two_files.compare(given.my_dump_path, given.golden_dump_path, choice, limit=given.max_cmp_size)
    log_scores(choice.names, found)
    return ReturnCode.DONE


def _groups(given: argparse.Namespace, sides: Sides) -> frozenset[int] | None:
    if sides.rules is None or not (given.range or given.select):
        return None
    read, text = (places.of_range, given.range) if given.range else (places.of_select, given.select)
    return places.groups(read(text, sides.rules), sides.rules)


def _mapping(given: argparse.Namespace, sides: Sides) -> ReturnCode:
    chosen = _groups(given, sides)
    found = [pair for item in sides.groups(chosen) for pair in sides.pairs(item)]
    text = comparison_csv.mapping(found, has_sequence=chosen is not None)
    path = reports.write(given.output, reports.stamped("mapping", ".csv"), [text])
    _log.info("The mapping has been written to %r.", path)
    return ReturnCode.DONE


def _directories(given: argparse.Namespace, sides: Sides) -> ReturnCode:
    options = Options(_choice(given), given.max_cmp_size, given.overflow_detection, _groups(given, sides))
    rows = _rows(sides, options)
    shown = Shown.of(sides, overflow=options.finds_overflow, sequence=options.groups is not None)
    text = comparison_csv.result(rows, options.choice.names, shown)
    path = reports.write(given.output, reports.stamped("result", ".csv"), [text])
    _log.info("The comparison result has been written to %r.", path)
    if given.advisor:
        _advise(given, sides, options, rows)
    return _verdict(rows)


def _rows(sides: Sides, options: Options) -> list[Row]:
    found: list[Row] = []
    with messages.bar("operators", len(sides.groups(options.groups))) as advance:
        for rows in comparison.rows(sides, options):
            for row in rows:
                if row.pair.fault:
                    _log.warning("%s", row.pair.fault)
            found += rows
            advance()
    return found


def _verdict(rows: Sequence[Row]) -> ReturnCode:
    """Log what was compared and what was not; return what that comes to."""
    compared = sum(not row.pair.fault for row in rows)
    others = len(rows) - compared
    _log.info("Compared %d tensors; %d tensors or operators could not be compared.", compared, others)
    if not compared:
        _log.error("Nothing was compared: no tensor has a counterpart. Are these dumps of the same model?")
    return comparison.code_of(rows)


def _advise(given: argparse.Namespace, sides: Sides, options: Options, rows: Sequence[Row]) -> None:
    inputs = sides.rules.data_nodes if sides.rules is not None else ()
    lines = advisor.advise(rows, options.choice.names, inputs).lines()
    for line in lines:
        _log.info("%s", line)
    path = reports.write(given.output, advisor.SUMMARY, [f"{line}\n" for line in lines])
    _log.info("The advice has been written to %r.", path)


def _one_tensor(given: argparse.Namespace, sides: Sides) -> ReturnCode:
    io = IO.INPUT if given.input_tensor else IO.OUTPUT
    index = _index(given.input_tensor or given.output_tensor or "0")
    found = detail.elements(sides, given.op_name, io, index)
    prefix = detail.prefix(given.op_name, io, index)
    for path in _element_files(given, found, prefix):
        _log.info("Written: %r", path)
    return ReturnCode.DONE


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ToolError(ReturnCode.PARAMETER, f"-o/-i {text!r}: the number of an output or input")
    return int(text)


def _element_files(given: argparse.Namespace, found: ElementPairs, prefix: str) -> list[str]:
    absolute, relative = (list(table) for table in detail.most_different(found, given.topn or _DEFAULT_TOP))
    texts = {
        f"{prefix}_absolute_error_topn.csv": absolute,
        f"{prefix}_relative_error_topn.csv": relative,
        f"{prefix}_summary.txt": [detail.summary(found)],
    }
    for title, table in (("Absolute Error TopN", absolute), ("Relative Error TopN", relative)):
        _log.info("%s\n%s", title, "".join(table).replace("\t", "").rstrip())
    written = [reports.write(given.output, name, text) for name, text in texts.items()]
    written.append(reports.write_bytes(given.output, f"{prefix}.npy", detail.tensor_file(found)))
    if not given.ignores_elements:
        for start, text in detail.tables(found, given.max_line or detail.LINES[1]):
            written.append(reports.write(given.output, f"{prefix}_{start}.csv", text))
    return written
