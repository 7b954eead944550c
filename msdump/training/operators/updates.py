"""Operators that update variables: assignments, and the steps of optimizers.

The formulas are from MindSpore's kernels. Learning rate, moments' coefficients and the like are always
float32; a body converts them to the parameter's type.
"""

from __future__ import annotations

from msdump.training.body import Value, operator
from msdump.training.tape import op


@operator("AssignAdd")
def assign_add(variable: Value, value: Value) -> Value:
    """Add to a variable."""
    return variable + value


@operator("Assign")
def assign_body(_variable: Value, value: Value) -> Value:
    """Give a variable another value."""
    return op.Identity(value)


@operator("ApplyMomentum")
def apply_momentum(
    variable: Value,
    moments: Value,
    rate: Value,
    gradient: Value,
    momentum: Value,
    *,
    use_nesterov: int,
    rank: int,
) -> tuple[Value, Value]:
    """Return the new variable and accumulation: accum = momentum accum + g; var -= rate accum."""
    rate, momentum = _number(rate, rank), _number(momentum, rank)
    moved = moments * momentum + gradient
    step = moved * momentum + gradient if use_nesterov else moved
    return variable - step * rate, moved


@operator("SGD")
def sgd(
    variable: Value,
    gradient: Value,
    rate: Value,
    accum: Value,
    momentum: Value,
    stat: Value,
    *,
    dampening: float,
    nesterov: int,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Return the new variable, accumulation and stat.

    accum = momentum accum + (1 - dampening) g, and var -= rate accum. ``stat`` is 1 before the first step,
    when the accumulation is the gradient as it is, and 0 behind it. Without momentum both stay as they are.
    """
    rate, momentum = _number(rate, rank), _number(momentum, rank)
    going = accum * momentum + gradient * _number(1.0 - dampening, rank)
    moved = op.Where(stat > 0.0, gradient, going)
    step = gradient + moved * momentum if nesterov else moved
    has_momentum = momentum > 0.0
    return (
        variable - op.Where(has_momentum, step, gradient) * rate,
        op.Where(has_momentum, moved, accum),
        op.Where(has_momentum, stat * 0.0, stat),
    )


@operator("Adam")
def adam(
    variable: Value,
    moment1: Value,
    moment2: Value,
    beta1_power: Value,
    beta2_power: Value,
    rate: Value,
    beta1: Value,
    beta2: Value,
    eps: Value,
    gradient: Value,
    *,
    use_nesterov: int,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Return the new variable and moments.

    var -= rate sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)
    """
    beta1, beta2 = _number(beta1, rank), _number(beta2, rank)
    first, second = _moving_averages(moment1, moment2, beta1, beta2, gradient)
    correction = op.Sqrt(1.0 - op.of_element(beta2_power)) / (1.0 - op.of_element(beta1_power))
    step = _number(rate, rank) * correction
    ahead = first * beta1 + gradient * (1.0 - beta1) if use_nesterov else first
    change = ahead * step / (op.Sqrt(second) + _number(eps, rank))
    return variable - change, first, second


@operator("AdamWeightDecay")
def adam_weight_decay(
    variable: Value,
    adam_m: Value,
    adam_v: Value,
    rate: Value,
    beta1: Value,
    beta2: Value,
    eps: Value,
    weight_decay: Value,
    gradient: Value,
    _use_locking: Value,
    *,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Return the new variable and moments: var -= rate (m / (sqrt(v) + eps) + decay var)."""
    first, second = _moving_averages(adam_m, adam_v, _number(beta1, rank), _number(beta2, rank), gradient)
    scaled = first / (op.Sqrt(second) + _number(eps, rank))
    change = scaled + variable * _number(weight_decay, rank)
    return variable - change * _number(rate, rank), first, second


@operator("ApplyRMSProp")
def apply_rms_prop(
    variable: Value,
    mean_square: Value,
    moment: Value,
    rate: Value,
    gradient: Value,
    decay: Value,
    momentum: Value,
    epsilon: Value,
    *,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Return the new variable, mean square and moment.

    moment = momentum moment + rate g / sqrt(mean of g squared + eps); var -= moment
    """
    square = mean_square + (gradient * gradient - mean_square) * (1.0 - _number(decay, rank))
    step = gradient * _number(rate, rank) / op.Sqrt(square + _number(epsilon, rank))
    moved = moment * _number(momentum, rank) + step
    return variable - moved, square, moved


@operator("ApplyCenteredRMSProp")
def apply_centered_rms_prop(
    variable: Value,
    mean_grad: Value,
    mean_square: Value,
    moment: Value,
    gradient: Value,
    rate: Value,
    decay: Value,
    momentum: Value,
    epsilon: Value,
    *,
    rank: int,
) -> tuple[Value, Value, Value, Value]:
    """Return the new variable, mean gradient, mean square and moment.

    As ApplyRMSProp, with the variance of the gradient in place of its mean square. Where rounding makes the
    variance negative, variable and moment stay as they are.
    """
    share = _number(decay, rank)
    mean, square = _moving_averages(mean_grad, mean_square, share, share, gradient)
    variance = square - mean * mean + _number(epsilon, rank)
    step = gradient * _number(rate, rank) / op.Sqrt(variance)
    moved = moment * _number(momentum, rank) + step
    is_positive = variance > 0.0
    return (
        op.Where(is_positive, variable - moved, variable),
        mean,
        square,
        op.Where(is_positive, moved, moment),
    )


@operator("ApplyAdagrad")
def apply_adagrad(
    variable: Value, accum: Value, rate: Value, gradient: Value, *, update_slots: int, rank: int
) -> tuple[Value, Value]:
    """Return the new variable and accumulation: accum += g squared; var -= rate g / sqrt(accum)."""
    total = accum + gradient * gradient if update_slots else accum
    return variable - gradient * _number(rate, rank) / op.Sqrt(total), total


def _number(number: Value | float, rank: int) -> Value:
    """Return a number in the element type of the variables, with as many dimensions as they have.

    A runtime may need a hundred times as long to multiply a tensor with a last dimension of 1 by a scalar.
    """
    element = op.of_element(number) if isinstance(number, Value) else op.value(number)
    return op.Reshape(element, (1,) * rank) if rank else element


def _moving_averages(m: Value, v: Value, beta1: Value, beta2: Value, gradient: Value) -> tuple[Value, Value]:
    """Return the moving averages of a gradient and of its square."""
    first = m + (gradient - m) * (1.0 - beta1)
    second = v + (gradient * gradient - v) * (1.0 - beta2)
    return first, second
