"""Run a PyTorch network through torch.compile: ``run.py --dump``.

Written as for a real device; only the imports of msdump differ.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import torch

from msdump import torchair
from msdump.cli import streams
from sample_nets.data import digits
from sample_nets.torchair_mlp.net import network

BATCH = 4
PIXELS = 8


def configuration(options: argparse.Namespace) -> torchair.CompilerConfig:
    """Return the configuration of the command line; the attributes check their values."""
    config = torchair.CompilerConfig()
    config.mode = "max-autotune"
    if options.config is not None:
        config.dump_config.dump_config_path = str(options.config)
    if options.dump:
        config.dump_config.enable_dump = True
        config.dump_config.dump_path = str(options.dump_path)
        config.dump_config.dump_mode = options.dump_mode
        config.dump_config.dump_data = options.dump_data
        config.dump_config.dump_step = options.dump_step
        config.dump_config.dump_layer = options.dump_layer
    if options.graphs is not None:
        config.debug.graph_dump.type = "txt"
        config.debug.graph_dump.path = str(options.graphs)
    return config


@streams.standard()
def main() -> None:
    """Run the steps, and compare each result with the network's own."""
    options = arguments("Run an MLP through torch.compile.").parse_args()
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    model = network(options.seed)
    compiled = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=configuration(options)))
    with torch.no_grad():
        for step in range(options.steps):
            images = torch.tensor(digits(step, BATCH, PIXELS))
            scores = compiled(images)
            difference = (scores - model(images)).abs().max().item()
            if difference > options.tolerance:
                sys.exit(f"step {step}: the compiled network differs by {difference} from the network itself")
            digit = scores[0].argmax().item()
            print(f"step {step}: output {tuple(scores.shape)}, largest at {digit}, as without a compiler")


def arguments(description: str) -> argparse.ArgumentParser:
    """Return the command line of a program that dumps graphs captured by torch.compile.

    Args:
        description: Purpose of the program.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--dump", action="store_true", help="set enable_dump")
    parser.add_argument("--dump-path", type=Path, default=Path(), help="an existing folder (default: here)")
    parser.add_argument("--dump-mode", default="all", help="input, output or all (default: %(default)s)")
    parser.add_argument("--dump-data", default="tensor", help="tensor or stats (default: %(default)s)")
    parser.add_argument("--dump-step", default="", help="such as '0|2-3' (default: every step)")
    parser.add_argument("--dump-layer", default="", help="names of operators, spaces between (default: all)")
    parser.add_argument("--config", type=Path, help="set dump_config_path: a file like acl.json")
    parser.add_argument("--graphs", type=Path, help="an existing folder for the graph as text")
    parser.add_argument("--steps", type=int, default=2, help="batches (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="allowed difference of a result")
    return parser


if __name__ == "__main__":
    main()
