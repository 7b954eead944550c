"""Train LeNet a few steps with a dump; with --faulty its ReluGrad kernel lets every gradient through.

MINDSPORE_DUMP_CONFIG names the configuration of the dump, DEVICE_TARGET the device.
"""

from __future__ import annotations

import argparse
import os
from itertools import cycle, islice

import onnx

import msdump
from msdump.cli import streams
from sample_nets.build import CACHE, build
from sample_nets.data import batches, labelled_digits

FAULTY = "ReluGrad"


def break_kernel(step: onnx.ModelProto) -> None:
    """Let the gradient of ReLU pass where its output is 0, too: ``>`` becomes ``>=``."""
    (body,) = [function for function in step.functions if function.name == FAULTY]
    (comparison,) = [node for node in body.node if node.op_type == "Greater"]
    comparison.op_type = "GreaterOrEqual"


@streams.standard()
def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faulty", action="store_true", help="with the fault")
    parser.add_argument("--steps", type=int, default=6, help="steps of training")
    parser.add_argument("--batch", type=int, default=32, help="images of a step")
    options = parser.parse_args()
    step = msdump.training.step_graph(
        build("lenet", CACHE, batch="N"),
        optimizer="momentum:0.02,0.9",
        sizes={"N": options.batch},
        device_target=os.environ.get("DEVICE_TARGET") or "CPU",
    )
    if options.faulty:
        break_kernel(step)
    images, _ = labelled_digits(32)
    dataset = batches(images, options.batch)
    msdump.Model(msdump.load(step)).train(
        1, list(islice(cycle(dataset), options.steps)), [msdump.LossMonitor()]
    )


if __name__ == "__main__":
    main()
