"""``python -m msdump``: the command line, where the program msdump is not on the path."""

from msdump.cli import main

if __name__ == "__main__":  # workers of mpi4py.futures import the program that they work for
    main()
