"""Operator rows for purexport/lowering/tensor."""
