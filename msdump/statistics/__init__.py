"""What a statistic is: its names, its column, and how host and device get it; nothing here is measured."""
