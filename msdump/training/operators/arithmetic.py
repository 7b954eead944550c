"""Arithmetic and functions of one operand that MindSpore has and ONNX has not, and their gradients."""

from __future__ import annotations

from msdump.training.body import Body, operator


@operator("RealDiv")
def real_div(op: Body, x: str, y: str) -> str:
    """Divide."""
    return str(op.Div(x, y))


@operator("TruncateDiv")
def truncate_div(op: Body, x: str, y: str) -> str:
    """Divide, and drop what stands behind the point."""
    quotient = op.Div(x, y)
    return str(op.Where(op.Less(quotient, 0.0), op.Ceil(quotient), op.Floor(quotient)))


@operator("Square")
def square(op: Body, x: str) -> str:
    """Multiply by itself."""
    return str(op.Mul(x, x))


@operator("AbsGrad")
def abs_grad(op: Body, x: str, dy: str) -> str:
    """Return dy with the sign of x."""
    return str(op.Mul(dy, op.Sign(x)))


@operator("SqrtGrad")
def sqrt_grad(op: Body, y: str, dy: str) -> str:
    """Return dy / 2y."""
    return str(op.Div(op.Mul(dy, 0.5), y))


@operator("ReciprocalGrad")
def reciprocal_grad(op: Body, y: str, dy: str) -> str:
    """Return -dy y²."""
    return str(op.Mul(op.Neg(dy), op.Mul(y, y)))


@operator("AsinGrad")
def asin_grad(op: Body, x: str, dy: str) -> str:
    """Return dy / sqrt(1 - x²)."""
    return str(op.Div(dy, op.Sqrt(op.Sub(1.0, op.Mul(x, x)))))


@operator("ACosGrad")
def acos_grad(op: Body, x: str, dy: str) -> str:
    """Return -dy / sqrt(1 - x²)."""
    return str(op.Neg(op.Div(dy, op.Sqrt(op.Sub(1.0, op.Mul(x, x))))))


@operator("AtanGrad")
def atan_grad(op: Body, x: str, dy: str) -> str:
    """Return dy / (1 + x²)."""
    return str(op.Div(dy, op.Add(op.Mul(x, x), 1.0)))


@operator("AsinhGrad")
def asinh_grad(op: Body, y: str, dy: str) -> str:
    """Return dy / cosh(y)."""
    cosh = op.Mul(op.Add(op.Exp(y), op.Exp(op.Neg(y))), 0.5)
    return str(op.Div(dy, cosh))


@operator("AcoshGrad")
def acosh_grad(op: Body, y: str, dy: str) -> str:
    """Return dy / sinh(y)."""
    # as exponentials: runtimes have hyperbolic functions in few element types
    sinh = op.Mul(op.Sub(op.Exp(y), op.Exp(op.Neg(y))), 0.5)
    return str(op.Div(dy, sinh))
