"""Shared steps of the training scripts: derive the step, train, evaluate, report."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import msdump
from msdump import communication
from msdump.cli import streams
from sample_nets.build import CACHE, build
from sample_nets.data import Labelled, batches, share


@dataclass(frozen=True, slots=True)
class Task:
    """A network's training task.

    Attributes:
        name: The network.
        data: Returns the images and labels of the training set and of the test set.
        epochs: Passes over the images.
        batch: Images of a step.
        optimizer: The optimizer and its numbers.
    """

    name: str
    data: Callable[[], tuple[Labelled, Labelled]]
    epochs: int
    batch: int
    optimizer: str


@streams.standard()
def train(task: Task) -> None:
    """Train and test a sample network as the command line says.

    Ranks of a launcher train it together: each takes its share of every batch, their gradients are
    averaged, and the first one reports.
    """
    rank, ranks = communication.get_rank(), communication.get_group_size()
    options = _options(task)
    if options.batch % ranks:
        sys.exit(f"--batch {options.batch} cannot be shared by {ranks} ranks")
    started = time.perf_counter()
    model = build(task.name, options.cache, batch="N", seed=options.seed)
    shared = {"precision": options.precision, "device_target": os.environ.get("DEVICE_TARGET") or "CPU"}
    step = msdump.training.step_graph(
        model,
        optimizer=options.optimizer,
        sizes={"N": options.batch // ranks},
        loss_scale=options.loss_scale,
        data_parallel=ranks > 1,
        **shared,
    )
    trainer = msdump.Model(msdump.load(step), msdump.training.eval_graph(model, **shared), {"accuracy"})
    images, tests = task.data()
    dataset = [share(batch, rank, ranks) for batch in batches(images, options.batch)]
    steps, epochs = options.steps or len(dataset), 1 if options.steps else options.epochs
    monitors = [msdump.LossMonitor(max(1, min(steps * epochs // 8, len(dataset)))), msdump.ProgressBar()]
    trainer.train(epochs, list(islice(cycle(dataset), steps)), monitors if rank == 0 else [])
    if rank > 0:
        return
    accuracy = trainer.eval([tests])["accuracy"]
    seconds = time.perf_counter() - started
    print(f"{steps * epochs} steps in {seconds:.1f} s, test accuracy {100 * accuracy:.1f} %")


def _options(task: Task) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=f"Train {task.name}; MINDSPORE_DUMP_CONFIG configures the dump, DEVICE_TARGET the device."
    )
    shown = "(default: %(default)s)"
    parser.add_argument("--epochs", type=int, default=task.epochs, help=f"passes over the images {shown}")
    parser.add_argument("--steps", type=int, help="so many steps in place of whole passes")
    parser.add_argument(
        "--batch", type=int, default=task.batch, help=f"images of a step, of all ranks {shown}"
    )
    parser.add_argument("--optimizer", default=task.optimizer, help=f"its name and numbers {shown}")
    parser.add_argument("--precision", help="element type of the computation: float16 or bfloat16")
    parser.add_argument("--loss-scale", help="a number, or dynamic:65536,factor=2,window=2000")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the built model")
    return parser.parse_args()
