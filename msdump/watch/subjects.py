"""What a rule selects tensors by: the operator's type and name, the side, the slot, and the tensor's role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.record import IO
from msdump.watch.conditions import Role

PARAMETER: Final = "Parameter"
"""Type that files give weights and graph inputs."""

_ACTIVATIONS: Final = frozenset(
    {
        *("ReLU", "ReLU6", "ReLUV2", "Relu", "LeakyReLU", "LeakyRelu", "Elu", "SeLU", "Softplus", "Softsign"),
        *("Sigmoid", "Tanh", "GeLU", "Gelu", "FastGeLU", "HSwish", "HSigmoid", "SiLU", "Swish", "Mish"),
        *("PReLU", "Softmax", "SoftmaxV2", "LogSoftmax", "LogSoftmaxV2", "CeLU", "HardSwish", "HardSigmoid"),
    }
)
"""Types of operators whose outputs are activations."""

_LOSSES: Final = frozenset(
    {
        *(
            "SparseSoftmaxCrossEntropyWithLogits",
            "SoftmaxCrossEntropyWithLogits",
            "NLLLoss",
            "BCEWithLogitsLoss",
        ),
        *(
            "BinaryCrossEntropy",
            "SmoothL1Loss",
            "MSELoss",
            "L1Loss",
            "KLDivLoss",
            "CTCLoss",
            "SoftMarginLoss",
        ),
        *("SigmoidCrossEntropyWithLogits", "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
    }
)
"""Types of operators whose first output is a loss."""

_OPTIMIZERS: Final[Mapping[str, tuple[int, int]]] = {
    "ApplyMomentum": (0, 3),
    "ApplyMomentumD": (0, 3),
    "Momentum": (0, 3),
    "SGD": (0, 1),
    "Adam": (0, 9),
    "ApplyAdam": (0, 9),
    "ApplyAdamD": (0, 9),
    "AdamWeightDecay": (0, 8),
    "ApplyAdagrad": (0, 3),
    "ApplyRMSProp": (0, 4),
    "ApplyFtrl": (0, 3),
    "ApplyGradientDescent": (0, 2),
    "Lamb": (0, 9),
}
"""Slots of an optimizer's weight, which it writes in place, and of the gradient, by its type."""

_STATE: Final = frozenset(
    {
        *(
            "moment1",
            "moment2",
            "moments",
            "moment",
            "accum",
            "stat",
            "learning_rate",
            "momentum",
            "scale_sense",
        ),
        *(
            "global_step",
            "beta1_power",
            "beta2_power",
            "current_iterator_step",
            "last_overflow_iterator_step",
        ),
        *("accum_momentum", "weight_decay"),
    }
)
"""First components of names that parameters of an optimizer have, which are no weights."""

GRADIENTS: Final = "Gradients"
"""First component of the full names of a backward graph's operators."""


@dataclass(frozen=True, slots=True)
class WatchedTensor:
    """A tensor that rules may look at, the same in every step.

    Attributes:
        op_type: Type of its operator, ``Parameter`` for weights and graph inputs.
        name: Full name of the operator, or as files spell it where that is not known; a parameter's name.
        io: Side of the operator.
        slot: Index among the operator's inputs or outputs.
        roles: What it is to a training.
    """

    op_type: str
    name: str
    io: IO
    slot: int
    roles: frozenset[Role] = frozenset()


def subject(
    op_type: str, name: str, io: IO, slot: int, *, is_weight: bool = False, is_loss: bool = False
) -> WatchedTensor:
    """Return a tensor with the roles that follow from its operator.

    >>> sorted(subject("ApplyMomentum", "Default/opt/ApplyMomentum-op1", IO.INPUT, 3).roles)
    [<Role.GRADIENT: 'gradient'>]
    >>> sorted(subject("ReLU", "Default/ReLU-op0", IO.OUTPUT, 0).roles)
    [<Role.ACTIVATION: 'activation'>]
    >>> subject("Parameter", "moment1.fc.weight", IO.OUTPUT, 0, is_weight=True).roles
    frozenset()

    Args:
        op_type: Type of its operator.
        name: Full name of the operator.
        io: Side of the operator.
        slot: Index on that side.
        is_weight: The model or its graph file says that it is a weight.
        is_loss: The model says that it is the loss.
    """
    roles = set()
    is_backward = name.startswith(GRADIENTS)
    weight_slot, gradient_slot = _OPTIMIZERS.get(op_type, (-1, -1))
    if op_type in _OPTIMIZERS:  # whose other inputs are weights to the graph, too, but its own state
        is_weight = io is IO.INPUT and slot == weight_slot
    if is_weight and not (op_type == PARAMETER and is_state(name)):
        roles.add(Role.WEIGHT)
    if (io is IO.INPUT and slot == gradient_slot) or (io is IO.OUTPUT and is_backward):
        roles.add(Role.GRADIENT)
    if io is IO.OUTPUT and op_type in _ACTIVATIONS and not is_backward:
        roles.add(Role.ACTIVATION)
    if is_loss or (io is IO.OUTPUT and not slot and op_type in _LOSSES and not is_backward):
        roles.add(Role.LOSS)
    return WatchedTensor(op_type, name, io, slot, frozenset(roles))


def is_state(name: str) -> bool:
    """Tell whether a parameter's name is one of an optimizer's state, as it is or as files spell it.

    >>> is_state("moment1.fc.weight"), is_state("moment1_fc_weight"), is_state("fc.weight")
    (True, True, False)
    """
    return name in _STATE or any(name.startswith((f"{prefix}.", f"{prefix}_")) for prefix in _STATE)


def state_of(operators: Iterable[tuple[str, Sequence[str]]]) -> frozenset[str]:
    """Return the names that optimizers read besides weights and gradients: moments, rates, counters.

    >>> sorted(state_of([("ApplyMomentum", ("fc.weight", "accum", "lr", "grad", "mu")), ("Add", ("a", "b"))]))
    ['accum', 'lr', 'mu']

    Args:
        operators: Type of each operator, and the names of its inputs.
    """
    return frozenset(
        name
        for op_type, inputs in operators
        if op_type in _OPTIMIZERS
        for slot, name in enumerate(inputs)
        if slot not in _OPTIMIZERS[op_type]
    )
