"""Opens the files that give single operators another precision, whichever door names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msdump import reading
from msdump.config.dtypes.lines import parse_customized, parse_kept
from msdump.config.dtypes.mix_lists import parse_mix_lists
from msdump.errors import ConfigSyntaxError, Problem
from msdump.precision.operator_dtypes import OperatorDtypes

KEEP_DTYPE: Final = "keep_dtype"
CUSTOMIZE_DTYPES: Final = "customize_dtypes"
MODIFY_MIXLIST: Final = "modify_mixlist"
KEYS: Final = (KEEP_DTYPE, CUSTOMIZE_DTYPES, MODIFY_MIXLIST)
"""Keys and options that name such a file."""

_LARGEST: Final = 64 << 20  # bytes of a file
_FIELDS: Final = {KEEP_DTYPE: "kept", CUSTOMIZE_DTYPES: "customized", MODIFY_MIXLIST: "lists"}


def operator_dtypes(paths: Mapping[str, str]) -> OperatorDtypes:
    """Return what files say.

    Args:
        paths: Their paths by key (``KEYS``); "" for none.

    Raises:
        ConfigSyntaxError: A file is missing or unreadable, or no JSON.
        ConfigValueError: A file has faulty lines or values; all of them are told.
    """
    fields = {_FIELDS[key]: _READERS[key](path, key) for key, path in paths.items() if path}
    return OperatorDtypes(**fields)


def _text_of(parse: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    def read(path: str, key: str) -> Any:
        try:
            text = _bytes(path, key).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _unusable(path, f"is no UTF-8 text (byte {error.start})", key) from None
        return parse(text, path)

    return read


def _read_lists(path: str, key: str) -> Any:
    return parse_mix_lists(_bytes(path, key), path)


_READERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    KEEP_DTYPE: _text_of(parse_kept),
    CUSTOMIZE_DTYPES: _text_of(parse_customized),
    MODIFY_MIXLIST: _read_lists,
}


def _bytes(path: str, key: str) -> bytes:
    try:
        return reading.read_bytes(path, _LARGEST)
    except FileNotFoundError:
        raise _unusable(path, "no such file", key) from None
    except IsADirectoryError:
        raise _unusable(path, "is a directory", key) from None
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})", key) from None


def _unusable(path: str, reason: str, key: str) -> ConfigSyntaxError:
    return ConfigSyntaxError(path, (Problem("", f"{reason}; {key} must be the path of a readable file"),))
