"""Weights that come from outside: what they replace in a model and in a graph."""
