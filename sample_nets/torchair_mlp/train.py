"""Train a PyTorch network through torch.compile: ``train.py --dump``.

Each step runs two captured graphs, forward and backward, with different names in the dump.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from msdump import torchair
from msdump.cli import streams
from sample_nets.data import digits
from sample_nets.torchair_mlp.net import MLP, network
from sample_nets.torchair_mlp.run import PIXELS, arguments, configuration

BATCH = 64
RATE = 0.5


def _loss(model: MLP, step: int) -> torch.Tensor:
    """Return the loss of a batch of handwritten digits: the negative log of the scores of their classes."""
    images = torch.tensor(digits(step, BATCH, PIXELS))
    answers = load_digits().target
    classes = torch.tensor([int(answers[number % len(answers)]) for number in _numbers(step)])
    return functional.nll_loss(model(images).log(), classes)


def _numbers(step: int) -> range:
    return range(step * BATCH, (step + 1) * BATCH)


@streams.standard()
def main() -> None:
    """Train, and compare the losses with the losses of an uncompiled copy."""
    options = arguments("Train an MLP through torch.compile.").parse_args()
    models = [network(options.seed).train() for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=RATE) for model in models]
    backend = torchair.get_npu_backend(compiler_config=configuration(options))
    steps = [torch.compile(models[0], backend=backend), models[1]]
    for step in range(options.steps):
        losses = []
        for forward, optimizer in zip(steps, optimizers, strict=True):
            optimizer.zero_grad()
            loss = _loss(forward, step)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if abs(losses[0] - losses[1]) > options.tolerance * max(1, abs(losses[1])):
            sys.exit(
                f"step {step}: the compiled network's loss {losses[0]} is not the network's own, {losses[1]}"
            )
        print(f"step {step}: loss {losses[0]:.4f}, as without a compiler")


if __name__ == "__main__":
    main()
