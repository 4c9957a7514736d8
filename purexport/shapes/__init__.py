"""Sizes as expressions: torch's shape functions on fake tensors, and functions for what those cannot do."""
