"""CANN's ``msaccucmp.py convert`` on any computer."""

from __future__ import annotations

from msdump.cli.accucmp import main

if __name__ == "__main__":
    main()
