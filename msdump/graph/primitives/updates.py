"""Operators that update variables: assignments, and the steps of optimizers.

The formulas are from MindSpore's kernels, the names of inputs from ``msdump.graph.primitives.SLOTS``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from msdump.graph.primitives.body import BodyFunction, Slots, Structure, Value, op, operator, operators
from msdump.graph.primitives.slots import SLOTS

operators(
    {
        "AssignAdd": lambda variable, value: variable + value,
        "AssignSub": lambda variable, value: variable - value,
        "Assign": lambda _variable, value: op.Identity(value),
        # a copy, which later updates of a variable do not change
        "TensorMove": lambda x: op.Identity(x),
    }
)


def _update(name: str) -> Callable[[BodyFunction], BodyFunction]:
    """Register the body of an optimizer's operator.

    All its numbers, such as learning rates, become tensors of the variable's element type and rank.
    """

    def register(build: BodyFunction) -> BodyFunction:
        @operator(name)
        @wraps(build)
        def body(slot: Slots, *, rank: int, **structure: Structure) -> Value | tuple[Value, ...]:
            for each in SLOTS[name]:
                if each.kind.startswith("float"):
                    setattr(slot, each.name, _number(getattr(slot, each.name), rank))
            numbers = {
                key: _number(value, rank) if isinstance(value, float) else value
                for key, value in structure.items()
            }
            return build(slot, rank=rank, **numbers)

        return body

    return register


def _number(number: Value | float, rank: int) -> Value:
    """Return a number in the element type of the variables, with as many dimensions as they have.

    A runtime may need a hundred times as long to multiply a tensor with a last dimension of 1 by a scalar.
    """
    element = op.of_element(number) if isinstance(number, Value) else op.value(number)
    return op.Reshape(element, (1,) * rank) if rank else element


@_update("ApplyMomentum")
def apply_momentum(slot: Slots, *, rank: int, use_nesterov: int) -> tuple[Value, Value]:
    """Return the new variable and accumulation: accum = momentum accum + g; var -= rate accum."""
    moved = slot.moments * slot.momentum + slot.gradient
    step = moved * slot.momentum + slot.gradient if use_nesterov else moved
    return slot.variable - step * slot.rate, moved


@_update("SGD")
def sgd(slot: Slots, *, rank: int, dampening: Value, nesterov: int) -> tuple[Value, Value, Value]:
    """Return the new variable, accumulation and stat.

    accum = momentum accum + (1 - dampening) g, and var -= rate accum. ``stat`` is 1 before the first step,
    when the accumulation is the gradient as it is, and 0 behind it. Without momentum both stay as they are.
    """
    going = slot.accum * slot.momentum + slot.gradient * (1.0 - dampening)
    moved = op.Where(slot.stat > 0.0, slot.gradient, going)
    step = slot.gradient + moved * slot.momentum if nesterov else moved
    has_momentum = slot.momentum > 0.0
    return (
        slot.variable - op.Where(has_momentum, step, slot.gradient) * slot.rate,
        op.Where(has_momentum, moved, slot.accum),
        op.Where(has_momentum, slot.stat * 0.0, slot.stat),
    )


@_update("Adam")
def adam(slot: Slots, *, rank: int, use_nesterov: int) -> tuple[Value, Value, Value]:
    """Return the new variable and moments.

    var -= rate sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)
    """
    first, second = _moving_averages(slot.moment1, slot.moment2, slot.beta1, slot.beta2, slot.gradient)
    step = slot.rate * (op.Sqrt(1.0 - slot.beta2_power) / (1.0 - slot.beta1_power))
    ahead = first * slot.beta1 + slot.gradient * (1.0 - slot.beta1) if use_nesterov else first
    return slot.variable - ahead * step / (op.Sqrt(second) + slot.eps), first, second


@_update("AdamWeightDecay")
def adam_weight_decay(slot: Slots, *, rank: int) -> tuple[Value, Value, Value]:
    """Return the new variable and moments: var -= rate (m / (sqrt(v) + eps) + decay var)."""
    first, second = _moving_averages(slot.adam_m, slot.adam_v, slot.beta1, slot.beta2, slot.gradient)
    change = first / (op.Sqrt(second) + slot.eps) + slot.variable * slot.weight_decay
    return slot.variable - change * slot.rate, first, second


@_update("ApplyRMSProp")
def apply_rms_prop(slot: Slots, *, rank: int) -> tuple[Value, Value, Value]:
    """Return the new variable, mean square and moment.

    moment = momentum moment + rate g / sqrt(mean of g squared + eps); var -= moment
    """
    square = _moving_average(slot.mean_square, slot.decay, slot.gradient * slot.gradient)
    step = slot.gradient * slot.rate / op.Sqrt(square + slot.epsilon)
    moved = slot.moment * slot.momentum + step
    return slot.variable - moved, square, moved


@_update("ApplyCenteredRMSProp")
def apply_centered_rms_prop(slot: Slots, *, rank: int) -> tuple[Value, Value, Value, Value]:
    """Return the new variable, mean gradient, mean square and moment.

    As ApplyRMSProp, with the variance of the gradient in place of its mean square. Where rounding makes the
    variance negative, variable and moment stay as they are.
    """
    mean, square = _moving_averages(slot.mean_grad, slot.mean_square, slot.decay, slot.decay, slot.gradient)
    variance = square - mean * mean + slot.epsilon
    moved = slot.moment * slot.momentum + slot.gradient * slot.rate / op.Sqrt(variance)
    is_positive = variance > 0.0
    variable = op.Where(is_positive, slot.variable - moved, slot.variable)
    return variable, mean, square, op.Where(is_positive, moved, slot.moment)


@_update("ApplyAdagrad")
def apply_adagrad(slot: Slots, *, rank: int, update_slots: int) -> tuple[Value, Value]:
    """Return the new variable and accumulation: accum += g squared; var -= rate g / sqrt(accum)."""
    total = slot.accum + slot.gradient * slot.gradient if update_slots else slot.accum
    return slot.variable - slot.gradient * slot.rate / op.Sqrt(total), total


def _moving_averages(m: Value, v: Value, beta1: Value, beta2: Value, gradient: Value) -> tuple[Value, Value]:
    """Return the moving averages of a gradient and of its square."""
    return _moving_average(m, beta1, gradient), _moving_average(v, beta2, gradient * gradient)


def _moving_average(before: Value, beta: Value, item: Value) -> Value:
    return before + (item - before) * (1.0 - beta)
