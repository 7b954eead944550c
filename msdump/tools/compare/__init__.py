"""Two dumps, or a dump and golden tensors, tensor by tensor."""
