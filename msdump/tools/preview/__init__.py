"""What a configuration would do to a model: in words, by operator, in files and bytes."""
