"""The APIs that users of the vendors' systems know."""
