"""The comparison of dumps by their statistics: of rows with rows, and with tensors that are measured."""
