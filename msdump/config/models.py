"""The wire models of MINDSPORE_DUMP_CONFIG: which keys exist and what each one takes.

Error messages, the JSON Schema and the reference page derive from these models;
what depends on the mode or on another key stands in ``rules``.

Fields are described by the texts under them. These are read, by parsing the source, only when a schema or a
page is made; pydantic would read them in every run (``use_attribute_docstrings``).
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError

from msdump.config.source import choice
from msdump.statistics import CATEGORIES, ON_DEVICE


class Described:
    """A base of models; a field's description in its JSON Schema is the text under the field."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON Schema of the model, in which its fields are described."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        assert issubclass(cls, BaseModel), cls
        for name, text in descriptions(cls).items():
            title = name if name in properties else cls.model_fields[name].alias
            properties[title].setdefault("description", text)
        return schema


@functools.cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Return what each field of a model says: its ``Field(description=...)``, else the text under it.

    Fields without either are left out.
    """
    said = {name: field.description for name, field in model.model_fields.items()}
    for base in model.__mro__:
        # a model made by create_model has no source; its fields have descriptions
        if any(name in said and not said[name] for name in inspect.get_annotations(base)):
            under = _texts_under(base)
            said |= {name: under.get(name) for name, text in said.items() if not text}
    return {name: text for name, text in said.items() if text}


def _texts_under(model: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field in the source of a class."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(definition, ast.ClassDef), model
    texts = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                texts[name] = inspect.cleandoc(said)
    return texts


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a field takes, in the words of its error message.

    Attributes:
        text: The value.
        item: Each item of it, for a list.
    """

    text: str
    item: str = ""


def _whole(value: Any) -> Any:
    """Refuse true and 1.0, which pydantic's Literal takes for the number 1 because they are equal to it."""
    if type(value) is not int:
        raise PydanticCustomError("whole_number", "not a whole number")
    return value


Choice012: TypeAlias = Annotated[Literal[0, 1, 2], BeforeValidator(_whole)]
Unsigned: TypeAlias = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
_BIGGEST: Final = (1 << 63) - 1  # of a size in bytes
UNSIGNED: Final = Allowed("a whole number from 0 to 4294967295")
BOOLEAN: Final = Allowed("true or false")

_COMPUTED: Final = (
    f'Where statistics are computed; "device" only on Ascend, for {choice(ON_DEVICE, last="and")}.'
)

if TYPE_CHECKING:
    Category: TypeAlias = str
else:
    Category = Literal[tuple(CATEGORIES)]  # type checkers read no computed one


class Section(Described, BaseModel):
    """One object of the configuration; keys it does not know are left to the reader to report."""

    # strict: MindSpore refuses "1" and true for numbers. ignore: unknown keys only warn, with a suggestion.
    # defer_build: the validators are built at the first use, which a process without a dump never reaches.
    model_config = ConfigDict(strict=True, extra="ignore", defer_build=True)


class CommonDumpSettings(Section):
    """What is dumped, when, and where to."""

    dump_mode: Annotated[
        Choice012, Allowed("0 (all operators), 1 (those in kernels) or 2 (those of set_dump)")
    ]
    """Which operators are dumped. 0: all, 1: those that kernels selects, 2: those that set_dump marked."""

    path: Annotated[str, Allowed("a text, an absolute path")] = ""
    """Absolute root of the dump; MindSpore itself takes only letters, digits, "_", "-" and "/".
    Missing or empty: $MS_DIAGNOSTIC_DATA_PATH/debug_dump."""

    net_name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=255),
        Allowed("1 to 255 letters, digits, '_' or '-'"),
    ]
    """Name of the network's directory."""

    iteration: Annotated[str, Allowed("a text such as '0|5-8|100-120' or 'all'")]
    """Iterations to dump, from 0: numbers and inclusive ranges joined by "|", or "all"."""

    saved_data: Annotated[
        Literal["tensor", "statistic", "full"], Allowed("'tensor', 'statistic' or 'full'")
    ] = "tensor"
    """What is saved of each tensor: its data, its statistics (not on CPU), or both."""

    input_output: Annotated[Choice012, Allowed("0 (inputs and outputs), 1 (inputs) or 2 (outputs)")]
    """Which tensors of an operator are dumped. 0: inputs and outputs, 1: inputs, 2: outputs."""

    kernels: Annotated[
        list[str], Allowed("a list of texts", "a text: a full name, an operator type or name-regex(...)")
    ]
    """Operators that dump_mode 1 selects: full names, types, or "name-regex(expression)"; none: all."""

    support_device: Annotated[list[int], Allowed("a list of device numbers", "a whole number")]
    """Devices that dump. On CPU it is required but has no effect."""

    op_debug_mode: Annotated[
        Literal[0, 1, 2, 3, 4],
        BeforeValidator(_whole),
        Allowed("0 (off), 3 (overflowing operators) or 4 (the failing operator)"),
    ] = 0
    """What makes an operator worth dumping. 0: nothing special, 3: overflow, 4: an exception.
    Required under Ascend O2; only 0 on CPU and GPU."""

    overflow_number: Annotated[Unsigned, UNSIGNED] = 0
    """Number of overflowing operators to dump, 0: all. Only together with op_debug_mode 3."""

    statistic_category: Annotated[
        list[Category],
        Allowed(
            "a list of statistics",
            choice(f"'{name}'" if " " in name else name for name in CATEGORIES),
        ),
    ] = ["max", "min", "l2norm"]
    """Columns of statistic.csv, in this order; read where saved_data asks for statistics."""

    file_format: Annotated[Literal["npy", "bin"], Allowed("'npy' or 'bin'")] = "bin"
    """File format of Ascend O2; every other mode writes npy."""

    initial_iteration: Annotated[Unsigned, UNSIGNED] = 0
    """Number of the first iteration."""


class E2eDumpSettings(Section):
    """How Ascend O0/O1, CPU and GPU dump. Its presence implies O0 where no level is set."""

    enable: Annotated[bool, BOOLEAN] = False
    """true: synchronous. false: asynchronous on Ascend; CPU and GPU are always synchronous."""

    trans_flag: Annotated[bool, BOOLEAN] = True
    """true: tensors are saved in the host's format. false: in the device's."""

    stat_calc_mode: Annotated[
        Literal["host", "device"],
        Allowed("'host' or 'device'"),
        Field(description=_COMPUTED),
    ] = "host"

    device_stat_precision_mode: Annotated[Literal["high", "low"], Allowed("'high' or 'low'")] = "high"
    """Device statistics compute avg and l2norm in float32 ("high") or in the tensor's type ("low")."""

    sample_mode: Annotated[
        Literal[0, 1], BeforeValidator(_whole), Allowed("0 (whole tensors) or 1 (their first elements)")
    ] = 0
    """1: only the first sample_num elements of each tensor. Ascend O0/O1 only."""

    sample_num: Annotated[int, Field(ge=1, le=0xFFFFFFFF), Allowed("a whole number from 1 to 4294967295")] = (
        100
    )
    """Number of elements that sample_mode 1 keeps."""

    save_kernel_args: Annotated[bool, BOOLEAN] = False
    """Save the attributes of each operator as {op_type}.{op_name}.json; needs enable true."""


class MsdumpSettings(Section):
    """Settings of msdump itself; MindSpore ignores this object."""

    optimize: Annotated[Literal["none", "basic", "all"], Allowed("'none', 'basic' or 'all'")] = "none"
    """How far onnxruntime fuses operators that are not dumped; "none": bits are those of single operators."""

    naming: Annotated[Literal["2.5", "2.7", "classic"], Allowed("'2.5', '2.7' or 'classic'")] = "2.5"
    """Generation of MindSpore whose file names are written."""

    queue_bytes: Annotated[int, Field(ge=1, le=_BIGGEST), Allowed("a whole number of bytes from 1")] = (
        256 << 20
    )
    """Most bytes that wait in the queue of an asynchronous dump."""

    writer_threads: Annotated[int, Field(ge=1, le=1024), Allowed("a whole number from 1 to 1024")] = 1
    """Threads that write large tensors."""

    max_bytes: Annotated[
        int, Field(ge=0, le=_BIGGEST), Allowed("a whole number of bytes, 0 for no limit")
    ] = 0
    """Most bytes of tensor files and of saved graphs of a process, 0: no limit."""

    on_write_error: Annotated[Literal["raise", "warn"], Allowed("'raise' or 'warn'")] = "raise"
    """What a file that cannot be written does to the run, beyond the log line."""

    existing: Annotated[Literal["keep", "refuse", "replace"], Allowed("'keep', 'refuse' or 'replace'")] = (
        "keep"
    )
    """What is done about files that earlier programs dumped in the same place: 'keep' adds to them with a
    warning, 'refuse' is an error before anything runs, 'replace' removes those that bear names of msdump."""

    precision_mode: Annotated[
        Literal[
            "allow_fp32_to_fp16",
            "force_fp16",
            "force_fp32",
            "must_keep_origin_dtype",
            "allow_fp32_to_bf16",
            "allow_mix_precision",
            "allow_mix_precision_fp16",
            "allow_mix_precision_bf16",
        ],
        Allowed(
            "'allow_fp32_to_fp16', 'force_fp16', 'force_fp32', 'must_keep_origin_dtype', "
            "'allow_fp32_to_bf16', 'allow_mix_precision', 'allow_mix_precision_fp16' "
            "or 'allow_mix_precision_bf16'"
        ),
    ] = "allow_fp32_to_fp16"
    """Precision of the emulated Ascend device."""

    keep_dtype: Annotated[str, Allowed("a text, the path of a file")] = ""
    """File of operators that keep the types of the model: a node name or OpType::Type on each line."""

    customize_dtypes: Annotated[str, Allowed("a text, the path of a file")] = ""
    """File of operators with types of their own: NAME::InputDtype:bfloat16,OutputDtype:bfloat16."""

    modify_mixlist: Annotated[str, Allowed("a text, the path of a file")] = ""
    """JSON file that moves operator types between the lists of mixed precision (allow_mix_precision)."""

    fusion_switch: Annotated[Literal["on", "off"], Allowed("'on' or 'off'")] = "on"
    """Whether operators are fused where a whole graph is compiled (Ascend O2, acl)."""

    watch: Annotated[
        list[dict[str, Any]], Allowed("a list of watch rules", "an object with a condition, see Watch rules")
    ] = []
    """Rules that look at every tensor which the configuration selects; see Watch rules."""

    on_hit: Annotated[Literal["log", "dump", "stop"], Allowed("'log', 'dump' or 'stop'")] = "dump"
    """What a rule that hits does beyond the warning. 'log': nothing, 'dump': without history only operators
    that hit are written, with it the kept steps and the one that goes on, 'stop': the run ends, too."""

    history: Annotated[Unsigned, UNSIGNED] = 0
    """Steps that are kept in memory, and written only where a rule hits ('dump', 'stop'), an operator fails
    or the program is ended; 0: what is dumped is written at once."""

    history_bytes: Annotated[int, Field(ge=1, le=_BIGGEST), Allowed("a whole number of bytes from 1")] = (
        256 << 20
    )
    """Most memory of the kept steps, and again of what rules compare with the step before; oldest steps go
    first, whole."""


BLOCKS: Final[dict[str, type[Section]]] = {
    "common_dump_settings": CommonDumpSettings,
    "e2e_dump_settings": E2eDumpSettings,
    "msdump": MsdumpSettings,
}
