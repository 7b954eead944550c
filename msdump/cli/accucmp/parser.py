"""The command line of CANN's msaccucmp: its commands and options, in its spelling."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from msdump.tools.scores import algorithms

_NUMBERED: Final = ", ".join(f"{number}={name}" for number, name in enumerate(algorithms.ALL))

_Option = tuple[tuple[str, ...], dict[str, Any]]


# Each of these returns one row of a table of options: its spellings and what argparse knows of it.
# vendor: -alg takes any number of values, which options of click cannot; hence argparse.


def _required(short: str, name: str, text: str) -> _Option:
    return (short, f"--{name}"), {"dest": name, "required": True, "help": text}


def _text(short: str, name: str, text: str) -> _Option:
    return (short, f"--{name}"), {"dest": name, "default": "", "help": text}


def _number(short: str, name: str, text: str, **more: Any) -> _Option:
    return (short, f"--{name}"), {"dest": name, "type": int, "default": None, "help": text, **more}


def _flag(*spellings: str, dest: str, text: str) -> _Option:
    return spellings, {"dest": dest, "action": "store_true", "help": text}


_MINE: Final = _required("-m", "my_dump_path", "what is examined: a directory of dump files, or a .npy file")
_GOLDEN: Final = _required("-g", "golden_dump_path", "what it is compared with")
_OUTPUT: Final = _text("-out", "output", "directory of the results (default: the current one)")
# vendor: a file of version 1 is one protobuf message as a whole, without its length before it.
_VERSION: Final = _number(
    "-v", "version", "2: a header, then the tensors; 1: one message", choices=[1, 2], default=2
)
_INDEX: Final[tuple[_Option, ...]] = (
    _text("-o", "output_tensor", "number of the output"),
    _text("-i", "input_tensor", "number of the input"),
)

COMPARE: Final[tuple[_Option, ...]] = (
    _MINE,
    _GOLDEN,
    _OUTPUT,
    _text("-f", "fusion_rule_file", "graph JSON of the model, for golden tensors of the original network"),
    _text("-q", "quant_fusion_rule_file", "graph JSON of a quantised model (not supported)"),
    _text("-cf", "close_fusion_rule_file", "graph JSON of the model compiled without fusion"),
    _text("-c", "custom_script_path", "directory of your own algorithms, algorithm/alg_NAME.py"),
    _text("-a", "algorithm_options", "arguments of your own algorithms, NAME:key=value,key=value;NAME:..."),
    (
        ("-alg", "--algorithm"),
        {
            "dest": "algorithm",
            "nargs": "+",
            "default": ["all"],
            "help": f"names or numbers, separated by commas or spaces; {_NUMBERED}",
        },
    ),
    _flag("-map", "--mapping", dest="mapping", text="only write which file is compared with which"),
    _flag("-overflow_detection", dest="overflow_detection", text="tell float16 tensors that overflow"),
    _text("-r", "range", "operators by their place in the graph file, start,end,step"),
    _text("-s", "select", "operators by their places in the graph file, 1,5,7"),
    _number("-p", "post_process", "for .h5 files, which are not supported", choices=[0, 1]),
    _number("-max", "max_cmp_size", "compare only so many elements from the first, 0: all", default=0),
    _flag("-advisor", dest="advisor", text="write advice; turns -overflow_detection on"),
    _VERSION,
    (("-op", "--op_name"), {"dest": "op_name", "default": None, "help": "show one tensor of this operator"}),
    _number("-n", "topn", "how many elements that differ most, 1 to 10000 (default: 20)"),
    _number("-ml", "max_line", "most lines of a file, 10000 to 1000000 (default: 1000000)"),
    _flag("--ignore_single_op_result", dest="ignores_elements", text="write no list of all elements"),
    # Accepted because scripts pass it.
    _flag("-ffts", dest="ffts", text="compare the parts of FFTS+ tasks one by one, as is always done"),
)

FILE_COMPARE: Final[tuple[_Option, ...]] = (
    _MINE,
    _GOLDEN,
    _required("-out", "output", "directory of the results"),
)

OVERFLOW: Final[tuple[_Option, ...]] = (
    _required("-d", "dump_path", "directory of the dump, searched with everything below"),
    _required("-out", "output", "directory of the results"),
    _number("-n", "top_n", "how many overflows, oldest first (default: 1)", choices=range(1, 6), default=1),
)

CONVERT: Final[tuple[_Option, ...]] = (
    _required("-d", "dump_file", "a dump file, several separated by commas, or a directory"),
    _OUTPUT,
    (("-f", "--format"), {"dest": "format", "default": None, "help": "memory format to convert to"}),
    (("-s", "--shape"), {"dest": "shape", "default": None, "help": "shape to convert to, 1,3,224,224"}),
    _text("-c", "custom_script_path", "directory of your own conversions, format_convert/convert_A_to_B.py"),
    _VERSION,
    (
        ("-t", "--type"),
        {"dest": "type", "choices": ["npy", "bin", "msnpy", "pt"], "default": "npy", "help": "file type"},
    ),
)

_COMMANDS: Final[tuple[tuple[str, str, tuple[_Option, ...], bool], ...]] = (
    ("compare", "Compare the tensors of two dumps, or two .npy files.", COMPARE, True),
    ("convert", "Convert dump files to .npy or plain files.", CONVERT, True),
    ("overflow", "Tell which operators overflowed.", OVERFLOW, False),
    ("file_compare", "Compare two .npy files and keep the result.", FILE_COMPARE, False),
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line: a sub-parser for each command of the vendor's tool."""
    program = argparse.ArgumentParser("msaccucmp.py", description="CANN's tool for dumps, on any computer.")
    commands = program.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text, options, has_index in _COMMANDS:
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        _add(command, options)
        if has_index:
            _add(command.add_mutually_exclusive_group(), _INDEX)
    return program


def _add(arguments: Any, options: Sequence[_Option]) -> None:
    """Add options to a parser or to a group of one."""
    for flags, settings in options:
        arguments.add_argument(*flags, **settings)
