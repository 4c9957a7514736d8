"""Models from one opset to another: one row for each change of an operator, in one file a theme.

`rows` says how a row is declared, `writer` what it writes with, and `engine` walks over a model.
"""
