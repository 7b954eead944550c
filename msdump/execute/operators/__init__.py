"""Single operators of a network, run on given arrays: once more after a dump, or on another side's inputs."""
