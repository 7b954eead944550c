"""Where files stand, how they are named, written and found again; knows no tensors."""
