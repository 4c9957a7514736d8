"""Weights from anywhere: the readers of checkpoints, one by one and together."""
