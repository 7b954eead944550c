"""One tensor looked at closely: its numbers, where what stands out lies, a picture of it."""
