# ruff: noqa: INP001 - a script, not a package
"""Join a dump configuration with a fragment of ``diff --advise``: ``join.py CONFIG FRAGMENT JOINED``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

config, fragment = (json.loads(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:3])
config["msdump"] |= fragment["msdump"]
Path(sys.argv[3]).write_text(json.dumps(config, indent=2), encoding="utf-8")
