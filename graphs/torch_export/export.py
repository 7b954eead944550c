# ruff: noqa: INP001 - a script, not a package
"""Make ``graphs/torch_export.onnx`` and ``torch_norm.onnx``: ``pip install torch onnxscript``, run this.

The stack traces in the models name ``net.py``, ``norm_net.py`` and PyTorch's own files without the
folders of the machine that exported them.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import onnx
import torch

HERE = Path(__file__).resolve().parent
STACK_TRACE = "pkg.torch.onnx.stack_trace"


def network(file: str) -> torch.nn.Module:
    """Return the network of a file beside this one, compiled as a file without a folder."""
    source = (HERE / file).read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "net"}
    exec(compile(source, file, "exec", dont_inherit=True), names)  # noqa: S102 - the file beside this one
    torch.manual_seed(0)
    return names["Net"]().eval()


def export(file: str, example: torch.Tensor) -> onnx.ModelProto:
    """Return the exported network of a file, for any number of examples, without the machine's folders."""
    shape = {0: torch.export.Dim("N")}
    program = torch.onnx.export(
        network(file),
        (example,),
        dynamo=True,
        opset_version=20,
        external_data=False,
        dynamic_shapes=(shape,),
        verbose=False,
    )
    model = program.model_proto
    packages = sysconfig.get_paths()["purelib"] + "/"
    for node in model.graph.node:
        for entry in node.metadata_props:
            if entry.key == STACK_TRACE:
                entry.value = entry.value.replace(packages, "")
    return model


if __name__ == "__main__":
    for file, example, model in (
        ("net.py", torch.zeros(2, 1, 8, 8), "torch_export.onnx"),
        ("norm_net.py", torch.zeros(2, 16), "torch_norm.onnx"),
    ):
        (HERE.parent / model).write_bytes(export(file, example).SerializeToString(deterministic=True))
