"""What commands print with ``--json``: one document each, a pydantic model from which its schema derives."""
