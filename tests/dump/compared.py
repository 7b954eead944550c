"""What ``msdump compare`` says of two dumps, asked through the command."""

from __future__ import annotations

import json

from click.testing import CliRunner

from msdump.cli import main

ACCUSING = {"own", "weight", "nonfinite", "shape", "dtype", "missing", "replaced", "unchecked"}


def document(mine, golden, *options):
    """Return the exit code of ``msdump compare``, and its document."""
    arguments = ["compare", str(mine), str(golden), "-out", str(mine.parent / "out"), "--json", *options]
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, json.loads(done.stdout)


def accused(mine, golden, *options):
    """Return verdict and last component of the name of each operator that is accused or not compared."""
    _, told = document(mine, golden, *options)
    return [
        (each["verdict"], each["operator"].replace("_", "/").rpartition("/")[2])
        for each in told["operators"]
        if each["verdict"] in ACCUSING
    ]
