"""Payloads that are made from others when they are written: elements in another order, or in another data type."""
