"""Sizes under dynamic axes."""
