"""One operator of a dump as a folder that reproduces it: its model, its tensors, and a script."""
