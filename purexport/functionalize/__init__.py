"""Functionalization: in-place operators and writes through views become pure calls."""
