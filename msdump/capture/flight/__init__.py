"""What watches a run: rules on its tensors, and the last steps, kept until something happens."""
