"""The verbs of the command line: one file per verb, with `add_parser` and `run`."""
