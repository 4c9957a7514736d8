"""Rewriting the neutral graph: calls or small patterns that a target has one operator for become one call."""
