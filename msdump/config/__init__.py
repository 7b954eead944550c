"""JSON configurations of every vendor format, read into a DumpPlan."""
