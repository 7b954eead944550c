"""What a training step needs beside a program: variables, and the search for values that are not finite."""
