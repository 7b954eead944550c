"""Half types in training: which operators compute in them, casts around others, scales of the loss."""
