"""The emulated device's memory while a network runs: measured, recognised, overwritten by faulty kernels."""
