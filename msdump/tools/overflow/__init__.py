"""The records of overflows, joined to the files of their operators."""
