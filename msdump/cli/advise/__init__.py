"""The option --advise of msdump diff: which operators to keep in a wider type."""
