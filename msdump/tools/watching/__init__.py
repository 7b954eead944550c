"""Watch rules on finished dumps: every tensor, or row of statistics, is looked at once for all rules."""
