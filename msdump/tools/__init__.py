"""Programs over finished dumps and plans."""
