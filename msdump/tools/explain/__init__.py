"""Explanations why inputs and outputs of an operator have their files in a dump, or none."""
