# %% [markdown]
# # A first look at a dump
#
# I have a dump and want to see its tensors. This is a percent script: open it with VS Code or PyCharm, or
# with Jupyter and jupytext, or run it with Python. Start it in a clone of msdump. It writes into `out/`.

# %%
import json
import os
from pathlib import Path

import numpy as np

import msdump
from msdump.look.show import inspect

out = Path("out/first-look")
out.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Dump a network
#
# The configuration has MindSpore's keys. It dumps all tensors and statistics of every iteration. The network
# is a small LeNet on the emulated Ascend device.

# %%
config = {
    "common_dump_settings": {
        "dump_mode": 0,
        "path": str((out / "dump").absolute()),
        "net_name": "LeNet",
        "iteration": "all",
        "input_output": 0,
        "kernels": [],
        "support_device": [0],
        "saved_data": "full",
        "statistic_category": ["max", "min", "avg", "l2norm", "nan count"],
    },
    "e2e_dump_settings": {"enable": True},
    "msdump": {"existing": "replace"},
}
(out / "data_dump.json").write_text(json.dumps(config), encoding="utf-8")
os.environ["MINDSPORE_DUMP_CONFIG"] = str(out / "data_dump.json")

msdump.set_context(device_target="Ascend", jit_level="O0")
network = msdump.load("graphs/lenet.onnx")
shapes = {value.name: value.type.shape for value in network.graph.inputs}
shapes

# %%
generator = np.random.default_rng(0)
for step in range(3):
    images = {
        name: generator.normal(size=shape).astype(np.float32) * 10**step for name, shape in shapes.items()
    }
    network.run(images)
network.summary

# %% [markdown]
# ## Read it back
#
# A notebook shows a dump as a table. A file is read at the first use of its elements.

# %%
dump = msdump.open_dump(out / "dump")
dump

# %%
dump.select(type="Conv2D", io="output", iteration=0)

# %% [markdown]
# An operator has its scope, its neighbours and, if the model stores it, its line of the program.

# %%
record = dump.select(type="Conv2D", io="output", iteration=2)[0]
operator = record.operator
print(record, record.shape, record.dtype)
print("reads  ", *operator.inputs_from)
print("used by", *operator.used_by)
record.stats

# %% [markdown]
# ## Ask a question
#
# The inputs grow tenfold in each step. How do the outputs grow? `to_pandas` returns the
# statistics as a table.

# %%
table = dump.select(io="output").to_pandas()
norms = table.pivot_table(index="full_name", columns="iteration", values="l2norm", aggfunc="max", sort=False)
norms

# %%
growth = norms[2] / norms[0]
assert growth.max() > 1, "an operator follows its input"
growth.sort_values()

# %% [markdown]
# ## Look at a tensor
#
# The places of the largest and smallest element, as in `msdump show FILE`.

# %%
seen = inspect(record.array)
print("largest", seen.largest)
print("nan    ", seen.strangers["nan"].count)

# %% [markdown]
# ## Is anything wrong?
#
# `first_nonfinite` returns the first tensor with NaN or an infinity. `msdump report out/first-look/dump`
# writes all of this as one page. `msdump diff graphs/lenet.onnx --golden float64` prints the error of each
# operator.

# %%
dump.first_nonfinite()
