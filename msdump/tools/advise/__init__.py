"""Which operators to keep in a wider type, so that a network's outputs stay near the truth."""
