"""Records of tensors on a device of the tests' own, and pipelines that end in a given writer."""

from dataclasses import dataclass, replace

import numpy as np

from msdump import dtypes
from msdump.capture.pipeline import artifact_kind, compile_steps
from msdump.device import DeviceTensor, Task, formats
from msdump.plan import Context, DeviceTarget, JitLevel
from msdump.record import DEFAULT_FORMAT, IO, OperatorRef, TensorRecord
from tests import plans

CONV = OperatorRef("Conv2D", "Default/conv1/Conv2D-op0")
TASK = Task(2, 7)
TIME = 1_600_000_000_000_000


@dataclass(frozen=True)
class Part:
    """The device part of a record, as it is said."""

    placed: DeviceTensor | None = None
    slot: int = 0
    address: int = 0
    origin: str = CONV.full_name

    @property
    def format(self):
        """Name of the format."""
        return DEFAULT_FORMAT if self.placed is None else self.placed.format

    @property
    def groups(self):
        """Groups of the format."""
        return 1 if self.placed is None else self.placed.groups

    def element_type(self, host):
        """Return the host's type: this device rounds nothing."""
        return host

    def held(self, array, dtype):
        """Return the array as it is."""
        assert dtypes.from_numpy(array.dtype) is dtype
        return array

    def laid_out(self, array):
        """Return an array as it lies in device memory."""
        return formats.encode(self.placed.format, array, self.placed.groups)

    def pinned(self):
        """Return the same: nothing moves."""
        return replace(self)


def record(array, side=IO.INPUT, slot=0, *, layout=None, groups=1, address=0, operator=CONV):
    """Return a tensor of an operator that lies in a format of the device, None: as on the host."""
    dtype = dtypes.from_numpy(np.asarray(array).dtype)
    placed = None
    if layout is not None:
        placed = DeviceTensor(layout, dtype, formats.shape(layout, array.shape, dtype, groups), groups)
    return TensorRecord(operator, side, slot, dtype, array, TIME, device=Part(placed, slot, address))


def compiled_plan(**fields):
    """Return the plan of a graph that is compiled as a whole."""
    return plans.made("plan.json", Context(DeviceTarget.ASCEND, JitLevel.O2), net_name="Net", **fields)


def take(plan, writer, sink, records, *, operator=CONV, task=TASK):
    """Let records walk through the steps of a plan to a writer."""
    writer.steps = compile_steps(plan, artifact_kind(plan))
    writer.take("/d", operator, task, records)
