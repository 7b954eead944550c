"""How the reference trained its networks, and how we do."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper

import msdump
from msdump.training import eval_graph, step_graph
from tests.training import golden_data, golden_nets


def first(results):
    """Return the first output of a step, which is the loss."""
    return float(results[0] if isinstance(results, tuple) else results)


def by_steps(network, model, case, reference):
    """Train step by step; return the losses, and outputs of the network alone where it runs in between."""
    alone = msdump.load(eval_graph(model, None), state_of=network) if reference.outputs else None
    losses, outputs = [], []
    for inputs in case.steps(reference):
        losses.append(first(network.train_step(*inputs)))
        if alone:
            outputs.append(alone(inputs[0])[0])
    return losses, outputs


class Losses:
    """A callback that keeps the losses."""

    def __init__(self):
        """Keep none yet."""
        self.losses = []

    def step_end(self, run_context):
        """Keep one."""
        self.losses.append(first(run_context.original_args().net_outputs))


def by_model(network, model, case, reference):
    """Train two epochs in sink mode, then evaluate; return the losses and the metrics."""
    every = list(case.steps(reference))
    batches = every[: len(every) // 2]
    loop = msdump.Model(network, eval_graph(model), metrics=["loss", "accuracy"])
    callback = Losses()
    loop.train(2, batches, callbacks=callback, dataset_sink_mode=True)
    metrics = loop.eval(batches, dataset_sink_mode=True)
    return callback.losses, [[metrics["loss"], metrics["accuracy"]]]


@dataclass(frozen=True)
class Case:
    """How a network was trained.

    Attributes:
        batch: Draws data and labels from the reference's generator.
        choices: Arguments of ``step_graph``.
        masks: The Dropout in files with the mask as second output; the reference's masks are fed, as far
            as it dumped them.
        train: Trains the network.
    """

    batch: Callable[[np.random.RandomState], tuple[np.ndarray, np.ndarray]]
    choices: Mapping[str, Any] = field(default_factory=dict)
    masks: str = ""
    train: Any = by_steps

    def steps(self, reference):
        """Yield the inputs of each step."""
        batches = np.random.RandomState(0)
        if self.masks:
            for operators in reference.files.values():
                yield *self.batch(batches), 1 - operators[self.masks]["output.1"]
        else:
            for _ in reference.losses:
                yield self.batch(batches)


def floats(rng, *shape):
    """Draw normal values."""
    return rng.randn(*shape).astype(np.float32)


def classes(rng, count, *shape):
    """Draw labels."""
    return rng.randint(0, count, shape).astype(np.int32)


def labelled_rows(rng):
    """Draw a batch row by row, each with its label."""
    rows = [(floats(rng, 6), classes(rng, 3)) for _ in range(4)]
    return np.stack([data for data, _ in rows]), np.stack([label for _, label in rows])


CASES = {
    "momentum": Case(lambda rng: (floats(rng, 5, 8), classes(rng, 4, 5))),
    "convbn": Case(lambda rng: (floats(rng, 4, 1, 8, 8), classes(rng, 3, 4))),
    "adam": Case(
        lambda rng: (floats(rng, 4, 6), floats(rng, 4, 2)),
        {"loss": "mse", "optimizer": "adam:0.01,weight_decay=0.02"},
        masks="Dropout.Default_network-WithLossCell__backbone-MLP_drop-Dropout_Dropout-op0",
    ),
    "attention": Case(
        lambda rng: (classes(rng, 10, 2, 5), classes(rng, 3, 2)), {"optimizer": "adamw:0.01,weight_decay=0.1"}
    ),
    "datasink": Case(labelled_rows, train=by_model),
    "fixedscale": Case(
        lambda rng: (floats(rng, 5, 8), classes(rng, 4, 5)), {"precision": "float16", "loss_scale": 1024}
    ),
    "lossscale": Case(
        lambda rng: (floats(rng, 5, 8), classes(rng, 4, 5)),
        {
            "precision": {"fc1": "float16", "fc2": "float16"},
            "loss_scale": "dynamic:1048576,factor=64,window=2",
        },
    ),
}


def with_masks(step):
    """Return a step with the random numbers of its Dropout as one more input of the graph."""
    (function,) = (item for item in step.functions if item.name == "Dropout")
    (random,) = (node for node in function.node if node.op_type == "RandomUniformLike")
    (dropout,) = (node for node in step.graph.node if node.op_type == "Dropout")
    function.input.append("numbers")
    random.CopyFrom(helper.make_node("Identity", ["numbers"], random.output))
    dropout.input.append("numbers")
    (shape,) = (info.type for info in step.graph.value_info if info.name == dropout.output[0])
    step.graph.input.add(name="numbers", type=shape)
    return step


def derived(name, reference):
    """Return the model of a network, and its training step."""
    case = CASES[name]
    model = golden_nets.model(name, reference.weights)
    step = step_graph(model, **{"optimizer": "momentum:0.1,0.9", **case.choices})
    return model, with_masks(step) if case.masks else step


def digest(name):
    """Return a digest of a training step's bytes."""
    _, step = derived(name, golden_data.golden(name))
    return hashlib.sha256(step.SerializeToString()).hexdigest()
