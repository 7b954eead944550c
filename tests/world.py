"""The door to the program for tests."""

from click.testing import CliRunner

from msdump.cli import main


def cli(*arguments):
    """Run the program in this process; return its exit code and texts, as click gives them."""
    return CliRunner().invoke(main, [*map(str, arguments)])
