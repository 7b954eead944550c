"""Whose numbers differ first: agreement by the limits of the element type, verdicts, the report."""
