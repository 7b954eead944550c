"""The grammar of variants."""

import pytest

from msdump.errors import InputError
from msdump.judge.diff import Engine, models
from msdump.plan import DeviceTarget, JitLevel, OverflowMode, PrecisionMode


@pytest.mark.parametrize(
    ("text", "target", "engine", "level"),
    [
        ("CPU", DeviceTarget.CPU, Engine.DEVICE, "none"),
        ("float32", DeviceTarget.CPU, Engine.DEVICE, "none"),
        ("gpu", DeviceTarget.GPU, Engine.DEVICE, "none"),
        ("Float64", DeviceTarget.CPU, Engine.FLOAT64, "none"),
        ("ascend", DeviceTarget.ASCEND, Engine.DEVICE, "none"),
        ("onnxruntime", DeviceTarget.CPU, Engine.OPTIMISED, "all"),
        ("onnxruntime:BASIC", DeviceTarget.CPU, Engine.OPTIMISED, "basic"),
    ],
)
def test_a_name_says_what_runs_the_operators(text, target, engine, level):
    """Each name stands for a device, an engine and a level of optimisation, in upper or lower case."""
    variant = models.parse(text)

    assert (target, engine, level) == (variant.context.device_target, variant.engine, variant.optimisation)


@pytest.mark.parametrize(
    "text", ["Ascend:force_fp16:SATURATION_MODE:O2", "ascend:o2:Saturation_Mode:FORCE_FP16"]
)
def test_the_words_behind_ascend_stand_in_any_order(text):
    """Each word sets its field wherever it stands."""
    context = models.parse(text).context

    assert PrecisionMode.FORCE_FP16 is context.precision_mode
    assert OverflowMode.SATURATION is context.overflow_mode
    assert JitLevel.O2 is context.jit_level


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ascent", "did you mean 'Ascend'"),
        ("Ascend:forcefp16", "did you mean 'force_fp16'"),
        ("Ascend:O1:O2", "'O2' is its second jit level"),
        ("CPU:O1", "CPU takes no further words"),
        ("onnxruntime:most", "one of none, basic, extended, all"),
        ("", "no variant ''"),
    ],
)
def test_another_text_is_refused(text, expected):
    """The message lists the allowed texts, or the closest one."""
    with pytest.raises(InputError, match=expected):
        models.parse(text)


@pytest.mark.parametrize(
    ("expected", "texts"),
    [
        ("float16", ["Ascend", "float32"]),
        ("bfloat16", ["CPU", "Ascend:allow_fp32_to_bf16"]),
        ("bfloat16", ["Ascend:force_fp16", "Ascend:allow_fp32_to_bf16"]),
        ("", ["Ascend:force_fp32", "float64"]),
    ],
)
def test_the_coarsest_type_of_both_sides_counts(expected, texts):
    """Two sides are at best as precise as the coarser one computes."""
    assert expected == models.precision(*map(models.parse, texts))
