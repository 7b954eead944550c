"""Files that give single operators another precision, as ATC's options keep_dtype and customize_dtypes do.

keep_dtype       = name | "OpType::" type
customize_dtypes = name "::InputDtype:" types ",OutputDtype:" types
                 | "OpType::" type ":InputDtype:" types ",OutputDtype:" types
types            = type {"," type}

A name is a node name of the model. Empty lines and lines that begin with ``#`` say nothing.

``modify_mixlist``: a JSON file that moves operator types between the lists of mixed precision.

``{"black-list": {"to-add": [...], "to-remove": [...]}, "white-list": {...}, "gray-list": {...}}``.
Types that leave the blocklist or the trustlist move to the graylist. A type that is added to a list
leaves the one that it was in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msdump.config.source import FaultReport, Path, caret, file_bytes, parse, refuse, show
from msdump.dtypes import from_name
from msdump.errors import ConfigValueError, FormatError, Problem
from msdump.plan import DtypeRule, MixLists, OperatorDtypes

_BY_TYPE: Final = "OpType::"
_CUSTOM: Final = re.compile(r"(?P<target>.+?)::?InputDtype:(?P<reads>.*?),? *OutputDtype:(?P<writes>.*)")
_FORM: Final = "NAME::InputDtype:TYPE,OutputDtype:TYPE, or OpType::TYPE:InputDtype:TYPE,OutputDtype:TYPE"
_ALIASES: Final = {"float": "float32", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_FLOATS: Final = ("float16", "bfloat16", "float32")


class _LineError(ValueError):
    """A line that does not follow its grammar."""


def _rules(text: str, source: str, parse: Callable[[str, str], DtypeRule]) -> tuple[DtypeRule, ...]:
    """Return the rules of a ``keep_dtype`` or ``customize_dtypes`` file.

    >>> [(rule.name, rule.is_type) for rule in _rules("OpType::ReLU", "f", _kept)]
    [('ReLU', True)]
    >>> rule = _rules("add1::InputDtype:float16,float16,OutputDtype:float32", "f", _customized)[0]
    >>> rule.name, rule.reads, rule.writes
    ('add1', 'float16', 'float32')
    """
    rules: dict[tuple[str, bool], DtypeRule] = {}
    problems = []
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            rule = parse(line, f"{source}:{number}")
        except _LineError as error:
            problems.append(Problem("", str(error), number, 1, caret(line, 0, len(line))))
            continue
        earlier = rules.setdefault((rule.name, rule.is_type), rule)
        if (earlier.reads, earlier.writes) != (rule.reads, rule.writes):
            where = earlier.place.rpartition(":")[2]
            problems.append(Problem("", f"{rule.name!r} has other element types in line {where}", number, 1))
    if problems:
        raise ConfigValueError(source, tuple(problems))
    return tuple(rules.values())


def _kept(line: str, place: str) -> DtypeRule:
    if "InputDtype:" in line or "OutputDtype:" in line:
        raise _LineError(
            "element types belong in a customize_dtypes file; a line of keep_dtype must be a "
            "name or OpType::TYPE"
        )
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
        raise _LineError("must have one operator type after OpType::, as in OpType::MatMul")
    return name, True


def _float(text: str) -> str:
    """Return the float type in a list of types; the device converts no others."""
    names = [_ALIASES.get(name.strip().lower(), name.strip().lower()) for name in text.split(",")]
    for name in names:
        try:
            from_name(name)
        except FormatError:
            raise _LineError(f"{name!r} is not an element type") from None
    floats = {name for name in names if name in _FLOATS}
    if len(floats) != 1:
        many = "more than one of them" if floats else "none of them"
        raise _LineError(f"the emulated device takes one float type ({', '.join(_FLOATS)}) here, not {many}")
    return floats.pop()


_LISTS = (_BLACK, _WHITE, _GRAY) = ("black-list", "white-list", "gray-list")
_CHANGES = (_ADDED, _REMOVED) = ("to-add", "to-remove")


def _mix_lists(data: bytes, source: str) -> MixLists:
    """Return the changes of a ``modify_mixlist`` file; errors as of ``operator_dtypes``."""
    document = parse(data, source)
    report = FaultReport(document)
    if not isinstance(document.value, dict):
        report.error((), f"= {show(document.value)}: the file must hold one JSON object")
        report.close()
    # an addition to a list beats a removal from one
    added: dict[str, Path] = {}
    removed: dict[str, Path] = {}
    for path, name in [*_entries(document.value, report)]:
        place = removed if path[1] == _REMOVED else added
        earlier = place.setdefault(name, path)
        if path[1] == _ADDED and earlier[0] != path[0]:
            report.error(path, f"= {show(name)}: is added to the {earlier[0]} too; keep one of the two")
    changes = removed | added
    for name, path in changes.items():
        if path[:2] == (_GRAY, _REMOVED):
            report.error(path, f"= {show(name)}: add it to the {_BLACK} or the {_WHITE} instead")
    report.close()
    blocked, trusted, follows = (
        tuple(name for name, path in changes.items() if path[:2] == (key, _ADDED)) for key in _LISTS
    )
    return MixLists(
        source,
        blocked=blocked,
        trusted=trusted,
        follows=(*(name for name, path in changes.items() if path[1] == _REMOVED), *follows),
    )


def _entries(lists: dict[str, Any], report: FaultReport) -> Iterator[tuple[Path, str]]:
    """Yield (JSON path, operator type) of every change; report unknown keys and faulty values."""
    report.warn_of_keys((), lists, _LISTS)
    for key, section in lists.items():
        if key in _LISTS and not isinstance(section, dict):
            report.error((key,), f"= {show(section)}: must be an object with {' or '.join(_CHANGES)}")
        elif key in _LISTS:
            report.warn_of_keys((key,), section, _CHANGES)
            for change in filter(_CHANGES.__contains__, section):
                yield from _types((key, change), section[change], report)


def _types(path: Path, names: Any, report: FaultReport) -> Iterator[tuple[Path, str]]:
    if not isinstance(names, list):
        report.error(path, f"= {show(names)}: must be a list of operator types")
        return
    for index, name in enumerate(names):
        if isinstance(name, str) and name:
            yield (*path, index), name
        else:
            report.error((*path, index), f"= {show(name)}: must be an operator type")


KEEP_DTYPE: Final = "keep_dtype"
CUSTOMIZE_DTYPES: Final = "customize_dtypes"
MODIFY_MIXLIST: Final = "modify_mixlist"
KEYS: Final = (KEEP_DTYPE, CUSTOMIZE_DTYPES, MODIFY_MIXLIST)
"""Keys and options that name such a file."""

_FIELDS: Final = {KEEP_DTYPE: "kept", CUSTOMIZE_DTYPES: "customized", MODIFY_MIXLIST: "lists"}


def operator_dtypes(paths: Mapping[str, str]) -> OperatorDtypes:
    """Return the operators' types that files configure.

    Args:
        paths: Their paths by key (``KEYS``); "" for none.

    Raises:
        ConfigSyntaxError: A file is missing or unreadable, or no JSON.
        ConfigValueError: A file has faulty lines or values; the error holds all of them.
    """
    return OperatorDtypes(**{_FIELDS[key]: _read(path, key) for key, path in paths.items() if path})


def _read(path: str, key: str) -> Any:
    remedy = f"{key} must be the path of a readable file"
    data = file_bytes(path, remedy)
    if key == MODIFY_MIXLIST:
        return _mix_lists(data, path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(path, f"is not UTF-8 text (byte {error.start}); {remedy}")
    return _rules(text, path, _kept if key == KEEP_DTYPE else _customized)
