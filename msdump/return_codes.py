"""The return codes of CANN's msaccucmp, which are its exit codes too."""

from __future__ import annotations

import enum


class ReturnCode(enum.IntEnum):
    """Return codes by their meaning; the numbers are the vendor's, so scripts may rely on them."""

    # Numbers between these are the vendor's for errors that cannot happen here.
    DONE = 0
    UNKNOWN = 1
    NO_DUMP_FILE = 2
    """An operator has no file on one side."""
    PATH = 3
    PARSE = 4
    PARAMETER = 6
    """An option that is missing, unknown, or not allowed beside another."""
    OPEN = 7
    DUMP_DATA = 11
    """A file or a tensor that is corrupt, or does not fit its counterpart."""
    INDEX = 12
    JSON = 13
    FILE_NAME = 18
    """No file of a directory has the name of a dump file, or the directory holds several kinds."""
    WRITE = 19
    DUMP_KIND = 20
    """The two directories cannot be compared with each other."""
    DATA_TYPE = 21
    FORMAT = 22
    SHAPE = 23
    FILE_TYPE = 24
    CONVERT_FUNCTION = 26
    JSON_CONTENT = 29
    UNSUPPORTED = 30
    ALGORITHM = 31
    FRACTAL_NZ = 34
    OVERFLOW_TYPE = 35
    OVERFLOW_STATUS = 36
    SHAPE_MISMATCH = 40
    UNSAFE_FILE = 46
