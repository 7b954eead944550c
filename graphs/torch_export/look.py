# ruff: noqa: INP001, T201 - a script, not a package
"""Print the first tensor of a dump that is not finite, and its neighbours: ``look.py DUMP``."""

from __future__ import annotations

import sys

import msdump

first = msdump.open_dump(sys.argv[1]).first_nonfinite()
if first is None:
    print("all tensors are finite")
else:
    stats = first.stats
    print(f"{first}: max {stats.max:g}, {stats['positive inf count']} of {stats['count']} are inf")
    print(f"made by   {first.source}")
    for giver in first.inputs_from:
        print(f"reads     {giver}: max {max(record.stats.max for record in giver.outputs):g}")
    for reader in first.used_by:
        print(f"read by   {reader}")
