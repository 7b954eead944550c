"""The networks that are measured, as files outside of the repository: built once for each state of sources.

``python -m scripts.bench.networks.files NETWORK BATCH`` builds one and prints its path.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

from sample_nets import build as samples
from sample_nets.tracing import trace
from scripts.bench.networks import chains, gpt2, llama, mindir

CACHE: Final = Path(tempfile.gettempdir()) / f"msdump-bench-{os.getuid()}"
"""Some gigabytes; ``TMPDIR`` moves it."""

_HERE: Final = Path(__file__).resolve().parent


def path(name: str, batch: int = 1) -> Path:
    """Return the file of a network, built where it is missing."""
    folder = CACHE / _digest()
    if name in _OWN:
        file = folder / f"{name}_b{batch}.onnx"
        if not file.exists():
            _OWN[name](file, batch)
        return file
    file = folder / f"{name}_b{batch}_s0.onnx"
    return file if file.exists() else samples.build(name, folder, batch=batch)


def with_all_values(file: Path) -> Path:
    """Return the same network with every node's outputs as graph outputs, its weights written once."""
    changed = file.with_stem(f"{file.stem}_all")
    if not changed.exists():
        proto = onnx.load(file)
        taken = {value.name for value in proto.graph.output}
        names = [name for node in proto.graph.node for name in node.output if name and name not in taken]
        proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
        _save(proto, changed)
    return changed


def as_mindir(file: Path) -> Path:
    """Return the same network as a MindIR file."""
    changed = file.with_suffix(".mindir")
    if not changed.exists():
        unfinished = changed.with_suffix(f".{os.getpid()}.part")
        unfinished.write_bytes(mindir.written(onnx.load(file)))
        unfinished.replace(changed)
    return changed


def read_and_made(file: Path) -> tuple[list[str], dict[str, np.ndarray]]:
    """Return the names of the inputs and outputs of each node in order, and the weights of the network."""
    proto = onnx.load(file)
    names = [name for node in proto.graph.node for name in (*node.input, *node.output) if name]
    return names, {weight.name: numpy_helper.to_array(weight) for weight in proto.graph.initializer}


def _digest() -> str:
    """Return a digest of all that decides the contents of the files."""
    sources = (*_HERE.glob("*.py"), *samples.HERE.glob("*.py"), *samples.HERE.glob("*/net.py"))
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _save(proto: onnx.ModelProto, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}.part")
    onnx.save(proto, unfinished)
    unfinished.replace(file)


def _gpt2(config: gpt2.Gpt2Config, file: Path, batch: int) -> None:
    model = trace(gpt2.network(config), gpt2.inputs(batch), name="gpt2", outputs=("logits",))
    samples.write(file, model)


def _made(make: Callable[[], onnx.ModelProto], file: Path, batch: int) -> None:
    del batch
    _save(make(), file)


_OWN: Final[dict[str, Callable[[Path, int], None]]] = {
    "gpt2": partial(_gpt2, gpt2.Gpt2Config()),
    "decoder": partial(_gpt2, gpt2.Gpt2Config(vocabulary=10_000, is_whole=True)),
    "llama": partial(_made, llama.float32),
    "llama-int4": partial(_made, llama.int4),
    "loop1000": partial(_made, chains.loop),
    "kilobytes2000": partial(_made, partial(chains.unary, 2000, [256])),
    "nodes100000": partial(_made, partial(chains.binary, 100_000, 16)),
}


def main(name: str, batch: str = "1") -> None:
    """Build a network and print its path."""
    sys.stdout.write(f"{path(name, int(batch))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
