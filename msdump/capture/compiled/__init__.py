"""Dumps of compiled graphs (O2, GE, acl): held tensors, operators' files, the watcher, failing operators."""
