"""Symbolic sizes: torch's shape functions run on fake tensors, one call at a time or over a whole graph."""
