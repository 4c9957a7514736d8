"""The verbs of the command line: a file a verb, with `add_parser` and `run`."""
