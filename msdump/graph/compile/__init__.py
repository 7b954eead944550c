"""The graph that Ascend O1, O2 and acl run: folded, fused, rewired."""
