"""Models as files: what a training step is made of, and what is written of it."""
