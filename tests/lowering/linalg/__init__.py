"""Operator rows for purexport/lowering/linalg."""
