"""Statistics of tensors: one table of them, one pass over the elements, rows for the csv files."""
