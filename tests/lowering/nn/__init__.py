"""Operator rows for purexport/lowering/nn."""
