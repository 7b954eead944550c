"""Build the files of a network that ranks share: ``python sample_nets/build_ranks.py pipeline --out DIR``."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Final

from sample_nets.build import CACHE, write
from sample_nets.tracing import trace

NETWORKS: Final = ("pipeline", "tensor_parallel")
RANKS: Final = 2


def build_ranks(
    name: str, directory: str | Path = CACHE, *, ranks: int = RANKS, batch: int = 1, seed: int = 0
) -> list[Path]:
    """Write ``{name}_rank{rank}.onnx`` for each rank, or ``{name}.onnx`` for one; return the paths.

    Equal seeds give equal weights: the weights of the ranks are parts of the weights of one rank.

    Args:
        name: One of ``NETWORKS``.
        directory: Where the files go; made if missing.
        ranks: Number of ranks, 2 or 1.
        batch: Size of the first dimension.
        seed: Seed of the random weights.

    Raises:
        ValueError: An unknown network, or another number of ranks.
    """
    if name not in NETWORKS:
        raise ValueError(f"unknown network {name!r}: allowed are {', '.join(NETWORKS)}")
    if ranks not in {1, RANKS}:
        raise ValueError(f"{ranks} ranks: allowed are 1 and {RANKS}")
    module = importlib.import_module(f"sample_nets.{name}.net")
    paths = []
    for rank in range(ranks):
        network = module.network(rank, ranks, batch)
        paths.append(Path(directory) / (f"{name}_rank{rank}.onnx" if ranks > 1 else f"{name}.onnx"))
        write(paths[-1], trace(network, module.inputs(rank, batch), name=name, seed=seed))
    return paths


def main() -> None:
    """Build the network that the command line names and print its paths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=NETWORKS)
    parser.add_argument("--out", type=Path, default=CACHE, help="folder of the files (default: %(default)s)")
    parser.add_argument("--ranks", type=int, choices=(1, RANKS), default=RANKS, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights")
    options = parser.parse_args()
    for path in build_ranks(
        options.name, options.out, ranks=options.ranks, batch=options.batch, seed=options.seed
    ):
        print(path)


if __name__ == "__main__":
    main()
