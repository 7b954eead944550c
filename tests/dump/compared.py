"""Results of ``msdump compare`` on two dumps, through the command."""

import csv
import json

from tests.world import cli

FAULTS = {"own", "weight", "nonfinite", "shape", "dtype", "missing", "extra", "replaced"}
ACCUSING = FAULTS | {"unchecked"}


def command(mine, golden, *options):
    """Return the result of ``msdump compare``."""
    return cli("compare", mine, golden, "-out", mine.parent / "out", *options)


def table(mine, golden, *options):
    """Return exit code, printed lines by their first words, and rows of the table."""
    done = command(mine, golden, *options)
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line[:1].isalpha())
    text = max((mine.parent / "out").glob("compare_*.csv")).read_text(encoding="utf-8")
    return done.exit_code, lines, list(csv.DictReader(text.splitlines()))


def document(mine, golden, *options):
    """Return the exit code, and the document."""
    done = command(mine, golden, "--json", *options)
    return done.exit_code, json.loads(done.stdout)


def faults(report, key="operator"):
    """Return a key of each operator of a document that is accused."""
    return [each[key] for each in report["operators"] if each["verdict"] in FAULTS]


def accused(mine, golden, *options):
    """Return verdict and last component of the name of each operator that is accused or not compared."""
    _, told = document(mine, golden, *options)
    return [
        (each["verdict"], each["operator"].replace("_", "/").rpartition("/")[2])
        for each in told["operators"]
        if each["verdict"] in ACCUSING
    ]
