"""What a report tells, in the forms that other programs show: Model Explorer, Netron, TensorBoard."""
