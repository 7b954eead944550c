"""Random networks of a few operators, and the errors of the emulated device by its own door."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump.execute import Program, bind_inputs, emulated, values
from msdump.graph import loader
from msdump.judge import inputs
from msdump.judge.advise import Variants, advise
from msdump.judge.advise.variants import distance
from msdump.plan import (
    Context,
    DeviceTarget,
    DtypeRule,
    JitLevel,
    OperatorDtypes,
    OverflowMode,
    PrecisionMode,
)

UNARY = ("Relu", "Tanh", "Sigmoid", "Abs", "Softmax", "Identity")
SIZE = 8


def random_net(seed, count):
    """Return a model of a few operators that read earlier values; some values are large."""
    rng = np.random.default_rng(seed)
    made, nodes, weights = ["x"], [], []
    for number in range(count):
        name, first = f"v{number}", made[-1] if rng.random() < 0.7 else str(rng.choice(made))
        kind = rng.integers(0, 4)
        if kind == 0:
            scale = 10.0 ** rng.integers(-1, 3)
            array = (rng.standard_normal((SIZE, SIZE)) * scale / SIZE**0.5).astype(np.float32)
            weights.append(numpy_helper.from_array(array, f"w{number}"))
            node = helper.make_node("MatMul", [first, f"w{number}"], [name])
        elif kind == 1:
            node = helper.make_node(
                str(rng.choice(["Add", "Mul", "Sub"])), [first, str(rng.choice(made))], [name]
            )
        elif kind == 2:
            array = np.float32(10.0 ** rng.integers(-3, 3))
            weights.append(numpy_helper.from_array(array, f"w{number}"))
            node = helper.make_node("Mul", [first, f"w{number}"], [name])
        else:
            node = helper.make_node(str(rng.choice(UNARY)), [first], [name])
        node.name = f"node{number}"
        nodes.append(node)
        made.append(name)
    ends = [made[-1], made[-3]] if count > 3 and seed % 2 else made[-1:]
    return helper.make_model(
        helper.make_graph(nodes, "g", [tensor("x")], [tensor(name) for name in ends], weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def tensor(name):
    """Return the declaration of a float tensor of four rows."""
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, SIZE])


def examples(graph, *seeds):
    """Return inputs by the names of their seeds."""
    return [(f"seed {seed}", bind_inputs(graph, (), inputs.made_up(graph, {}, seed, 0))) for seed in seeds]


def fed(feeds):
    """Return inputs as the runtime's values."""
    return {name: values.from_python(array) for name, array in feeds.items()}


def truth_of(graph):
    """Return the function that gives the outputs of the model without a device."""
    program, names = Program(graph), [value.name for value in graph.outputs]
    return lambda feeds: dict(zip(names, program.run(fed(feeds)), strict=True))


def device_errors(graph, mode, feeds, names, to="float32", overflow=OverflowMode.INFNAN, truth=None):
    """Return the error of each output when the device keeps operators, as keep_dtype says it.

    ``truth`` holds the outputs without a device; they are computed where it is not given.
    """
    rules = tuple(DtypeRule(name, is_type=False, place="f:1", reads=to, writes=to) for name in names)
    dtypes = OperatorDtypes(kept=rules) if to == "float32" else OperatorDtypes(customized=rules)
    context = Context(
        DeviceTarget.ASCEND,
        JitLevel.O0,
        precision_mode=PrecisionMode(mode),
        overflow_mode=overflow,
        operator_dtypes=dtypes,
    )
    device = emulated(graph, None, context)
    found = Program(device.graph, device.roundings).run(fed(feeds))
    golden = truth or truth_of(graph)(feeds)
    return {name: distance(array, golden[name]) for name, array in zip(golden, found, strict=True)}


def smallest_size(graph, mode, seen, bound):
    """Return the size of the smallest set with errors within a bound, by trying every set."""
    names = [node.name for node in graph.nodes]
    inputs_and_truths = [(feeds, truth_of(graph)(feeds)) for _, feeds in seen]
    for size in range(len(names) + 1):
        for kept in itertools.combinations(names, size):
            errors = [
                device_errors(graph, mode, feeds, kept, truth=truth) for feeds, truth in inputs_and_truths
            ]
            if all(error <= bound for each in errors for error in each.values()):
                return size
    return None


def advice_for(model, mode, bound, *, seeds=(0, 1), unseen=100, to=None, overflow=OverflowMode.INFNAN):
    """Return advice for a model on made-up inputs."""
    graph = loader.load(model) if not hasattr(model, "nodes") else model
    settings = {} if to is None else {"to": to}
    variants = Variants(graph, PrecisionMode(mode), overflow, **settings)
    return advise(
        variants,
        truth_of(graph),
        examples(graph, *seeds),
        [],
        lambda number: examples(graph, unseen + number)[0],
        bound=bound,
    )
