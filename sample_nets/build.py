"""Build a sample network: ``python sample_nets/build.py resnet50 --out DIR --batch 8``."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import Final

import onnx_ir as ir

from sample_nets.tracing import trace

HERE: Final = Path(__file__).resolve().parent
CACHE: Final = HERE / ".cache"
NETWORKS: Final = ("alexnet", "bert", "lenet", "mini", "mobilenetv2", "overflow", "resnet50")


def build(name: str, directory: str | Path = CACHE, *, batch: int | str = 1, seed: int = 0) -> Path:
    """Write ``{name}_b{batch}_s{seed}.onnx`` unless a current one is there, and return its path.

    Args:
        name: One of ``NETWORKS``.
        directory: Where the file goes; made if missing.
        batch: Size of the first dimension, or a name for one that each run chooses.
        seed: Seed of the random weights.

    Raises:
        ValueError: For an unknown network.
    """
    if name not in NETWORKS:
        raise ValueError(f"unknown network {name!r}: allowed are {', '.join(NETWORKS)}")
    path = Path(directory) / f"{name}_b{batch}_s{seed}.onnx"
    if not _is_current(path, name):
        write(path, _model(name, batch, seed))
    return path


def _model(name: str, batch: int | str, seed: int) -> ir.Model:
    module = importlib.import_module(f"sample_nets.{name}.net")
    outputs = getattr(module, "OUTPUTS", ("output",))
    return trace(module.network(), module.inputs(batch), name=name, outputs=outputs, seed=seed)


def _is_current(path: Path, name: str) -> bool:
    sources = [HERE / "layers.py", HERE / "tracing.py", HERE / name / "net.py"]
    return path.exists() and path.stat().st_mtime >= max(source.stat().st_mtime for source in sources)


def write(path: Path, model: ir.Model) -> None:
    """Write a model, its folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Complete or not there: an interrupted build must not leave half a model under this name, nor do ranks
    # that build at the same time.
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    ir.save(model, unfinished, format="protobuf")
    unfinished.replace(path)


def _batch(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def main() -> None:
    """Build the network that the command line names and print its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=NETWORKS)
    parser.add_argument("--out", type=Path, default=CACHE, help="folder of the file (default: %(default)s)")
    parser.add_argument(
        "--batch", type=_batch, default=1, help="a number, or a name such as N for a free dimension"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights")
    options = parser.parse_args()
    print(build(options.name, options.out, batch=options.batch, seed=options.seed))


if __name__ == "__main__":
    main()
