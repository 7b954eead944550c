"""Lines of ``keep_dtype`` and ``customize_dtypes`` files, the grammar of ATC's options of these names.

keep_dtype       = name | "OpType::" type
customize_dtypes = name "::InputDtype:" types ",OutputDtype:" types
                 | "OpType::" type ":InputDtype:" types ",OutputDtype:" types
types            = type {"," type}

A name is a node name of the model. Empty lines and lines that begin with ``#`` say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from msdump.config.source import caret
from msdump.dtypes import from_name
from msdump.errors import ConfigValueError, FormatError, Problem
from msdump.precision.operator_dtypes import DtypeRule

_BY_TYPE: Final = "OpType::"
_CUSTOM: Final = re.compile(r"(?P<target>.+?)::?InputDtype:(?P<reads>.*?),? *OutputDtype:(?P<writes>.*)")
_FORM: Final = "NAME::InputDtype:TYPE,OutputDtype:TYPE, or OpType::TYPE:InputDtype:TYPE,OutputDtype:TYPE"
_ALIASES: Final = {"float": "float32", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_FLOATS: Final = ("float16", "bfloat16", "float32")


class _LineError(ValueError):
    """A line that does not follow its grammar."""


def parse_kept(text: str, source: str) -> tuple[DtypeRule, ...]:
    """Return the rules of a ``keep_dtype`` file.

    Args:
        text: Its contents.
        source: Its path, for messages.

    Raises:
        ConfigValueError: Lines are faulty; all of them are told.

    >>> [(rule.name, rule.is_type) for rule in parse_kept("OpType::ReLU", "f")]
    [('ReLU', True)]
    """
    return _rules(text, source, _kept)


def parse_customized(text: str, source: str) -> tuple[DtypeRule, ...]:
    """Return the rules of a ``customize_dtypes`` file; arguments and errors as for ``parse_kept``.

    >>> rule = parse_customized("add1::InputDtype:float16,float16,OutputDtype:float32", "f")[0]
    >>> rule.name, rule.reads, rule.writes
    ('add1', 'float16', 'float32')
    """
    return _rules(text, source, _customized)


def _rules(text: str, source: str, parse: Callable[[str, str], DtypeRule]) -> tuple[DtypeRule, ...]:
    rules: dict[tuple[str, bool], DtypeRule] = {}
    problems = []
    for number, line in _lines(text):
        try:
            rule = parse(line, f"{source}:{number}")
        except _LineError as error:
            problems.append(Problem("", str(error), number, 1, caret(line, 0, len(line))))
            continue
        earlier = rules.setdefault((rule.name, rule.is_type), rule)
        if (earlier.reads, earlier.writes) != (rule.reads, rule.writes):
            where = earlier.place.rpartition(":")[2]
            problems.append(Problem("", f"{rule.name!r} has other types in line {where}", number, 1))
    if problems:
        raise ConfigValueError(source, tuple(problems))
    return tuple(rules.values())


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _kept(line: str, place: str) -> DtypeRule:
    if "InputDtype:" in line or "OutputDtype:" in line:
        raise _LineError("types belong into a customize_dtypes file; keep_dtype takes a name or OpType::TYPE")
    return DtypeRule(*_target(line), place)


def _customized(line: str, place: str) -> DtypeRule:
    match = _CUSTOM.fullmatch(line)
    if match is None:
        raise _LineError(f"must be {_FORM}")
    return DtypeRule(*_target(match["target"]), place, _float(match["reads"]), _float(match["writes"]))


def _target(text: str) -> tuple[str, bool]:
    """Return the name of an operator or a type, and whether it is a type."""
    if not text.startswith(_BY_TYPE):
        return text, False
    name = text.removeprefix(_BY_TYPE)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise _LineError("one operator type must stand behind OpType::, as in OpType::MatMul")
    return name, True


def _float(text: str) -> str:
    """Return the float type in a list of types; the device converts no others."""
    names = [_ALIASES.get(name.strip().lower(), name.strip().lower()) for name in text.split(",")]
    unknown = [name for name in names if not _is_dtype(name)]
    if unknown:
        raise _LineError(f"{unknown[0]!r} is no element type")
    floats = {name for name in names if name in _FLOATS}
    if len(floats) != 1:
        many = "more than one of them" if floats else "none of them"
        raise _LineError(f"the emulated device takes one float type ({', '.join(_FLOATS)}) here, not {many}")
    return floats.pop()


def _is_dtype(name: str) -> bool:
    try:
        from_name(name)
    except FormatError:
        return False
    return True
