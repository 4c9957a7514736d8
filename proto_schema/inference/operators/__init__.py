"""Rows of inference: elements, places, control of what runs."""
