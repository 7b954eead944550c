"""Why operators and their inputs and outputs have no files, compared with the files of a run."""

from collections import Counter

import pytest

from msdump.capture import Process, refusals
from msdump.execute import emulated
from msdump.graph import loader
from msdump.judge import inputs
from msdump.plan import (
    Blocked,
    Context,
    DeviceTarget,
    DumpLevel,
    FileFormat,
    JitLevel,
    ModelItem,
    Scene,
    Tree,
    Trigger,
)
from msdump.read import open_dump
from msdump.reasons import Reason
from msdump.selector import DumpMode, KernelPattern, PatternKind, Selector
from msdump.session import Network
from msdump.store import names
from tests import plans
from tests.world import GRAPHS

CPU = {"context": Context()}
GPU = {"context": Context(DeviceTarget.GPU)}
O0 = {"context": Context(DeviceTarget.ASCEND, JitLevel.O0)}
O2 = {"context": Context(DeviceTarget.ASCEND, JitLevel.O2), "tree": Tree.STEPS}
ACL = {
    "context": Context(DeviceTarget.ASCEND, JitLevel.O2, keeps_node_names=True),
    "tree": Tree.MODELS,
    "file_format": FileFormat.BIN,
}
MATMUL = Selector(DumpMode.KERNELS, (KernelPattern(PatternKind.TYPE, "matmul", "MatMul"),))
BY_NAME = Selector(
    DumpMode.KERNELS, (KernelPattern(PatternKind.NAME, "Default/conv1-Conv2d/Conv2D-op0", ""),)
)
MARKED = Selector(DumpMode.MARKED)
LAYER = ModelItem(layers=("conv1/Conv_node_0", "flatten/Flatten_node_2"))

NONE: dict[Reason, int] = {}
CASES = {
    "everything": ("mini", CPU, {}, NONE),
    "kernels": ("mini", CPU, {"selector": MATMUL}, {Reason.NOT_IN_KERNELS: 4}),
    "marked": ("mini", GPU, {"selector": MARKED}, {Reason.NOT_MARKED: 5}),
    "outputs": ("mini", O0, {"keeps_inputs": False}, {Reason.SIDE_NOT_ASKED: 8}),
    "inputs": ("mini", GPU, {"keeps_outputs": False}, {Reason.SIDE_NOT_ASKED: 5}),
    "failures": ("mini", CPU, {"trigger": Trigger.EXCEPTION}, {Reason.NO_FAILURE: 5}),
    "failures of O2": ("mini", O2, {"trigger": Trigger.EXCEPTION}, {Reason.NO_FAILURE: 9}),
    "control flow": ("loop", CPU, {}, {Reason.CONTROL_FLOW: 1}),
    "sequences": ("sequences", CPU, {}, {Reason.NO_TENSOR: 3}),
    "kernels of O2": ("mini", O2, {"selector": BY_NAME}, {Reason.NOT_IN_KERNELS: 8}),
    "tasks": ("mini", O2, {}, {Reason.NO_TASK: 1}),
    "layer": ("mini", ACL, {"models": (LAYER,)}, {Reason.NOT_IN_DUMP_LIST: 7, Reason.NO_TASK: 1}),
    "other model": ("mini", ACL, {"models": (ModelItem("other"),)}, {Reason.MODEL_NOT_LISTED: 9}),
    "kernel level": ("mini", ACL, {"models": (), "level": DumpLevel.KERNEL}, {Reason.KERNEL_LEVEL: 9}),
    "another device": ("mini", GPU, {"is_enabled": False}, {Reason.OTHER_DEVICE: 5}),
    "black list": (
        "mini",
        ACL,
        {"models": (ModelItem(blocked_types=(Blocked("Conv2D", ("input1", "output0")),)),)},
        {Reason.BLACKLISTED: 2, Reason.NO_TASK: 1},
    ),
    "watcher": (
        "mini",
        ACL,
        {"models": (ModelItem(watched=("conv1/Conv_node_0relu/Relu_node_1",)),), "scene": Scene.WATCHER},
        {Reason.NOT_WATCHED: 9, Reason.NO_TASK: 1},
    ),
}


def told(graph, plan):
    """Return why operators of a graph and their inputs and outputs have no files."""
    return refusals(graph, emulated(graph, plan, plan.context), plan, file_name="mini")


def counted(tables):
    """Return the count of each reason: of whole operators, and of inputs and outputs of the others."""
    counts: Counter[Reason] = Counter()
    for table in tables:
        for position, refusal in enumerate(table.operators):
            if refusal is not None:
                counts[refusal] += 1
            else:
                counts.update(filter(None, (reason for _, reason in table.slots(position))))
    return dict(counts)


@pytest.mark.parametrize(("name", "mode", "settings", "expected"), CASES.values(), ids=CASES)
def test_what_is_refused_has_no_file(tmp_path, name, mode, settings, expected):
    """Operators that are refused leave no files and all others do; reasons are counted."""
    graph = loader.load(GRAPHS / f"{name}.onnx")
    plan = plans.made(path=str(tmp_path), net_name="Net", **(mode | settings))
    kept = {
        names.sanitize(table.graph.nodes[position].operator.full_name)
        for table in told(graph, plan)
        for position, refusal in enumerate(table.operators)
        if refusal is None and any(reason is None for _, reason in table.slots(position))
    }

    network = Network(graph, plan, Process())
    network.run(inputs.made_up(graph, {}, 0, 0))

    written = set()
    if any(path.suffix != ".json" for path in tmp_path.rglob("*") if path.is_file()):
        records = open_dump(tmp_path).records
        written = {record.op_name for record in records if record.op_type not in {"Parameter", "Data"}}
    assert kept == {name for name in written if "_To_" not in name}
    assert expected == counted(told(graph, plan))
