"""Symbolic sizes of torch: its shape functions run on fake tensors, one call at a time."""
