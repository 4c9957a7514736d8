"""What every ONNX operator computes, in numpy: one row an operator, in one file a theme.

`rows` says how a row is declared, and `call` what it sees of its node.
"""
