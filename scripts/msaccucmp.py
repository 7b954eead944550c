"""CANN's msaccucmp on any computer: ``msaccucmp.py {compare,convert,overflow,file_compare}``."""

from __future__ import annotations

from msdump.cli.accucmp import main

if __name__ == "__main__":
    main()
