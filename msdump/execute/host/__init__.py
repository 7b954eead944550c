"""Operators that the host runs between the kernels: collectives, the device's overflow status."""
