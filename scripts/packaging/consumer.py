"""A user's program, checked by ``mypy --strict`` against the installed package: its names have types."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import msdump
from msdump import LossMonitor, Model, Network, ProgressBar
from msdump.read import Dump, Iteration
from msdump.testing import ModelComparison, compare

network = msdump.load("model.onnx", {"common_dump_settings": {}})
assert_type(network, Network)
assert_type(network.run({"x": np.zeros(1, np.float32)}), dict[str, Any])
assert_type(network.state(), dict[str, np.ndarray])
dump = msdump.open_dump(Path("dump"))
assert_type(dump, Dump)
assert_type(dump.iterations, tuple[Iteration, ...])
assert_type(msdump.__version__, str)
assert_type(Model(network), Model)
assert_type(msdump.data_sink(network, [1]), Callable[[], Any])
assert_type((LossMonitor(), ProgressBar()), tuple[LossMonitor, ProgressBar])
assert_type(compare("model.onnx", golden="golden.onnx"), ModelComparison)
msdump.set_context(device_target="Ascend")
msdump.set_dump(network, enabled=True)
msdump.load(1, 2)  # type: ignore[arg-type]
msdump.save("model.onnx")  # type: ignore[attr-defined]
