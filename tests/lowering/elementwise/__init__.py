"""Operator rows for purexport/lowering/elementwise."""
