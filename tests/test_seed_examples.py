"""Every JSON block of the vendor's dump document compiles in its mode, or is no configuration at all."""

import pytest

from msdump.config.mindspore import parse
from msdump.errors import ConfigValueError
from msdump.plan import Context, DeviceTarget, FileFormat, JitLevel
from msdump.selector import DumpMode, IterationSet

ASCEND_O0_O1 = """\
{ "common_dump_settings": { "op_debug_mode": 0, "dump_mode": 0, "path": "/absolute_path", \
"net_name": "ResNet50", "iteration": "0|5-8|100-120", "saved_data": "tensor", "input_output": 0, \
"kernels": ["Default/Conv-op12"], "support_device": [0,1,2,3,4,5,6,7], \
"statistic_category": ["max", "min", "l2norm"] }, \
"e2e_dump_settings": { "enable": true, "trans_flag": true, "stat_calc_mode": "host" } }"""

ASCEND_O2 = """\
{ "common_dump_settings": { "op_debug_mode": 0, "dump_mode": 0, "path": "/absolute_path", \
"net_name": "ResNet50", "iteration": "0|5-8|100-120", "saved_data": "tensor", "input_output": 0, \
"kernels": ["Default/Conv-op12"], "support_device": [0,1,2,3,4,5,6,7], \
"statistic_category": ["max", "min", "l2norm"], "file_format": "npy" } }"""

CPU_GPU = """\
{ "common_dump_settings": { "op_debug_mode": 0, "dump_mode": 0, "path": "/absolute_path", \
"net_name": "ResNet50", "iteration": "0|5-8|100-120", "saved_data": "tensor", "input_output": 0, \
"kernels": ["Default/Conv-op12"], "support_device": [0,1,2,3,4,5,6,7], \
"statistic_category": ["max", "min", "l2norm"] }, \
"e2e_dump_settings": { "enable": true, "trans_flag": true } }"""

KERNEL_ARGUMENTS = """\
{
"transpose_a": "False",
"transpose_b": "False"
}"""

CONTEXTS = {
    "cpu": Context(),
    "gpu": Context(DeviceTarget.GPU),
    "ascend": Context(DeviceTarget.ASCEND),
    "ascend-o0": Context(DeviceTarget.ASCEND, JitLevel.O0),
    "ascend-o1": Context(DeviceTarget.ASCEND, JitLevel.O1),
    "ascend-o2": Context(DeviceTarget.ASCEND, JitLevel.O2),
}


@pytest.mark.parametrize(
    ("text", "context", "level"),
    [
        pytest.param(ASCEND_O0_O1, "ascend", "O0", id="o0-o1-implied"),
        pytest.param(ASCEND_O0_O1, "ascend-o0", "O0", id="o0"),
        pytest.param(ASCEND_O0_O1, "ascend-o1", "O1", id="o1"),
        pytest.param(ASCEND_O2, "ascend", "O2", id="o2-implied"),
        pytest.param(ASCEND_O2, "ascend-o2", "O2", id="o2"),
        pytest.param(CPU_GPU, "cpu", None, id="cpu"),
        pytest.param(CPU_GPU, "gpu", None, id="gpu"),
    ],
)
def test_documented_configuration_compiles_silently(text, context, level, caplog, monkeypatch):
    """A configuration of the document compiles in its mode, without a warning, to its plan."""
    monkeypatch.delenv("ENABLE_MS_GE_DUMP", raising=False)

    plan = parse(text.encode(), "data_dump.json", CONTEXTS[context])

    assert caplog.records == []
    assert level == plan.context.jit_level
    assert plan.files.path == "/absolute_path"
    assert plan.files.net_name == "ResNet50"
    assert IterationSet(((0, 0), (5, 8), (100, 120))) == plan.when.iterations
    assert DumpMode.ALL is plan.what.selector.mode
    assert (
        plan.what.keeps_inputs,
        plan.what.keeps_outputs,
        plan.files.keeps_tensors,
        plan.statistics,
    ) == (True, True, True, None)
    assert FileFormat.NPY is plan.files.file_format
    assert plan.is_enabled
    assert (level == "O2") == plan.files.is_async


def test_documented_names_are_matched_when_asked_for(caplog):
    """With dump_mode 1 the document's kernel is an exact full name."""
    text = CPU_GPU.replace('"dump_mode": 0', '"dump_mode": 1')

    plan = parse(text.encode(), "data_dump.json", CONTEXTS["cpu"])

    assert plan.what.selector.selects("Default/Conv-op12")
    assert not plan.what.selector.selects("Default/Conv-op1")
    assert caplog.records == []


def test_kernel_arguments_are_no_configuration():
    """The document's file of saved kernel arguments is refused as a configuration."""
    with pytest.raises(ConfigValueError, match=r"\$\.common_dump_settings is missing"):
        parse(KERNEL_ARGUMENTS.encode(), "MatMul.json", CONTEXTS["cpu"])


def test_iteration_of_the_documents_prose_is_accepted():
    """The spaces of the document's prose are part of the grammar."""
    text = CPU_GPU.replace("0|5-8|100-120", "0 | 5-8 | 100-120")

    plan = parse(text.encode(), "data_dump.json", CONTEXTS["cpu"])

    assert IterationSet(((0, 0), (5, 8), (100, 120))) == plan.when.iterations
