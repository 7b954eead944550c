"""Which tensors belong together: directories, names, fusion rules, layouts."""
