"""Operator rows, one file a theme, as in purexport/lowering."""
