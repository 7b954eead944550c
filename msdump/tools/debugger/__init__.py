"""The words of MindInsight's debugger for offline dumps: nodes, tensors, watchpoints.

    from msdump import debugger

    analyzer = debugger.DumpAnalyzer("/path/to/dump")
    tensors = analyzer.select_tensors("Conv2D", iterations=[0])
    too_large = debugger.Watchpoint(tensors, debugger.TensorTooLargeCondition(max_gt=1e4))
    for hit in analyzer.check_watchpoints([too_large]):
        print(hit)

Names and arguments are those of ``mindinsight.debugger``; nothing starts a process. ``msdump.open_dump`` and
``msdump watch`` tell more.
"""

from msdump.tools.debugger.analyzer import DumpAnalyzer
from msdump.tools.debugger.conditions import (
    ConditionBase,
    OperatorOverflowCondition,
    TensorAllZeroCondition,
    TensorChangeAboveThresholdCondition,
    TensorChangeBelowThresholdCondition,
    TensorOverflowCondition,
    TensorRangeCondition,
    TensorTooLargeCondition,
    TensorTooSmallCondition,
    TensorUnchangedCondition,
)
from msdump.tools.debugger.nodes import DebuggerNode as Node
from msdump.tools.debugger.nodes import DebuggerTensor
from msdump.tools.debugger.watchpoints import Watchpoint, WatchpointHit

__all__ = [
    "ConditionBase",
    "DebuggerTensor",
    "DumpAnalyzer",
    "Node",
    "OperatorOverflowCondition",
    "TensorAllZeroCondition",
    "TensorChangeAboveThresholdCondition",
    "TensorChangeBelowThresholdCondition",
    "TensorOverflowCondition",
    "TensorRangeCondition",
    "TensorTooLargeCondition",
    "TensorTooSmallCondition",
    "TensorUnchangedCondition",
    "Watchpoint",
    "WatchpointHit",
]
