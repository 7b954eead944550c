"""The emulated Ascend device: memory formats, precision, placement, memory."""
