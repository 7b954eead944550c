"""Dump files of compiled graphs as arrays that numpy loads, with CANN's options and names."""
