"""Codes, scales and zero points of weights: the numbers, and payloads of them."""
