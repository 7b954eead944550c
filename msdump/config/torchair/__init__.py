"""Options of GE behind torch.compile: their names, and the plan that follows."""
