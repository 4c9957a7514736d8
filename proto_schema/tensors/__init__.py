"""Tensors: arrays and the bytes of messages, data types, and the numbers of small floats."""
