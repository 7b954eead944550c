"""Dumps read back: trees, executions, records, tables."""
