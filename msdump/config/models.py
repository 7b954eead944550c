"""The wire models of MINDSPORE_DUMP_CONFIG: its keys and their values.

Error messages, the JSON Schema and the reference page derive from these models;
demands of the mode or of another key stand in ``rules``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from msdump.config.source import choice
from msdump.plan import PrecisionMode
from msdump.statistics import CATEGORIES, ON_DEVICE


@dataclass(frozen=True, slots=True)
class Allowed:
    """Allowed values of a field, in the words of its error message."""

    text: str  # the value
    item: str = ""  # each item of it, for a list


def _whole(value: Any) -> Any:
    """Refuse true and 1.0, which pydantic's Literal takes for the number 1 because they are equal to it."""
    if type(value) is not int:
        raise PydanticCustomError("whole_number", "not a whole number")
    return value


Choice012: TypeAlias = Annotated[Literal[0, 1, 2], BeforeValidator(_whole)]
_BIGGEST: Final = (1 << 63) - 1  # of a size in bytes
Flag: TypeAlias = Annotated[bool, Allowed("true or false")]
Unsigned: TypeAlias = Annotated[
    int, Allowed("a whole number from 0 to 4294967295"), Field(ge=0, le=0xFFFFFFFF)
]
FilePath: TypeAlias = Annotated[str, Allowed("a text, the path of a file")]
ByteCount: TypeAlias = Annotated[int, Allowed("a whole number of bytes from 1"), Field(ge=1, le=_BIGGEST)]
if TYPE_CHECKING:
    Category: TypeAlias = str
    Precision: TypeAlias = str
else:  # type checkers cannot evaluate a Literal of computed values
    Category = Literal[tuple(CATEGORIES)]
    Precision = Literal[tuple(map(str, PrecisionMode))]

_COMPUTED: Final = f'Where statistics are computed; "device" only on Ascend, for {choice(ON_DEVICE, "and")}.'


def about(text: str) -> Any:
    """Return the description of a field for the schema and the reference page."""
    return Field(description=text)


class Section(BaseModel):
    """One object of the configuration; keys it does not know are left to the reader to report."""

    # strict: MindSpore refuses "1" and true for numbers. ignore: unknown keys only warn, with a suggestion.
    # defer_build: the validators are built at the first use, which a process without a dump never reaches.
    model_config = ConfigDict(strict=True, extra="ignore", defer_build=True)


class CommonDumpSettings(Section):
    """Selection of operators, tensors and iterations, and the directory of the dump."""

    dump_mode: Annotated[
        Choice012,
        Allowed("0 (all operators), 1 (operators in kernels) or 2 (operators marked by set_dump)"),
        about(
            "Operators to dump. 0: all, 1: the ones that kernels selects, 2: the ones that set_dump marked."
        ),
    ]
    path: Annotated[
        str,
        Allowed("a text, an absolute path"),
        about(
            'Absolute root of the dump; MindSpore takes only letters, digits, "_", "-" and "/". '
            "Missing or empty: $MS_DIAGNOSTIC_DATA_PATH/debug_dump."
        ),
    ] = ""
    net_name: Annotated[
        str,
        Allowed("1 to 255 letters, digits, '_' or '-'"),
        Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=255),
        about("Name of the network's directory."),
    ]
    iteration: Annotated[
        str,
        Allowed("a text such as '0|5-8|100-120' or 'all'"),
        about('Iterations to dump, from 0: numbers and inclusive ranges joined by "|", or "all".'),
    ]
    saved_data: Annotated[
        Literal["tensor", "statistic", "full"],
        about("Contents saved for each tensor: the data, the statistics (not on CPU), or both."),
    ] = "tensor"
    input_output: Annotated[
        Choice012,
        Allowed("0 (inputs and outputs), 1 (inputs) or 2 (outputs)"),
        about("Tensors of an operator to dump. 0: inputs and outputs, 1: inputs, 2: outputs."),
    ]
    kernels: Annotated[
        list[str],
        Allowed("a list of texts", "a text: a full name, an operator type or name-regex(...)"),
        about(
            'Operators for dump_mode 1: full names, types, or "name-regex(expression)". Empty: all. '
            "A type selects all types that contain the text in any case; "
            '"name-regex(.*/MatMul-op.*)" selects exactly the type MatMul.'
        ),
    ]
    support_device: Annotated[
        list[int],
        Allowed("a list of device numbers", "a whole number"),
        about("Devices that dump. Required on CPU too, where it has no effect."),
    ]
    op_debug_mode: Annotated[
        Literal[0, 1, 2, 3, 4],
        BeforeValidator(_whole),
        Allowed("0 (off), 3 (overflowing operators) or 4 (the failing operator)"),
        about(
            "Events that select operators. 0: none, 3: overflow, 4: an exception. "
            "Required under Ascend O2; only 0 on CPU and GPU."
        ),
    ] = 0
    overflow_number: Annotated[
        Unsigned,
        about("Number of overflowing operators to dump, 0: all. Only together with op_debug_mode 3."),
    ] = 0
    statistic_category: Annotated[
        list[Category],
        Allowed("a list of statistics", choice(repr(name) if " " in name else name for name in CATEGORIES)),
        about("Columns of statistic.csv, in this order, if saved_data includes statistics."),
    ] = ["max", "min", "l2norm"]
    file_format: Annotated[
        Literal["npy", "bin"], about("File format under Ascend O2; every other mode writes npy.")
    ] = "bin"
    initial_iteration: Annotated[Unsigned, about("Number of the first iteration.")] = 0


class E2eDumpSettings(Section):
    """How Ascend O0/O1, CPU and GPU dump. Its presence implies O0 where no level is set."""

    enable: Annotated[
        Flag, about("true: synchronous. false: asynchronous on Ascend; CPU and GPU are always synchronous.")
    ] = False
    trans_flag: Annotated[
        Flag, about("true: tensors are saved in the host's format. false: in the device's.")
    ] = True
    stat_calc_mode: Annotated[Literal["host", "device"], about(_COMPUTED)] = "host"
    device_stat_precision_mode: Annotated[
        Literal["high", "low"],
        about(
            'Device statistics compute avg and l2norm in float32 ("high") or in the tensor\'s type ("low").'
        ),
    ] = "high"
    sample_mode: Annotated[
        Literal[0, 1],
        BeforeValidator(_whole),
        Allowed("0 (whole tensors) or 1 (their first elements)"),
        about("1: only the first sample_num elements of each tensor. Ascend O0/O1 only."),
    ] = 0
    sample_num: Annotated[
        int,
        Allowed("a whole number from 1 to 4294967295"),
        Field(ge=1, le=0xFFFFFFFF),
        about("Number of elements that sample_mode 1 keeps."),
    ] = 100
    save_kernel_args: Annotated[
        Flag, about("Save the attributes of each operator as {op_type}.{op_name}.json; needs enable true.")
    ] = False


class MsdumpSettings(Section):
    """Settings of msdump itself; MindSpore ignores this object."""

    optimize: Annotated[
        Literal["none", "basic", "all"],
        about(
            'Level of fusion by onnxruntime of operators that are not dumped; "none": results have the '
            "bits of single operators."
        ),
    ] = "none"
    naming: Annotated[Literal["2.5", "2.7", "classic"], about("Version of MindSpore's file names.")] = "2.5"
    scopes: Annotated[
        Literal["cell", "loaded"],
        about(
            'Names of the operators of a .mindir file. "cell": as in the network that was exported; '
            '"loaded": as in the file after mindspore.load, all in the scope Default.'
        ),
    ] = "cell"
    queue_bytes: Annotated[
        ByteCount, about("Largest number of bytes in the queue of an asynchronous dump.")
    ] = 256 << 20
    writer_threads: Annotated[
        int,
        Allowed("a whole number from 1 to 1024"),
        Field(ge=1, le=1024),
        about("Threads that write large tensors."),
    ] = 1
    max_bytes: Annotated[
        int,
        Allowed("a whole number of bytes, 0 for no limit"),
        Field(ge=0, le=_BIGGEST),
        about("Largest number of bytes of tensor files and saved graphs of a process. 0: no limit."),
    ] = 0
    on_write_error: Annotated[
        Literal["raise", "warn"],
        about("Effect of a file that cannot be written: an error that ends the run, or only a warning."),
    ] = "raise"
    existing: Annotated[
        Literal["keep", "refuse", "replace"],
        about(
            "Treatment of files that earlier programs dumped in the same place. 'keep': new files are "
            "added, with a warning; 'refuse': an error before the run; 'replace': the earlier files with "
            "names of msdump are removed."
        ),
    ] = "keep"
    precision_mode: Annotated[Precision, about("Precision of the emulated Ascend device.")] = (
        "allow_fp32_to_fp16"
    )
    keep_dtype: Annotated[
        FilePath,
        about(
            "File of operators that keep the model's element types: a node name or OpType::Type on each line."
        ),
    ] = ""
    customize_dtypes: Annotated[
        FilePath,
        about("File of operators with other element types: NAME::InputDtype:bfloat16,OutputDtype:bfloat16."),
    ] = ""
    modify_mixlist: Annotated[
        FilePath,
        about(
            "JSON file that moves operator types between the lists of mixed precision (allow_mix_precision)."
        ),
    ] = ""
    fusion_switch: Annotated[
        Literal["on", "off"], about("Fusion of operators when a whole graph is compiled (Ascend O2, acl).")
    ] = "on"
    watch: Annotated[
        list[dict[str, Any]],
        Allowed("a list of watch rules", "an object with a condition, see Watch rules"),
        about("Rules that check every selected tensor; see Watch rules."),
    ] = []
    on_hit: Annotated[
        Literal["log", "dump", "stop"],
        about(
            "Effect of a watch rule's hit, besides the warning. 'log': none; 'dump': only operators that hit "
            "are written, or, with history, the kept steps and the present one; 'stop': as 'dump', and the "
            "run ends."
        ),
    ] = "dump"
    history: Annotated[
        Unsigned,
        about(
            "Number of steps kept in memory; they are written if a watch rule hits ('dump', 'stop'), an "
            "operator fails or the program is ended. 0: files are written at once."
        ),
    ] = 0
    history_bytes: Annotated[
        ByteCount,
        about(
            "Largest memory of the kept steps, and again of the tensors kept for rules that compare steps; "
            "the oldest steps are dropped first, each as a whole."
        ),
    ] = 256 << 20


BLOCKS: Final[dict[str, type[Section]]] = {
    "common_dump_settings": CommonDumpSettings,
    "e2e_dump_settings": E2eDumpSettings,
    "msdump": MsdumpSettings,
}
