"""The graphs of a dump, read from the dump's own files: operators, and what each of them reads."""
