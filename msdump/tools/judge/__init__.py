"""Whose error it is: how far tensors are apart, limits, verdicts on tensors and operators, the report."""
