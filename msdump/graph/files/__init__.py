"""Graphs as MindSpore's files and drawings show them."""
