"""Rows of inference: layers of networks, and themes with an arithmetic of their own."""
