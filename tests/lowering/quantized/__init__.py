"""Operator rows for purexport/lowering/quantized."""
