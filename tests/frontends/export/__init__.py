"""Tests of the route by torch.export."""
