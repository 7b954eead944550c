"""Sinks and files: complete or not there at all, in order, within their budget."""
