"""Tools on the bytes of files."""
