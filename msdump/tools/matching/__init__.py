"""Which operators of two networks belong together, though the networks share no names."""
