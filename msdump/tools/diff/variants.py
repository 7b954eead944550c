"""The grammar of variants: what a network runs on, in one text such as ``Ascend:force_fp16:O2``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msdump.errors import InputError, name_hint
from msdump.plan import Context, DeviceTarget, JitLevel, OverflowMode, PrecisionMode
from msdump.tools.judge.limits import coarser

SEPARATOR: Final = ":"

GRAMMAR: Final[Mapping[str, str]] = {
    "CPU": "onnxruntime's kernels on the host, one operator at a time, as the model says",
    "float32": "the same as CPU",
    "float64": "every float32 operator computes in float64, on inputs and weights of float32",
    "GPU": "onnxruntime's CUDA kernels",
    "Ascend[:PRECISION_MODE][:OVERFLOW_MODE][:LEVEL]": "the emulated device; the words in any order",
    "onnxruntime[:LEVEL]": "the graph as onnxruntime optimises it: none, basic, extended, all (default)",
}
"""Every variant and its meaning, for help texts and the documentation."""


class Engine(enum.Enum):
    """What runs the operators of a variant."""

    DEVICE = enum.auto()
    """The host, the GPU or the emulated Ascend, as the context says."""
    FLOAT64 = enum.auto()
    OPTIMISED = enum.auto()
    """The host, and the graph is what onnxruntime's optimiser made of the model."""


class Optimisation(enum.StrEnum):
    """How far onnxruntime optimises a graph."""

    NONE = "none"
    BASIC = "basic"
    EXTENDED = "extended"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a network.

    Attributes:
        text: The variant as the user wrote it.
        engine: What runs the operators.
        context: Where they run.
        optimisation: What onnxruntime does to the graph before.
    """

    text: str
    engine: Engine = Engine.DEVICE
    context: Context = field(default_factory=Context)
    optimisation: Optimisation = Optimisation.NONE

    @property
    def precision(self) -> str:
        """The coarsest element type that it computes in where the model says float32; "" for float32."""
        if self.context.device_target is not DeviceTarget.ASCEND:
            return ""
        mode = self.context.precision_mode or PrecisionMode.ALLOW_FP32_TO_FP16
        return _COARSEST.get(mode, "")


_COARSEST: Final[Mapping[PrecisionMode, str]] = {
    PrecisionMode.ALLOW_FP32_TO_FP16: "float16",
    PrecisionMode.FORCE_FP16: "float16",
    PrecisionMode.ALLOW_FP32_TO_BF16: "bfloat16",
}


def precision(*variants: Variant) -> str:
    """Return the coarsest element type that any of some variants computes in, "" for float32.

    >>> precision(parse("Ascend:force_fp16"), parse("float32"))
    'float16'
    """
    return coarser(*(variant.precision for variant in variants))


def parse(text: str) -> Variant:
    """Return the variant of a text; upper and lower case are the same.

    >>> variant = parse("Ascend:O1:force_fp16")
    >>> variant.context.jit_level, variant.context.precision_mode
    (<JitLevel.O1: 'O1'>, <PrecisionMode.FORCE_FP16: 'force_fp16'>)

    Args:
        text: As ``GRAMMAR`` has it.

    Raises:
        InputError: Another text; the message says what is allowed.
    """
    name, *words = text.strip().split(SEPARATOR)
    make = _VARIANTS.get(name.lower())
    if make is None:
        names = [title.partition("[")[0] for title in GRAMMAR]
        raise InputError(f"no variant {text!r}; there are {', '.join(GRAMMAR)}{name_hint(name, names)}")
    return make(text, words)


def _plain(**fields: Any) -> Callable[[str, list[str]], Variant]:
    def make(text: str, words: list[str]) -> Variant:
        if words:
            raise InputError(f"variant {text!r}: nothing can stand behind {text.partition(SEPARATOR)[0]}")
        return Variant(text, **fields)

    return make


def _ascend(text: str, words: list[str]) -> Variant:
    """Return an emulated device; which of its settings a word is follows from the word."""
    chosen: dict[str, Any] = {}
    for word in words:
        setting = _DEVICE_WORDS.get(word.lower())
        if setting is None:
            hint = name_hint(word.lower(), _DEVICE_WORDS)
            raise InputError(f"variant {text!r}: {word!r} is none of {', '.join(_DEVICE_WORDS)}{hint}")
        field_name, value = setting
        if field_name in chosen:
            raise InputError(f"variant {text!r}: {word!r} is its second {field_name.replace('_', ' ')}")
        chosen[field_name] = value
    return Variant(text, context=replace(Context(device_target=DeviceTarget.ASCEND), **chosen))


def _optimised(text: str, words: list[str]) -> Variant:
    word = words[0].lower() if words else Optimisation.ALL
    if len(words) > 1 or word not in tuple(Optimisation):
        raise InputError(
            f"variant {text!r}: one of {', '.join(Optimisation)} may stand behind onnxruntime"
            f"{name_hint(word, tuple(Optimisation))}"
        )
    return Variant(text, Engine.OPTIMISED, optimisation=Optimisation(word))


_DEVICE_WORDS: Final[Mapping[str, tuple[str, Any]]] = {
    **{mode.lower(): ("precision_mode", mode) for mode in PrecisionMode},
    **{mode.lower(): ("overflow_mode", mode) for mode in OverflowMode},
    **{level.lower(): ("jit_level", level) for level in JitLevel},
}
"""What can stand behind Ascend: the field of Context that each word sets, and its value."""

_VARIANTS: Final[Mapping[str, Callable[[str, list[str]], Variant]]] = {
    "cpu": _plain(),
    "float32": _plain(),
    "float64": _plain(engine=Engine.FLOAT64),
    "gpu": _plain(context=Context(device_target=DeviceTarget.GPU)),
    "ascend": _ascend,
    "onnxruntime": _optimised,
}
