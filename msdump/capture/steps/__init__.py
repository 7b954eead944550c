"""What every tensor walks through, whichever mode dumps it: records, the steps over them, and their lists."""
