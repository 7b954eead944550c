"""Optimizers: every operator returns the new values of what it updates in place.

The formulas are those of MindSpore's kernels. Learning rate, moments' coefficients and the like are float32
whatever the type of the parameter is; a body turns them into that type.
"""

from __future__ import annotations

from msdump.training.body import Body, operator


@operator("AssignAdd")
def assign_add(op: Body, variable: str, value: str) -> str:
    """Add to a variable."""
    return str(op.Add(variable, value))


@operator("Assign")
def assign(op: Body, _variable: str, value: str) -> str:
    """Give a variable another value."""
    return str(op.Identity(value))


@operator("ApplyMomentum")
def apply_momentum(
    op: Body,
    variable: str,
    accumulation: str,
    rate: str,
    gradient: str,
    momentum: str,
    *,
    use_nesterov: int,
    rank: int,
) -> tuple[str, str]:
    """Return the new variable and accumulation: accum = momentum accum + g; var -= rate accum."""
    rate, momentum = _number(op, rate, rank), _number(op, momentum, rank)
    moved = op.Add(op.Mul(accumulation, momentum), gradient)
    step = op.Add(op.Mul(moved, momentum), gradient) if use_nesterov else moved
    return str(op.Sub(variable, op.Mul(step, rate))), str(moved)


@operator("SGD")
def sgd(
    op: Body,
    variable: str,
    gradient: str,
    rate: str,
    accumulation: str,
    momentum: str,
    stat: str,
    *,
    dampening: float,
    weight_decay: float,
    nesterov: int,
    rank: int,
) -> tuple[str, str, str]:
    """Return the new variable, accumulation and stat.

    accum = momentum accum + (1 - dampening) g, and var -= rate accum. ``stat`` is 1 before the first step,
    whose accumulation is the gradient as it is, and 0 behind it. Without momentum both stay as they are.
    """
    rate, momentum = _number(op, rate, rank), _number(op, momentum, rank)
    if weight_decay:
        gradient = op.Add(gradient, op.Mul(variable, _number(op, weight_decay, rank)))
    going = op.Add(op.Mul(accumulation, momentum), op.Mul(gradient, _number(op, 1.0 - dampening, rank)))
    moved = op.Where(op.Greater(stat, 0.0), gradient, going)
    step = op.Add(gradient, op.Mul(moved, momentum)) if nesterov else moved
    has_momentum = op.Greater(momentum, 0.0)
    return (
        op.Sub(variable, op.Mul(op.Where(has_momentum, step, gradient), rate)),
        op.Where(has_momentum, moved, accumulation),
        op.Where(has_momentum, op.Mul(stat, 0.0), stat),
    )


@operator("Adam")
def adam(
    op: Body,
    variable: str,
    m: str,
    v: str,
    beta1_power: str,
    beta2_power: str,
    rate: str,
    beta1: str,
    beta2: str,
    epsilon: str,
    gradient: str,
    *,
    use_nesterov: int,
    rank: int,
) -> tuple[str, str, str]:
    """Return the new variable and moments.

    var -= rate sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)
    """
    beta1, beta2 = _number(op, beta1, rank), _number(op, beta2, rank)
    first, second = _moments(op, m, v, beta1, beta2, gradient)
    correction = op.Div(
        op.Sqrt(op.Sub(1.0, op.of_element(beta2_power))), op.Sub(1.0, op.of_element(beta1_power))
    )
    step = op.Mul(_number(op, rate, rank), correction)
    ahead = op.Add(op.Mul(first, beta1), op.Mul(gradient, op.Sub(1.0, beta1))) if use_nesterov else first
    change = op.Div(op.Mul(ahead, step), op.Add(op.Sqrt(second), _number(op, epsilon, rank)))
    return str(op.Sub(variable, change)), first, second


@operator("AdamWeightDecay")
def adam_weight_decay(
    op: Body,
    variable: str,
    m: str,
    v: str,
    rate: str,
    beta1: str,
    beta2: str,
    epsilon: str,
    decay: str,
    gradient: str,
    _use_locking: str,
    *,
    rank: int,
) -> tuple[str, str, str]:
    """Return the new variable and moments: var -= rate (m / (sqrt(v) + eps) + decay var)."""
    first, second = _moments(op, m, v, _number(op, beta1, rank), _number(op, beta2, rank), gradient)
    scaled = op.Div(first, op.Add(op.Sqrt(second), _number(op, epsilon, rank)))
    change = op.Add(scaled, op.Mul(variable, _number(op, decay, rank)))
    return str(op.Sub(variable, op.Mul(change, _number(op, rate, rank)))), first, second


def _number(op: Body, number: str | float, rank: int) -> str:
    """Return a number in the element type of the variables, with as many dimensions as they have.

    A runtime may need a hundred times as long to multiply a tensor whose last dimension is 1 by a scalar.
    """
    element = op.of_element(number) if isinstance(number, str) else op.value(number)
    return str(op.Reshape(element, (1,) * rank)) if rank else element


def _moments(op: Body, m: str, v: str, beta1: str, beta2: str, gradient: str) -> tuple[str, str]:
    """Return the moving averages of a gradient and of its square."""
    first = op.Add(m, op.Mul(op.Sub(gradient, m), op.Sub(1.0, beta1)))
    second = op.Add(v, op.Mul(op.Sub(op.Mul(gradient, gradient), v), op.Sub(1.0, beta2)))
    return first, second
