# ruff: noqa: INP001 - a script, not a package
"""Make ``graphs/torch_export.onnx``: ``pip install torch==2.13.0 onnxscript``, then run this file.

The stack traces in the model name ``net.py`` and PyTorch's own files without the
folders of the machine that exported it.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import onnx
import torch

HERE = Path(__file__).resolve().parent
STACK_TRACE = "pkg.torch.onnx.stack_trace"


def network() -> torch.nn.Module:
    """Return the network, compiled as a file called ``net.py`` without a folder."""
    source = (HERE / "net.py").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "net"}
    exec(compile(source, "net.py", "exec", dont_inherit=True), names)  # noqa: S102 - the file beside this one
    torch.manual_seed(0)
    return names["Net"]().eval()


def export() -> onnx.ModelProto:
    """Return the exported model without the machine's folders."""
    shape = {0: torch.export.Dim("N")}
    program = torch.onnx.export(
        network(),
        (torch.zeros(2, 1, 8, 8),),
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
    path = HERE.parent / "torch_export.onnx"
    path.write_bytes(export().SerializeToString(deterministic=True))
