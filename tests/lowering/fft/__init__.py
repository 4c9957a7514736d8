"""Operator rows for purexport/lowering/fft."""
