"""Shared steps of the run scripts: build, load, run step by step, report."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import msdump
from msdump.cli import streams
from sample_nets.build import CACHE, build

Feed = np.ndarray | dict[str, np.ndarray]


@streams.standard()
def run(name: str, batch_of: Callable[[int, int], Feed]) -> None:
    """Run a sample network as the command line says.

    Args:
        name: The network.
        batch_of: Returns the inputs of a step: ``batch_of(step, batch)``.
    """
    options = _options(name)
    network = msdump.load(build(name, options.cache, batch=options.batch, seed=options.seed))
    for step in range(options.steps):
        feed = batch_of(step, options.batch)
        result = network(**feed) if isinstance(feed, dict) else network(feed)
        print(f"step {step}: {_summary(result)}")


def _options(name: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Run {name}; MINDSPORE_DUMP_CONFIG configures the dump.")
    parser.add_argument("--steps", type=int, default=4, help="iterations (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1, help="examples per iteration (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the built model")
    return parser.parse_args()


def _summary(result: Any) -> str:
    values = result[-1] if isinstance(result, tuple) else result
    first = " ".join(f"{value:.4f}" for value in values[0].ravel()[:3])
    return f"output {values.dtype} {values.shape}, largest at {values.argmax(axis=-1).tolist()}, {first} ..."
