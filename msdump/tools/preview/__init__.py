"""Previews of what a configuration does to a model: in words, by operator, in files and bytes."""
