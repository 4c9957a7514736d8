"""Operator rows, one file a theme, in the folders of purexport/lowering."""
