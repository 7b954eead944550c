"""A plan in words."""

from dataclasses import replace

import pytest

from msdump.look import subjects
from msdump.plan import (
    Context,
    DeviceTarget,
    DtypeRule,
    FileFormat,
    JitLevel,
    Naming,
    OnWriteError,
    OperatorDtypes,
    StatisticSpec,
    Tree,
    Trigger,
)
from msdump.selector import DumpMode, IterationSet, KernelPattern, PatternKind, Selector
from tests import plans

O0 = Context(DeviceTarget.ASCEND, JitLevel.O0, device_id=3)
O2 = Context(DeviceTarget.ASCEND, JitLevel.O2)
PLAN = plans.made("d.json", net_name="Net", iterations=IterationSet.of([(0, 0), (5, 8)]))


def test_plain_plan_is_said_in_six_lines():
    """A plan with defaults says device, place, iterations, operators, tensors and writing."""
    assert subjects(PLAN) == {
        "device": "CPU, device 0",
        "files": "/dump/rank_{rank}/Net/{graph}/{iteration}/, names of MindSpore 2.5",
        "iterations": "0|5-8",
        "operators": "all",
        "tensors": "inputs and outputs, in host format, as .npy",
        "writing": "synchronous, the files are complete before the next segment starts",
    }


PATTERNS = (
    KernelPattern(PatternKind.NAME, "Default/Add-op0", ""),
    KernelPattern(PatternKind.TYPE, "conv", ""),
    KernelPattern(PatternKind.REGEX, "Default/.+", ""),
    KernelPattern(PatternKind.REGEX, "fc", "", searches=True),
)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"context": O0}, "device:     Ascend O0, device 3"),
        ({"context": replace(O2, fuses=False)}, "also:       no operators are fused"),
        ({"context": O0, "is_enabled": False}, "dump:       off, because device 3 is not in support_device"),
        (
            {"path": "/", "naming": Naming.V2_7},
            "files:      /rank_{rank}/Net/{graph}/{iteration}/, names of MindSpore 2.7",
        ),
        (
            {"naming": Naming.CLASSIC},
            "files:      /dump/rank_{rank}/Net/{graph}/{iteration}/, classic names (Conv2D-op12, no dtype)",
        ),
        (
            {"context": O2, "tree": Tree.STEPS},
            "files:      /dump/{step}/{time}/{device}/{model}/{model_id}/{iteration}/",
        ),
        (
            {"context": O2, "tree": Tree.MODELS},
            "files:      /dump/{time}/{device}/{model}/{model_id}/{iteration}/",
        ),
        (
            {"iterations": IterationSet(), "initial_iteration": 5},
            "iterations: all, the first one is number 5",
        ),
        ({"selector": Selector(DumpMode.MARKED)}, "operators:  the operators that set_dump marks"),
        ({"selector": Selector(DumpMode.KERNELS)}, "operators:  all"),
        ({"has_unused_kernels": True}, "operators:  all (dump_mode 0 does not use kernels)"),
        (
            {"selector": Selector(DumpMode.KERNELS, PATTERNS)},
            (
                "operators:  Default/Add-op0; types that contain 'conv' in any case; "
                "names that match /Default/.+/; names that contain /fc/"
            ),
        ),
        ({"trigger": Trigger.OVERFLOW}, "trigger:    only operators that overflow"),
        (
            {"trigger": Trigger.OVERFLOW, "overflow_limit": 3},
            "trigger:    only operators that overflow, the first 3 of the process",
        ),
        ({"trigger": Trigger.EXCEPTION}, "trigger:    only the operator that fails"),
        (
            {"keeps_inputs": False, "sample_count": 20},
            "tensors:    outputs, first 20 elements, in host format, as .npy",
        ),
        (
            {"keeps_outputs": False, "keeps_device_format": True, "file_format": FileFormat.BIN},
            "tensors:    inputs, in device format, one file for each operator",
        ),
        ({"keeps_tensors": False}, "tensors:    none; inputs and outputs are only measured"),
        ({"statistics": StatisticSpec()}, "statistics: max, min, l2norm, on the host"),
        ({"statistics": StatisticSpec(())}, "statistics: sizes, types and shapes only, on the host"),
        (
            {"statistics": StatisticSpec(("avg",), on_device=True)},
            "statistics: avg, on the device in float32",
        ),
        (
            {"statistics": StatisticSpec(("avg",), on_device=True, high_precision=False)},
            "statistics: avg, on the device in the tensor's type",
        ),
        ({"is_async": True}, "writing:    asynchronous, at most 256 MiB in the queue"),
        (
            {"is_async": True, "queue_bytes": 1000},
            "writing:    asynchronous, at most 1000 bytes in the queue",
        ),
        (
            {
                "max_bytes": 3 << 29,
                "writer_threads": 2,
                "on_write_error": OnWriteError.WARN,
                "precision_mode": "force_fp16",
                "saves_kernel_args": True,
            },
            (
                "also:       at most 1.5 GiB of tensor files, 2 writer threads, a failed write only warns, "
                "precision_mode force_fp16, kernel arguments are saved"
            ),
        ),
        (
            {"operator_dtypes": OperatorDtypes(kept=(DtypeRule("conv1", is_type=False, place="f:1"),))},
            "also:       a precision of their own for 1 names or types of operators",
        ),
    ],
)
def test_setting_is_said(changes, line):
    """Each setting that is not at its default is said in its line."""
    subject, _, words = line.partition(":")
    assert subjects(plans.changed(PLAN, **changes))[subject] == words.strip()
