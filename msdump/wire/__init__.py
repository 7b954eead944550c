"""Protobuf's wire format: the room in which its numbers and fields are written and read."""
