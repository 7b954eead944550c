"""Files of dumps that tests of the reader write."""


def put(path, data):
    """Write a file, a text or bytes, and the directories above it; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)
