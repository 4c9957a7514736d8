"""Convolutions and poolings of dtypes without a kernel."""
