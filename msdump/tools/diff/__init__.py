"""Two networks in lockstep, operator by operator, without files: which operator makes them differ."""
