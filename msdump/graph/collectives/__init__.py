"""Operators that exchange tensors between ranks: their names and attributes, and the types they give."""
