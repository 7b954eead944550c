"""Segments: operators that follow one another as one session, where nobody needs to stand between them."""
