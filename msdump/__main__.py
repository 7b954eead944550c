"""``python -m msdump``: the command line, where the program msdump is not on the path."""

from msdump.cli import main

main()
