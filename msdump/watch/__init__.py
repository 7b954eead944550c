"""Watch rules: conditions on tensors, which rules select by operator and role, checked step after step."""
