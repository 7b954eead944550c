"""What is done to the message of a model before a graph is built from it."""
