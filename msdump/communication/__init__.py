"""Ranks: which one this is, groups of them, and the collectives by which they exchange tensors."""
