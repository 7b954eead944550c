"""Why an input or output of an operator has the files that a dump holds of it, or none."""
