"""Tensors of a dump by their statistics: the saved ones, and those that their elements tell."""
