"""Operator rows for purexport/lowering/vision."""
